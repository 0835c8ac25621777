// What each producer writes, which scheme is a module's own, and what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

std::string WithQuant(const std::string& quant) {
  std::string text = LlamaJson();
  text.insert(text.find('{') + 1, "\"quantization_config\": " + quant + ",");
  return text;
}

QuantConfig Quant(const std::string& json) {
  auto config = ParseModelConfig(WithQuant(json), "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config->quant : QuantConfig();
}

void Refused(const std::string& json, std::initializer_list<std::string_view> says,
             ErrorKind kind = ErrorKind::kBadInput) {
  const auto config = ParseModelConfig(WithQuant(json), "config.json");
  ASSERT_FALSE(config.ok()) << json;
  EXPECT_TRUE(Says(config.error(), says)) << json;
  EXPECT_EQ(config.error().kind, kind) << json;
}

constexpr char kUp[] = "model.layers.3.mlp.up_proj";
constexpr char kDown[] = "model.layers.3.mlp.down_proj";

std::string Ct(const std::string& groups, const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {)" +
         groups + "}" + more + "}";
}
std::string Group(const std::string& name, const std::string& targets, const std::string& weights,
                  const std::string& format = "pack-quantized") {
  return fmt::format(R"("{}": {{"format": "{}", "targets": [{}], "weights": {{{}}}}})", name,
                     format, targets, weights);
}

TEST(CompressedTensors, Formats) {
  const auto one = [](const char* format, const char* weights) {
    return Quant(Ct(Group("group_0", "\"Linear\"", weights, format))).For(kUp);
  };
  const QuantConfig int4 = one("pack-quantized", R"("num_bits": 4, "type": "int",
    "strategy": "group", "group_size": 32, "symmetric": false, "actorder": "group")");
  EXPECT_EQ(int4.format, "pack-quantized");
  EXPECT_FALSE(int4.symmetric);
  EXPECT_EQ(int4.actorder, "group");
  const QuantConfig one_group =
      one("pack-quantized", R"("num_bits": 4, "strategy": "group", "group_size": -1)");
  EXPECT_EQ(one_group.strategy, "group");
  EXPECT_EQ(one_group.group_size, 0);
  EXPECT_EQ(one("int-quantized", R"("num_bits": 8, "strategy": "channel")").strategy, "channel");
  const QuantConfig fp8 =
      one("float-quantized", R"("num_bits": 8, "strategy": "block", "block_structure": [128, 64])");
  EXPECT_EQ(fp8.weight_type, "float");
  EXPECT_EQ(std::tie(fp8.block_n, fp8.block_k), std::tuple(128, 64));
  EXPECT_EQ(one("mxfp4-pack-quantized", R"("num_bits": 4, "group_size": 32)").weight_type, "float");
  EXPECT_EQ(one("mxfp8-quantized", R"("num_bits": 8, "group_size": 32)").weight_type, "float");
  const QuantConfig nvfp4 =
      one("nvfp4-pack-quantized", R"("num_bits": 4, "strategy": "tensor_group", "group_size": 16)");
  EXPECT_EQ(nvfp4.strategy, "tensor_group");
  EXPECT_EQ(nvfp4.group_size, 16);
}

TEST(CompressedTensors, GroupsWithTheirTargets) {
  const QuantConfig quant =
      Quant(Ct(Group("a", R"("re:.*down_proj")", R"("num_bits": 8, "strategy": "channel")",
                     "int-quantized") +
                   "," + Group("b", R"("lm_head")", R"("num_bits": 6, "strategy": "channel")") +
                   "," + Group("c", R"("Linear")", R"("num_bits": 4, "group_size": 64)"),
               R"(, "ignore": ["re:.*layers\\.0\\..*"])"));
  EXPECT_EQ(quant.For(kDown).bits, 8);
  EXPECT_EQ(quant.For(kDown).format, "int-quantized");
  EXPECT_EQ(quant.For(kUp).bits, 4);
  EXPECT_EQ(quant.For("lm_head").bits, 6);  // a name, and no class that every module would be of
  EXPECT_EQ(quant.For("model.layers.0.mlp.up_proj").method, "");
  EXPECT_EQ(quant.For("model.embed_tokens").method, "");  // no Linear
  // One group, or several that are alike: targets count all the same.
  const QuantConfig experts =
      Quant(Ct(Group("a", R"("re:.*experts.*")", R"("num_bits": 4, "group_size": 32)")));
  EXPECT_EQ(experts.For("model.layers.1.mlp.experts.0.up_proj").bits, 4);
  EXPECT_EQ(experts.For(kUp).method, "");
}

TEST(CompressedTensors, ExpressionsThatAreNotReadAreRefused) {
  const std::string group = Group("a", R"("Linear")", R"("num_bits": 4, "group_size": 32)");
  Refused(Ct(group, R"(, "ignore": ["re:^(?!.*experts).*"])"),
          {"quantization_config.ignore", "(?!.*experts)"}, ErrorKind::kUnsupported);
  Refused(Ct(Group("a", R"("re:(")", R"("num_bits": 4, "group_size": 32)")), {"targets", "'re:('"},
          ErrorKind::kUnsupported);
  EXPECT_EQ(Quant(Ct(group, R"(, "ignore": ["re:model.layers.[0-9]{1,2}\\.mlp"])")).For(kUp).method,
            "");
}

TEST(CompressedTensors, WhatDoesNotFit) {
  const auto weights = [](const char* text) {
    return Ct(Group("g", "\"Linear\"", text, "float-quantized"));
  };
  Refused(weights(R"("num_bits": 8, "strategy": "block")"), {"block_structure", "missing"});
  Refused(weights(R"("num_bits": 8, "strategy": "block", "block_structure": [128])"),
          {"block_structure", "array of 1"});
  Refused(weights(R"("num_bits": 4, "strategy": "group")"), {"group_size", "missing"});
  Refused(weights(R"("num_bits": 4, "strategy": "tensor_group", "group_size": -1)"),
          {"group_size", "-1"});
  Refused(weights(R"("num_bits": 17)"), {"num_bits", "17"});
  Refused(Ct(Group("g", "7", "")), {"config_groups.g.targets"});
  Refused(Ct(Group("g", "\"Linear\"", "\"num_bits\": 4, \"group_size\": 32"),
             R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"),
          {"sparsity_config.format", "sparse"}, ErrorKind::kUnsupported);
}

TEST(Gptq, WithExceptions) {
  const QuantConfig quant = Quant(
      R"j({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": false,
        "dynamic": {"-:.*\\.layers\\.0\\..*": {}, "+:.*down_proj": {"bits": 8, "group_size": 32},
        ".*\\.layers\\.2\\.mlp.*": {"sym": false}}})j");
  EXPECT_EQ(quant.For("model.layers.0.mlp.up_proj").method, "");
  EXPECT_EQ(quant.For(kDown).bits, 8);
  EXPECT_EQ(quant.For(kDown).group_size, 32);
  EXPECT_EQ(quant.For(kUp).bits, 4);
  EXPECT_EQ(quant.For(kUp).group_size, 128);
  EXPECT_FALSE(quant.For("model.layers.2.mlp.up_proj").symmetric);
  EXPECT_EQ(quant.For("lm_head").method, "");
  EXPECT_EQ(Quant(R"j({"quant_method": "gptq", "bits": 4, "group_size": 32, "lm_head": true})j")
                .For("lm_head")
                .method,
            "gptq");
  Refused(R"j({"quant_method": "gptq", "bits": 4})j", {"group_size", "missing"});
  Refused(R"j({"quant_method": "gptq", "group_size": 128})j", {"bits", "missing"});
  Refused(R"j({"quant_method": "gptq", "bits": 4, "group_size": 0})j", {"group_size", "whole row"});
  Refused(R"j({"quant_method": "gptq", "bits": 4, "group_size": 32,
              "checkpoint_format": "marlin"})j",
          {"checkpoint_format", "'marlin'"}, ErrorKind::kUnsupported);
  Refused(R"j({"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"+:(": {}}})j",
          {"dynamic.+:("}, ErrorKind::kUnsupported);
}

