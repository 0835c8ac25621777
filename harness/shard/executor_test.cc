// Shards copied by a plan and put together again, and every way in which that is refused.
#include "harness/shard/executor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "harness/shard/test_model.h"

namespace assay::shard {
namespace {

using Bytes_ = std::vector<std::byte>;

ModelPlan LegalPlan(const TestModel& model, Degrees degrees) {
  auto result = PlanModel(model.config, model.source, degrees, {});
  if (!result.ok() || !result->plan) {
    ADD_FAILURE() << (result.ok() ? result->refusal->Message() : result.error().message);
    return {};
  }
  return *result->plan;
}

size_t SizeOfShard(const ComponentPlan& plan, int rank) {
  const ShardShape shape = ShapeOf(plan, rank);
  return static_cast<size_t>(shape.rows * shape.columns * SizeOf(plan.component.dtype).count());
}

std::vector<Bytes_> CopyAll(const ComponentPlan& plan, const TensorView& tensor) {
  std::vector<Bytes_> shards;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    // Poisoned first, so that a byte that is not written shows.
    Bytes_ shard(SizeOfShard(plan, static_cast<int>(rank)), std::byte{0xa5});
    const Status copied = CopyShard(plan, static_cast<int>(rank), tensor, shard);
    EXPECT_TRUE(copied.ok()) << copied.error().message;
    shards.push_back(std::move(shard));
  }
  return shards;
}

Status Join(const ComponentPlan& plan, const std::vector<Bytes_>& shards, Bytes_* whole) {
  return Reassemble(plan, {shards.begin(), shards.end()}, *whole);
}

void ExpectIdentity(const TestModel& model, Degrees degrees) {
  const ModelPlan plans = LegalPlan(model, degrees);
  ASSERT_FALSE(plans.components.empty());
  for (const ComponentPlan& plan : plans.components) {
    const TensorView* tensor = model.source.Find(plan.component.source);
    ASSERT_NE(tensor, nullptr);
    Bytes_ whole(tensor->bytes.size(), std::byte{0x5a});
    const Status joined = Join(plan, CopyAll(plan, *tensor), &whole);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    ASSERT_TRUE(std::equal(whole.begin(), whole.end(), tensor->bytes.begin()))
        << plan.component.name;
  }
}

TEST(Executor, ReassembledShardsAreTheTensor) {
  const TestModel gqa = GqaModel({.heads = 12,
                                  .kv_heads = 3,
                                  .intermediate = 120,
                                  .qkv_bias = true,
                                  .o_bias = true,
                                  .mlp_bias = true,
                                  .qk_norm = true});
  for (Degrees d :
       {Degrees{1}, Degrees{3}, Degrees{6}, Degrees{12}, Degrees{5, 1}, Degrees{6, 3}}) {
    ExpectIdentity(gqa, d);
  }
  for (int tp : {1, 2, 4, 8}) ExpectIdentity(MlaModel({}), {tp});
  ExpectIdentity(MlaModel({.heads = 7, .intermediate = 84, .moe_intermediate = 84, .group = 0}),
                 {7});
  ExpectIdentity(GqaModel({.heads = 64, .kv_heads = 2, .intermediate = 64}), {64});
}

// A tensor whose values are their own positions, so that expectations are written by hand.
struct Grid {
  MemorySource source;
  ComponentPlan plan;
  const TensorView& tensor() const { return *source.Find("grid"); }
};

Grid MakeGrid(int64_t rows, int64_t columns, Axis axis, std::vector<std::vector<Range>> ranks) {
  Grid grid;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * columns) * 2);
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const uint16_t value = static_cast<uint16_t>(i);
    std::memcpy(&bytes[2 * i], &value, 2);
  }
  grid.source.Put("grid", DType::kBF16, {rows, columns}, std::move(bytes));
  grid.plan.component = {.name = "Grid",
                         .source = "grid",
                         .dtype = DType::kBF16,
                         .rows = rows,
                         .columns = columns,
                         .packing = {Elements(1), Bytes(2)},
                         .unit = "element"};
  grid.plan.axis = axis;
  grid.plan.ranks = std::move(ranks);
  return grid;
}

std::vector<uint16_t> Values(const Bytes_& bytes) {
  std::vector<uint16_t> values(bytes.size() / 2);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Executor, CopiesColumnsAndRowsInTheOrderOfTheRanges) {
  const Grid columns =
      MakeGrid(2, 4, Axis::kColumns, {{{2, 1}, {0, 1}, {-1, 1}}, {{1, 1}, {3, 1}}});
  const auto shards = CopyAll(columns.plan, columns.tensor());
  EXPECT_EQ(Values(shards[0]), (std::vector<uint16_t>{2, 0, 0, 6, 4, 0}));
  EXPECT_EQ(Values(shards[1]), (std::vector<uint16_t>{1, 3, 5, 7}));
  const Grid rows = MakeGrid(3, 2, Axis::kRows, {{{2, 1}, {0, 1}}, {{1, 1}, {-1, 1}}});
  const auto by_rows = CopyAll(rows.plan, rows.tensor());
  EXPECT_EQ(Values(by_rows[0]), (std::vector<uint16_t>{4, 5, 0, 1}));
  EXPECT_EQ(Values(by_rows[1]), (std::vector<uint16_t>{2, 3, 0, 0}));
  EXPECT_EQ(ShapeOf(rows.plan, 1).rows, 2);
  EXPECT_EQ(ShapeOf(columns.plan, 0).columns, 3);
}

