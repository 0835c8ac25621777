// Logical parts to stored ranges, on components made by hand: extents and ranges are written out.
#include "harness/shard/cut.h"

#include <gtest/gtest.h>

#include "harness/shard/executor.h"

namespace assay::shard {
namespace {

using Ranges = std::vector<std::vector<Range>>;

// down.weight of an expert: codes two to a byte, `k` inputs.
Listed Down(int64_t k, int64_t expert, const std::string& op = "L0.moe.e0.down") {
  Listed listed;
  listed.cut = Cut::kExpertColumns;
  listed.expert = expert;
  Component& c = listed.component;
  c.name = op + ".weight";
  c.source = "down";
  c.dtype = DType::kU8;
  c.rows = 8;
  c.columns = k / 2;
  c.unit = "word";
  c.column_elements = Elements(2);
  c.row_elements = Elements(k);
  return listed;
}

Listed DownScale(int64_t k, int64_t expert) {
  Listed listed = Down(k, expert);
  listed.component.name = "L0.moe.e0.down.scale";
  listed.component.columns = k / 32;
  listed.component.unit = "group";
  listed.component.column_elements = Elements(32);
  return listed;
}

ModelConfig Config(int64_t experts) {
  ModelConfig config;
  config.experts = experts;
  config.heads = 8;
  config.kv_heads = 2;
  return config;
}

Degrees At(int tp, Split split = Split::kEven, std::vector<int64_t> list = {}) {
  Degrees degrees;
  degrees.tp = tp;
  degrees.split = split;
  degrees.list = std::move(list);
  return degrees;
}

std::vector<int64_t> Real(const ComponentPlan& plan) {
  std::vector<int64_t> lengths;
  for (const auto& ranges : plan.ranks) {
    lengths.push_back(0);
    for (const Range& range : ranges) lengths.back() += range.is_padding() ? 0 : range.length;
  }
  return lengths;
}

std::vector<int64_t> Held(const ComponentPlan& plan) {
  std::vector<int64_t> lengths;
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    lengths.push_back(ShapeOf(plan, static_cast<int>(rank)).columns);
  }
  return lengths;
}

// gpt-oss: 2880 inputs are 90 blocks of 32.
TEST(Cut, CeilGivesTheLastRankLessAndPadsIt) {
  const ModelConfig config = Config(32);
  const std::vector<Listed> listed = {Down(2880, 0), DownScale(2880, 0)};
  const auto blocks = [&](int tp) {
    const Degrees degrees = At(tp, Split::kCeil);
    const Cutter cutter(config, degrees, listed);
    EXPECT_FALSE(cutter.Check(listed[0]).has_value());
    const ComponentPlan scale = cutter.Plan(listed[1]);
    const ComponentPlan codes = cutter.Plan(listed[0]);
    for (size_t rank = 0; rank < scale.ranks.size(); ++rank) {
      EXPECT_EQ(Real(codes)[rank], 16 * Real(scale)[rank]);
      EXPECT_EQ(Held(codes)[rank], 16 * Held(scale)[rank]);
      EXPECT_EQ(Held(scale)[rank], Held(scale)[0]);
    }
    return Real(scale);
  };
  EXPECT_EQ(blocks(2), (std::vector<int64_t>{45, 45}));
  EXPECT_EQ(blocks(4), (std::vector<int64_t>{23, 23, 23, 21}));
  EXPECT_EQ(blocks(8), (std::vector<int64_t>{12, 12, 12, 12, 12, 12, 12, 6}));
  // Even, 90 blocks do not divide by 4.
  const Degrees even = At(4);
  EXPECT_TRUE(Cutter(config, even, listed).Check(listed[1]).has_value());
}

TEST(Cut, CeilLeavesRanksBeyondTheBlocksWithPaddingAlone) {
  const ModelConfig config = Config(5);
  const std::vector<Listed> listed = {Down(288, 0), DownScale(288, 0)};
  const Degrees degrees = At(8, Split::kCeil);
  const ComponentPlan scale = Cutter(config, degrees, listed).Plan(listed[1]);
  EXPECT_EQ(Real(scale), (std::vector<int64_t>{2, 2, 2, 2, 1, 0, 0, 0}));
  EXPECT_EQ(Held(scale), (std::vector<int64_t>(8, 2)));
  EXPECT_EQ(scale.ranks[4], (std::vector<Range>{{8, 1}, {-1, 1}}));
  EXPECT_EQ(scale.ranks[5], (std::vector<Range>{{-1, 2}}));
}

TEST(Cut, AListIsTakenAsItIsOrRefused) {
  const ModelConfig config = Config(2);
  const std::vector<Listed> listed = {Down(320, 0), DownScale(320, 0)};
  const Degrees good = At(3, Split::kList, {5, 3, 2});
  const ComponentPlan plan = Cutter(config, good, listed).Plan(listed[1]);
  EXPECT_EQ(plan.ranks, (Ranges{{{0, 5}}, {{5, 3}}, {{8, 2}}}));
  for (const Degrees& bad : {At(3, Split::kList, {5, 3, 3}), At(2, Split::kList, {5, 3, 2})}) {
    const auto refusal = Cutter(config, bad, listed).Check(listed[1]);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_NE(refusal->Message().find("list:5,3"), std::string::npos) << refusal->Message();
  }
  // A dense MLP of a model with experts has another width, and is cut evenly.
  std::vector<Listed> dense = {Down(96, -1, "L0.mlp.down")};
  dense[0].cut = Cut::kSharedColumns;
  EXPECT_EQ(Real(Cutter(config, good, dense).Plan(dense[0])), (std::vector<int64_t>{16, 16, 16}));
}

TEST(Cut, ExpertsOverRanks) {
  const ModelConfig config = Config(4);
  std::vector<Listed> listed;
  for (int64_t expert = 0; expert < 4; ++expert) listed.push_back(DownScale(128, expert));
  Degrees degrees = At(4);
  degrees.ep = 2;
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(listed[1]).ranks,
            (Ranges{{{0, 2}}, {{2, 2}}, {}, {}}));
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(listed[2]).ranks,
            (Ranges{{}, {}, {{0, 2}}, {{2, 2}}}));
  // A map that is not its own inverse, with a hole and a replica: expert 3 is on both.
  degrees.experts.physical_to_logical = {2, 3, 0, 1, 3, -1};
  ASSERT_TRUE(CheckDegrees(config, degrees).ok());
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(listed[3]).ranks,
            (Ranges{{{0, 2}}, {{2, 2}}, {{0, 2}}, {{2, 2}}}));
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(listed[1]).ranks,
            (Ranges{{}, {}, {{0, 2}}, {{2, 2}}}));
  EXPECT_NE(Cutter(config, degrees, listed).Plan(listed[1]).Print().find("on ranks 2-3"),
            std::string::npos);
}