TEST(Awq, GemmAlone) {
  const QuantConfig quant = Quant(
      R"j({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM",
           "modules_to_not_convert": ["gate"]})j");
  EXPECT_EQ(quant.format, "gemm");
  EXPECT_EQ(quant.For("model.layers.3.mlp.gate").method, "");
  EXPECT_EQ(quant.For("model.layers.3.mlp.gate_proj").method, "");  // AWQ asks for a part of a name
  EXPECT_EQ(quant.For(kUp).method, "awq");
  Refused(R"j({"quant_method": "awq", "bits": 4, "version": "gemv"})j", {"version", "'gemv'"},
          ErrorKind::kUnsupported);
  Refused(R"j({"quant_method": "awq", "bits": 8})j", {"bits", "8"});
}

TEST(Fp8, Blocks) {
  const QuantConfig quant = Quant(
      R"j({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128],
           "scale_fmt": "ue8m0", "ignored_layers": ["model.layers.3.mlp"]})j");
  EXPECT_EQ(quant.For(kUp).method, "");
  EXPECT_EQ(quant.For("model.layers.30.mlp.up_proj").block_n, 128);
  Refused(R"j({"quant_method": "fp8", "scale_fmt": "e5m2"})j", {"scale_fmt", "'e5m2'"});
  Refused(R"j({"quant_method": "fp8", "expert_dtype": "fp6"})j", {"expert_dtype", "'fp6'"},
          ErrorKind::kUnsupported);
  // DeepSeek-V4's own key may stand here too.
  EXPECT_EQ(Quant(R"j({"quant_method": "fp8", "expert_dtype": "fp4"})j")
                .For("layers.0.ffn.experts.1.w1")
                .bits,
            4);
}

