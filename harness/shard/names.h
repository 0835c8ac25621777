// What the families and containers call their tensors (formats.md §8). Internal to the room.
#pragma once

#include <string>
#include <string_view>

#include "harness/checkpoint/model_config.h"

namespace assay::shard {

// Below a layer ("model.layers.3."). Modules have no suffix; names with one are tensors.
struct LayerNames {
  std::string_view input_norm = "input_layernorm", post_norm = "post_attention_layernorm";
  std::string_view q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string_view q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  std::string_view out = "self_attn.o_proj", sinks = "self_attn.sinks";
  // MLA
  std::string_view q_a = "self_attn.q_a_proj", q_a_norm = "self_attn.q_a_layernorm";
  std::string_view q_b = "self_attn.q_b_proj", kv_a = "self_attn.kv_a_proj_with_mqa";
  std::string_view kv_a_norm = "self_attn.kv_a_layernorm", kv_b = "self_attn.kv_b_proj";
  std::string_view k_b = "", v_b = "";  // instead of kv_b
  std::string_view gate = "self_attn.g_proj";
  // KDA
  std::string_view q_conv = "self_attn.q_conv1d.weight", k_conv = "self_attn.k_conv1d.weight",
                   v_conv = "self_attn.v_conv1d.weight";
  std::string_view f_a = "self_attn.f_a_proj", f_b = "self_attn.f_b_proj";
  std::string_view g = "self_attn.g_proj", g_a = "self_attn.g_a_proj", g_b = "self_attn.g_b_proj";
  std::string_view beta = "self_attn.b_proj", dt_bias = "self_attn.dt_bias",
                   a_log = "self_attn.A_log", o_norm = "self_attn.o_norm";
  // MLP of a dense layer; of one expert below `experts`; of the shared experts
  std::string_view mlp_gate = "mlp.gate_proj", mlp_up = "mlp.up_proj", mlp_down = "mlp.down_proj";
  std::string_view experts = "mlp.experts";
  std::string_view expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  std::string_view shared_gate = "mlp.shared_experts.gate_proj",
                   shared_up = "mlp.shared_experts.up_proj",
                   shared_down = "mlp.shared_experts.down_proj";
  std::string_view router = "mlp.gate", correction = "mlp.gate.e_score_correction_bias", table = "";
  std::string_view latent_down = "", latent_norm = "", latent_up = "";
  // Attention residuals: two tensors, or their product
  std::string_view attn_res = "self_attention_res", mlp_res = "mlp_res";
};

const LayerNames& LayerNamesOf(const ModelConfig& config);

struct ModelNames {
  std::string embed, layers, norm;  // "model.embed_tokens.weight", "model.layers."
  std::string output_res;           // of attention residuals
};
ModelNames ModelNamesOf(const ModelConfig& config);

}  // namespace assay::shard