TEST(Cut, DegreesThatDoNotFitEachOther) {
  const ModelConfig config = Config(4);
  const auto error = [&](auto change) {
    Degrees degrees = At(4);
    change(degrees);
    const Status status = CheckDegrees(config, degrees);
    return status.ok() ? std::string() : status.error().message;
  };
  const auto map = [](std::vector<int64_t> slots, int ep) {
    return [=](Degrees& d) {
      d.ep = ep;
      d.experts.physical_to_logical = slots;
    };
  };
  EXPECT_EQ(error([](Degrees&) {}), "");
  EXPECT_EQ(error(map({0, 1, 2, 3}, 2)), "");
  EXPECT_NE(error(map({0, 1, 2, 3, -1}, 2)).find("evenly"), std::string::npos);
  EXPECT_NE(error(map({0, 1, 2, 4}, 2)).find("4 in a slot"), std::string::npos);
  EXPECT_NE(error(map({0, 0, 1, 2, 3, -1}, 2)).find("twice"), std::string::npos);
  EXPECT_NE(error(map({0, 1, 2, -1}, 2)).find("expert 3 is in no slot"), std::string::npos);
  EXPECT_NE(error([](Degrees& d) { d.hybrid = 1, d.ep = 2; }).find("hybrid"), std::string::npos);
  EXPECT_NE(error([](Degrees& d) { d.split = Split::kList; }).find("list"), std::string::npos);
  EXPECT_NE(error([](Degrees& d) { d.list = {1}; }).find("list"), std::string::npos);
  EXPECT_NE(error([](Degrees& d) { d.dp = 0; }).find("dp is 0"), std::string::npos);
  const auto refused = [&](auto change) {
    Degrees degrees = At(4);
    change(degrees);
    const auto refusal = RefuseDegrees(config, degrees);
    return refusal ? refusal->tensor : "";
  };
  EXPECT_EQ(refused([](Degrees& d) { d.dp = 3; }), "dp");
  EXPECT_EQ(refused([](Degrees& d) { d.ep = 3; }), "ep");
  EXPECT_EQ(refused([](Degrees& d) { d.attn_tp = 3; }), "attn_tp");
  EXPECT_EQ(refused([](Degrees& d) { d.tp = 8, d.ep = 8; }), "ep");  // 4 experts over 8
  EXPECT_EQ(refused([](Degrees& d) { d.dp = 2, d.ep = 4; }), "");
}

