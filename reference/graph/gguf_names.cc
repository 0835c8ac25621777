#include "reference/graph/gguf_names.h"

namespace assay::reference {
namespace {

struct ModuleRow {
  std::string_view hugging_face, gguf;
};
constexpr ModuleRow kModules[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    // Latent attention; K3's output gate.
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.g_proj", "attn_gate"},
    // Delta attention; its gate is named by its builder.
    {"self_attn.q_conv1d.weight", "ssm_conv1d_q.weight"},
    {"self_attn.k_conv1d.weight", "ssm_conv1d_k.weight"},
    {"self_attn.v_conv1d.weight", "ssm_conv1d_v.weight"},
    {"self_attn.f_a_proj", "ssm_f_a"},
    {"self_attn.f_b_proj", "ssm_f_b"},
    {"self_attn.dt_bias", "ssm_dt.bias"},
    {"self_attn.A_log", "ssm_a"},
    {"self_attn.b_proj", "ssm_beta"},
    {"self_attn.o_norm", "ssm_norm"},
    // Experts beside those that lie in one tensor.
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"block_sparse_moe.routed_expert_down_proj", "ffn_routed_down"},
    {"block_sparse_moe.routed_expert_up_proj", "ffn_routed_up"},
    {"block_sparse_moe.routed_expert_norm", "ffn_routed_norm"},
    {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
    {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"},
};

}  // namespace

std::string_view GgufModule(std::string_view module) {
  for (const ModuleRow& row : kModules) {
    if (row.hugging_face == module) return row.gguf;
  }
  return module;
}

}  // namespace assay::reference
