// The parts of loading; whole loads are tested through the C ABI in kernels/engines/native.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "kernels/loaders/check.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/names.h"
#include "kernels/loaders/parameters.h"
#include "kernels/loaders/plan_error.h"

namespace assay::kernels {
namespace {

EngineError Checked(const ParameterSpec& spec, const shard::Component& stored) {
  try {
    CheckTensor(spec, stored);
  } catch (const EngineError& e) {
    return e;
  }
  return EngineError(ASSAY_OK, "");
}

shard::Component Packed() {
  shard::Component c;
  c.name = "L1.moe.e0.gate.weight";
  c.source = "x.gate_proj.weight_packed";
  c.dtype = DType::kI32;
  c.rows = 16;
  c.columns = 4;
  c.packing = {Elements(8), Bytes(4)};
  c.unit = "word";
  return c;
}

TEST(Check, WhatFitsPasses) { EXPECT_EQ(Checked(SpecOf(Packed()), Packed()).status, ASSAY_OK); }

TEST(Check, RepresentationComesFirstAndNamesBothUnits) {
  ParameterSpec spec = SpecOf(Packed());
  spec.packing = {Elements(1), Bytes(2)};
  spec.columns = 32;
  EngineError e = Checked(spec, Packed());
  EXPECT_EQ(e.status, ASSAY_REFUSED);
  EXPECT_EQ(e.tensor, "x.gate_proj.weight_packed");
  EXPECT_EQ(e.axis, "k");
  EXPECT_EQ(e.got, 16);
  EXPECT_EQ(e.got_unit, "byte");
  EXPECT_EQ(e.expected, 32);
  EXPECT_EQ(e.expected_unit, "element");
  EXPECT_NE(e.message.find("16 packed bytes (u4x2), the parameter takes 32 unpacked elements"),
            std::string::npos)
      << e.message;

  shard::Component dense = Packed();
  dense.packing = {Elements(1), Bytes(4)};
  e = Checked(SpecOf(Packed()), dense);
  EXPECT_EQ(e.got_unit, "element");
  EXPECT_EQ(e.expected_unit, "byte");
}

TEST(Check, ExtentsAndTypes) {
  ParameterSpec spec = SpecOf(Packed());
  spec.rows = 15;
  EXPECT_EQ(Checked(spec, Packed()).axis, "n");
  spec = SpecOf(Packed());
  spec.columns = 5;
  EngineError e = Checked(spec, Packed());
  EXPECT_EQ(e.axis, "k");
  EXPECT_EQ(e.got_unit, "word");
  EXPECT_EQ(e.got, 4);
  spec = SpecOf(Packed());
  spec.dtype = DType::kU32;
  e = Checked(spec, Packed());
  EXPECT_EQ(e.status, ASSAY_REFUSED);
  EXPECT_NE(e.message.find("stored as I32, the parameter takes U32"), std::string::npos);
  // Another floating type is legal, and nobody here has kernels for it.
  shard::Component dense = Packed();
  dense.packing = {Elements(1), Bytes(2)};
  dense.dtype = DType::kF16;
  spec = SpecOf(dense);
  spec.dtype = DType::kBF16;
  EXPECT_EQ(Checked(spec, dense).status, ASSAY_UNSUPPORTED);
}

TEST(PlanError, WhatThePlannerSaysInTheAbisStructure) {
  EngineError e = ErrorOf(Error{"a.weight_packed: axis k has 13 words, expected 12 words"});
  EXPECT_EQ(e.status, ASSAY_REFUSED);
  EXPECT_EQ(e.tensor, "a.weight_packed");
  EXPECT_EQ(e.axis, "k");
  EXPECT_EQ(e.got, 13);
  EXPECT_EQ(e.expected, 12);
  EXPECT_EQ(e.got_unit, "word");
  EXPECT_EQ(e.expected_unit, "word");
  e = ErrorOf(Error{"b.weight (x.gguf): axis k has 88 elements, no whole number of blocks of 32"});
  EXPECT_EQ(e.tensor, "b.weight");
  EXPECT_EQ(e.got, 88);
  EXPECT_EQ(e.expected, 32);
  EXPECT_EQ(e.got_unit, "element");
  e = ErrorOf(
      Error{"c.scale: axis k has 6 groups, but config's group_size 32 over 96 elements needs 3 "
            "groups"});
  EXPECT_EQ(e.got, 6);
  EXPECT_EQ(e.expected, 3);
  EXPECT_EQ(e.expected_unit, "group");
  // Other words name the tensor at least, or nothing at all.
  e = ErrorOf(Error{"d.weight: stored as U8, must be I32", ErrorKind::kUnsupported});
  EXPECT_EQ(e.status, ASSAY_UNSUPPORTED);
  EXPECT_EQ(e.tensor, "d.weight");
  EXPECT_EQ(e.axis, "");
  EXPECT_EQ(e.got_unit, "");
  EXPECT_EQ(ErrorOf(Error{"config: hidden_size is 0; allowed is 1 to 2"}).tensor, "");
}

TEST(Names, PrefixesAreFound) {
  const auto prefix = [](Names names, Family family = Family::kLlama) {
    ModelConfig config;
    config.family = family;
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
  EXPECT_EQ(prefix({"language_model.lm_head.weight"}),
            "language_model.model.|language_model.lm_head.weight");
  EXPECT_EQ(prefix({"layers.1.attn_norm.weight", "embed.weight"}, Family::kDeepseekV4),
            "|head.weight");
  EXPECT_EQ(prefix({"head.weight"}, Family::kDeepseekV4), "|head.weight");
  EXPECT_THROW(prefix({"something.else"}), EngineError);
}

TEST(Names, LayersAndExperts) {
  ModelConfig config;
  config.prefix = "model.";
  EXPECT_EQ(LayerOf(config, "model.layers.12.mlp.up_proj.weight"), 12);
  EXPECT_EQ(LayerOf(config, "model.norm.weight"), -1);
  EXPECT_EQ(LayerOf(config, "layers.12.mlp.up_proj.weight"), -1);
  config.container = Container::kGguf;
  EXPECT_EQ(LayerOf(config, "blk.3.ffn_up.weight"), 3);
  EXPECT_EQ(ExpertOf("L1.moe.e15.gate"), 15);
  EXPECT_EQ(ExpertOf("L1.mlp.gate"), -1);
  EXPECT_EQ(ExpertOf("L1.moe.latent_up"), -1);
}

TEST(Parameters, TwiceAndMissingAreErrors) {
  RankParameters parameters;
  const auto make = [](const std::string& op) {
    Parameter parameter;
    parameter.name = "L0.attn.qkv";
    parameter.segments = {{op, 0, 4}};
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
    for (std::string& op : ops) parameter.segments.push_back({std::move(op), 0, 4});
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
