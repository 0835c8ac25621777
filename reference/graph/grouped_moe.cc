// Families with grouped query attention and experts: Qwen3-MoE, gpt-oss, MiniMax-M3. Parameters
// alone; the names are formats.md §8's and those of the shipped files.
#include <utility>

#include "reference/graph/listing.h"

namespace assay::reference {
namespace {

Status CheckAttention(const ModelConfig& c) {
  if (c.head_dim > 0 && c.kv_heads > 0 && c.heads % c.kv_heads == 0) return Ok();
  return Error{c.architecture + ": " + std::to_string(c.heads) + " heads of " +
               std::to_string(c.head_dim) + " over " + std::to_string(c.kv_heads) +
               " key/value heads do not fit each other"};
}

void Mlp(Listing* list, int64_t layer) {
  const ModelConfig& c = list->config();
  if (!c.is_moe(layer)) {
    list->Mlp("mlp", "mlp", c.intermediate, c.mlp_bias);
    return;
  }
  // MiniMax-M3's own name first, for it is what llama.cpp's are looked up by.
  std::vector<std::string> names = {"mlp.experts", "block_sparse_moe.experts"};
  if (c.family == Family::kMinimaxM3) std::swap(names[0], names[1]);
  const std::string moe = list->Choose(names);
  const std::string base = moe.substr(0, moe.find('.'));
  list->Matrix("router.logits", list->Choose({base + ".gate", base + ".router"}),
               list->Whole(c.experts), list->Whole(c.hidden), c.router_bias);
  list->CorrectionBias({base + ".gate.e_score_correction_bias", base + ".e_score_correction_bias"});
  list->Experts(moe, c.expert_bias);
  if (c.shared_experts > 0) {
    const int64_t intermediate =
        c.shared_intermediate > 0 ? c.shared_intermediate : c.shared_experts * c.moe_intermediate;
    list->Mlp("shared", base + ".shared_experts", intermediate, false);
  }
}

Result<Graph> List(const ModelConfig& config, const TensorSource& source) {
  if (const Status attention = CheckAttention(config); !attention) return attention.error();
  Listing list(config, source);
  list.Embed("embed_tokens");
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    list.Layer(layer);
    list.Vector("input_norm", "input_layernorm", config.hidden);
    list.GroupedAttention("self_attn");
    list.Vector("post_norm", "post_attention_layernorm", config.hidden);
    Mlp(&list, layer);
  }
  list.Layer(-1);
  list.Vector("final_norm", "norm", config.hidden);
  list.Head(config.tied ? "embed_tokens" : "lm_head");
  return list.Take();
}

}  // namespace

Result<Graph> ListQwen3Moe(const ModelConfig& config, const TensorSource& source) {
  return List(config, source);
}
Result<Graph> ListGptOss(const ModelConfig& config, const TensorSource& source) {
  return List(config, source);
}
Result<Graph> ListMinimaxM3(const ModelConfig& config, const TensorSource& source) {
  return List(config, source);
}

}  // namespace assay::reference
