// Cuts, refusals and what they print.
#include <gtest/gtest.h>

#include <map>

#include "harness/shard/plan.h"
#include "harness/shard/test_model.h"

namespace assay::shard {
namespace {

PlanResult Plan(const TestModel& model, Degrees degrees, const Selection& selection = {}) {
  auto result = PlanModel(model.config, model.source, degrees, selection);
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  EXPECT_NE(result->plan.has_value(), result->refusal.has_value());
  return *result;
}

// The plan of one component; fails the test and aborts where the degrees are refused.
ComponentPlan PlanOf(const TestModel& model, Degrees degrees, const std::string& name) {
  const PlanResult result = Plan(model, degrees);
  if (!result.plan) {
    ADD_FAILURE() << result.refusal->Message();
    return {};
  }
  const ComponentPlan* plan = result.plan->Find(name);
  EXPECT_NE(plan, nullptr) << name;
  return plan == nullptr ? ComponentPlan{} : *plan;
}

Refusal RefusalOf(const TestModel& model, Degrees degrees, const Selection& selection = {}) {
  const PlanResult result = Plan(model, degrees, selection);
  EXPECT_TRUE(result.refusal.has_value());
  return result.refusal.value_or(Refusal{});
}

using Ranks = std::vector<std::vector<Range>>;

TEST(Cutting, ColumnParallelByRowsAndRowParallelByColumns) {
  const TestModel model = GqaModel({});
  EXPECT_EQ(PlanOf(model, {2}, "L0.mlp.up.weight").ranks, (Ranks{{{0, 32}}, {{32, 32}}}));
  const ComponentPlan down = PlanOf(model, {2}, "L0.mlp.down.weight");
  EXPECT_EQ(down.axis, Axis::kColumns);
  EXPECT_EQ(down.ranks, (Ranks{{{0, 32}}, {{32, 32}}}));
}

TEST(Cutting, Int4InItsOwnUnits) {
  const TestModel model = MlaModel({});
  EXPECT_EQ(PlanOf(model, {4}, "L1.moe.e2.down.weight").ranks,
            (Ranks{{{0, 8}}, {{8, 8}}, {{16, 8}}, {{24, 8}}}));
  EXPECT_EQ(PlanOf(model, {4}, "L1.moe.e2.down.scale").ranks,
            (Ranks{{{0, 2}}, {{2, 2}}, {{4, 2}}, {{6, 2}}}));
  EXPECT_EQ(PlanOf(model, {4}, "L1.moe.e2.up.scale").ranks,
            (Ranks{{{0, 64}}, {{64, 64}}, {{128, 64}}, {{192, 64}}}));
}

TEST(Cutting, KvHeadsAreReplicatedWhereThereAreTooFew) {
  const TestModel model = GqaModel({});
  const ComponentPlan two = PlanOf(model, {2}, "L0.attn.k.weight");
  EXPECT_EQ(two.degree, 2);
  EXPECT_EQ(two.replicas, 1);
  const ComponentPlan k = PlanOf(model, {8}, "L0.attn.k.weight");
  EXPECT_EQ(k.degree, 2);
  EXPECT_EQ(k.replicas, 4);
  EXPECT_EQ(
      k.ranks,
      (Ranks{{{0, 4}}, {{0, 4}}, {{0, 4}}, {{0, 4}}, {{4, 4}}, {{4, 4}}, {{4, 4}}, {{4, 4}}}));
}

TEST(Cutting, AttentionAtItsOwnDegree) {
  const TestModel model = GqaModel({});
  EXPECT_EQ(PlanOf(model, {4, 2}, "L0.attn.q.weight").ranks,
            (Ranks{{{0, 16}}, {{16, 16}}, {{0, 16}}, {{16, 16}}}));
  EXPECT_EQ(PlanOf(model, {4, 2}, "L0.attn.out.weight").ranks,
            (Ranks{{{0, 16}}, {{16, 16}}, {{0, 16}}, {{16, 16}}}));
  EXPECT_EQ(PlanOf(model, {4, 2}, "L0.mlp.up.weight").ranks[3], (std::vector<Range>{{48, 16}}));
  EXPECT_EQ(PlanOf(model, {4, 1}, "L0.attn.v.weight").ranks,
            (Ranks{{{0, 8}}, {{0, 8}}, {{0, 8}}, {{0, 8}}}));
}

TEST(Cutting, VocabularyIsPadded) {
  EXPECT_EQ(PaddedVocab(261, 1), 320);
  EXPECT_EQ(PaddedVocab(261, 2), 320);
  EXPECT_EQ(PaddedVocab(261, 3), 384);
  EXPECT_EQ(PaddedVocab(261, 7), 448);
  EXPECT_EQ(PaddedVocab(320, 64), 320);
  EXPECT_EQ(PaddedVocab(163840, 12), 163968);
  const TestModel model = GqaModel({});
  EXPECT_EQ(PlanOf(model, {2}, "embed.weight").ranks, (Ranks{{{0, 160}}, {{160, 101}, {-1, 59}}}));
  // 5 rows a rank: 52 ranks full, one partly, the others hold only padding.
  const TestModel wide = GqaModel({.heads = 64, .kv_heads = 64, .intermediate = 128});
  const ComponentPlan head = PlanOf(wide, {64}, "logits.weight");
  EXPECT_EQ(head.ranks[52], (std::vector<Range>{{260, 1}, {-1, 4}}));
  EXPECT_EQ(head.ranks[63], (std::vector<Range>{{-1, 5}}));
}

TEST(Cutting, SegmentsOfMergedParameters) {
  const TestModel gqa = GqaModel({.qkv_bias = true});
  for (const char* name : {"L0.attn.q.weight", "L0.attn.k.bias", "L0.attn.v.weight"}) {
    EXPECT_EQ(PlanOf(gqa, {2}, name).segment_of, "L0.attn.qkv");
  }
  EXPECT_EQ(PlanOf(gqa, {2}, "L0.mlp.up.weight").segment_of, "L0.mlp.gate_up");
  EXPECT_EQ(PlanOf(gqa, {2}, "L0.attn.out.weight").segment_of, "");
  const TestModel mla = MlaModel({});
  EXPECT_EQ(PlanOf(mla, {2}, "L1.moe.e1.gate.scale").segment_of, "L1.moe.e1.gate_up");
  EXPECT_EQ(PlanOf(mla, {2}, "L1.shared.up.weight").segment_of, "L1.shared.gate_up");
  EXPECT_EQ(PlanOf(mla, {2}, "L1.attn.kv_a.weight").segment_of, "L1.attn.qkv_a");
  EXPECT_EQ(PlanOf(mla, {2}, "L1.attn.kv_a.weight").axis, Axis::kNone);
  EXPECT_EQ(PlanOf(MlaModel({.q_lora = 0}), {2}, "L1.attn.kv_a.weight").segment_of, "");
}

TEST(Cutting, RowParallelBiasCountsOnce) {
  const TestModel model = GqaModel({.qkv_bias = true, .o_bias = true, .mlp_bias = true});
  for (const char* name : {"L0.attn.out.bias", "L0.mlp.down.bias"}) {
    const ComponentPlan plan = PlanOf(model, {2}, name);
    EXPECT_EQ(plan.owner, 0);
    EXPECT_EQ(plan.axis, Axis::kNone);
    EXPECT_EQ(plan.ranks, (Ranks{{{0, 32}}, {{0, 32}}}));
  }
  const ComponentPlan up = PlanOf(model, {2}, "L0.mlp.up.bias");
  EXPECT_EQ(up.owner, std::nullopt);
  EXPECT_EQ(up.ranks, (Ranks{{{0, 32}}, {{32, 32}}}));
}

TEST(Cutting, OneScaleARowStaysWholeWhereColumnsAreCut) {
  TestModel model = MlaModel({.experts = 1});
  model.config.quant.strategy = "channel";
  const std::string expert = "model.layers.1.mlp.experts.0.";
  PutInt4(&model.source, expert + "gate_proj", 256, 64, 0);
  PutInt4(&model.source, expert + "up_proj", 256, 64, 0);
  PutInt4(&model.source, expert + "down_proj", 64, 256, 0);
  EXPECT_EQ(PlanOf(model, {2}, "L1.moe.e0.down.scale").axis, Axis::kNone);
  EXPECT_EQ(PlanOf(model, {2}, "L1.moe.e0.down.weight").Print(), "k[tp] u4x8");
  EXPECT_EQ(PlanOf(model, {2}, "L1.moe.e0.up.scale").axis, Axis::kRows);
}

TEST(Printing, OneLineAComponent) {
  const TestModel model = MlaModel({.experts = 1});
  const PlanResult result = Plan(model, {2}, {.layer = 1});
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->Print(),
            R"(L1.input_norm.weight whole <- model.layers.1.input_layernorm.weight
L1.attn.q_a.weight whole <- model.layers.1.self_attn.q_a_proj.weight
L1.attn.q_a_norm.weight whole <- model.layers.1.self_attn.q_a_layernorm.weight
L1.attn.q.weight n[attn_tp] <- model.layers.1.self_attn.q_b_proj.weight
L1.attn.kv_a.weight whole <- model.layers.1.self_attn.kv_a_proj_with_mqa.weight
L1.attn.kv_a_norm.weight whole <- model.layers.1.self_attn.kv_a_layernorm.weight
L1.attn.kv_b.weight n[attn_tp] <- model.layers.1.self_attn.kv_b_proj.weight
L1.attn.out.weight k[attn_tp] <- model.layers.1.self_attn.o_proj.weight
L1.post_norm.weight whole <- model.layers.1.post_attention_layernorm.weight
L1.router.logits.weight whole <- model.layers.1.mlp.gate.weight
L1.router.scores.bias whole <- model.layers.1.mlp.gate.e_score_correction_bias
L1.moe.e0.gate.weight n[tp] g32 u4x8 <- model.layers.1.mlp.experts.0.gate_proj.weight_packed
L1.moe.e0.gate.scale n[tp] g32 <- model.layers.1.mlp.experts.0.gate_proj.weight_scale
L1.moe.e0.up.weight n[tp] g32 u4x8 <- model.layers.1.mlp.experts.0.up_proj.weight_packed
L1.moe.e0.up.scale n[tp] g32 <- model.layers.1.mlp.experts.0.up_proj.weight_scale
L1.moe.e0.down.weight k[tp] g32 u4x8 <- model.layers.1.mlp.experts.0.down_proj.weight_packed
L1.moe.e0.down.scale k[tp] g32 <- model.layers.1.mlp.experts.0.down_proj.weight_scale
L1.shared.gate.weight n[tp] <- model.layers.1.mlp.shared_experts.gate_proj.weight
L1.shared.up.weight n[tp] <- model.layers.1.mlp.shared_experts.up_proj.weight
L1.shared.down.weight k[tp] <- model.layers.1.mlp.shared_experts.down_proj.weight
)");
}

TEST(Printing, ReplicasPaddingOwner) {
  const TestModel model = GqaModel({.o_bias = true, .tied = true});
  EXPECT_EQ(PlanOf(model, {4}, "L0.attn.k.weight").Print(), "n[attn_tp]/2");
  EXPECT_EQ(PlanOf(model, {4}, "embed.weight").Print(), "n[tp] pad 59");
  EXPECT_EQ(PlanOf(model, {4}, "L0.attn.out.bias").Print(), "whole, added by rank 0");
  EXPECT_EQ(PlanOf(model, {4}, "logits.weight").component.source, "model.embed_tokens.weight");
}

TEST(Refusing, QueryHeads) {
  const Refusal r = RefusalOf(GqaModel({.heads = 9, .kv_heads = 3, .intermediate = 96}), {2});
  EXPECT_EQ(r.tensor, "num_attention_heads");
  EXPECT_EQ(r.axis, "heads");
  EXPECT_EQ(r.unit, "head");
  EXPECT_EQ(r.extent, 9);
  EXPECT_EQ(r.parts, 2);
  EXPECT_EQ(r.largest_legal_tp, 3);
  EXPECT_EQ(r.Message(),
            "num_attention_heads (model.layers.0.self_attn.q_proj.weight): axis heads has 9 heads, "
            "which do not divide by attn_tp 2; largest legal TP is 3 (legal degrees: 1, 3)");
}

TEST(Refusing, KvHeads) {
  const Refusal r = RefusalOf(GqaModel({.heads = 12, .kv_heads = 4, .intermediate = 96}), {6});
  EXPECT_EQ(r.Message(),
            "num_key_value_heads (model.layers.0.self_attn.k_proj.weight): axis kv_heads has 4 "
            "heads, which neither divide by nor into attn_tp 6; largest legal TP is 12 (legal "
            "degrees: 1, 2, 4, 12)");
}

TEST(Refusing, Widths) {
  const Refusal r = RefusalOf(GqaModel({.intermediate = 36}), {8});
  EXPECT_EQ(r.Message(),
            "model.layers.0.mlp.gate_proj.weight: axis n has 36 elements, which do not divide by "
            "tp 8; largest legal TP is 4 (legal degrees: 1, 2, 4)");
}

TEST(Refusing, AGroupThatWouldBeCut) {
  const Refusal r = RefusalOf(MlaModel({.heads = 16}), {16});
  EXPECT_EQ(r.tensor, "model.layers.1.mlp.experts.0.down_proj.weight_scale");
  EXPECT_EQ(r.axis, "k");
  EXPECT_EQ(r.unit, "group");
  EXPECT_EQ(r.extent, 8);
  EXPECT_EQ(r.elements, 256);
  EXPECT_EQ(r.parts, 16);
  EXPECT_EQ(r.largest_legal_tp, 8);
  EXPECT_EQ(
      r.Message(),
      "model.layers.1.mlp.experts.0.down_proj.weight_scale: axis k has 8 groups (256 "
      "elements), which do not divide by tp 16; largest legal TP is 8 (legal degrees: 1, 2, 4, 8)");
}

TEST(Refusing, AWordThatWouldBeCut) {
  TestModel model =
      MlaModel({.heads = 8, .intermediate = 96, .experts = 1, .moe_intermediate = 36, .shared = 0});
  model.config.quant.strategy = "channel";
  const std::string expert = "model.layers.1.mlp.experts.0.";
  PutInt4(&model.source, expert + "gate_proj", 36, 64, 0);
  PutInt4(&model.source, expert + "up_proj", 36, 64, 0);
  PutInt4(&model.source, expert + "down_proj", 64, 36, 0);
  const Refusal r = RefusalOf(model, {4});
  EXPECT_EQ(r.Message(),
            "model.layers.1.mlp.experts.0.down_proj.weight_packed: axis k has 5 words (36 "
            "elements), which do not divide by tp 4; largest legal TP is 1 (legal degrees: 1)");
  EXPECT_TRUE(Plan(model, {1}).plan.has_value());
}

// Four words divide by two, but the last is half full: a cut at 14 elements is inside a word.
TEST(Refusing, WordsThatDivideButEndInsideTheLast) {
  TestModel model = MlaModel({.heads = 8, .experts = 1, .moe_intermediate = 28, .shared = 0});
  model.config.quant.strategy = "channel";
  const std::string expert = "model.layers.1.mlp.experts.0.";
  PutInt4(&model.source, expert + "gate_proj", 28, 64, 0);
  PutInt4(&model.source, expert + "up_proj", 28, 64, 0);
  PutInt4(&model.source, expert + "down_proj", 64, 28, 0);
  const Refusal r = RefusalOf(model, {2});
  EXPECT_EQ(r.unit, "word");
  EXPECT_EQ(r.extent, 4);
  EXPECT_EQ(r.elements, 28);
}

TEST(Refusing, AttentionDegreeThatDoesNotDivideTp) {
  const Refusal r = RefusalOf(GqaModel({}), {6, 4});
  EXPECT_EQ(r.axis, "attn_tp");
  EXPECT_EQ(r.Message(),
            "attn_tp: axis attn_tp has 6 ranks, which do not divide by attn_tp 4; largest legal TP "
            "with attn_tp 4 is 64 (legal degrees: 4, 8, 16, 32, 64)");
}

TEST(Refusing, NamesEveryLegalDegreeAndNoOther) {
  const TestModel model = GqaModel({.heads = 9, .kv_heads = 3, .intermediate = 72});
  EXPECT_EQ(RefusalOf(model, {2}).legal_degrees, (std::vector<int>{1, 3, 9}));
  EXPECT_EQ(RefusalOf(model, {5, 1}).legal_degrees,
            (std::vector<int>{1, 2, 3, 4, 6, 8, 9, 12, 18, 24, 36}));
  for (int tp = 1; tp <= 64; ++tp) {
    const bool listed = tp == 1 || tp == 3 || tp == 9;
    EXPECT_EQ(Plan(model, {tp}).plan.has_value(), listed) << tp;
  }
}

TEST(Refusing, NoLegalDegree) {
  const Refusal r = RefusalOf(GqaModel({.heads = 9, .kv_heads = 3}), {4, 2});
  EXPECT_EQ(r.largest_legal_tp, 0);
  EXPECT_NE(r.Message().find("no TP up to 64 is legal with attn_tp 2"), std::string::npos)
      << r.Message();
}

TEST(Refusing, FirstInDataFlow) {
  // Everything is illegal at 5; each selection names the first that it sees.
  const TestModel model = GqaModel({.heads = 8, .kv_heads = 2, .intermediate = 64});
  EXPECT_EQ(RefusalOf(model, {5}).axis, "heads");
  EXPECT_EQ(RefusalOf(model, {5}, {.layer = 0, .attention = false}).tensor,
            "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(RefusalOf(model, {5, 1}).tensor, "model.layers.0.mlp.gate_proj.weight");
  const TestModel moe = MlaModel({.moe_intermediate = 160});
  EXPECT_EQ(RefusalOf(moe, {7, 1}, {.layer = 1}).tensor,
            "model.layers.1.mlp.experts.0.gate_proj.weight_packed");
}

TEST(Refusing, OnlyWhatIsSelected) {
  const TestModel model = GqaModel({.heads = 9, .kv_heads = 3, .intermediate = 96});
  EXPECT_TRUE(Plan(model, {2}, {.layer = 0, .attention = false}).plan.has_value());
  EXPECT_TRUE(Plan(model, {2}, {.layer = 0, .mlp = false}).refusal.has_value());
}

TEST(Refusing, DegreesOutOfRangeAreBadInput) {
  const TestModel model = GqaModel({});
  for (Degrees degrees : {Degrees{0}, Degrees{-1}, Degrees{kMaxTp + 1}, Degrees{1, -1}}) {
    const auto result = PlanModel(model.config, model.source, degrees, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().kind, ErrorKind::kBadInput);
  }
}

// The rule written out a second time, for the sweep below.
bool Legal(const ModelConfig& c, int64_t group, Degrees d) {
  const int a = d.attention();
  if (d.tp % a != 0 || c.heads % a != 0) return false;
  if (!c.is_mla() && c.kv_heads % a != 0 && a % c.kv_heads != 0) return false;
  if (c.intermediate % d.tp != 0) return false;
  return c.experts == 0 || c.moe_intermediate % (std::max<int64_t>(group, 1) * d.tp) == 0;
}

// Every unit of the cut axis is held by as many ranks as there are copies of a part.
void ExpectPartition(const ComponentPlan& plan, int tp) {
  const Component& c = plan.component;
  ASSERT_EQ(plan.ranks.size(), static_cast<size_t>(tp)) << c.name;
  const int64_t extent = plan.axis == Axis::kColumns ? c.columns : c.rows;
  const int parts = plan.axis == Axis::kNone ? 1 : plan.degree;
  std::map<std::pair<int64_t, int64_t>, int> held;
  int64_t padding = 0;
  for (const auto& ranges : plan.ranks) {
    for (const Range& range : ranges) {
      ASSERT_GT(range.length, 0) << c.name;
      range.is_padding() ? padding += range.length : ++held[{range.begin, range.length}];
    }
  }
  int64_t next = 0;
  for (const auto& [range, copies] : held) {
    ASSERT_EQ(range.first, next) << c.name << ": gap or overlap";
    ASSERT_EQ(copies, tp / parts) << c.name;
    next += range.second;
  }
  ASSERT_EQ(next, extent) << c.name;
  const bool vocabulary = c.name == "embed.weight" || c.name == "logits.weight";
  ASSERT_EQ(padding, vocabulary ? PaddedVocab(extent, tp) - extent : 0) << c.name;
}

TEST(Sweep, EveryDegreeOfEveryGeometryIsAPartitionOrRefused) {
  struct Case {
    TestModel model;
    int64_t group;
  };
  std::vector<Case> cases;
  cases.push_back({GqaModel({.heads = 9, .kv_heads = 3, .intermediate = 2520}), 0});
  cases.push_back({GqaModel({.heads = 60, .kv_heads = 4, .intermediate = 840, .vocab = 1}), 0});
  cases.push_back(
      {GqaModel({.heads = 64, .kv_heads = 1, .intermediate = 64, .qkv_bias = true}), 0});
  cases.push_back({GqaModel({.heads = 7, .kv_heads = 1, .intermediate = 352, .tied = true}), 0});
  cases.push_back(
      {MlaModel({.heads = 64, .intermediate = 192, .experts = 1, .moe_intermediate = 2048}), 32});
  cases.push_back({MlaModel({.heads = 12,
                             .q_lora = 0,
                             .intermediate = 420,
                             .experts = 2,
                             .moe_intermediate = 420,
                             .group = 0}),
                   0});
  int legal = 0, refused = 0;
  for (const Case& one : cases) {
    for (int attn_tp : {0, 1, 2, 3}) {
      int largest = 0;
      for (int tp = 1; tp <= 64; ++tp) {
        if (Legal(one.model.config, one.group, {tp, attn_tp})) largest = tp;
      }
      for (int tp = 1; tp <= 64; ++tp) {
        const PlanResult result = Plan(one.model, {tp, attn_tp});
        ASSERT_EQ(result.plan.has_value(), Legal(one.model.config, one.group, {tp, attn_tp}))
            << "tp " << tp << " attn_tp " << attn_tp;
        if (!result.plan) {
          ++refused;
          ASSERT_EQ(result.refusal->largest_legal_tp, largest) << result.refusal->Message();
          continue;
        }
        ++legal;
        for (const ComponentPlan& plan : result.plan->components) ExpectPartition(plan, tp);
      }
    }
  }
  EXPECT_GT(legal, 150);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace assay::shard