TEST(Cut, HybridLeavesTheRestWholeOnRankZero) {
  const ModelConfig config = Config(4);
  const std::vector<Listed> listed = {DownScale(128, 0), DownScale(128, 2)};
  Degrees degrees = At(2);
  degrees.hybrid = 2;
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(listed[0]).ranks, (Ranges{{{0, 2}}, {{2, 2}}}));
  const ComponentPlan whole = Cutter(config, degrees, listed).Plan(listed[1]);
  EXPECT_EQ(whole.axis, Axis::kNone);
  EXPECT_EQ(whole.ranks, (Ranges{{{0, 8}}, {}}));
  EXPECT_EQ(ShapeOf(whole, 1).rows, 0);
}

TEST(Cut, DataParallelAttention) {
  const ModelConfig config = Config(4);
  Listed shared = Down(128, -1, "L0.shared.down");
  shared.cut = Cut::kSharedColumns;
  Listed head = Down(64, -1, "logits"), embed = Down(64, -1, "embed");
  head.cut = embed.cut = Cut::kVocab;
  for (Listed* table : {&head, &embed}) {
    table->component.rows = 256;
    table->component.row_extent = Elements(256);
  }
  const std::vector<Listed> listed = {shared, head, embed};
  Degrees degrees = At(4);
  degrees.dp = 2;
  const ComponentPlan plan = Cutter(config, degrees, listed).Plan(shared);
  EXPECT_EQ(plan.domain, "attn_tp");
  EXPECT_EQ(plan.ranks, (Ranges{{{0, 32}}, {{32, 32}}, {{0, 32}}, {{32, 32}}}));
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(embed).axis, Axis::kNone);
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(head).ranks[3], (std::vector<Range>{{192, 64}}));
  degrees.lm_head_dp = true;
  EXPECT_EQ(Cutter(config, degrees, listed).Plan(head).ranks[3], (std::vector<Range>{{128, 128}}));
}

// FP8's scales stand for blocks of rows and columns; the last ones are short.
TEST(Cut, BlocksOfRowsAreLeftWhole) {
  const ModelConfig config = Config(0);
  Listed scale = Down(80, -1, "L0.mlp.gate");
  scale.cut = Cut::kRows;
  Component& c = scale.component;
  c.rows = 3;
  c.row_unit = "block";
  c.elements_per_row = Elements(32);
  c.row_extent = Elements(80);
  c.columns = 3;
  const std::vector<Listed> listed = {scale};
  for (const auto& [tp, legal] : {std::pair{1, true}, {2, false}, {5, false}}) {
    const Degrees degrees = At(tp);
    const auto refusal = Cutter(config, degrees, listed).Check(scale);
    EXPECT_EQ(!refusal, legal) << tp;
    if (refusal) {
      EXPECT_EQ(refusal->unit, "block");
      EXPECT_EQ(refusal->axis, "n");
    }
  }
  // 96 rows are three whole blocks.
  Listed whole = scale;
  whole.component.row_extent = Elements(96);
  const Degrees three = At(3);
  EXPECT_EQ(Cutter(config, three, {whole}).Plan(whole).ranks,
            (Ranges{{{0, 1}}, {{1, 1}}, {{2, 1}}}));
  const Degrees ceil = At(2, Split::kCeil);
  EXPECT_EQ(Cutter(config, ceil, listed).Plan(scale).ranks, (Ranges{{{0, 2}}, {{2, 1}, {-1, 1}}}));
}

