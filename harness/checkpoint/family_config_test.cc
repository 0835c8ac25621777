// Configs of families with a vocabulary of their own, and of quantised checkpoints.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/checkpoint/model_config.h"

namespace assay {
namespace {

std::string Text(const std::string& name) {
  std::ifstream in("goldens/checkpoints/" + name + "/config.json");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

ModelConfig Shipped(const std::string& name) {
  auto config = ParseModelConfig(Text(name), name);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

// What stands in the place of `from` in a shipped config; the error's message.
std::string ErrorWith(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = Text(name);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  const auto config = ParseModelConfig(text, name);
  return config.ok() ? "" : config.error().message;
}

using Layers = std::vector<bool>;

TEST(Families, ShippedConfigs) {
  const ModelConfig qwen = Shipped("qwen3moe-mini");
  EXPECT_EQ(qwen.family, Family::kQwen3Moe);
  EXPECT_EQ(qwen.experts, 7);
  EXPECT_EQ(qwen.moe_intermediate, 192);
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_TRUE(qwen.norm_topk);
  EXPECT_EQ(qwen.scoring, "softmax");

  const ModelConfig oss = Shipped("gptoss-mini");
  EXPECT_EQ(oss.family, Family::kGptOss);
  EXPECT_EQ(oss.experts, 5);
  EXPECT_EQ(oss.moe_intermediate, 288);
  EXPECT_TRUE(oss.attn_sinks && oss.router_bias && oss.expert_bias && oss.qkv_bias && oss.o_bias);

  const ModelConfig v4 = Shipped("v4-mini");
  EXPECT_EQ(v4.family, Family::kDeepseekV4);
  EXPECT_EQ(v4.hash_layers, 1);
  EXPECT_EQ(v4.moe_layers, Layers(4, true));
  EXPECT_EQ(v4.act_limit, 2.5);

  const ModelConfig linear = Shipped("kimilinear-mini");
  EXPECT_EQ(linear.family, Family::kKimiLinear);
  EXPECT_EQ(linear.kda_layers, (Layers{true, true, false, true}));
  EXPECT_EQ(linear.moe_layers, (Layers{false, true, true, true}));
  EXPECT_EQ(linear.kda_heads, 5);
  EXPECT_FALSE(linear.kda_full_gate);
  EXPECT_EQ(linear.q_lora, 0);

  const ModelConfig k3 = Shipped("k3-mini");
  EXPECT_EQ(k3.family, Family::kKimiK3);
  EXPECT_EQ(k3.kda_layers, (Layers{true, true, true, false, true, false}));
  EXPECT_EQ(k3.latent, 64);
  EXPECT_EQ(k3.expert_width(), 64);
  EXPECT_EQ(k3.attn_res_block, 2);
  EXPECT_TRUE(k3.latent_norm && k3.mla_gate && k3.kda_full_gate);
  EXPECT_EQ(k3.situ_beta, 4.0);
  EXPECT_EQ(k3.situ_linear_beta, 25.0);
  EXPECT_FALSE(k3.is_moe(0));
  EXPECT_TRUE(k3.is_moe(1));

  const ModelConfig m3 = Shipped("m3-mini");
  EXPECT_EQ(m3.family, Family::kMinimaxM3);
  EXPECT_EQ(m3.intermediate, 160);
  EXPECT_EQ(m3.moe_intermediate, 96);
  EXPECT_EQ(m3.shared_intermediate, 96);
  EXPECT_EQ(m3.moe_layers, (Layers{false, true, true, true}));
  EXPECT_EQ(m3.topk_method, "noaux_tc");
}

TEST(Families, LayersThatAreNamedOtherwise) {
  std::string text = Text("qwen3moe-mini");
  text.replace(text.find("\"mlp_only_layers\": []"), 21, "\"mlp_only_layers\": [1]");
  EXPECT_EQ(ParseModelConfig(text, "x")->moe_layers, (Layers{true, false, true}));
  text.replace(text.find("\"decoder_sparse_step\": 1"), 24, "\"decoder_sparse_step\": 3");
  EXPECT_EQ(ParseModelConfig(text, "x")->moe_layers, (Layers{false, false, true}));
}

TEST(Families, HostileValuesAreNamed) {
  const auto says = [](const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " not in: " << message;
    }
  };
  says(ErrorWith("qwen3moe-mini", "\"mlp_only_layers\": []", "\"mlp_only_layers\": [3]"),
       {"mlp_only_layers", "0 to 2"});
  says(ErrorWith("qwen3moe-mini", "\"num_local_experts\": 7", "\"num_local_experts\": -7"),
       {"num_local_experts"});
  says(ErrorWith("qwen3moe-mini", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 8"),
       {"num_experts_per_tok"});
  says(ErrorWith("v4-mini", "\"hash_moe\",", "\"moe\", \"hash_moe\","), {"mlp_layer_types"});
  says(ErrorWith("k3-mini", "\"activation_situ_beta\": 4.0,", ""), {"activation_situ_beta"});
  says(ErrorWith("k3-mini", "\"num_heads\": 6,", ""), {"linear_attn_config.num_heads"});
  says(ErrorWith("m3-mini", "\"moe_layer_freq\": [", "\"moe_layer_freq\": [1,"),
       {"moe_layer_freq", "4 layers"});
}

// --- quantisation configs

QuantConfig Quant(const std::string& json) {
  std::string text = Text("llama-mini");
  text.insert(text.find('{') + 1, "\"quantization_config\": " + json + ",");
  auto config = ParseModelConfig(text, "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config->quant : QuantConfig();
}

std::string QuantError(const std::string& json) {
  std::string text = Text("llama-mini");
  text.insert(text.find('{') + 1, "\"quantization_config\": " + json + ",");
  const auto config = ParseModelConfig(text, "config.json");
  return config.ok() ? "" : config.error().message;
}

TEST(Quantisation, WhatProducersWrite) {
  const QuantConfig gptq = Quant(
      R"j({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": true, "sym": false,
          "checkpoint_format": "gptq_v2"})j");
  EXPECT_EQ(gptq.group_size, 64);
  EXPECT_TRUE(gptq.desc_act && gptq.v2 && !gptq.symmetric);
  EXPECT_EQ(Quant(R"j({"quant_method": "gptq", "bits": 4, "group_size": -1})j").strategy,
            "channel");
  const QuantConfig awq =
      Quant(R"j({"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "zero_point": true})j");
  EXPECT_EQ(awq.group_size, 32);
  EXPECT_FALSE(awq.symmetric);
  const QuantConfig fp8 =
      Quant(R"j({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64]})j");
  EXPECT_EQ(fp8.strategy, "block");
  EXPECT_EQ(fp8.block_n, 128);
  EXPECT_EQ(fp8.block_k, 64);
  EXPECT_EQ(Quant(R"j({"quant_method": "mxfp4"})j").group_size, 32);
  EXPECT_EQ(Quant(R"j({"quant_method": "modelopt", "quant_algo": "NVFP4"})j").group_size, 16);
  const QuantConfig slim = Quant(
      R"j({"quant_method": "ascend", "quant_description": {"model.layers.0.mlp.up_proj.weight":
          "W8A8_DYNAMIC", "group_size": 256, "metadata": {}}})j");
  EXPECT_EQ(slim.description.at("model.layers.0.mlp.up_proj.weight"), "W8A8_DYNAMIC");
  EXPECT_EQ(slim.description.size(), 1u);
  EXPECT_EQ(slim.group_size, 256);
}

TEST(Quantisation, TheModulesOwnScheme) {
  const char kTwo[] = R"j({"quant_method": "compressed-tensors", "format": "pack-quantized",
    "ignore": ["lm_head", "re:.*self_attn.*"], "config_groups": {
      "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
        "group_size": 32}},
      "group_1": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "int",
        "strategy": "channel"}},
      "group_2": {"targets": ["model.layers.0.mlp.down_proj"], "weights": {"num_bits": 6,
        "type": "int", "strategy": "group", "group_size": 64}}}})j";
  const QuantConfig quant = Quant(kTwo);
  ASSERT_EQ(quant.groups.size(), 3u);
  EXPECT_EQ(quant.For("model.layers.1.mlp.up_proj").bits, 4);
  EXPECT_EQ(quant.For("model.layers.1.mlp.down_proj").bits, 8);
  EXPECT_EQ(quant.For("model.layers.0.mlp.down_proj").bits, 6);
  EXPECT_EQ(quant.For("model.layers.0.mlp.down_proj").group_size, 64);
  EXPECT_EQ(quant.For("model.layers.0.self_attn.q_proj").method, "");
  EXPECT_EQ(quant.For("lm_head").method, "");
  EXPECT_EQ(quant.For("model.layers.1.mlp.up_proj").method, "compressed-tensors");
  EXPECT_TRUE(quant.For("model.layers.1.mlp.up_proj").groups.empty());
  const QuantConfig fp8 = Quant(
      R"j({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.self_attn", "gate"]})j");
  EXPECT_EQ(fp8.For("model.layers.3.self_attn.q_proj").method, "");
  EXPECT_EQ(fp8.For("model.layers.3.mlp.gate").method, "");
  EXPECT_EQ(fp8.For("model.layers.3.mlp.gate_proj").method, "fp8");
}

TEST(Quantisation, HostileValuesAreNamed) {
  const auto says = [](const std::string& json, const char* part) {
    EXPECT_NE(QuantError(json).find(part), std::string::npos) << json << ": " << QuantError(json);
  };
  says(R"j({"quant_method": "fp8", "weight_block_size": [0, 128]})j", "weight_block_size");
  says(R"j({"quant_method": "fp8", "weight_block_size": 128})j", "weight_block_size");
  says(R"j({"quant_method": "gptq", "bits": 1})j", "bits");
  says(R"j({"quant_method": "awq", "w_bit": 4, "q_group_size": 0})j", "q_group_size");
  says(R"j({"quant_method": "ascend", "quant_description": []})j", "quant_description");
  says(R"j({"quant_method": "compressed-tensors"})j", "config_groups");
}

}  // namespace
}  // namespace assay
