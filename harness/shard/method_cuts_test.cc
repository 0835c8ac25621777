// What each method lets a degree cut: only between its own units, and what stays whole. Written out
// by hand for one MLP of 128 inputs and 192 intermediate units.
#include <gtest/gtest.h>

#include <cstring>

#include "harness/shard/plan.h"
#include "harness/shard/test_model.h"
#include "harness/shard/unplanned.h"

namespace assay::shard {
namespace {

using Ranges = std::vector<Range>;

struct Rig {
  ModelConfig config;
  MemorySource source;
  int64_t hidden = 128, width = 192;
  Rig() {
    ModelConfig& c = config;
    c.family = Family::kLlama;
    c.prefix = "model.";
    c.lm_head = "lm_head.weight";
    c.hidden = hidden, c.intermediate = width, c.layers = 1, c.vocab = 64;
    c.heads = c.kv_heads = 1, c.head_dim = 128;
  }
  void Put(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    PutTensor(&source, "model.layers.0.mlp." + name, dtype, std::move(shape));
  }
  void Order(const std::string& name, int64_t k, int64_t group, bool backwards) {
    std::vector<int32_t> order;
    for (int64_t i = 0; i < k; ++i) {
      order.push_back(static_cast<int32_t>((backwards ? k - 1 - i : i) / group));
    }
    std::vector<std::byte> bytes(order.size() * 4);
    std::memcpy(bytes.data(), order.data(), bytes.size());
    source.Put("model.layers.0.mlp." + name, DType::kI32, {k}, std::move(bytes));
  }
  PlanResult At(int tp) const {
    Selection selection;
    selection.layer = 0;
    selection.present_only = true;
    const auto result = PlanModel(config, source, Degrees{tp}, selection);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? *result : PlanResult{};
  }
  Ranges RangesOf(const std::string& part, int tp, int rank) const {
    const PlanResult result = At(tp);
    const ComponentPlan* plan = result.plan ? result.plan->Find("L0.mlp." + part) : nullptr;
    EXPECT_NE(plan, nullptr) << part << (result.refusal ? result.refusal->Message() : "");
    return plan == nullptr ? Ranges{} : plan->ranks.at(static_cast<size_t>(rank));
  }
  Refusal RefusalAt(int tp) const {
    const PlanResult result = At(tp);
    EXPECT_TRUE(result.refusal.has_value());
    return result.refusal.value_or(Refusal{});
  }
};

// down_proj [128, 192], GPTQ, group 32: words of 8 along k.
Rig Gptq(bool backwards) {
  Rig rig;
  rig.config.quant.method = "gptq";
  rig.config.quant.bits = 4, rig.config.quant.group_size = 32;
  rig.Put("down_proj.qweight", DType::kI32, {24, 128});
  rig.Put("down_proj.qzeros", DType::kI32, {6, 16});
  rig.Put("down_proj.scales", DType::kF16, {6, 128});
  rig.Order("down_proj.g_idx", 192, 32, backwards);
  return rig;
}

TEST(MethodCuts, GptqGroupsAreCutWithTheInputsUnlessTheirOrderIsFree) {
  const Rig plain = Gptq(false);
  EXPECT_EQ(plain.RangesOf("down.weight", 2, 1), (Ranges{{12, 12}}));
  EXPECT_EQ(plain.RangesOf("down.scale", 2, 1), (Ranges{{3, 3}}));
  EXPECT_EQ(plain.RangesOf("down.zero", 2, 1), (Ranges{{3, 3}}));
  EXPECT_EQ(plain.RangesOf("down.g_idx", 2, 1), (Ranges{{96, 96}}));
  EXPECT_EQ(plain.RefusalAt(4).tensor, "model.layers.0.mlp.down_proj.scales");
  EXPECT_EQ(plain.RefusalAt(4).unit, "group");
  const Rig free = Gptq(true);
  EXPECT_EQ(free.RangesOf("down.weight", 2, 1), (Ranges{{12, 12}}));
  EXPECT_EQ(free.RangesOf("down.scale", 2, 1), (Ranges{{0, 6}}));
  EXPECT_EQ(free.RangesOf("down.zero", 2, 1), (Ranges{{0, 6}}));
  EXPECT_EQ(free.RangesOf("down.g_idx", 2, 1), (Ranges{{96, 96}}));
  // Groups no longer forbid a degree; words still do.
  EXPECT_EQ(free.RangesOf("down.weight", 4, 3), (Ranges{{18, 6}}));
  EXPECT_EQ(free.RefusalAt(16).tensor, "model.layers.0.mlp.down_proj.qweight");
  EXPECT_EQ(free.RefusalAt(16).unit, "word");
}

TEST(MethodCuts, GptqOutputsAreCutAtTheZeroPointsWords) {
  Rig rig;
  rig.config.quant.method = "gptq";
  rig.config.quant.bits = 4, rig.config.quant.group_size = 32;
  rig.Put("up_proj.qweight", DType::kI32, {16, 192});
  rig.Put("up_proj.qzeros", DType::kI32, {4, 24});
  rig.Put("up_proj.scales", DType::kF16, {4, 192});
  EXPECT_EQ(rig.RangesOf("up.weight", 8, 7), (Ranges{{168, 24}}));
  EXPECT_EQ(rig.RangesOf("up.zero", 8, 7), (Ranges{{21, 3}}));
  const Refusal refusal = rig.RefusalAt(16);
  EXPECT_EQ(refusal.tensor, "model.layers.0.mlp.up_proj.qzeros");
  EXPECT_EQ(refusal.axis, "n");
  EXPECT_EQ(refusal.extent, 24);
  EXPECT_EQ(refusal.elements, 192);
}

TEST(MethodCuts, AwqOutputsAreCutAtTheWeightsWords) {
  Rig rig;
  rig.config.quant.method = "awq";
  rig.config.quant.bits = 4, rig.config.quant.group_size = 32;
  rig.config.quant.symmetric = false;
  rig.Put("up_proj.qweight", DType::kI32, {128, 24});
  rig.Put("up_proj.qzeros", DType::kI32, {4, 24});
  rig.Put("up_proj.scales", DType::kF16, {4, 192});
  EXPECT_EQ(rig.RangesOf("up.weight", 8, 7), (Ranges{{21, 3}}));
  EXPECT_EQ(rig.RangesOf("up.scale", 8, 7), (Ranges{{168, 24}}));
  EXPECT_EQ(rig.RefusalAt(16).tensor, "model.layers.0.mlp.up_proj.qweight");
}

// Three bits: 32 codes in three words; a cut inside them would be inside a code.
TEST(MethodCuts, StraddlingCodesAreCutAtWholeRunsOfWords) {
  Rig rig;
  rig.config.quant.method = "compressed-tensors";
  rig.config.quant.bits = 3, rig.config.quant.strategy = "channel";
  rig.Put("down_proj.weight_packed", DType::kI32, {128, 18});
  rig.Put("down_proj.weight_scale", DType::kBF16, {128, 1});
  PutShape(&rig.source, "model.layers.0.mlp.down_proj", 128, 192);
  EXPECT_EQ(rig.RangesOf("down.weight", 3, 2), (Ranges{{12, 6}}));
  EXPECT_EQ(rig.RangesOf("down.weight", 6, 1), (Ranges{{3, 3}}));
  EXPECT_EQ(rig.RangesOf("down.scale", 6, 1), (Ranges{{0, 128}}));
  const Refusal refusal = rig.RefusalAt(4);
  EXPECT_EQ(refusal.unit, "word");
  EXPECT_EQ(refusal.extent, 18);
  EXPECT_EQ(refusal.elements, 192);
}

TEST(MethodCuts, ZeroPointsOfCtArePackedAlongTheOutputs) {
  Rig rig;
  rig.config.quant.method = "compressed-tensors";
  rig.config.quant.bits = 4, rig.config.quant.strategy = "group";
  rig.config.quant.group_size = 32, rig.config.quant.symmetric = false;
  rig.Put("up_proj.weight_packed", DType::kI32, {192, 16});
  rig.Put("up_proj.weight_scale", DType::kBF16, {192, 4});
  rig.Put("up_proj.weight_zero_point", DType::kI32, {24, 4});
  PutShape(&rig.source, "model.layers.0.mlp.up_proj", 192, 128);
  EXPECT_EQ(rig.RangesOf("up.weight", 4, 1), (Ranges{{48, 48}}));
  EXPECT_EQ(rig.RangesOf("up.zero", 4, 1), (Ranges{{6, 6}}));
  EXPECT_EQ(rig.RefusalAt(16).tensor, "model.layers.0.mlp.up_proj.weight_zero_point");
}

TEST(MethodCuts, ScalesOfATensorAreOnEveryRank) {
  Rig rig;
  rig.Put("down_proj.weight_packed", DType::kU8, {128, 96});
  rig.Put("down_proj.weight_scale", DType::kF8E4M3, {128, 12});
  rig.Put("down_proj.weight_global_scale", DType::kF32, {1});
  EXPECT_EQ(rig.RangesOf("down.weight", 4, 3), (Ranges{{72, 24}}));
  EXPECT_EQ(rig.RangesOf("down.scale", 4, 3), (Ranges{{9, 3}}));
  EXPECT_EQ(rig.RangesOf("down.global_scale", 4, 3), (Ranges{{0, 1}}));
  EXPECT_EQ(rig.RefusalAt(8).tensor, "model.layers.0.mlp.down_proj.weight_scale");
  EXPECT_EQ(rig.RefusalAt(8).unit, "group");
}

TEST(MethodCuts, ModelSlimsCorrectionsCountOnce) {
  Rig rig;
  rig.config.quant.method = "modelslim";
  rig.config.quant.description = {{"model.layers.0.mlp.down_proj.weight", "W8A8"}};
  rig.Put("down_proj.weight", DType::kI8, {128, 192});
  rig.Put("down_proj.weight_scale", DType::kF32, {128, 1});
  rig.Put("down_proj.weight_offset", DType::kF32, {128, 1});
  rig.Put("down_proj.input_scale", DType::kF32, {1});
  rig.Put("down_proj.input_offset", DType::kF32, {1});
  rig.Put("down_proj.deq_scale", DType::kF32, {128});
  rig.Put("down_proj.quant_bias", DType::kI32, {128});
  const PlanResult result = rig.At(4);
  ASSERT_TRUE(result.plan);
  EXPECT_EQ(result.plan->Find("L0.mlp.down.quant_bias")->owner, 0);
  EXPECT_EQ(result.plan->Find("L0.mlp.down.deq_scale")->owner, std::nullopt);
  EXPECT_EQ(rig.RangesOf("down.deq_scale", 4, 3), (Ranges{{0, 128}}));
  EXPECT_EQ(rig.RangesOf("down.weight", 4, 3), (Ranges{{144, 48}}));
}

// GPTQ's library writes biases of zeros where the model has none: no parameters.
TEST(MethodCuts, GptqsZerosAreNoBias) {
  Rig rig = Gptq(false);
  const std::string name = "model.layers.0.mlp.down_proj.bias";
  rig.source.Put(name, DType::kF16, {128}, std::vector<std::byte>(256));
  const PlanResult without = rig.At(2);
  ASSERT_TRUE(without.plan);
  EXPECT_EQ(without.plan->Find("L0.mlp.down.bias"), nullptr);
  EXPECT_NE(WhyPassed(rig.config, name), "");
  rig.config.mlp_bias = true;
  const PlanResult with = rig.At(2);
  ASSERT_TRUE(with.plan);
  EXPECT_EQ(with.plan->Find("L0.mlp.down.bias")->owner, 0);
  EXPECT_EQ(WhyPassed(rig.config, name), "");
}

// Its shift of a norm, which nobody else has.
TEST(MethodCuts, ModelSlimShiftsNorms) {
  Rig rig;
  PutTensor(&rig.source, "model.layers.0.input_layernorm.weight", DType::kBF16, {128});
  PutTensor(&rig.source, "model.layers.0.input_layernorm.bias", DType::kBF16, {128});
  const PlanResult plain = rig.At(2);
  ASSERT_TRUE(plain.plan);
  EXPECT_EQ(plain.plan->components.size(), 1u);
  rig.config.quant.method = "modelslim";
  rig.config.quant.description = {{"model.layers.0.input_layernorm.weight", "FLOAT"}};
  const PlanResult shifted = rig.At(2);
  ASSERT_TRUE(shifted.plan);
  ASSERT_EQ(shifted.plan->components.size(), 2u);
  EXPECT_EQ(shifted.plan->components[1].component.name, "L0.input_norm.bias");
}

}  // namespace
}  // namespace assay::shard
