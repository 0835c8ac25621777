// Shards of blocks, stale shards, and pictures of shards.
#include <gtest/gtest.h>

#include "harness/judge/testing/test_model.h"
#include "harness/locate/internal.h"
#include "harness/locate/locate.h"

namespace assay::locate {
namespace {

using assay::testing::Engine;
using assay::testing::TestModel;
using reference::Slice;
using reference::Where;

constexpr char kUp[] = "L1.moe.e2.up.weight";
constexpr int64_t kRows = 6, kBlocks = 4, kBytes = 18;

// One component of Q4_0 blocks: 2 bytes of scale, 16 of codes; ranks cut rows.
class BlockModel : public TestModel {
 public:
  using TestModel::TestModel;
  std::vector<std::string> Components(int64_t) const override { return {kUp}; }
  Result<Slice> ExpectedSlice(std::string_view component, const Where& where) const override {
    if (component != kUp) return Error{"no such component"};
    Slice slice;
    slice.dtype = DType::kQ4_0;
    slice.unit = "block";
    slice.elements_per_column = 32;
    const int64_t each = where.rank < 0 ? kRows : kRows / where.degrees.tp;
    const int64_t first = where.rank < 0 ? 0 : where.rank * each;
    for (int64_t r = 0; r < each; ++r) slice.rows.push_back(first + r);
    for (int64_t c = 0; c < kBlocks; ++c) slice.columns.push_back(c);
    for (const int64_t r : slice.rows) {
      for (int64_t i = 0; i < kBlocks * kBytes; ++i) {
        slice.bytes.push_back(static_cast<std::byte>((r * 131 + i * 37 + r * i * 11 + 5) % 251));
      }
    }
    return slice;
  }
};

struct Rig {
  BlockModel model{3};
  ExportedShard shard;

  Rig() {
    const Slice slice = *model.ExpectedSlice(kUp, {{2, 2}, 1});
    shard = {"row", DType::kQ4_0, kRows / 2, 0, kRows / 2, kBlocks, slice.bytes};
  }
  ShardReport Compare() {
    EngineTrace trace;
    trace.shards[{kUp, 1}] = shard;
    auto report = CompareShards(
        model, trace, {{kUp, 1}}, {2, 2},
        [](const ShardKey&, const std::string&, const ExportedShard& s) {
          return Result<std::vector<std::byte>>(s.bytes);
        },
        nullptr);
    EXPECT_TRUE(report.ok());
    return *report;
  }
  std::byte& At(int64_t row, int64_t block, int64_t byte) {
    return shard.bytes[(row * kBlocks + block) * kBytes + byte];
  }
};

TEST(Blocks, RightOnesGiveNoFinding) { EXPECT_TRUE(Rig().Compare().findings.empty()); }

TEST(Blocks, AWrongByteIsOneBlocks) {
  Rig rig;
  rig.At(1, 2, 7) ^= std::byte{0xff};
  rig.At(1, 2, 9) ^= std::byte{0xff};
  const ShardReport report = rig.Compare();
  ASSERT_EQ(report.findings.size(), 1u);
  const ShardFinding& f = report.findings[0];
  EXPECT_EQ(f.unit, "block");
  EXPECT_EQ(f.wrong, 1);
  EXPECT_EQ(f.total, kRows / 2 * kBlocks);
  EXPECT_EQ(f.local_index, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(f.index, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(f.expected + f.got, 255);
  EXPECT_EQ(f.expected_bits.size(), 2u);
  ASSERT_TRUE(f.map);
  EXPECT_EQ(f.map->column_unit, "group");
  EXPECT_EQ(f.map->rows, kRows / 2);
  EXPECT_EQ(f.map->columns, kBlocks);
  for (int64_t i = 0; i < kRows / 2 * kBlocks; ++i) {
    EXPECT_EQ(f.map->cells[i], i == 1 * kBlocks + 2 ? 2.0 / kBytes : 0) << i;
  }
}

TEST(Blocks, NibblesOfCodesAndShifts) {
  Rig swapped;
  for (int64_t i = 0; i < kRows / 2 * kBlocks; ++i) {
    for (int64_t b = 2; b < kBytes; ++b) {
      std::byte& code = swapped.At(0, i, b);
      code = code << 4 | code >> 4;
    }
  }
  EXPECT_EQ(swapped.Compare().findings[0].signature.id, "nibble-swapped");
  Rig shifted;
  for (int64_t r = 0; r < kRows / 2; ++r) {
    for (int64_t i = 0; i < (kBlocks - 1) * kBytes; ++i) {
      shifted.At(r, 0, i) = shifted.At(r, 1, i);
    }
    for (int64_t i = 0; i < kBytes; ++i) shifted.At(r, kBlocks - 1, i) = std::byte{77};
  }
  EXPECT_EQ(shifted.Compare().findings[0].signature.id, "shift-by-a-group");
  Rig zero;
  for (std::byte& b : zero.shard.bytes) b = std::byte{0};
  EXPECT_EQ(zero.Compare().findings[0].signature.id, "zero-filled");
}

TEST(Stale, ValuesOfTheLoadBefore) {
  const TestModel model(21), before(22);
  for (const bool known : {true, false}) {
    Engine engine(model, 2);
    const Engine old(before, 2);
    const ShardKey key{"L1.moe.e2.up.weight", 1};
    engine.shards[key].bytes = old.shards.at(key).bytes;
    EngineTrace trace;
    trace.shards = engine.shards;
    std::vector<ShardKey> keys;
    for (const auto& [one, shard] : engine.shards) keys.push_back(one);
    auto report = CompareShards(
        model, trace, keys, {2, 2},
        [](const ShardKey&, const std::string&, const ExportedShard& s) {
          return Result<std::vector<std::byte>>(s.bytes);
        },
        nullptr, known ? &before : nullptr);
    ASSERT_TRUE(report.ok());
    ASSERT_EQ(report->findings.size(), 1u);
    EXPECT_EQ(report->findings[0].signature.id, known ? "stale" : "unknown");
    EXPECT_EQ(report->findings[0].cls, "loader");
  }
}

TEST(ErrorMap, OfWordsIsByGroup) {
  const TestModel model(21);
  Engine engine(model, 2);
  const ShardKey key{"L1.moe.e2.down.weight", 1};  // [32, 4 words], groups of 8: one word each
  engine.shards[key].bytes[4 * (3 * 4 + 2)] ^= std::byte{1};
  EngineTrace trace;
  trace.shards = engine.shards;
  auto report = CompareShards(
      model, trace, {key}, {2, 2},
      [](const ShardKey&, const std::string&, const ExportedShard& s) {
        return Result<std::vector<std::byte>>(s.bytes);
      },
      nullptr);
  ASSERT_EQ(report->findings.size(), 1u);
  const auto& map = report->findings[0].map;
  ASSERT_TRUE(map);
  EXPECT_EQ(map->value, "wrong");
  EXPECT_EQ(map->row_unit, "row");
  EXPECT_EQ(map->column_unit, "group");
  EXPECT_EQ(map->rows, 32);
  EXPECT_EQ(map->columns, 4);
  for (int64_t i = 0; i < 32 * 4; ++i) EXPECT_EQ(map->cells[i], i == 3 * 4 + 2) << i;
}

}  // namespace
}  // namespace assay::locate
