// Tensors that hold all experts' matrices, as each producer writes them: which values are one
// expert's gate, up and down, and what a rank holds of them. The values are numbered, so that a
// shard says where it came from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "harness/shard/executor.h"
#include "harness/shard/listing.h"
#include "harness/shard/test_model.h"

namespace assay::shard {
namespace {

constexpr int64_t kExperts = 3, kWidth = 64, kHidden = 32;

// A model of one layer of experts; only its experts' tensors are put.
ModelConfig Config(Family family) {
  ModelConfig c;
  c.family = family;
  c.prefix = "model.";
  c.lm_head = "lm_head.weight";
  c.hidden = kHidden, c.layers = 1, c.heads = c.kv_heads = 2, c.head_dim = 16, c.vocab = 64;
  c.experts = kExperts, c.moe_intermediate = kWidth, c.top_k = 1;
  return c;
}

constexpr char kModule[] = "model.layers.0.mlp.experts.";

// 16-bit values 0, 1, 2 ... of a BF16 tensor.
void PutNumbers(MemorySource* source, const std::string& name, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  std::vector<std::byte> bytes(static_cast<size_t>(count) * 2);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<uint16_t>(i);
    std::memcpy(bytes.data() + 2 * i, &value, 2);
  }
  source->Put(name, DType::kBF16, std::move(shape), std::move(bytes));
}

ModelPlan PlanOf(const ModelConfig& config, const TensorSource& source, int tp) {
  Selection selection;
  selection.layer = 0;
  selection.present_only = true;
  const auto result = PlanModel(config, source, Degrees{tp}, selection);
  if (!result.ok() || !result->plan) {
    ADD_FAILURE() << (result.ok() ? result->refusal->Message() : result.error().message);
    return {};
  }
  return *result->plan;
}

// The number of value (row, column) of a rank's shard.
struct Shard {
  ShardShape shape;
  std::vector<uint16_t> values;
  int64_t At(int64_t row, int64_t column) const {
    return values.at(static_cast<size_t>(row * shape.columns + column));
  }
};

Shard ShardOf(const ModelPlan& plan, const TensorSource& source, const std::string& name,
              int rank) {
  Shard shard;
  const ComponentPlan* component = plan.Find(name);
  if (component == nullptr) {
    ADD_FAILURE() << name << " is not planned";
    return shard;
  }
  shard.shape = ShapeOf(*component, rank);
  std::vector<std::byte> bytes(static_cast<size_t>(shard.shape.rows * shard.shape.columns) * 2);
  const Status copied =
      CopyShard(*component, rank, *source.Find(component->component.source), bytes);
  EXPECT_TRUE(copied.ok()) << copied.error().message;
  shard.values.resize(bytes.size() / 2);
  std::memcpy(shard.values.data(), bytes.data(), bytes.size());
  return shard;
}

TEST(Fused, StackedHasTheGatesRowsFirst) {
  MemorySource source;
  PutNumbers(&source, std::string(kModule) + "gate_up_proj", {kExperts, 2 * kWidth, kHidden});
  PutNumbers(&source, std::string(kModule) + "down_proj", {kExperts, kHidden, kWidth});
  const ModelPlan plan = PlanOf(Config(Family::kQwen3Moe), source, 2);
  EXPECT_EQ(plan.components.size(), 9u);
  const int64_t each = 2 * kWidth * kHidden;
  const Shard gate = ShardOf(plan, source, "L0.moe.e2.gate.weight", 1);
  EXPECT_EQ(gate.shape.rows, 32);
  EXPECT_EQ(gate.At(0, 5), 2 * each + 32 * kHidden + 5);
  const Shard up = ShardOf(plan, source, "L0.moe.e1.up.weight", 0);
  EXPECT_EQ(up.At(3, 7), each + (kWidth + 3) * kHidden + 7);
  const Shard down = ShardOf(plan, source, "L0.moe.e1.down.weight", 1);
  EXPECT_EQ(down.shape.columns, 32);
  EXPECT_EQ(down.At(4, 6), kHidden * kWidth + 4 * kWidth + 32 + 6);
  EXPECT_EQ(plan.Find("L0.moe.e1.up.weight")->segment_of, "L0.moe.e1.gate_up");
}

TEST(Fused, GptOssTakesTurnsAndLiesTransposed) {
  MemorySource source;
  PutNumbers(&source, std::string(kModule) + "gate_up_proj", {kExperts, kHidden, 2 * kWidth});
  PutNumbers(&source, std::string(kModule) + "down_proj", {kExperts, kWidth, kHidden});
  PutNumbers(&source, std::string(kModule) + "gate_up_proj_bias", {kExperts, 2 * kWidth});
  PutNumbers(&source, std::string(kModule) + "down_proj_bias", {kExperts, kHidden});
  ModelConfig config = Config(Family::kGptOss);
  config.expert_bias = true;
  const ModelPlan plan = PlanOf(config, source, 2);
  const int64_t each = 2 * kWidth * kHidden;
  const Shard up = ShardOf(plan, source, "L0.moe.e2.up.weight", 1);
  EXPECT_EQ(up.shape.rows, 32);
  EXPECT_EQ(up.shape.columns, kHidden);
  EXPECT_EQ(up.At(1, 9), 2 * each + 9 * 2 * kWidth + 2 * (32 + 1) + 1);
  const Shard gate = ShardOf(plan, source, "L0.moe.e0.gate.weight", 0);
  EXPECT_EQ(gate.At(1, 9), 9 * 2 * kWidth + 2);
  const Shard down = ShardOf(plan, source, "L0.moe.e1.down.weight", 1);
  EXPECT_EQ(down.At(4, 6), kWidth * kHidden + (32 + 6) * kHidden + 4);
  EXPECT_EQ(ShardOf(plan, source, "L0.moe.e1.up.bias", 1).At(2, 0), 2 * kWidth + 2 * (32 + 2) + 1);
  const ComponentPlan& bias = *plan.Find("L0.moe.e1.down.bias");
  EXPECT_EQ(bias.owner, 0);
  EXPECT_EQ(ShardOf(plan, source, "L0.moe.e1.down.bias", 1).At(3, 0), kHidden + 3);
}

// Of ModelSlim a stored row is two outputs: the gate has the first half of the stored rows.
TEST(Fused, ModelSlimHasTwoOutputsARow) {
  MemorySource source;
  const auto put = [&](const char* name, DType dtype, std::vector<int64_t> shape) {
    PutTensor(&source, std::string(kModule) + name, dtype, std::move(shape));
  };
  put("w13_weight", DType::kI8, {kExperts, kWidth, kHidden});
  put("w13_weight_scale", DType::kF32, {kExperts, 2 * kWidth, 1});
  put("w13_weight_offset", DType::kF32, {kExperts, 2 * kWidth, 1});
  put("w13_scale_bias", DType::kF32, {kExperts, 2 * kWidth, 1});
  put("w2_weight", DType::kI8, {kExperts, kHidden / 2, kWidth});
  put("w2_weight_scale", DType::kF32, {kExperts, kHidden, 1});
  put("w2_weight_offset", DType::kF32, {kExperts, kHidden, 1});
  put("w2_scale_bias", DType::kF32, {kExperts, kHidden, 16});
  ModelConfig config = Config(Family::kQwen3Moe);
  config.quant.method = "modelslim";
  const ModelPlan plan = PlanOf(config, source, 4);
  const auto component = [&](const char* name) { return plan.Find(name)->component; };
  const Component up = component("L0.moe.e2.up.weight");
  EXPECT_EQ(up.method, "modelslim-w4a8");
  EXPECT_EQ(up.rows, kWidth / 2);
  EXPECT_EQ(up.first, 2 * kWidth * kHidden + kWidth / 2 * kHidden);
  EXPECT_EQ(up.elements_per_row, Elements(2));
  EXPECT_EQ(plan.Find("L0.moe.e2.up.weight")->ranks[3], (std::vector<Range>{{24, 8}}));
  EXPECT_EQ(plan.Find("L0.moe.e2.up.scale")->ranks[3], (std::vector<Range>{{48, 16}}));
  EXPECT_EQ(component("L0.moe.e2.up.scale").first, 2 * 2 * kWidth + kWidth);
  EXPECT_EQ(plan.Find("L0.moe.e2.down.weight")->ranks[1], (std::vector<Range>{{16, 16}}));
  EXPECT_EQ(plan.Find("L0.moe.e2.down.scale")->ranks[1], (std::vector<Range>{{0, kHidden}}));
  // Sixteen partial sums over the inputs, of which a rank of four has four.
  EXPECT_EQ(plan.Find("L0.moe.e2.down.scale_bias")->ranks[1], (std::vector<Range>{{4, 4}}));
}

TEST(Fused, GgufHasATensorForEachMatrix) {
  MemorySource source;
  ModelConfig config = Config(Family::kMinimaxM3);
  config.container = Container::kGguf;
  config.prefix = "";
  config.hidden = 64;
  PutTensor(&source, "blk.0.ffn_gate_exps.weight", DType::kQ4_1, {kExperts, kWidth, 2});
  PutTensor(&source, "blk.0.ffn_up_exps.weight", DType::kQ4_1, {kExperts, kWidth, 2});
  PutTensor(&source, "blk.0.ffn_down_exps.weight", DType::kQ8_0, {kExperts, 64, 2});
  const ModelPlan plan = PlanOf(config, source, 2);
  const ComponentPlan& down = *plan.Find("L0.moe.e1.down.weight");
  EXPECT_EQ(down.component.method, "gguf-q8_0");
  EXPECT_EQ(down.component.first, 64 * 2);
  EXPECT_EQ(down.component.row_step, 2);
  EXPECT_EQ(down.ranks[1], (std::vector<Range>{{1, 1}}));
  EXPECT_EQ(plan.Find("L0.moe.e2.up.weight")->component.first, 2 * kWidth * 2);
}

struct Mistake {
  const char* name;
  std::function<void(MemorySource*)> make;
  std::vector<std::string> says;
};
void PrintTo(const Mistake& mistake, std::ostream* os) { *os << mistake.name; }

class FusedMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(FusedMistakes, AreNamed) {
  MemorySource source;
  PutNumbers(&source, std::string(kModule) + "gate_up_proj", {kExperts, 2 * kWidth, kHidden});
  PutNumbers(&source, std::string(kModule) + "down_proj", {kExperts, kHidden, kWidth});
  GetParam().make(&source);
  Selection selection;
  selection.layer = 0;
  selection.present_only = true;
  const auto listed = ListComponents(Config(Family::kQwen3Moe), source, selection);
  ASSERT_FALSE(listed.ok());
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(listed.error().message.find(part), std::string::npos) << listed.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FusedMistakes,
    testing::Values(
        Mistake{"AnotherNumberOfExperts",
                [](MemorySource* s) {
                  PutNumbers(s, std::string(kModule) + "down_proj", {4, kHidden, kWidth});
                },
                {"experts.down_proj", "axis expert has 4 experts, expected 3 experts"}},
        Mistake{
            "TransposedAsGptOss",
            [](MemorySource* s) {
              PutNumbers(s, std::string(kModule) + "gate_up_proj", {kExperts, kHidden, 2 * kWidth});
            },
            {"experts.gate_up_proj", "axis n has 16 elements, expected 64 elements"}},
        Mistake{"AnOddNumberOfRows",
                [](MemorySource* s) {
                  PutNumbers(s, std::string(kModule) + "gate_up_proj",
                             {kExperts, 2 * kWidth + 1, kHidden});
                },
                {"experts.gate_up_proj", "axis n has 129 elements"}},
        Mistake{"OneAxis",
                [](MemorySource* s) { PutNumbers(s, std::string(kModule) + "down_proj", {64}); },
                {"experts.down_proj", "has 1 axes"}},
        Mistake{"ABiasThatTheConfigDenies",
                [](MemorySource* s) {
                  PutNumbers(s, std::string(kModule) + "down_proj_bias", {kExperts, kHidden});
                },
                {"experts.down_proj_bias", "no bias"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace assay::shard
