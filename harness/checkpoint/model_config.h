// config.json as typed data. Containers only: what a method's tensors mean is decided elsewhere.
#pragma once

#include <cstdint>
#include <limits>
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

// quantization_config, as far as compressed-tensors' weights need it. `ignore` are exact module
// names or "re:" patterns. What is in the file decides the path; this says how to read it.
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

  bool is_mla() const { return kv_lora > 0; }
  // Whether layer n has experts.
  bool is_moe(int64_t layer) const {
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
