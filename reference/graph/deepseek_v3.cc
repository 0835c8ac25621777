// DeepSeek-V3 class, Kimi-K2: multi-head latent attention, grouped top-k with a correction bias,
// shared experts, dense first layers (models.md).
#include "reference/graph/builder.h"

namespace assay::reference {
namespace {

// Hugging Face fixes it in the two norms inside MLA, whatever rms_norm_eps says (models.md).
constexpr double kInnerNormEps = 1e-6;

std::string Attention(Builder* b, const ModelConfig& c, const std::string& residual) {
  const int64_t qk = c.qk_nope + c.qk_rope;
  const Axis q_heads = {Cut::kHeads, c.heads * qk, qk};
  const Axis v_heads = {Cut::kHeads, c.heads * c.v_dim, c.v_dim};
  const Axis kv_b_heads = {Cut::kHeads, c.heads * (c.qk_nope + c.v_dim), c.qk_nope + c.v_dim};
  const std::string norm =
      b->Norm("input_norm", residual, "input_layernorm", c.hidden, c.rms_norm_eps);
  std::string q;
  if (c.q_lora > 0) {
    const std::string q_a = b->Linear("attn.q_a", {norm}, "self_attn.q_a_proj",
                                      {Cut::kWhole, c.q_lora, 1}, c.hidden, c.qkv_bias);
    const std::string q_a_norm =
        b->Norm("attn.q_a_norm", q_a, "self_attn.q_a_layernorm", c.q_lora, kInnerNormEps);
    q = b->Linear("attn.q", {q_a_norm}, "self_attn.q_b_proj", q_heads, c.q_lora, false);
  } else {
    q = b->Linear("attn.q", {norm}, "self_attn.q_proj", q_heads, c.hidden, false);
  }
  const std::string kv_a = b->Linear("attn.kv_a", {norm}, "self_attn.kv_a_proj_with_mqa",
                                     {Cut::kWhole, c.kv_lora + c.qk_rope, 1}, c.hidden, c.qkv_bias);
  const std::string kv_a_norm =
      b->Norm("attn.kv_a_norm", kv_a, "self_attn.kv_a_layernorm", c.kv_lora, kInnerNormEps);
  const std::string kv_b =
      b->Linear("attn.kv_b", {kv_a_norm}, "self_attn.kv_b_proj", kv_b_heads, c.kv_lora, false);
  const std::string q_rot = b->Plain("attn.q_rot", "rope", Op::kRope, {q}, q_heads);
  const std::string k_rot =
      b->Plain("attn.k_rot", "rope", Op::kRope, {kv_a}, {Cut::kWhole, c.qk_rope, 1});
  const std::string scores = b->Plain("attn.scores", "scores", Op::kScores, {q_rot, k_rot, kv_b},
                                      {Cut::kHeads, c.heads, 1});
  const std::string ctx = b->Plain("attn.ctx", "ctx", Op::kContext, {scores, kv_b}, v_heads);
  const std::string partial =
      b->Partial("attn.partial", ctx, "self_attn.o_proj", c.hidden, v_heads, c.o_bias, "attn.out");
  const std::string out = b->Reduce("attn.out", partial);
  return b->Add("residual_attn", residual, out);
}

std::string MoeMlp(Builder* b, const ModelConfig& c, const std::string& residual) {
  const Axis hidden = {Cut::kWhole, c.hidden, 1};
  const Axis experts = {Cut::kWhole, c.experts, 1};
  const Axis chosen = {Cut::kWhole, c.top_k, 1};
  const std::string norm =
      b->Norm("post_norm", residual, "post_attention_layernorm", c.hidden, c.rms_norm_eps);
  const std::string logits =
      b->Linear("router.logits", {norm}, "mlp.gate", experts, c.hidden, false);
  b->LastNode().op_class = "router";
  const std::string scores =
      b->Plain("router.scores", "router", Op::kRouterScores, {logits}, experts);
  const std::string ids = b->Plain("router.ids", "router", Op::kRouterIds, {scores}, chosen);
  // The bias decides the choice and nothing else, so it belongs to that op.
  b->BiasOnly("router.scores", "mlp.gate.e_score_correction_bias", c.experts);
  const std::string weights =
      b->Plain("router.weights", "router", Op::kRouterWeights, {scores, ids}, chosen);
  std::vector<std::string> combined = {ids, weights};
  for (int64_t e = 0; e < c.experts; ++e) {
    const std::string n = std::to_string(e);
    combined.push_back(
        b->Mlp("moe.e" + n, "mlp.experts." + n, {norm, ids}, c.moe_intermediate, false, e));
  }
  const std::string partial = b->Plain("moe.partial", "combine", Op::kCombine, combined, hidden);
  b->LastNode().spread = Spread::kPartial;
  b->LastNode().domain = Domain::kTensor;
  const std::string moe = b->Reduce("moe.out", partial);
  std::string out;
  if (c.shared_experts > 0) {
    const std::string down = b->Mlp("shared", "mlp.shared_experts", {norm},
                                    c.moe_intermediate * c.shared_experts, false);
    out = b->Add("mlp.out", moe, b->Reduce("shared.out", down));
  } else {
    out = b->Reduce("mlp.out", moe);
    b->LastNode().domain = Domain::kNone;  // a copy: nothing of other ranks is added
  }
  return b->Add("residual_mlp", residual, out);
}

Status CheckRouter(const ModelConfig& c) {
  if (c.experts <= 0) return Ok();
  if (c.scoring != "sigmoid") {
    return Error{c.architecture + ": scoring_func \"" + c.scoring +
                     "\" is not known to the oracle (sigmoid is)",
                 ErrorKind::kUnsupported};
  }
  if (!c.topk_method.empty() && c.topk_method != "noaux_tc") {
    return Error{c.architecture + ": topk_method \"" + c.topk_method +
                     "\" is not known to the oracle (noaux_tc is)",
                 ErrorKind::kUnsupported};
  }
  if (c.groups < 1 || c.experts % c.groups != 0 || c.topk_group < 1 || c.topk_group > c.groups ||
      (c.groups > 1 && c.experts / c.groups < 2) || c.top_k < 1 ||
      c.top_k > c.topk_group * (c.experts / c.groups)) {
    return Error{c.architecture + ": " + std::to_string(c.experts) + " experts in " +
                 std::to_string(c.groups) + " groups of which " + std::to_string(c.topk_group) +
                 ", top " + std::to_string(c.top_k) + ", do not fit each other"};
  }
  return Ok();
}

}  // namespace

Result<Graph> BuildDeepseekV3(const ModelConfig& config) {
  if (const Status router = CheckRouter(config); !router) return router.error();
  if (!config.is_mla() || config.qk_rope % 2 != 0 || config.v_dim <= 0) {
    return Error{config.architecture + ": kv_lora_rank, qk_rope_head_dim (even) and v_head_dim " +
                 "must be given"};
  }
  Builder b(config);
  std::string residual = b.Embed();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    b.Layer(layer);
    residual = Attention(&b, config, residual);
    residual = config.is_moe(layer) ? MoeMlp(&b, config, residual) : b.DenseMlp(residual);
  }
  b.Head(residual);
  return b.Take();
}

}  // namespace assay::reference
