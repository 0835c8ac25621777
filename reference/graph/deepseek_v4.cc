// DeepSeek-V4: experts, router or table by token, shared experts, hyper-connections. Its names have
// no prefix, w1 is gate, w3 up, w2 down (formats.md §8). Its attention is not planned yet.
#include "reference/graph/listing.h"

namespace assay::reference {

Result<Graph> ListDeepseekV4(const ModelConfig& config, const TensorSource& source) {
  Listing list(config, source);
  list.Embed("embed");
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    list.Layer(layer);
    for (const char* part : {"fn", "base", "scale"}) {
      list.ExactWhole(std::string("attn_hc.") + part, std::string("hc_attn_") + part);
    }
    list.Vector("input_norm", "attn_norm", config.hidden);
    for (const char* part : {"fn", "base", "scale"}) {
      list.ExactWhole(std::string("ffn_hc.") + part, std::string("hc_ffn_") + part);
    }
    list.Vector("post_norm", "ffn_norm", config.hidden);
    list.Matrix("router.logits", "ffn.gate", list.Whole(config.experts), list.Whole(config.hidden));
    list.CorrectionBias({"ffn.gate.bias"});
    if (layer < config.hash_layers) {
      list.Exact("router.table", "ffn.gate.tid2eid", list.Whole(config.vocab),
                 list.Whole(config.top_k));
    }
    list.Experts("ffn.experts", false);
    if (config.shared_experts > 0) {
      list.Mlp("shared", "ffn.shared_experts",
               config.shared_intermediate > 0 ? config.shared_intermediate
                                              : config.shared_experts * config.moe_intermediate,
               false);
    }
  }
  list.Layer(-1);
  for (const char* part : {"fn", "base", "scale"}) {
    list.ExactWhole(std::string("hc_head.") + part, std::string("hc_head_") + part);
  }
  list.Vector("final_norm", "norm", config.hidden);
  list.Head(config.tied ? "embed" : "head");
  return list.Take();
}

bool IsUnplanned(const ModelConfig& config, std::string_view tensor) {
  const bool gguf = config.container == Container::kGguf;
  const std::string layers = gguf ? "blk." : config.prefix + "layers.";
  if (!tensor.starts_with(layers)) return false;
  tensor.remove_prefix(layers.size());
  const size_t dot = tensor.find('.');
  if (dot == std::string_view::npos || dot == 0) return false;
  for (const char digit : tensor.substr(0, dot)) {
    if (digit < '0' || digit > '9') return false;
  }
  const std::string_view module = tensor.substr(dot + 1);
  if (config.family == Family::kDeepseekV4) return module.starts_with("attn.");
  return config.family == Family::kMinimaxM3 &&
         module.starts_with(gguf ? "indexer." : "self_attn.index_");
}

}  // namespace assay::reference
