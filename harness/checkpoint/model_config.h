// config.json as typed data. Containers only: what a method's tensors mean is decided elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/status.h"

namespace assay {

enum class Family {
  kLlama,       // LlamaForCausalLM, MistralForCausalLM without sliding window
  kQwen2,       // Qwen2ForCausalLM: q, k, v biases
  kQwen3,       // Qwen3ForCausalLM: RMSNorm per head on q and k
  kDeepseekV3,  // DeepseekV3ForCausalLM, Kimi-K2 (also under a nested text_config)
  // Known to the planner and the loaders; the oracle slices their parameters, but does not run
  // them.
  kQwen3Moe,    // Qwen3MoeForCausalLM
  kGptOss,      // GptOssForCausalLM
  kDeepseekV4,  // DeepseekV4ForCausalLM: names without a prefix; its attention is not planned
  kKimiLinear,  // KimiLinearForCausalLM: KDA and MLA layers
  kKimiK3,      // KimiK3ForConditionalGeneration: text_config
  kMinimaxM3,   // MiniMaxM3Sparse…: text_config; its sparse attention's index is not planned
  kUnknown,     // parsed as far as possible; the oracle says that it does not know it
};

struct RopeConfig {
  std::string type = "default";  // default, linear, llama3, yarn, or a name we do not know
  double theta = 10000.0;
  double factor = 1.0;
  int64_t original_max_position = 0;
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  std::optional<double> mscale, mscale_all_dim;          // yarn, DeepSeek
  std::optional<double> attention_factor;                // yarn
  bool truncate = true;                                  // yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
};

// quantization_config, as far as weights need it. `ignore` are exact module names, "re:" patterns,
// or, where the producer writes them so, names with "*". What is in the file decides the path; this
// says how to read it where the file alone is ambiguous.
struct QuantConfig {
  std::string method;       // "compressed-tensors", "fp8", ...; empty: not quantised
  std::string format;       // "pack-quantized", ...
  std::string weight_type;  // "int", "float"
  int bits = 0;
  int64_t group_size = 0;  // 0: none stated
  std::string strategy;    // "group", "channel", "tensor", "block"
  bool symmetric = true;
  std::string actorder;  // "", "group", "weight", "static"
  std::vector<std::string> ignore;
  std::vector<std::string> targets;
  int64_t block_n = 0, block_k = 0;  // strategy "block": weight_block_size, block_structure
  bool desc_act = false;             // GPTQ: g_idx permutes, scales and zeros stay whole
  bool v2 = false;                   // GPTQ: checkpoint_format "gptq_v2", zeros without the − 1
  bool fnuz = false;                 // FP8 codes of the fnuz kind
  // compressed-tensors with several groups of layers: each with its own targets. Empty: one scheme,
  // in the members above.
  std::vector<QuantConfig> groups = {};
  // ModelSlim's quant_model_description.json: tensor name -> "FLOAT", "W8A8", "W4A8_DYNAMIC" ...
  std::map<std::string, std::string, std::less<>> description = {};

  // The scheme of one module ("model.layers.0.mlp.up_proj"): its group's, or these members; with
  // method "" where the module is ignored. Targets are exact names, "re:" patterns, or class names
  // ("Linear"), which every module is.
  QuantConfig For(std::string_view module) const;
};

// How the checkpoint names its tensors and orders their rows.
enum class Container {
  kSafetensors,  // Hugging Face's names
  kGguf,  // llama.cpp's: blk.0.attn_q.weight; llama's q and k rows permuted for interleaved RoPE
};

struct ModelConfig {
  Container container = Container::kSafetensors;
  Family family = Family::kUnknown;
  // For kUnknown: which key with which value is not known; one line, for messages.
  std::string why_unknown;
  std::string architecture;  // as in the file
  std::string model_type;
  // Where the tensors of the decoder live in the file: "model." or "language_model.model." ...
  // Found from the tensors by Checkpoint; empty until then, and always of a GGUF file.
  std::string prefix;
  std::string lm_head;  // name of the output matrix's tensor; the embedding's if tied

  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0,
          intermediate = 0;  // MLA: head_dim = qk_nope + qk_rope
  int64_t vocab = 0, max_position = 0;
  double rms_norm_eps = 0;
  // Clamp of the activation's inputs (swiglu_limit): gate above, up on both sides.
  double act_limit = std::numeric_limits<double>::infinity();
  bool tied = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;
  std::string hidden_act;
  RopeConfig rope;
  bool rope_interleave = false;  // pairs (2i, 2i+1) instead of (i, i + dim/2), also without MLA

  // MLA (DeepSeek-V3 class). q_lora 0: one q_proj instead of q_a and q_b.
  int64_t q_lora = 0, kv_lora = 0, qk_nope = 0, qk_rope = 0, v_dim = 0;

  // MoE. experts 0: dense.
  int64_t experts = 0, top_k = 0, moe_intermediate = 0, shared_experts = 0;
  int64_t first_dense = 0, moe_layer_freq = 1, groups = 1, topk_group = 1;
  bool norm_topk = true;
  double routed_scaling = 1.0;
  std::string scoring;      // "sigmoid", "softmax"
  std::string topk_method;  // "noaux_tc", ...

  QuantConfig quant;

  // gpt-oss: a sink a head, a bias of the router and of every expert's projections.
  bool attn_sinks = false, router_bias = false, expert_bias = false;
  // Layers with experts where config lists them (mlp_layer_types, moe_layer_freq as a list,
  // mlp_only_layers): one entry a layer. Empty: first_dense and moe_layer_freq say it.
  std::vector<bool> moe_layers = {};
  int64_t hash_layers = 0;  // DeepSeek-V4: the first so many are routed by token id (tid2eid)
  // KDA layers (Kimi-Linear, Kimi-K3): one entry a layer, empty: none.
  std::vector<bool> kda_layers = {};
  int64_t kda_heads = 0, kda_head_dim = 0, kda_conv = 0;
  bool kda_full_gate = false;  // g_proj instead of g_a_proj, g_b_proj
  bool mla_gate = false;       // Kimi-K3: g_proj beside MLA
  int64_t latent = 0;          // Kimi-K3: routed_expert_hidden_size, the experts' width; 0: hidden
  bool latent_norm = false;
  int64_t attn_res_block = 0;  // Kimi-K3: attention residuals; 0: none
  int64_t shared_intermediate =
      0;  // of all shared experts together; 0: shared_experts·moe_intermediate
  // SiTU: beta is never defaulted. hidden_act "situ".
  std::optional<double> situ_beta, situ_linear_beta;

  bool is_mla() const { return kv_lora > 0; }
  bool is_kda(int64_t layer) const {
    return !kda_layers.empty() && kda_layers[static_cast<size_t>(layer)];
  }
  int64_t expert_width() const { return latent > 0 ? latent : hidden; }
  // Whether layer n has experts.
  bool is_moe(int64_t layer) const {
    if (!moe_layers.empty()) return moe_layers[static_cast<size_t>(layer)];
    return experts > 0 && layer >= first_dense && layer % moe_layer_freq == 0;
  }
};

// `where` names the file for messages. Accepts the new keys (rope_parameters) and the old ones
// (rope_theta, rope_scaling); if both are there and disagree, that is an error. A nested
// text_config is descended into. "assay_container": "gguf" makes it the config of a GGUF file.
// Errors: not JSON, a key of the wrong type, a count that is
// negative, zero or absurd, sizes that do not fit each other; each names the key, the value and
// what is allowed. An architecture that we do not know is Family::kUnknown, not an error.
Result<ModelConfig> ParseModelConfig(std::string_view json, std::string_view where);

}  // namespace assay
