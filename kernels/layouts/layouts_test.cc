#include "kernels/layouts/layouts.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(layout.bytes(ShapeFor(layout, 1, huge)), -1);
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
    {"i4-split16",
     "ct-int4-g32",
     "scale",
     {DType::kBF16, 1, 3},
     {1, 2, 3, 4, 5, 6},
     {1, 2, 3, 4, 5, 6}},
    // One group. Elements 0…7 are codes 0…7, 8…15 are 8…15 (each byte of a word holds an even
    // element low, the next one high), 16…23 are 15 down to 8, 24…31 are all 3.
    {"i4-split16",
     "ct-int4-g32",
     "weight",
     {DType::kI32, 1, 4},
     {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0xEF, 0xCD, 0xAB, 0x89, 0x33, 0x33, 0x33,
      0x33},
     {0xF0, 0xE1, 0xD2, 0xC3, 0xB4, 0xA5, 0x96, 0x87, 0x38, 0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E,
      0x3F}},
    // Two rows of three words: the missing fourth word's elements, 24…31, are code 8 (value 0).
    {"i4-split16",
     "ct-int4-g32",
     "weight",
     {DType::kI32, 2, 3},
     {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE, 0x11, 0x11, 0x11, 0x11,
      0x00, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xFF, 0xFF, 0x21, 0x43, 0x65, 0x87},
     {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x88, 0x89, 0x8A,
      0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60,
      0x70, 0x80, 0x8F, 0x8F, 0x8F, 0x8F, 0x8F, 0x8F, 0x8F, 0x8F}},
};

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
  EXPECT_EQ(seen.size(), Layouts().size());
}

// A bijection that is not the layout: halves exchanged.
void PackWithHalvesExchanged(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const Layout* layout = FindLayout("i4-split16", "ct-int4-g32", "weight");
  layout->pack(shape, in, out);
  for (int64_t i = 0; i < layout->bytes(shape); ++i) out[i] = out[i] << 4 | out[i] >> 4;
}

TEST(Golden, CatchesABijectionThatIsNotTheLayout) {
  for (const Golden& golden : kGoldens) {
    if (golden.tag != "i4-split16" || golden.part != "weight") continue;
    EXPECT_NE(Pack(PackWithHalvesExchanged, golden.shape, Bytes(golden.row),
                   static_cast<int64_t>(golden.packed.size())),
              Bytes(golden.packed));
  }
}

TEST(FindLayout, KnowsOnlyWhatIsInTheTable) {
  EXPECT_EQ(FindLayout("i4-split16", "bf16", "weight"), nullptr);
  EXPECT_EQ(FindLayout("row", "bf16", "scale"), nullptr);
  EXPECT_EQ(FindLayout("ROW", "bf16", "weight"), nullptr);
  EXPECT_NE(FindLayout("row", "bf16", "weight"), nullptr);
}

}  // namespace
}  // namespace assay::kernels
