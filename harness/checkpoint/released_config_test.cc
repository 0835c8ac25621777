// Configs with the keys and numbers of released models, as far as they say how weights are stored.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/checkpoint/model_config.h"

namespace assay {
namespace {

ModelConfig Read(const std::string& json) {
  auto config = ParseModelConfig(json, "config.json");
  EXPECT_TRUE(config.ok()) << config.error().message;
  if (!config.ok()) return {};
  EXPECT_EQ(config->why_unknown, "");
  return *config;
}

int64_t Count(const std::vector<bool>& layers) {
  return std::count(layers.begin(), layers.end(), true);
}

// Layers from 1, as Moonshot counts: each fourth and the last one are full.
std::string LinearAttention(int layers, int heads, const char* more) {
  std::vector<int> kda, full;
  for (int i = 1; i <= layers; ++i) (i % 4 == 0 || i == layers ? full : kda).push_back(i);
  return fmt::format(
      R"("linear_attn_config": {{"full_attn_layers": [{}], "kda_layers": [{}], "head_dim": 128,
         "num_heads": {}, "short_conv_kernel_size": 4{}}})",
      fmt::join(full, ","), fmt::join(kda, ","), heads, more);
}

std::string KimiK3Text() {
  return R"({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
    "hidden_size": 7168, "num_hidden_layers": 93, "num_attention_heads": 96,
    "num_key_value_heads": 96, "intermediate_size": 33792, "vocab_size": 163840,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-05, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "mla_use_nope": true, "mla_use_output_gate": true, "hidden_act": "situ",
    "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "num_experts": 896,
    "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584, "latent_moe_use_norm": true, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "moe_renormalize": true, "moe_router_activation_func": "sigmoid",
    "num_expert_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "use_grouped_topk": true,
    "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 0, "attn_res_block_size": 12,
    "tie_word_embeddings": false, "quantization_config": {"quant_method": "compressed-tensors",
      "format": "mxfp4-pack-quantized", "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*",
      "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "language_model.lm_head"],
      "config_groups": {"group_0": {"format": "mxfp4-pack-quantized", "targets": ["Linear"],
      "input_activations": null, "weights": {"num_bits": 4, "group_size": 32}}}}, )" +
         LinearAttention(93, 96, R"(, "use_full_rank_gate": true, "gate_lower_bound": -5.0)") + "}";
}

void ExpectKimiK3(const ModelConfig& c) {
  EXPECT_EQ(c.family, Family::kKimiK3);
  EXPECT_EQ(Count(c.kda_layers), 69);
  EXPECT_FALSE(c.is_kda(91));
  EXPECT_FALSE(c.is_kda(92));
  EXPECT_TRUE(c.is_kda(90));
  EXPECT_EQ(c.kda_heads, 96);
  EXPECT_TRUE(c.kda_full_gate && c.mla_gate && c.latent_norm);
  EXPECT_FALSE(c.is_moe(0));
  EXPECT_TRUE(c.is_moe(92));
  EXPECT_EQ(c.expert_width(), 3584);
  EXPECT_EQ(c.attn_res_block, 12);
  EXPECT_EQ(c.quant.weight_type, "float");
  EXPECT_EQ(c.quant.group_size, 32);
  const std::string layer = "language_model.model.layers.7.";
  EXPECT_EQ(c.quant.For(layer + "block_sparse_moe.experts.895.w1").format, "mxfp4-pack-quantized");
  for (const char* dense :
       {"self_attn.kv_b_proj", "block_sparse_moe.shared_experts.gate_proj", "mlp.gate_proj"}) {
    EXPECT_EQ(c.quant.For(layer + dense).method, "") << dense;
  }
}

TEST(Released, KimiK3) {
  ExpectKimiK3(Read(R"({"architectures": ["KimiK3ForConditionalGeneration"],
    "model_type": "kimi_k3", "tie_word_embeddings": false, "text_config": )" +
                    KimiK3Text() + "}"));
  // Its text model alone, under its older sibling's name.
  ExpectKimiK3(Read(KimiK3Text()));
}

TEST(Released, KimiLinear48B) {
  const ModelConfig c = Read(
      R"({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
    "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 32, "head_dim": 72,
    "num_key_value_heads": 32, "num_hidden_layers": 27, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "rope_scaling": null, "vocab_size": 163840, "hidden_act": "silu",
    "model_max_length": 1048576, "kv_lora_rank": 512, "q_lora_rank": null,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": true,
    "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 1024, "moe_router_activation_func": "sigmoid",
    "moe_renormalize": true, "routed_scaling_factor": 2.446, "use_grouped_topk": true,
    "num_expert_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": false, )" +
      LinearAttention(27, 32, "") + "}");
  EXPECT_EQ(c.family, Family::kKimiLinear);
  EXPECT_EQ(Count(c.kda_layers), 20);
  EXPECT_EQ(c.head_dim, 192);
  EXPECT_EQ(c.max_position, 1048576);
  EXPECT_EQ(c.latent, 0);
  EXPECT_EQ(c.expert_width(), 2304);
  EXPECT_FALSE(c.kda_full_gate || c.mla_gate);
  EXPECT_EQ(c.q_lora, 0);
}

