// Whole checkpoints in other methods, in memory.
#include "kernels/methods/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/methods/convert_support.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

constexpr const char* kModels[] = {"llama-mini",      "qwen2-mini", "qwen3-mini",  "qwen3moe-mini",
                                   "dsv3-mini",       "k2-mini",    "gptoss-mini", "v4-mini",
                                   "kimilinear-mini", "k3-mini",    "m3-mini"};

// Every tensor is there, itself or as parts, and nothing else; every part decodes.
void ExpectWhole(const Raw& raw, const Scheme& scheme, const Converted& made) {
  std::set<std::string> expected;
  for (const std::string& name : raw.file->Names()) expected.insert(name);
  for (const ConvertedModule& module : made.modules) {
    const bool fused = scheme.family == MethodFamily::kGptOssMxfp4;
    ASSERT_EQ(expected.erase(module.name + (fused ? "" : ".weight")), 1u) << module.name;
    const PartViews parts = FindParts(scheme, *made.source, module.name);
    ASSERT_FALSE(parts.empty());
    for (const auto& [suffix, view] : parts) expected.insert(view.name);
    if (fused) continue;
    std::vector<double> values(static_cast<size_t>(module.n * module.k));
    const Status status = Decode(scheme, parts, module.n, module.k, values.data());
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  const std::vector<std::string> names = made.source->Names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

// Every method on some models and every model in some methods: all pairs would take a minute.
TEST(Convert, EveryMethodAndEveryShippedModel) {
  const std::vector<std::string> ids = KnownSchemes();
  std::set<std::string> methods, models;
  for (size_t m = 0; m < std::size(kModels); ++m) {
    const Raw raw = OpenRaw(kModels[m]);
    const bool all = std::string_view(kModels[m]) == "k2-mini";  // it has rows of 256
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!all && i % 3 != m % 3 && ids[i] != "gptoss-mxfp4") continue;
      SCOPED_TRACE(std::string(kModels[m]) + " " + ids[i]);
      const Scheme scheme = SchemeOf(ids[i]);
      const auto made = MakeConverted(*raw.file, raw.config, scheme);
      if (!made.ok()) {
        EXPECT_EQ(made.error().kind, ErrorKind::kRefused) << made.error().message;
        continue;
      }
      methods.insert(ids[i]);
      models.insert(kModels[m]);
      ExpectWhole(raw, scheme, *made);
    }
  }
  for (const std::string& id : ids) EXPECT_TRUE(methods.contains(id)) << id;
  EXPECT_EQ(models.size(), std::size(kModels));
}

// What the reader of configs makes of it.
TEST(Convert, ConfigsAreReadBack) {
  const auto dense = Shipped("k2-mini");
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const Scheme scheme = SchemeOf(id);
    if (scheme.family == MethodFamily::kGptOssMxfp4) continue;
    const auto made = MakeConverted(*dense, dense->config_json(), scheme);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto config = ParseModelConfig(made->config_json, "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const QuantConfig& quant = config->quant;
    const bool plain =
        scheme.family == MethodFamily::kDense || scheme.family == MethodFamily::kGguf;
    ASSERT_EQ(quant.method.empty(), plain);
    if (plain) continue;
    const bool slim = !made->description.empty();
    for (const std::string& module : made->ignored) {
      EXPECT_TRUE(slim || quant.For(module).method.empty()) << module;
    }
    for (const ConvertedModule& module : made->modules) {
      const QuantConfig own = quant.For(module.name);
      ASSERT_FALSE(own.method.empty()) << module.name;
      if (slim) {
        EXPECT_TRUE(quant.description.contains(module.name + ".weight"));
        continue;
      }
      // That producer's config says FP8 of everything but routed experts.
      const bool says_fp8 = scheme.family == MethodFamily::kDeepseekV4Mxfp4 &&
                            module.name.find(".experts.") == std::string::npos;
      EXPECT_EQ(own.bits, says_fp8 ? 8 : scheme.bits) << module.name;
      EXPECT_EQ(own.fnuz, scheme.fnuz);
      const bool int_family =
          scheme.family == MethodFamily::kCtInt || scheme.family == MethodFamily::kCtW8a8 ||
          scheme.family == MethodFamily::kGptq || scheme.family == MethodFamily::kAwq;
      EXPECT_TRUE(!int_family || own.symmetric == !scheme.asymmetric);
      EXPECT_EQ(own.desc_act || own.actorder == "group", scheme.actorder);
      EXPECT_EQ(own.v2, scheme.v2);
      if (scheme.granularity == Granularity::kGroup &&
          scheme.family != MethodFamily::kDeepseekV4Mxfp4) {
        EXPECT_EQ(own.group_size, scheme.group < 0 ? module.k : scheme.group) << module.name;
      }
      if (scheme.granularity == Granularity::kBlock) {
        EXPECT_EQ(own.block_n, scheme.block_n);
        EXPECT_EQ(own.block_k, scheme.block_k);
      }
    }
  }
}

