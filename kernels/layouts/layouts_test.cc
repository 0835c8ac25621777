#include "kernels/layouts/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace assay::kernels {
namespace {

using Image = std::vector<std::byte>;

Image Bytes(const std::vector<int>& values) {
  Image image;
  for (const int value : values) image.push_back(static_cast<std::byte>(value));
  return image;
}

Image RandomBytes(size_t count, uint32_t seed) {
  Image image(count);
  for (std::byte& b : image) {
    seed = seed * 1664525 + 1013904223;
    b = static_cast<std::byte>(seed >> 24);
  }
  return image;
}

StoredShape ShapeFor(const Layout& layout, int64_t rows, int64_t columns) {
  const bool weight = layout.part == "weight";
  DType dtype = DType::kBF16;
  if (layout.method == "ct-int4-g32" && weight) dtype = DType::kI32;
  if (layout.method == "deepseek-v4-mxfp4") dtype = weight ? DType::kI8 : DType::kF8E8M0;
  if (layout.method == "gguf-q4_1") dtype = DType::kQ4_1;
  if (layout.method == "gguf-q8_0") dtype = DType::kQ8_0;
  return {dtype, rows, columns};
}

using RepackFn = void (*)(const StoredShape&, const std::byte*, std::byte*);

// The packed bytes, between two guards that nobody may write.
Image Pack(RepackFn pack, const StoredShape& shape, const Image& in, int64_t bytes) {
  constexpr size_t kGuard = 32;
  Image out(static_cast<size_t>(bytes) + 2 * kGuard, std::byte{0xA5});
  pack(shape, in.data(), out.data() + kGuard);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[i], std::byte{0xA5}) << "before the output";
    EXPECT_EQ(out[out.size() - 1 - i], std::byte{0xA5}) << "behind the output";
  }
  return {out.begin() + kGuard, out.end() - kGuard};
}

class EveryLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, UnpackIsTheInverseOfPackForEveryShape) {
  const Layout& layout = GetParam();
  uint32_t seed = 1;
  for (int64_t rows : {0, 1, 2, 3, 8, 15, 16, 17, 33}) {
    for (int64_t columns : {0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 28, 31, 33, 64, 65}) {
      const StoredShape shape = ShapeFor(layout, rows, columns);
      const Image in =
          RandomBytes(static_cast<size_t>(rows * columns * SizeOf(shape.dtype).count()), ++seed);
      const int64_t bytes = layout.bytes(shape);
      ASSERT_GE(bytes, static_cast<int64_t>(in.size()));
      const Image packed = Pack(layout.pack, shape, in, bytes);
      ASSERT_EQ(Pack(layout.unpack, shape, packed, static_cast<int64_t>(in.size())), in)
          << rows << " x " << columns;
    }
  }
}

TEST_P(EveryLayout, RefusesShapesThatItCannotHold) {
  const Layout& layout = GetParam();
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(layout.bytes(ShapeFor(layout, -1, 4)), -1);
  EXPECT_EQ(layout.bytes(ShapeFor(layout, 4, -1)), -1);
  EXPECT_EQ(layout.bytes(ShapeFor(layout, huge, huge)), -1);
  EXPECT_EQ(layout.bytes(ShapeFor(layout, 3, huge)), -1);
  EXPECT_EQ(layout.bytes(ShapeFor(layout, huge / 2, 4)), -1);
  StoredShape other = ShapeFor(layout, 4, 4);
  other.dtype = DType::kF32;
  EXPECT_EQ(layout.bytes(other), -1);
}