std::string JoinError(const Grid& grid, const std::vector<Bytes_>& shards) {
  Bytes_ whole(grid.tensor().bytes.size());
  const Status joined = Join(grid.plan, shards, &whole);
  if (joined.ok()) {
    ADD_FAILURE() << "joined without an error";
    return "";
  }
  return joined.error().message;
}

TEST(Executor, ReplicasThatDiffer) {
  const Grid grid = MakeGrid(3, 4, Axis::kColumns, {{{0, 2}}, {{0, 2}}, {{2, 2}}});
  auto shards = CopyAll(grid.plan, grid.tensor());
  shards[1][2 * 3] = std::byte{0xff};  // row 1, second column of the shard: value 5
  EXPECT_EQ(
      JoinError(grid, shards),
      "Grid: rank 1 differs from its replica, rank 0, at row 1, element 1: 0x00ff and 0x0005");
}

TEST(Executor, PaddingThatIsNotZero) {
  const Grid rows = MakeGrid(3, 2, Axis::kRows, {{{0, 2}}, {{2, 1}, {-1, 1}}});
  auto shards = CopyAll(rows.plan, rows.tensor());
  shards[1][2 * 3 + 1] = std::byte{0x80};
  EXPECT_EQ(JoinError(rows, shards),
            "Grid: padding of rank 1 at local row 1, element 1 is 0x8000, must be 0");
  const Grid columns = MakeGrid(2, 3, Axis::kColumns, {{{0, 2}}, {{2, 1}, {-1, 1}}});
  shards = CopyAll(columns.plan, columns.tensor());
  shards[1][2 * 3] = std::byte{1};
  EXPECT_EQ(JoinError(columns, shards),
            "Grid: padding of rank 1 at local row 1, element 1 is 0x0001, must be 0");
}

TEST(Executor, PlansWithGapsAndRepetitions) {
  const Grid gap = MakeGrid(3, 2, Axis::kRows, {{{0, 1}}, {{2, 1}}});
  EXPECT_EQ(JoinError(gap, CopyAll(gap.plan, gap.tensor())), "Grid: row 1 of 3 is held by no rank");
  const Grid twice = MakeGrid(3, 2, Axis::kRows, {{{0, 2}, {1, 2}}});
  EXPECT_EQ(JoinError(twice, CopyAll(twice.plan, twice.tensor())),
            "Grid: rank 0 holds row 1 twice");
}

TEST(Executor, ShardsOfTheWrongSizeOrNumber) {
  const Grid grid = MakeGrid(2, 2, Axis::kRows, {{{0, 1}}, {{1, 1}}});
  auto shards = CopyAll(grid.plan, grid.tensor());
  shards[1].pop_back();
  EXPECT_EQ(JoinError(grid, shards), "Grid: rank 1's shard has 3 bytes, the plan needs 4");
  shards.pop_back();
  EXPECT_EQ(JoinError(grid, shards), "Grid: 1 shards for a plan of 2 ranks");
}

std::string CopyError(const ComponentPlan& plan, int rank, const TensorView& tensor, size_t size) {
  Bytes_ out(size);
  const Status copied = CopyShard(plan, rank, tensor, out);
  if (copied.ok()) {
    ADD_FAILURE() << "copied without an error";
    return "";
  }
  return copied.error().message;
}

TEST(Executor, RefusesToCopyOutsideTheTensor) {
  const int64_t huge = int64_t{1} << 62;
  Grid grid = MakeGrid(2, 2, Axis::kRows, {{{1, 2}}, {{huge, huge}}, {{0, -1}}, {{-1, huge}}});
  EXPECT_NE(CopyError(grid.plan, 0, grid.tensor(), 8).find("range [1, +2)"), std::string::npos);
  EXPECT_NE(CopyError(grid.plan, 1, grid.tensor(), 8).find("of an axis of 2"), std::string::npos);
  EXPECT_NE(CopyError(grid.plan, 2, grid.tensor(), 8).find("+-1"), std::string::npos);
  EXPECT_NE(CopyError(grid.plan, 3, grid.tensor(), 8).find("more bytes"), std::string::npos);
  EXPECT_NE(CopyError(grid.plan, 4, grid.tensor(), 8).find("rank 4 of a plan for 4"),
            std::string::npos);
  EXPECT_NE(CopyError(grid.plan, -1, grid.tensor(), 8).find("rank -1"), std::string::npos);
}

TEST(Executor, RefusesAnotherTensor) {
  Grid grid = MakeGrid(2, 2, Axis::kRows, {{{0, 2}}});
  EXPECT_NE(CopyError(grid.plan, 0, grid.tensor(), 7).find("the shard has 7 bytes"),
            std::string::npos);
  TensorView other = grid.tensor();
  other.dtype = DType::kF16;
  EXPECT_NE(CopyError(grid.plan, 0, other, 8).find("is F16, the plan is for BF16"),
            std::string::npos);
  other = grid.tensor();
  other.bytes = other.bytes.first(6);
  EXPECT_NE(CopyError(grid.plan, 0, other, 8).find("the whole tensor has 6 bytes"),
            std::string::npos);
  grid.plan.component.rows = int64_t{1} << 62;
  EXPECT_NE(CopyError(grid.plan, 0, grid.tensor(), 8).find("no shape"), std::string::npos);
}

}  // namespace
}  // namespace assay::shard