TEST(Convert, KimisExpertsBecomeTheShippedQuantisedModel) {
  const auto dense = Shipped("k2-mini"), theirs = Open("goldens/quantised/k2-mini-int4-g32");
  ConvertOptions options;
  options.convert = [](std::string_view module, int64_t, int64_t) {
    return module.find(".experts.") != std::string_view::npos;
  };
  const auto made = MakeConverted(*dense, dense->config_json(), SchemeOf("ct-int4-g32"), options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ExpectSame(*made->source, *theirs);
  EXPECT_EQ(made->modules.size(), 2u * 6 * 3);
  // What is ignored is named.
  const auto has = [&](const char* name) {
    return std::find(made->ignored.begin(), made->ignored.end(), name) != made->ignored.end();
  };
  EXPECT_TRUE(has("lm_head"));
  EXPECT_TRUE(has("model.layers.1.mlp.gate"));
  EXPECT_FALSE(has("model.embed_tokens"));
  EXPECT_FALSE(has("model.layers.1.mlp.experts.0.up_proj"));
}

TEST(Convert, GptOssAndFp8BecomeTheShippedQuantisedModels) {
  for (const auto& [model, quantised, id] :
       {std::tuple{"gptoss-mini", "gptoss-mini-mxfp4", "gptoss-mxfp4"},
        {"qwen3moe-mini", "qwen3moe-mini-fp8", "deepseek-fp8-block32"}}) {
    const auto dense = Shipped(model);
    const auto theirs = Open(std::string("goldens/quantised/") + quantised);
    const auto made = MakeConverted(*dense, dense->config_json(), SchemeOf(id));
    ASSERT_TRUE(made.ok()) << made.error().message;
    ExpectSame(*made->source, *theirs);
  }
}

TEST(Convert, ModulesThatDoNotFitStayDense) {
  const auto dense = Shipped("qwen3-mini");  // hidden 88
  const auto made = MakeConverted(*dense, dense->config_json(), SchemeOf("ct-int4-g32"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  for (const ConvertedModule& module : made->modules) EXPECT_EQ(module.k % 32, 0) << module.name;
  const std::string up = "model.layers.0.mlp.up_proj";
  EXPECT_NE(std::find(made->ignored.begin(), made->ignored.end(), up), made->ignored.end());
  EXPECT_TRUE(SameTensor(made->source->Find(up + ".weight"), dense->Find(up + ".weight")));
  EXPECT_NE(made->config_json.find('"' + up + '"'), std::string::npos);
}

TEST(Convert, DeepseekV4TakesItsRoutedExpertsAndNames) {
  const Raw raw = OpenRaw("v4-mini");
  const auto made = MakeConverted(*raw.file, raw.config, SchemeOf("deepseek-v4-mxfp4"));
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->modules.size(), 4u * 5 * 3);
  const TensorView* scale = made->source->Find("layers.1.ffn.experts.2.w1.scale");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->dtype, DType::kF8E8M0);
  EXPECT_EQ(scale->shape, (std::vector<int64_t>{96, 3}));
  EXPECT_EQ(made->source->Find("layers.1.ffn.experts.2.w1.weight")->dtype, DType::kI8);
  EXPECT_EQ(made->source->Find("layers.1.ffn.shared_experts.w1.weight")->dtype, DType::kBF16);
}

TEST(Convert, ModelSlimSaysWhatEveryTensorIs) {
  const Raw raw = OpenRaw("k3-mini");
  for (const char* id : {"modelslim-w4a8", "modelslim-w8a8"}) {
    const auto made = MakeConverted(*raw.file, raw.config, SchemeOf(id));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto description = nlohmann::json::parse(made->description);
    const auto config =
        nlohmann::json::parse(made->config_json).at("quantization_config").at("quant_description");
    for (const std::string& name : made->source->Names()) {
      ASSERT_TRUE(description.contains(name)) << name;
      EXPECT_EQ(config.at(name), description.at(name));
    }
    const std::string layer = "language_model.model.layers.3.";
    EXPECT_EQ(description[layer + "self_attn.kv_b_proj.weight"], "FLOAT");
    const bool four = std::string(id) == "modelslim-w4a8";
    const std::string latent = layer + "block_sparse_moe.routed_expert_down_proj",
                      expert = layer + "block_sparse_moe.experts.0.w2";
    EXPECT_EQ(description[latent + ".weight"], four ? "W4A8_DYNAMIC" : "W8A8");
    EXPECT_EQ(description[expert + ".weight"], four ? "W4A8_DYNAMIC" : "W8A8_DYNAMIC");
    // Static activations are for linears; a row-parallel expert's correction is in sixteen parts.
    EXPECT_EQ(made->source->Find(latent + ".quant_bias") != nullptr, !four);
    EXPECT_EQ(made->source->Find(expert + ".quant_bias"), nullptr);
    if (!four) continue;
    EXPECT_EQ(made->source->Find(expert + ".scale_bias")->shape, (std::vector<int64_t>{64, 16}));
  }
}

TEST(Convert, MergedLinearsShareNvfp4sGlobalScale) {
  const auto dense = Shipped("llama-mini");
  for (const auto& [id, suffix] :
       {std::pair{"ct-nvfp4", ".weight_global_scale"}, {"modelopt-nvfp4", ".weight_scale_2"}}) {
    const auto made = MakeConverted(*dense, dense->config_json(), SchemeOf(id));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto global = [&](const std::string& module) {
      const TensorView* view = made->source->Find("model.layers.0." + module + suffix);
      return LoadValue(DType::kF32, view->bytes.data(), 0);
    };
    EXPECT_EQ(global("self_attn.q_proj"), global("self_attn.k_proj"));
    EXPECT_EQ(global("self_attn.q_proj"), global("self_attn.v_proj"));
    EXPECT_EQ(global("mlp.gate_proj"), global("mlp.up_proj"));
    EXPECT_NE(global("mlp.gate_proj"), global("mlp.down_proj"));
  }
}

TEST(Convert, WhatCannotBeConvertedIsRefused) {
  const auto dense = Shipped("llama-mini");
  const auto message = [](const auto& result) {
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_NE(message(MakeConverted(*dense, "[]", SchemeOf("ct-int4-g32"))).find("JSON object"),
            std::string::npos);
  EXPECT_NE(message(MakeConverted(*dense, dense->config_json(), SchemeOf("gptoss-mxfp4")))
                .find("gpt-oss"),
            std::string::npos);
  const auto quantised = Open("goldens/quantised/k2-mini-int4-g32");
  EXPECT_NE(message(MakeConverted(*quantised, quantised->config_json(), SchemeOf("ct-mxfp4")))
                .find("quantised already"),
            std::string::npos);
  // An infinity is found with its tensor.
  MemorySource source;
  std::vector<float> w(64 * 64, 1);
  w[70] = std::numeric_limits<float>::infinity();
  const auto bytes = std::as_bytes(std::span(w));
  source.Put("model.layers.0.mlp.up_proj.weight", DType::kF32, {64, 64},
             {bytes.begin(), bytes.end()});
  const std::string found = message(MakeConverted(source, "{}", SchemeOf("ct-nvfp4")));
  EXPECT_NE(found.find("model.layers.0.mlp.up_proj.weight"), std::string::npos) << found;
  EXPECT_NE(found.find("[1, 6]"), std::string::npos) << found;
  // Stored as integers: no dense weight.
  source.Put("model.layers.0.mlp.up_proj.weight", DType::kI32, {64, 64},
             std::vector<std::byte>(64 * 64 * 4));
  EXPECT_NE(message(MakeConverted(source, "{}", SchemeOf("ct-int4-g32"))).find("stored as I32"),
            std::string::npos);
}

}  // namespace
}  // namespace assay::kernels
