// The parts of loading; whole loads are tested through the C ABI in kernels/engines/native.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "kernels/loaders/check.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/inventory.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/parameters.h"

namespace assay::kernels {
namespace {

EngineError ErrorOf(const ParameterSpec& spec, const TensorView& tensor) {
  try {
    CheckTensor(spec, tensor);
  } catch (const EngineError& e) {
    return e;
  }
  return EngineError(ASSAY_OK, "");
}

struct Packed {
  Packed() {
    spec.component = "L1.moe.e0.gate.weight";
    spec.source = tensor.name = "x.gate_proj.weight_packed";
    spec.dtype = tensor.dtype = DType::kI32;
    spec.rows = 16;
    spec.columns = 4;
    spec.packing = {Elements(8), Bytes(4)};
    spec.unit = "word";
    tensor.shape = {16, 4};
    tensor.bytes = bytes;
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(256);
  ParameterSpec spec;
  TensorView tensor;
};

TEST(Check, WhatFitsPasses) {
  Packed packed;
  EXPECT_EQ(ErrorOf(packed.spec, packed.tensor).status, ASSAY_OK);
}

TEST(Check, RepresentationComesFirstAndNamesBothUnits) {
  Packed packed;
  packed.spec.packing = {Elements(1), Bytes(2)};
  packed.spec.columns = 32;
  EngineError e = ErrorOf(packed.spec, packed.tensor);
  EXPECT_EQ(e.status, ASSAY_REFUSED);
  EXPECT_EQ(e.axis, "k");
  EXPECT_EQ(e.got, 16);
  EXPECT_EQ(e.got_unit, "byte");
  EXPECT_EQ(e.expected, 32);
  EXPECT_EQ(e.expected_unit, "element");
  EXPECT_NE(e.message.find("16 packed bytes (u4x2), the parameter takes 32 unpacked elements"),
            std::string::npos)
      << e.message;

  Packed other;
  other.tensor.name = "x.gate_proj.weight";
  e = ErrorOf(other.spec, other.tensor);
  EXPECT_EQ(e.got_unit, "element");
  EXPECT_EQ(e.expected_unit, "byte");
}

TEST(Check, ExtentsTypesAndSizes) {
  Packed packed;
  packed.tensor.shape = {15, 4};
  EXPECT_EQ(ErrorOf(packed.spec, packed.tensor).axis, "n");
  packed.tensor.shape = {16, 5};
  EXPECT_EQ(ErrorOf(packed.spec, packed.tensor).axis, "k");
  packed.tensor.shape = {64};
  EXPECT_EQ(ErrorOf(packed.spec, packed.tensor).got_unit, "dimension");
  packed.tensor.shape = {16, 4};
  packed.tensor.bytes = packed.tensor.bytes.subspan(1);
  EXPECT_EQ(ErrorOf(packed.spec, packed.tensor).got_unit, "byte");
  packed.tensor.dtype = DType::kU32;
  const EngineError type = ErrorOf(packed.spec, packed.tensor);
  EXPECT_EQ(type.status, ASSAY_REFUSED);
  EXPECT_NE(type.message.find("stored as U32, the parameter takes I32"), std::string::npos);
}

TEST(Inventory, PrefixesAreFound) {
  const auto prefix = [](std::set<std::string, std::less<>> names) {
    ModelConfig config;
    FindPrefix(names, &config);
    return config.prefix + "|" + config.lm_head;
  };
  EXPECT_EQ(prefix({"model.layers.3.input_layernorm.weight"}), "model.|lm_head.weight");
  EXPECT_EQ(prefix({"language_model.model.embed_tokens.weight"}),
            "language_model.model.|language_model.lm_head.weight");
  EXPECT_EQ(prefix({"model.language_model.layers.0.mlp.gate.weight", "lm_head.weight"}),
            "model.language_model.|lm_head.weight");
  EXPECT_EQ(prefix({"vision_tower.layers.0.norm.weight", "model.norm.weight"}),
            "model.|lm_head.weight");
  EXPECT_EQ(prefix({"lm_head.weight"}), "model.|lm_head.weight");
  EXPECT_THROW(prefix({"something.else"}), EngineError);
}

TEST(Inventory, MoeLayersHaveRouterExpertsAndShared) {
  ModelConfig config;
  config.prefix = "model.";
  config.hidden = 8;
  config.heads = config.kv_heads = config.head_dim = 2;
  config.experts = 3;
  config.moe_intermediate = 4;
  config.shared_experts = 2;
  config.first_dense = 1;
  config.topk_method = "noaux_tc";
  const auto count = [](const std::vector<Expected>& list, const std::string& part) {
    return std::count_if(list.begin(), list.end(),
                         [&](const Expected& e) { return e.op.find(part) != std::string::npos; });
  };
  const auto dense = LayerInventory(config, 0), moe = LayerInventory(config, 1);
  EXPECT_EQ(count(dense, "moe."), 0);
  EXPECT_EQ(count(dense, "L0.mlp."), 3);
  EXPECT_EQ(count(moe, "L1.moe.e"), 9);
  EXPECT_EQ(count(moe, "L1.shared."), 3);
  EXPECT_EQ(count(moe, "router."), 2);
  for (const Expected& e : moe) {
    if (e.op == "L1.shared.down") {
      EXPECT_EQ(e.k, 8);
    }
    if (e.op == "L1.moe.e2.up") {
      EXPECT_EQ(e.source, "model.layers.1.mlp.experts.2.up_proj");
    }
  }
}

TEST(Inventory, OnlyWhatIsKnownMayBeIgnored) {
  ModelConfig config;
  config.prefix = "model.";
  config.lm_head = "lm_head.weight";
  config.layers = 2;
  EXPECT_TRUE(MayBeIgnored(config, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_TRUE(MayBeIgnored(config, "model.layers.2.eh_proj.weight"));  // a draft head
  EXPECT_TRUE(MayBeIgnored(config, "vision_tower.conv.weight"));
  EXPECT_FALSE(MayBeIgnored(config, "model.layers.1.self_attn.q_proj.bias"));
  EXPECT_FALSE(MayBeIgnored(config, "lm_head.weight"));
}

TEST(Parameters, TwiceAndMissingAreErrors) {
  RankParameters parameters;
  const auto make = [](const std::string& op) {
    Parameter parameter;
    parameter.name = "L0.attn.qkv";
    parameter.segments = {{op, 0, 4, {}}};
    return parameter;
  };
  parameters.Add(make("L0.attn.q"), false);
  parameters.Add(make("L0.attn.k"), false);
  EXPECT_EQ(parameters.Get("L0.attn.k").segment->op, "L0.attn.k");
  EXPECT_NE(parameters.Get("L0.attn.q").parameter, parameters.Get("L0.attn.k").parameter);
  EXPECT_THROW(parameters.Add(make("L0.attn.q"), false), EngineError);
  EXPECT_EQ(parameters.Find("L0.attn.v").parameter, nullptr);
  EXPECT_THROW(parameters.Get("L0.attn.v"), EngineError);
}

// What a second load names takes the place of what was there, whatever it was joined with; a matrix
// goes when none of its segments is used any more.
TEST(Parameters, ReplacedSegmentsGiveTheirMemoryBack) {
  Memory memory(nullptr);
  RankParameters parameters;
  const auto make = [&](std::vector<std::string> ops, float value) {
    Parameter parameter;
    parameter.name = "L0.attn.qkv";
    for (std::string& op : ops) parameter.segments.push_back({std::move(op), 0, 4, {}});
    parameter.floats = Array<float>(memory, 1);
    parameter.floats[0] = value;
    return parameter;
  };
  const auto value = [&](const char* op) { return parameters.Get(op).parameter->floats[0]; };
  parameters.Add(make({"q", "k"}, 1), true);
  parameters.Add(make({"q"}, 2), true);
  EXPECT_EQ(value("q"), 2);
  EXPECT_EQ(value("k"), 1);
  EXPECT_EQ(parameters.size(), 2u);
  parameters.Add(make({"q", "k"}, 3), true);
  EXPECT_EQ(value("q"), 3);
  EXPECT_EQ(value("k"), 3);
  EXPECT_EQ(parameters.size(), 1u);
}

struct Counted {
  int allocated = 0, freed = 0;
  bool empty = false;
};

TEST(MemoryTest, TheHostsIsUsedAndGivenBack) {
  Counted counted;
  assay_host host{};
  host.size = sizeof host;
  host.context = &counted;
  host.alloc = [](void* context, uint64_t bytes, uint64_t) -> void* {
    auto* counted = static_cast<Counted*>(context);
    if (counted->empty) return nullptr;
    ++counted->allocated;
    return std::malloc(bytes);
  };
  host.free = [](void* context, void* pointer) {
    ++static_cast<Counted*>(context)->freed;
    std::free(pointer);
  };
  Memory memory(&host);
  {
    Array<float> a(memory, 10), none(memory, 0);
    EXPECT_NE(none.data(), nullptr);
    Array<float> b = std::move(a);
    EXPECT_EQ(a.data(), nullptr);
    b = Array<float>(memory, 3);
    EXPECT_EQ(counted.freed, 1);
  }
  EXPECT_EQ(counted.allocated, 3);
  EXPECT_EQ(counted.freed, 3);
  counted.empty = true;
  EXPECT_THROW(memory.Allocate(8, 8), EngineError);
  EXPECT_THROW(memory.Allocate(-1, 8), EngineError);
  EXPECT_THROW(CheckedProduct(INT64_MAX, 2), EngineError);
  // A host of an older header, without memory.
  assay_host old{};
  old.size = sizeof old.size + sizeof old.context;
  old.alloc = host.alloc;
  EXPECT_EQ(Memory(&old).host().alloc, nullptr);
}

}  // namespace
}  // namespace assay::kernels
