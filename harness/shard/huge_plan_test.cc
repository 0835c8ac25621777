// A plan of Kimi-K3's size from headers alone: which degrees are legal, what a rank of 64 holds,
// and that it takes a minute at most.
#include <gtest/gtest.h>

#include <ctime>

#include "harness/shard/executor.h"
#include "harness/shard/huge_model.h"
#include "harness/shard/survey.h"

namespace assay::shard {
namespace {

// Of this process, on one thread: what the planning takes whoever else is on the machine.
double Seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Attention over 16 ranks in four groups, experts over all 64.
Degrees SixtyFour(int tp = 64) {
  Degrees degrees{tp};
  degrees.dp = 4;
  degrees.lm_head_dp = true;
  return degrees;
}

Selection Layer(int64_t layer) {
  Selection selection;
  selection.layer = layer;
  selection.headers_only = true;
  return selection;
}

int64_t BytesOf(const ComponentPlan& plan, int rank) {
  const ShardShape shape = ShapeOf(plan, rank);
  return shape.rows * shape.columns * SizeOf(plan.component.dtype).count();
}

std::vector<Range> RangesOf(const ModelPlan& plan, const char* name, int rank) {
  const ComponentPlan* found = plan.Find(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? std::vector<Range>{} : found->ranks.at(static_cast<size_t>(rank));
}

// A rank's bytes of one layer's routed experts.
int64_t ExpertBytes(const ModelPlan& plan, int rank) {
  int64_t bytes = 0;
  for (const ComponentPlan& component : plan.components) {
    if (component.component.name.find(".moe.e") == std::string::npos) continue;
    bytes += BytesOf(component, rank);
  }
  return bytes;
}

TEST(HugePlan, ModelSlimAt64RanksHas48OfEachExpertsIntermediateUnits) {
  HeaderSource source;
  ModelConfig config = HugeConfig(HugeMethod::kModelSlimW4a8);
  PutHugeModel(config, HugeMethod::kModelSlimW4a8, &source);
  Describe(source, &config);
  EXPECT_GT(source.views().size(), 700000u);
  const double start = Seconds();
  const Degrees degrees = SixtyFour();
  int64_t components = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto result = PlanModel(config, source, degrees, Layer(layer));
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->plan) << result->refusal->Message();
    const ModelPlan& plan = *result->plan;
    components += static_cast<int64_t>(plan.components.size());
    if (layer == 0) continue;
    // Codes of two along the outputs, scales and offsets of four bytes.
    constexpr int64_t kRows = 24 * 3584 + 48 * 4 * 2, kColumns = 1792 * 48 + 3584 * 4 * 2;
    for (int rank = 0; rank < 64; ++rank) {
      ASSERT_EQ(ExpertBytes(plan, rank), 896 * (2 * kRows + kColumns)) << layer << " " << rank;
    }
  }
  EXPECT_LE(Seconds() - start, 60);
  EXPECT_EQ(components, 92 * 896 * 9 + 92 * (2 + 3 + 3 + 6) + 9 + 69 * 14 + 24 * 8);
  const auto one = PlanModel(config, source, degrees, Layer(92));
  ASSERT_TRUE(one.ok() && one->plan);
  using Ranges = std::vector<Range>;
  EXPECT_EQ(RangesOf(*one->plan, "L92.moe.e895.gate.weight", 63), (Ranges{{63 * 24, 24}}));
  EXPECT_EQ(RangesOf(*one->plan, "L92.moe.e895.gate.scale", 63), (Ranges{{63 * 48, 48}}));
  EXPECT_EQ(RangesOf(*one->plan, "L92.moe.e895.down.weight", 63), (Ranges{{63 * 48, 48}}));
  EXPECT_EQ(RangesOf(*one->plan, "L92.moe.e895.down.scale", 63), (Ranges{{0, 3584}}));
  // Six heads of 256 rows; rank 63 is the 15th of its group.
  EXPECT_EQ(RangesOf(*one->plan, "L92.attn.kv_b.weight", 63), (Ranges{{15 * 1536, 1536}}));
  EXPECT_EQ(RangesOf(*one->plan, "L92.shared.down.weight", 17), (Ranges{{384, 384}}));
  EXPECT_EQ(one->plan->Find("L92.moe.latent_down.weight")->axis, Axis::kNone);
}

TEST(HugePlan, Mxfp4IsRefusedAt64RanksAndLegalAt48) {
  HeaderSource source;
  const ModelConfig config = HugeConfig(HugeMethod::kMxfp4);
  PutHugeModel(config, HugeMethod::kMxfp4, &source);
  const double start = Seconds();
  const auto refused = PlanModel(config, source, SixtyFour(), Layer(1));
  ASSERT_TRUE(refused.ok()) << refused.error().message;
  ASSERT_TRUE(refused->refusal.has_value());
  EXPECT_EQ(refused->refusal->tensor,
            "language_model.model.layers.1.block_sparse_moe.experts.0.w2.weight_scale");
  EXPECT_EQ(refused->refusal->axis, "k");
  EXPECT_EQ(refused->refusal->unit, "group");
  EXPECT_EQ(refused->refusal->extent, 96);  // of which a rank would have one and a half
  EXPECT_EQ(refused->refusal->elements, 3072);
  EXPECT_EQ(refused->refusal->largest_legal_tp, 48);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto result = PlanModel(config, source, SixtyFour(48), Layer(layer));
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->plan) << result->refusal->Message();
    if (layer == 0) continue;
    // 64 of 3072: two groups of 32.
    constexpr int64_t kRows = 64 * (1792 + 112), kColumns = 3584 * (32 + 2);
    for (int rank = 0; rank < 48; ++rank) {
      ASSERT_EQ(ExpertBytes(*result->plan, rank), 896 * (2 * kRows + kColumns));
    }
  }
  EXPECT_LE(Seconds() - start, 60);
}

// What lies outside the layers: the embedding whole, the head by attention's ranks.
TEST(HugePlan, EmbeddingIsWholeAndTheHeadIsCutByAttention) {
  HeaderSource source;
  const ModelConfig config = HugeConfig(HugeMethod::kMxfp4, 1);
  PutHugeModel(config, HugeMethod::kMxfp4, &source);
  const auto survey = Survey::Of(config, source, -1);
  ASSERT_TRUE(survey.ok()) << survey.error().message;
  EXPECT_TRUE(survey->errors().empty());
  const auto verdicts = survey->At(SixtyFour());
  ASSERT_EQ(verdicts.size(), 5u);
  std::vector<std::string> lines;
  for (const auto& verdict : verdicts) {
    ASSERT_TRUE(verdict.plan);
    lines.push_back(verdict.plan->component.name + " " + verdict.plan->Print());
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"embed.weight whole", "output_res.norm.weight whole",
                                      "output_res.proj.weight whole", "final_norm.weight whole",
                                      "logits.weight n[attn_tp]"}));
  EXPECT_EQ(verdicts[4].plan->ranks[63], (std::vector<Range>{{15 * 10240, 10240}}));
}

// The control of "headers alone": without it the exponents are read, which is what kills.
TEST(HugePlanDeathTest, BytesAreOutOfReach) {
  HeaderSource source;
  const ModelConfig config = HugeConfig(HugeMethod::kMxfp4, 2);
  PutHugeModel(config, HugeMethod::kMxfp4, &source);
  Selection selection = Layer(1);
  selection.headers_only = false;
  EXPECT_DEATH((void)PlanModel(config, source, SixtyFour(), selection), "");
}

}  // namespace
}  // namespace assay::shard
