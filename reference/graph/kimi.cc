// Kimi-Linear and Kimi-K3: delta attention (KDA) and latent attention layer by layer, experts, in
// K3 on a latent; attention residuals. Parameters alone (models.md).
#include "reference/graph/listing.h"

namespace assay::reference {
namespace {

void DeltaAttention(Listing* list) {
  const ModelConfig& c = list->config();
  const std::string module = "self_attn.";
  const int64_t d = c.kda_head_dim, width = c.kda_heads * d;
  const Axis channels = {Cut::kHeads, width, d}, heads = {Cut::kHeads, c.kda_heads, 1};
  const Axis hidden = list->Whole(c.hidden), rank = list->Whole(d), one = list->Whole(1);
  for (const std::string name : {"q", "k", "v"}) {
    list->Matrix("attn." + name, module + name + "_proj", channels, hidden);
    list->Exact("attn." + name + "_conv", module + name + "_conv1d.weight", channels,
                list->Whole(c.kda_conv));
  }
  list->Matrix("attn.f_a", module + "f_a_proj", rank, hidden);
  list->Matrix("attn.f_b", module + "f_b_proj", channels, rank);
  list->Exact("attn.dt_bias", module + "dt_bias", channels, one);
  // Longer in the file than there are heads (models.md).
  list->Exact("attn.a_log", module + "A_log", heads, one).longer = true;
  list->Matrix("attn.b", module + "b_proj", heads, hidden);
  if (c.kda_full_gate) {
    const bool gguf = c.container == Container::kGguf;  // there MLA's gate has another name
    list->Matrix("attn.g", gguf ? "ssm_g" : module + "g_proj", channels, hidden);
  } else {
    list->Matrix("attn.g_a", module + "g_a_proj", rank, hidden);
    list->Matrix("attn.g_b", module + "g_b_proj", channels, rank);
  }
  list->Vector("attn.o_norm", module + "o_norm", d);
  list->Matrix("attn.out", module + "o_proj", hidden, channels);
}

void LatentAttention(Listing* list) {
  const ModelConfig& c = list->config();
  const std::string module = "self_attn.";
  const int64_t qk = c.qk_nope + c.qk_rope;
  const Axis hidden = list->Whole(c.hidden);
  const Axis q_heads = {Cut::kHeads, c.heads * qk, qk};
  const Axis v_heads = {Cut::kHeads, c.heads * c.v_dim, c.v_dim};
  const Axis kv_heads = {Cut::kHeads, c.heads * (c.qk_nope + c.v_dim), c.qk_nope + c.v_dim};
  if (c.q_lora > 0) {
    list->Matrix("attn.q_a", module + "q_a_proj", list->Whole(c.q_lora), hidden);
    list->Vector("attn.q_a_norm", module + "q_a_layernorm", c.q_lora);
    list->Matrix("attn.q", module + "q_b_proj", q_heads, list->Whole(c.q_lora));
  } else {
    list->Matrix("attn.q", module + "q_proj", q_heads, hidden);
  }
  list->Matrix("attn.kv_a", module + "kv_a_proj_with_mqa", list->Whole(c.kv_lora + c.qk_rope),
               hidden);
  list->Vector("attn.kv_a_norm", module + "kv_a_layernorm", c.kv_lora);
  if (c.container == Container::kGguf && list->Has("attn_k_b")) {
    // Split and k's part transposed, [heads, lora, nope] and [heads, v, lora], whole on every rank.
    list->Matrix("attn.k_b", "attn_k_b", list->Whole(c.heads * c.kv_lora), list->Whole(c.qk_nope))
        .flat = true;
    list->Matrix("attn.v_b", "attn_v_b", list->Whole(c.heads * c.v_dim), list->Whole(c.kv_lora))
        .flat = true;
  } else {
    list->Matrix("attn.kv_b", module + "kv_b_proj", kv_heads, list->Whole(c.kv_lora));
  }
  if (c.mla_gate) list->Matrix("attn.gate", module + "g_proj", v_heads, hidden);
  list->Matrix("attn.out", module + "o_proj", hidden, v_heads);
}

void Mlp(Listing* list, int64_t layer) {
  const ModelConfig& c = list->config();
  if (!c.is_moe(layer)) {
    list->Mlp("mlp", "mlp", c.intermediate, c.mlp_bias);
    return;
  }
  const std::string experts = list->Choose({"block_sparse_moe.experts", "mlp.experts"});
  const std::string base = experts.substr(0, experts.find('.') + 1);
  list->Matrix("router.logits", base + "gate", list->Whole(c.experts), list->Whole(c.hidden));
  list->CorrectionBias({base + "gate.e_score_correction_bias", base + "e_score_correction_bias"});
  if (c.latent > 0) {
    list->Matrix("moe.latent_down", base + "routed_expert_down_proj", list->Whole(c.latent),
                 list->Whole(c.hidden));
  }
  list->Experts(experts, false);
  if (c.latent > 0) {
    if (c.latent_norm) list->Vector("moe.latent_norm", base + "routed_expert_norm", c.latent);
    list->Matrix("moe.latent_up", base + "routed_expert_up_proj", list->Whole(c.hidden),
                 list->Whole(c.latent));
  }
  if (c.shared_experts > 0) {
    const int64_t intermediate =
        c.shared_intermediate > 0 ? c.shared_intermediate : c.shared_experts * c.moe_intermediate;
    list->Mlp("shared", base + "shared_experts", intermediate, false);
  }
}

void Residual(Listing* list, const std::string& path, const std::string& module,
              const std::string& gguf) {
  if (list->config().attn_res_block == 0) return;
  if (list->config().container == Container::kGguf) {  // norm and projection multiplied
    list->Vector(path + ".score", gguf, list->config().hidden);
    return;
  }
  list->Vector(path + ".norm", module + "_norm", list->config().hidden);
  list->Matrix(path + ".proj", module + "_proj", list->Whole(1),
               list->Whole(list->config().hidden));
}

Status Check(const ModelConfig& c) {
  bool kda = false, mla = c.kda_layers.empty();
  for (const bool layer : c.kda_layers) {
    kda = kda || layer;
    mla = mla || !layer;
  }
  if (kda && (c.kda_heads <= 0 || c.kda_head_dim <= 0 || c.kda_conv <= 0)) {
    return Error{c.architecture + ": linear attention without heads, head_dim or kernel size"};
  }
  if (mla && (!c.is_mla() || c.qk_nope <= 0 || c.qk_rope < 0 || c.v_dim <= 0)) {
    return Error{c.architecture + ": kv_lora_rank, qk_nope_head_dim and v_head_dim must be given"};
  }
  return Ok();
}

}  // namespace

Result<Graph> ListKimi(const ModelConfig& config, const TensorSource& source) {
  if (const Status status = Check(config); !status) return status.error();
  Listing list(config, source);
  list.Embed("embed_tokens");
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    list.Layer(layer);
    Residual(&list, "attn_res", "self_attention_res", "attn_res_score");
    list.Vector("input_norm", "input_layernorm", config.hidden);
    if (config.is_kda(layer)) {
      DeltaAttention(&list);
    } else {
      LatentAttention(&list);
    }
    Residual(&list, "mlp_res", "mlp_res", "ffn_res_score");
    list.Vector("post_norm", "post_attention_layernorm", config.hidden);
    Mlp(&list, layer);
  }
  list.Layer(-1);
  Residual(&list, "output_res", "output_attn_res", "output_res_score");
  list.Vector("final_norm", "norm", config.hidden);
  list.Head(config.tied ? "embed_tokens" : "lm_head");
  return list.Take();
}

}  // namespace assay::reference