TEST(Released, DeepseekV4Flash) {
  const ModelConfig c = Read(
      R"({"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
    "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64,
    "num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280, "q_lora_rank": 1024,
    "o_lora_rank": 1024, "o_groups": 8, "qk_rope_head_dim": 64, "sliding_window": 128,
    "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "rope_theta": 10000,
    "compress_rope_theta": 160000.0, "compress_ratios": [0, 0, 4, 128], "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "n_routed_experts": 256, "num_experts_per_tok": 6,
    "n_shared_experts": 1, "moe_intermediate_size": 2048, "routed_scaling_factor": 1.5,
    "norm_topk_prob": true, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
    "swiglu_limit": 10.0, "num_hash_layers": 3, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-06, "hidden_act": "silu",
    "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
      "original_max_position_embeddings": 65536}, "tie_word_embeddings": false,
    "expert_dtype": "fp4", "torch_dtype": "bfloat16", "quantization_config": {
      "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
      "weight_block_size": [128, 128]}})");
  EXPECT_EQ(c.family, Family::kDeepseekV4);
  EXPECT_EQ(c.hash_layers, 3);
  EXPECT_TRUE(c.is_moe(0));
  EXPECT_EQ(c.act_limit, 10.0);
  EXPECT_EQ(c.quant.strategy, "block");
  const QuantConfig expert = c.quant.For("layers.3.ffn.experts.7.w2");
  EXPECT_EQ(expert.format, "mxfp4");
  EXPECT_EQ(expert.bits, 4);
  EXPECT_EQ(expert.group_size, 32);
  EXPECT_EQ(expert.strategy, "group");
  for (const char* module : {"layers.3.ffn.shared_experts.w2", "layers.3.attn.wq_a"}) {
    const QuantConfig dense = c.quant.For(module);
    EXPECT_EQ(dense.strategy, "block") << module;
    EXPECT_EQ(dense.block_n, 128) << module;
  }
}

TEST(Released, GptOss) {
  for (const auto& [layers, experts] : {std::pair(24, 32), {36, 128}}) {
    const ModelConfig c = Read(fmt::format(
        R"({{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss",
      "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
      "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880,
      "initial_context_length": 4096, "intermediate_size": 2880,
      "max_position_embeddings": 131072, "num_attention_heads": 64, "num_experts_per_tok": 4,
      "num_hidden_layers": {}, "num_key_value_heads": 8, "num_local_experts": {},
      "rms_norm_eps": 1e-05, "rope_scaling": {{"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false}},
      "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "vocab_size": 201088, "quantization_config": {{
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
          "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}}}})",
        layers, experts));
    EXPECT_EQ(c.family, Family::kGptOss);
    EXPECT_EQ(c.experts, experts);
    EXPECT_EQ(c.top_k, 4);
    EXPECT_EQ(c.moe_intermediate, 2880);
    EXPECT_TRUE(c.attn_sinks && c.expert_bias && c.router_bias && c.qkv_bias && c.o_bias);
    EXPECT_EQ(c.quant.For("model.layers.23.mlp.experts").format, "");
    EXPECT_EQ(c.quant.For("model.layers.23.mlp.experts").bits, 4);
    for (const char* dense : {"model.layers.23.self_attn.q_proj", "model.layers.3.mlp.router",
                              "model.embed_tokens", "lm_head"}) {
      EXPECT_EQ(c.quant.For(dense).method, "") << dense;
    }
  }
}

TEST(Released, Qwen3Moe30B) {
  const ModelConfig c = Read(
      R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
    "attention_bias": false, "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960,
    "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 151936})");
  EXPECT_EQ(c.family, Family::kQwen3Moe);
  EXPECT_EQ(c.experts, 128);
  EXPECT_TRUE(c.is_moe(0) && c.is_moe(47));
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_TRUE(c.norm_topk);
}

TEST(Released, MinimaxM3) {
  std::string freq = "[0,0,0";
  for (int i = 3; i < 60; ++i) freq += ",1";
  freq += "]";
  const std::string json =
      R"({"architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "model_type": "minimax_m3_vl", "quantization_config": {"quant_method": "mxfp8",
      "ignored_layers": ["lm_head", "vision_tower"]}, "text_config": {
    "hidden_size": 6144, "intermediate_size": 3072, "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064,
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-06, "use_gemma_norm": true,
    "attention_output_gate": false, "rope_theta": 5000000, "rotary_dim": 64,
    "partial_rotary_factor": 0.5, "hidden_act": "swigluoai", "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0, "use_qk_norm": true, "qk_norm_type": "per_head",
    "num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1,
    "scoring_func": "sigmoid", "use_routing_bias": true, "routed_scaling_factor": 2.0,
    "moe_layer_freq": )" +
      freq + "}}";
  const ModelConfig c = Read(json);
  EXPECT_EQ(c.family, Family::kMinimaxM3);
  EXPECT_EQ(Count(c.moe_layers), 57);
  EXPECT_EQ(c.intermediate, 12288);
  EXPECT_EQ(c.moe_intermediate, 3072);
  EXPECT_EQ(c.quant.bits, 8);
  EXPECT_EQ(c.quant.group_size, 32);
  EXPECT_EQ(c.quant.For("language_model.model.layers.5.self_attn.q_proj").method, "mxfp8");
  EXPECT_EQ(c.quant.For("language_model.lm_head").method, "");
  EXPECT_EQ(c.quant.For("vision_tower.blocks.0.fc1").method, "");
}

TEST(Released, ListsThatContradictEachOtherAreNamed) {
  std::string text = KimiK3Text();
  const std::string from = "\"full_attn_layers\": [4,";
  text.replace(text.find(from), from.size(), "\"full_attn_layers\": [3,");
  const auto both = ParseModelConfig(text, "config.json");
  ASSERT_FALSE(both.ok());
  EXPECT_NE(both.error().message.find("layer 3 is in both"), std::string::npos)
      << both.error().message;
}

}  // namespace
}  // namespace assay