INSTANTIATE_TEST_SUITE_P(Table, EveryLayout,
                         ::testing::ValuesIn(Layouts().begin(), Layouts().end()),
                         [](const auto& test) {
                           std::string name = std::string(test.param.tag) + "_" +
                                              std::string(test.param.method) + "_" +
                                              std::string(test.param.part);
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

// Bytes written by hand from each layout's description: any bijection passes the round trip.
struct Golden {
  std::string_view tag, method, part;
  StoredShape shape;
  std::vector<int> row, packed;
};

std::vector<int> Counting(int count) {
  std::vector<int> values;
  for (int i = 1; i <= count; ++i) values.push_back(i);
  return values;
}

const Golden kGoldens[] = {
    {"row",
     "bf16",
     "weight",
     {DType::kBF16, 2, 2},
     {1, 2, 3, 4, 5, 6, 7, 8},
     {1, 2, 3, 4, 5, 6, 7, 8}},
    {"row",
     "ct-int4-g32",
     "weight",
     {DType::kI32, 2, 1},
     {1, 2, 3, 4, 5, 6, 7, 8},
     {1, 2, 3, 4, 5, 6, 7, 8}},
    {"row", "ct-int4-g32", "scale", {DType::kBF16, 1, 3}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
    {"row", "deepseek-v4-mxfp4", "weight", {DType::kI8, 2, 2}, {1, 2, 3, 4}, {1, 2, 3, 4}},
    {"row", "deepseek-v4-mxfp4", "scale", {DType::kF8E8M0, 1, 3}, {0, 255, 7}, {0, 255, 7}},
    {"row", "gguf-q4_1", "weight", {DType::kQ4_1, 1, 1}, Counting(20), Counting(20)},
    {"row", "gguf-q8_0", "weight", {DType::kQ8_0, 1, 1}, Counting(34), Counting(34)},
};

// A tile is 16 rows, so these say only what is not padding: a run of bytes at a place, in the
// checkpoint and in the layout.
struct Run {
  int64_t at;
  std::vector<int> bytes;
};
struct SparseGolden {
  std::string_view tag, method, part;
  StoredShape shape;
  int zero;  // every byte of the checkpoint that no run names; and of the layout
  std::vector<Run> row;
  int64_t bytes;
  std::vector<Run> packed;
};

const SparseGolden kSparse[] = {
    // Row 0: elements 0…7 are codes 0…7. Row 16, the first of the second tile: elements 24…31 of
    // the second group are codes 8…15. Byte j of a part has element j low and element j + 4 high.
    {"rows16",
     "ct-int4-g32",
     "weight",
     {DType::kI32, 17, 8},
     0x88,
     {{0, {0x10, 0x32, 0x54, 0x76}}, {16 * 32 + 28, {0x98, 0xBA, 0xDC, 0xFE}}},
     2 * 2 * 256,
     {{0, {0x40, 0x51, 0x62, 0x73}}, {512 + 256 + 3 * 64, {0xC8, 0xD9, 0xEA, 0xFB}}}},
    // The same codes; of row 1 the last byte too.
    {"rows16",
     "deepseek-v4-mxfp4",
     "weight",
     {DType::kI8, 17, 32},
     0,
     {{0, {0x10, 0x32, 0x54, 0x76}}, {32 + 31, {0xA5}}, {16 * 32 + 28, {0x98, 0xBA, 0xDC, 0xFE}}},
     2 * 2 * 256,
     {{0, {0x40, 0x51, 0x62, 0x73}},
      {256 + 3 * 64 + 4 + 2, {0x50, 0xA0}},
      {512 + 256 + 3 * 64, {0xC8, 0xD9, 0xEA, 0xFB}}}},
    // Three groups of 17 rows: rows 0 and 1 side by side, row 16 in the second tile.
    {"rows16",
     "ct-int4-g32",
     "scale",
     {DType::kBF16, 17, 3},
     0,
     {{0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {16 * 6, {21, 22, 23, 24, 25, 26}}},
     2 * 3 * 32,
     {{0, {1, 2, 7, 8}},
      {32, {3, 4, 9, 10}},
      {64, {5, 6, 11, 12}},
      {96, {21, 22}},
      {128, {23, 24}},
      {160, {25, 26}}}},
    {"rows16",
     "deepseek-v4-mxfp4",
     "scale",
     {DType::kF8E8M0, 17, 3},
     0,
     {{0, {1, 2, 3, 4, 5, 255}}, {16 * 3, {21, 22, 23}}},
     2 * 3 * 16,
     {{0, {1, 4}}, {16, {2, 5}}, {32, {3, 255}}, {48, {21}}, {64, {22}}, {80, {23}}}},
    // Block 1 of row 1 and block 0 of row 16: d, m, then bytes whose low nibbles are elements 0…15
    // and whose high ones are 16…31. Codes of a tile come first, then its scales.
    {"rows16",
     "gguf-q4_1",
     "weight",
     {DType::kQ4_1, 17, 2},
     0,
     {{40 + 20, {1, 2, 3, 4, 0x80, 0x91, 0xA2, 0xB3, 0xC4, 0xD5, 0xE6, 0xF7}},
      {16 * 40, {5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12}}},
     2 * 2 * 320,
     {{256 + 4, {0x40, 0x51, 0x62, 0x73}},           // elements 0…7: codes 0…7
      {256 + 2 * 64 + 4, {0xC8, 0xD9, 0xEA, 0xFB}},  // elements 16…23: codes 8…15
      {512 + 64 + 2, {1, 2}},
      {512 + 64 + 32 + 2, {3, 4}},
      {640 + 64 + 3, {0x20}},      // element 15, the high one of part 1
      {640 + 3 * 64 + 3, {0x10}},  // element 31
      {640 + 512, {5, 6}},
      {640 + 512 + 32, {7, 8}}}},
    // Block 1 of row 1 and block 0 of row 16.
    {"rows16",
     "gguf-q8_0",
     "weight",
     {DType::kQ8_0, 17, 2},
     0,
     {{68 + 34, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {16 * 68, {11, 12}}, {16 * 68 + 33, {0x80}}},
     2 * 2 * 544,
     {{512 + 4, {3, 4, 5, 6}},
      {512 + 64 + 4, {7, 8, 9, 10}},
      {1024 + 32 + 2, {1, 2}},
      {1088 + 7 * 64 + 3, {0x80}},
      {1088 + 1024, {11, 12}}}},
};

Image Written(const std::vector<Run>& runs, int zero, int64_t bytes) {
  Image image(static_cast<size_t>(bytes), static_cast<std::byte>(zero));
  for (const Run& run : runs) {
    const Image part = Bytes(run.bytes);
    std::copy(part.begin(), part.end(), image.begin() + run.at);
  }
  return image;
}

Image RowSide(const SparseGolden& golden) {
  const StoredShape& shape = golden.shape;
  return Written(golden.row, golden.zero, shape.rows * shape.columns * SizeOf(shape.dtype).count());
}

TEST(Golden, EveryLayoutHasOneAndPacksToIt) {
  std::set<const Layout*> seen;
  for (const Golden& golden : kGoldens) {
    const Layout* layout = FindLayout(golden.tag, golden.method, golden.part);
    ASSERT_NE(layout, nullptr) << golden.tag;
    seen.insert(layout);
    ASSERT_EQ(layout->bytes(golden.shape), static_cast<int64_t>(golden.packed.size()));
    EXPECT_EQ(Pack(layout->pack, golden.shape, Bytes(golden.row), layout->bytes(golden.shape)),
              Bytes(golden.packed))
        << golden.tag << " " << golden.part;
  }
  for (const SparseGolden& golden : kSparse) {
    const Layout* layout = FindLayout(golden.tag, golden.method, golden.part);
    ASSERT_NE(layout, nullptr) << golden.tag << " " << golden.method;
    seen.insert(layout);
    ASSERT_EQ(layout->bytes(golden.shape), golden.bytes) << golden.method << " " << golden.part;
    EXPECT_EQ(Pack(layout->pack, golden.shape, RowSide(golden), golden.bytes),
              Written(golden.packed, golden.zero, golden.bytes))
        << golden.method << " " << golden.part;
  }
  EXPECT_EQ(seen.size(), Layouts().size());
}

// A bijection that is not the layout: halves of each byte exchanged.
void PackWithHalvesExchanged(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const Layout* layout = FindLayout("rows16", "ct-int4-g32", "weight");
  layout->pack(shape, in, out);
  for (int64_t i = 0; i < layout->bytes(shape); ++i) out[i] = out[i] << 4 | out[i] >> 4;
}

TEST(Golden, CatchesABijectionThatIsNotTheLayout) {
  int seen = 0;
  for (const SparseGolden& golden : kSparse) {
    if (golden.method != "ct-int4-g32" || golden.part != "weight") continue;
    ++seen;
    EXPECT_NE(Pack(PackWithHalvesExchanged, golden.shape, RowSide(golden), golden.bytes),
              Written(golden.packed, golden.zero, golden.bytes));
  }
  EXPECT_EQ(seen, 1);
}

TEST(FindLayout, KnowsOnlyWhatIsInTheTable) {
  EXPECT_EQ(FindLayout("rows16", "bf16", "weight"), nullptr);
  EXPECT_EQ(FindLayout("rows16", "gguf-q4_1", "scale"), nullptr);
  EXPECT_EQ(FindLayout("row", "bf16", "scale"), nullptr);
  EXPECT_EQ(FindLayout("ROW", "bf16", "weight"), nullptr);
  EXPECT_NE(FindLayout("row", "bf16", "weight"), nullptr);
}

}  // namespace
}  // namespace assay::kernels
