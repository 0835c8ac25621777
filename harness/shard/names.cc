#include "harness/shard/names.h"

namespace assay::shard {
namespace {

constexpr LayerNames kHuggingFace = {};

constexpr LayerNames GptOss() {
  LayerNames n;
  n.router = "mlp.router";
  return n;
}

constexpr LayerNames BlockSparse() {
  LayerNames n;
  n.experts = "block_sparse_moe.experts";
  n.expert_gate = "w1", n.expert_up = "w3", n.expert_down = "w2";
  n.shared_gate = "block_sparse_moe.shared_experts.gate_proj";
  n.shared_up = "block_sparse_moe.shared_experts.up_proj";
  n.shared_down = "block_sparse_moe.shared_experts.down_proj";
  n.router = "block_sparse_moe.gate";
  n.correction = "block_sparse_moe.gate.e_score_correction_bias";
  n.latent_down = "block_sparse_moe.routed_expert_down_proj";
  n.latent_norm = "block_sparse_moe.routed_expert_norm";
  n.latent_up = "block_sparse_moe.routed_expert_up_proj";
  return n;
}

constexpr LayerNames MinimaxM3() {
  LayerNames n = BlockSparse();
  n.correction = "block_sparse_moe.e_score_correction_bias";
  return n;
}

constexpr LayerNames DeepseekV4() {
  LayerNames n;
  n.input_norm = "attn_norm", n.post_norm = "ffn_norm";
  n.experts = "ffn.experts";
  n.expert_gate = "w1", n.expert_up = "w3", n.expert_down = "w2";
  n.mlp_gate = "ffn.w1", n.mlp_up = "ffn.w3", n.mlp_down = "ffn.w2";
  n.shared_gate = "ffn.shared_experts.w1", n.shared_up = "ffn.shared_experts.w3";
  n.shared_down = "ffn.shared_experts.w2";
  n.router = "ffn.gate", n.correction = "ffn.gate.bias", n.table = "ffn.gate.tid2eid";
  return n;
}

constexpr LayerNames Gguf() {
  LayerNames n;
  n.input_norm = "attn_norm", n.post_norm = "ffn_norm";
  n.q = "attn_q", n.k = "attn_k", n.v = "attn_v", n.q_norm = "attn_q_norm";
  n.k_norm = "attn_k_norm", n.out = "attn_output", n.sinks = "attn_sinks.weight";
  n.q_a = "attn_q_a", n.q_a_norm = "attn_q_a_norm", n.q_b = "attn_q_b";
  n.kv_a = "attn_kv_a_mqa", n.kv_a_norm = "attn_kv_a_norm", n.kv_b = "attn_kv_b";
  n.k_b = "attn_k_b", n.v_b = "attn_v_b", n.gate = "attn_gate";
  n.q_conv = "ssm_conv1d_q.weight", n.k_conv = "ssm_conv1d_k.weight";
  n.v_conv = "ssm_conv1d_v.weight";
  n.f_a = "ssm_f_a", n.f_b = "ssm_f_b", n.g = "ssm_g", n.g_a = "ssm_g_a", n.g_b = "ssm_g_b";
  n.beta = "ssm_beta", n.dt_bias = "ssm_dt.bias", n.a_log = "ssm_a", n.o_norm = "ssm_norm";
  n.mlp_gate = "ffn_gate", n.mlp_up = "ffn_up", n.mlp_down = "ffn_down";
  n.experts = "";
  n.expert_gate = "ffn_gate_exps", n.expert_up = "ffn_up_exps", n.expert_down = "ffn_down_exps";
  n.shared_gate = "ffn_gate_shexp", n.shared_up = "ffn_up_shexp", n.shared_down = "ffn_down_shexp";
  n.router = "ffn_gate_inp", n.correction = "exp_probs_b.bias";
  n.latent_down = "ffn_routed_down", n.latent_norm = "ffn_routed_norm";
  n.latent_up = "ffn_routed_up";
  n.attn_res = "attn_res_score.weight", n.mlp_res = "ffn_res_score.weight";
  return n;
}

constexpr LayerNames kGptOss = GptOss(), kBlockSparse = BlockSparse(), kMinimaxM3 = MinimaxM3(),
                     kDeepseekV4 = DeepseekV4(), kGguf = Gguf();

}  // namespace

const LayerNames& LayerNamesOf(const ModelConfig& config) {
  if (config.container == Container::kGguf) return kGguf;
  switch (config.family) {
    case Family::kGptOss:
      return kGptOss;
    case Family::kKimiLinear:
    case Family::kKimiK3:
      return kBlockSparse;
    case Family::kMinimaxM3:
      return kMinimaxM3;
    case Family::kDeepseekV4:
      return kDeepseekV4;
    default:
      return kHuggingFace;
  }
}

ModelNames ModelNamesOf(const ModelConfig& config) {
  if (config.container == Container::kGguf) {
    return {"token_embd.weight", "blk.", "output_norm.weight", "output_res_score.weight"};
  }
  const std::string& prefix = config.prefix;
  const bool v4 = config.family == Family::kDeepseekV4;
  return {prefix + (v4 ? "embed.weight" : "embed_tokens.weight"), prefix + "layers.",
          prefix + "norm.weight", prefix + "output_attn_res"};
}

}  // namespace assay::shard