// GPTQ's qweight: rows are words of 8 inputs, columns outputs.
TEST(Cut, TransposedStorageIsCutAlongItsOwnAxis) {
  const ModelConfig config = Config(0);
  Listed qweight = Down(128, -1, "L0.mlp.down");
  qweight.cut = Cut::kColumns;
  Component& c = qweight.component;
  c.dtype = DType::kI32;
  c.rows = 16;
  c.columns = 8;
  c.row_along = Along::kK;
  c.column_along = Along::kN;
  c.elements_per_row = Elements(8);
  c.row_extent = Elements(128);
  c.row_unit = "word";
  c.column_elements = Elements(1);
  c.row_elements = Elements(8);
  const Degrees four = At(4);
  const ComponentPlan plan = Cutter(config, four, {qweight}).Plan(qweight);
  EXPECT_EQ(plan.axis, Axis::kRows);
  EXPECT_EQ(plan.ranks[3], (std::vector<Range>{{12, 4}}));
  EXPECT_EQ(plan.Print().substr(0, 5), "k[tp]");
  const Degrees many = At(32);
  const auto refusal = Cutter(config, many, {qweight}).Check(qweight);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_EQ(refusal->axis, "k");
  EXPECT_EQ(refusal->unit, "word");
  EXPECT_EQ(refusal->elements, 128);
}

// 32 codes of 3 bits are 3 words.
TEST(Cut, UnitsOfSeveralWordsStayWhole) {
  const ModelConfig config = Config(0);
  Listed packed = Down(96, -1, "L0.mlp.down");
  packed.cut = Cut::kColumns;
  Component& c = packed.component;
  c.columns = 9;
  c.column_elements = Elements(32);
  c.columns_per_unit = 3;
  c.row_elements = Elements(96);
  const Degrees three = At(3), two = At(2);
  EXPECT_EQ(Cutter(config, three, {packed}).Plan(packed).ranks,
            (Ranges{{{0, 3}}, {{3, 3}}, {{6, 3}}}));
  EXPECT_TRUE(Cutter(config, two, {packed}).Check(packed).has_value());
}

// A component that is every second row of a tensor, and one that lies transposed in it.
TEST(Cut, StridedComponentsAreCopiedFromTheirPlaces) {
  const ModelConfig config = Config(0);
  std::vector<std::byte> bytes(48);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  TensorView tensor{"fused", DType::kU8, {8, 6}, bytes, "memory"};
  Listed odd = Down(12, -1, "L0.mlp.up");
  odd.cut = Cut::kRows;
  odd.component.rows = 4;
  odd.component.columns = 6;
  odd.component.first = 6;
  odd.component.row_step = 12;
  const Degrees two = At(2);
  const ComponentPlan plan = Cutter(config, two, {odd}).Plan(odd);
  std::vector<std::byte> out(12);
  ASSERT_TRUE(CopyShard(plan, 1, tensor, out).ok());
  EXPECT_EQ(std::to_integer<int>(out[0]), 30);
  EXPECT_EQ(std::to_integer<int>(out[6]), 42);
  Listed turned = odd;
  turned.component.first = 0;
  turned.component.rows = 6;
  turned.component.columns = 8;
  turned.component.row_step = 1;
  turned.component.column_step = 6;
  const ComponentPlan transposed = Cutter(config, two, {turned}).Plan(turned);
  out.resize(24);
  ASSERT_TRUE(CopyShard(transposed, 1, tensor, out).ok());
  EXPECT_EQ(std::to_integer<int>(out[0]), 3);
  EXPECT_EQ(std::to_integer<int>(out[1]), 9);
  EXPECT_EQ(std::to_integer<int>(out[8]), 4);
  // One value too far.
  turned.component.first = 1;
  EXPECT_FALSE(CopyShard(Cutter(config, two, {turned}).Plan(turned), 1, tensor, out).ok());
}

}  // namespace
}  // namespace assay::shard