TEST(Quark, ASchemeForAllAndOthersByPattern) {
  const QuantConfig quant = Quant(
      R"j({"quant_method": "quark", "exclude": ["lm_head", "re:.*self_attn.*"],
        "export": {"pack_method": "reorder"},
        "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
          "scale_format": "e8m0"}, "input_tensors": {"dtype": "fp4"}},
        "layer_quant_config": {"*.down_proj": {"weight": {"dtype": "fp8_e4m3",
          "qscheme": "per_channel"}}}})j");
  EXPECT_EQ(quant.For(kUp).bits, 4);
  EXPECT_EQ(quant.For(kUp).group_size, 32);
  EXPECT_EQ(quant.For(kDown).bits, 8);
  EXPECT_EQ(quant.For(kDown).strategy, "channel");
  EXPECT_EQ(quant.For("lm_head").method, "");
  EXPECT_EQ(quant.For("model.layers.1.self_attn.q_proj").method, "");
  EXPECT_EQ(Quant(R"j({"quant_method": "quark", "quant_config": {"global_quant_config":
    {"weight": {"dtype": "int8", "qscheme": "per_tensor"}}}})j")
                .weight_type,
            "int");
  Refused(R"j({"quant_method": "quark"})j", {"global_quant_config", "missing"});
  Refused(R"j({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "x"}}})j",
          {"global_quant_config.weight.dtype"});
  Refused(R"j({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4",
            "qscheme": "per_row"}}})j",
          {"qscheme", "'per_row'"});
}

TEST(ModelOpt, UniformAndMixed) {
  const QuantConfig nvfp4 = Quant(
      R"j({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16,
           "ignore": ["lm_head", "model.layers.3.self_attn*", "*mlp.gate"]})j");
  EXPECT_EQ(nvfp4.For(kUp).strategy, "tensor_group");
  EXPECT_EQ(nvfp4.For("model.layers.3.self_attn.q_proj").method, "");
  EXPECT_EQ(nvfp4.For("model.layers.9.mlp.gate").method, "");
  EXPECT_EQ(nvfp4.For("model.layers.9.mlp.gate_proj").method, "modelopt");
  const QuantConfig mixed = Quant(
      R"j({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "model.layers.1.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.2.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}}})j");
  EXPECT_EQ(mixed.groups.size(), 2u);
  EXPECT_EQ(mixed.For("model.layers.1.self_attn.q_proj").bits, 8);
  EXPECT_EQ(mixed.For("model.layers.2.mlp.experts.5.up_proj").bits, 4);
  EXPECT_EQ(mixed.For("model.layers.1.self_attn.k_proj").method, "");
  Refused(R"j({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})j",
          {"quant_algo", "'W4A8_AWQ'"}, ErrorKind::kUnsupported);
  Refused(R"j({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})j",
          {"quantized_layers"});
}

TEST(ModelSlim, AModuleHasItsOwnPartOfTheDescription) {
  const QuantConfig quant = Quant(
      R"j({"quant_method": "ascend", "quant_description": {"version": "1.0.0",
        "model_quant_type": "W4A8_DYNAMIC", "group_size": 256, "metadata": {"a.b": {}},
        "model.layers.3.mlp.up_proj.weight": "W8A8", "model.layers.3.mlp.up_proj.weight_scale": "W8A8",
        "model.layers.3.mlp.up_proj_2.weight": "FLOAT", "lm_head.weight": "FLOAT"}})j");
  EXPECT_EQ(quant.description.size(), 4u);
  EXPECT_EQ(quant.For(kUp).method, "ascend");
  EXPECT_EQ(quant.For(kUp).group_size, 256);
  EXPECT_EQ(quant.For(kUp).description,
            (decltype(quant.description){{std::string(kUp) + ".weight", "W8A8"},
                                         {std::string(kUp) + ".weight_scale", "W8A8"}}));
  EXPECT_TRUE(quant.For(kDown).description.empty());
  Refused(R"j({"quant_method": "ascend", "quant_description": {"a.weight": 8}})j",
          {"quant_description.a.weight", "is 8"});
  Refused(R"j({"quant_method": "ascend", "quant_description": {"group_size": "x"}})j",
          {"group_size"});
}

TEST(ModelOpt, AFileBesideAConfigThatSaysNothing) {
  const TempFolder folder;
  folder.Write("config.json", LlamaJson());
  folder.Write("model.safetensors", RawSafetensors("{" + ByteEntry("a1", 0, 1) + "}", "x"));
  folder.Write("hf_quant_config.json", R"({"producer": {"name": "modelopt"}, "quantization":
    {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}})");
  auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->config().quant.method, "modelopt");
  EXPECT_EQ((*checkpoint)->config().quant.For("lm_head").method, "");
  EXPECT_EQ((*checkpoint)->config().quant.For(kUp).group_size, 16);
  const auto again = ParseModelConfig((*checkpoint)->config_json(), "engine");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->quant.format, "NVFP4");
  // The config's own word counts more.
  folder.Write("config.json", WithQuant(R"({"quant_method": "modelopt", "quant_algo": "FP8"})"));
  checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ((*checkpoint)->config().quant.format, "FP8");
  folder.Write("config.json", LlamaJson());
  folder.Write("hf_quant_config.json", R"({"quantization": 1})");
  checkpoint = Checkpoint::Open(folder.path());
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_TRUE(Says(checkpoint.error(), {"hf_quant_config.json", "quantization is 1"}));
}

}  // namespace
}  // namespace assay
