// Llama, Qwen2 and Qwen3: pre-norm, grouped query attention, RoPE, SwiGLU (models.md).
#include "reference/graph/builder.h"

namespace assay::reference {
namespace {

std::string Attention(Builder* b, const ModelConfig& c, const std::string& residual) {
  const Axis heads = {Cut::kHeads, c.heads * c.head_dim, c.head_dim};
  const Axis kv_heads = {Cut::kKvHeads, c.kv_heads * c.head_dim, c.head_dim};
  const std::string norm =
      b->Norm("input_norm", residual, "input_layernorm", c.hidden, c.rms_norm_eps);
  std::string q = b->Linear("attn.q", {norm}, "self_attn.q_proj", heads, c.hidden, c.qkv_bias);
  std::string k = b->Linear("attn.k", {norm}, "self_attn.k_proj", kv_heads, c.hidden, c.qkv_bias);
  const std::string v =
      b->Linear("attn.v", {norm}, "self_attn.v_proj", kv_heads, c.hidden, c.qkv_bias);
  if (c.qk_norm) {
    q = b->HeadNorm("attn.q_norm", q, "self_attn.q_norm", heads, c.head_dim);
    k = b->HeadNorm("attn.k_norm", k, "self_attn.k_norm", kv_heads, c.head_dim);
  }
  const std::string q_rot = b->Plain("attn.q_rot", "rope", Op::kRope, {q}, heads);
  const std::string k_rot = b->Plain("attn.k_rot", "rope", Op::kRope, {k}, kv_heads);
  const std::string scores =
      b->Plain("attn.scores", "scores", Op::kScores, {q_rot, k_rot}, {Cut::kHeads, c.heads, 1});
  const std::string ctx = b->Plain("attn.ctx", "ctx", Op::kContext, {scores, v}, heads);
  const std::string partial =
      b->Partial("attn.partial", ctx, "self_attn.o_proj", c.hidden, heads, c.o_bias, "attn.out");
  const std::string out = b->Reduce("attn.out", partial);
  return b->Add("residual_attn", residual, out);
}

}  // namespace

Result<Graph> BuildLlama(const ModelConfig& config) {
  if (config.experts > 0) {
    return Error{config.architecture + ": experts in a dense family are not known to the oracle",
                 ErrorKind::kUnsupported};
  }
  Builder b(config);
  std::string residual = b.Embed();
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    b.Layer(layer);
    residual = b.DenseMlp(Attention(&b, config, residual));
  }
  b.Head(residual);
  return b.Take();
}

}  // namespace assay::reference
