// Bytes written by hand from each layout's description.
#include <set>
#include <string_view>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/layouts/test_images.h"

namespace assay::kernels {
namespace {

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

// A tile is 16 rows, so these say only what is not padding.
struct SparseGolden {
  std::string_view tag, method, part;
  StoredShape shape;
  int zero;  // every byte of the checkpoint that no run names; and of the layout
  std::vector<ByteRun> row;
  int64_t bytes;
  std::vector<ByteRun> packed;
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

Image RowSide(const SparseGolden& golden) {
  const StoredShape& shape = golden.shape;
  return Written(golden.row, golden.zero, shape.rows * shape.columns * SizeOf(shape.dtype).count());
}

TEST(Golden, PacksToIt) {
  std::set<const Layout*> rows16;
  for (const Golden& golden : kGoldens) {
    const Layout* layout = FindLayout(golden.tag, golden.method, golden.part);
    ASSERT_NE(layout, nullptr) << golden.tag;
    ASSERT_EQ(layout->bytes(golden.shape), static_cast<int64_t>(golden.packed.size()));
    EXPECT_EQ(Pack(layout->pack, golden.shape, Bytes(golden.row), layout->bytes(golden.shape)),
              Bytes(golden.packed))
        << golden.tag << " " << golden.part;
  }
  for (const SparseGolden& golden : kSparse) {
    const Layout* layout = FindLayout(golden.tag, golden.method, golden.part);
    ASSERT_NE(layout, nullptr) << golden.tag << " " << golden.method;
    if (golden.tag == "rows16") rows16.insert(layout);
    ASSERT_EQ(layout->bytes(golden.shape), golden.bytes) << golden.method << " " << golden.part;
    EXPECT_EQ(Pack(layout->pack, golden.shape, RowSide(golden), golden.bytes),
              Written(golden.packed, golden.zero, golden.bytes))
        << golden.method << " " << golden.part;
  }
  EXPECT_EQ(rows16.size(), 6U) << "every kind of rows16 has one";
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

// Layouts that no engine's bytes are there for, by their description; and where padding goes.
TEST(Golden, VnniHoldsFourValuesOfARowInALane) {
  // Row 0: 1…5, row 1: 6…10; a lane is four bytes, 16 rows a tile.
  const Image row = Bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const StoredShape shape{DType::kI8, 2, 5};
  const std::vector<ByteRun> runs = {{0, {1, 2, 3, 4, 6, 7, 8, 9}}, {64, {5, 0, 0, 0, 10}}};
  const Layout* vnni = FindLayout("vnni", "ct-w8a8-channel", "weight");
  ASSERT_EQ(vnni->bytes(shape), 128);
  EXPECT_EQ(Pack(vnni->pack, shape, row, 128), Written(runs, 0, 128));
  // An AMX tile is 16 lanes of 16 rows.
  const Layout* amx = FindLayout("amx", "ct-w8a8-channel", "weight");
  ASSERT_EQ(amx->bytes(shape), 1024);
  EXPECT_EQ(Pack(amx->pack, shape, row, 1024), Written(runs, 0, 1024));
}

TEST(Golden, VnniHoldsPairsOf16BitValues) {
  const Image row = Bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});  // 2 rows of 3
  const StoredShape shape{DType::kBF16, 2, 3};
  const Layout* vnni = FindLayout("vnni", "bf16", "weight");
  ASSERT_EQ(vnni->bytes(shape), 128);
  EXPECT_EQ(Pack(vnni->pack, shape, row, 128),
            Written({{0, {1, 2, 3, 4, 7, 8, 9, 10}}, {64, {5, 6, 0, 0, 11, 12}}}, 0, 128));
}

TEST(Golden, AmxTilesFollowOneAnotherAlongKThenN) {
  // 17 rows of 65 bytes: four tiles. Byte 64 of row 0 begins the second, row 16 the third.
  const StoredShape shape{DType::kI8, 17, 65};
  const Image row = Written({{63, {1, 2}}, {16 * 65, {3}}, {16 * 65 + 64, {4}}}, 0, 17 * 65);
  const Layout* amx = FindLayout("amx", "ct-w8a8-channel", "weight");
  ASSERT_EQ(amx->bytes(shape), 4096);
  EXPECT_EQ(Pack(amx->pack, shape, row, 4096),
            Written({{15 * 64 + 3, {1}}, {1024, {2}}, {2048, {3}}, {3072, {4}}}, 0, 4096));
  const Layout* vnni = FindLayout("vnni", "ct-w8a8-channel", "weight");
  EXPECT_EQ(vnni->bytes(shape), 2 * 17 * 64) << "vnni pads K to four bytes only";
}

TEST(Golden, KTilesHoldAllRowsOf64Bytes) {
  const StoredShape shape{DType::kI8, 3, 66};
  const Image row = Written({{63, {1, 2, 3}}, {66, {4}}, {2 * 66 + 65, {5}}}, 0, 3 * 66);
  const Layout* ktile = FindLayout("ktile", "ct-w8a8-channel", "weight");
  ASSERT_EQ(ktile->bytes(shape), 2 * 3 * 64);
  EXPECT_EQ(Pack(ktile->pack, shape, row, 384),
            Written({{63, {1}}, {64, {4}}, {192, {2, 3}}, {192 + 128 + 1, {5}}}, 0, 384));
  // A tile of blocks is one block.
  const StoredShape blocks{DType::kQ8_0, 2, 2};
  const Image q8 = Written({{0, {1}}, {34, {2}}, {68, {3}}, {102, {4}}}, 0, 136);
  const Layout* gguf = FindLayout("ktile", "gguf-q8_0", "weight");
  ASSERT_EQ(gguf->bytes(blocks), 136);
  EXPECT_EQ(Pack(gguf->pack, blocks, q8, 136),
            Written({{0, {1}}, {34, {3}}, {68, {2}}, {102, {4}}}, 0, 136));
}

TEST(Golden, GateAndUpRowsAlternate) {
  const Layout* rows = FindLayout("gate-up-rows", "bf16", "bias");
  const StoredShape shape{DType::kBF16, 4, 1};
  EXPECT_EQ(Pack(rows->pack, shape, Bytes({1, 2, 3, 4, 5, 6, 7, 8}), 8),
            Bytes({1, 2, 5, 6, 3, 4, 7, 8}));
  EXPECT_EQ(rows->bytes({DType::kBF16, 3, 1}), -1);
}

// Both halves are padded by themselves: with the end of the whole padded, gate and up would mix.
TEST(Golden, InterleavedTilesPadGateAndUpEach) {
  const Layout* aiter = FindLayout("aiter-interleaved", "ct-mxfp4", "weight");
  const StoredShape shape{DType::kU8, 4, 1};
  ASSERT_EQ(aiter->bytes(shape), 2 * 16 * 64);
  EXPECT_EQ(Pack(aiter->pack, shape, Bytes({1, 2, 3, 4}), 2048),
            Written({{0, {1}}, {16, {2}}, {1024, {3}}, {1040, {4}}}, 0, 2048));
}

}  // namespace
}  // namespace assay::kernels
