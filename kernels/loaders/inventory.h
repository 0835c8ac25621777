// Which parameters a config implies, as the production engine sees it: names in the checkpoint,
// logical extents, and what belongs together.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"

namespace assay::kernels {

enum class Block { kTop, kAttention, kMlp };

// A linear layer, a vector, or the embedding table.
struct Expected {
  enum class Kind { kLinear, kVector, kTable };
  std::string op;      // "L1.moe.e5.gate"; components are op + ".weight", ".scale", ".bias"
  std::string source;  // module's name for a linear, tensor's name otherwise
  Kind kind = Kind::kLinear;
  std::string part = "weight";  // of a vector: "weight" or "bias"
  int64_t n = 0, k = 1;         // logical
  bool bias = false;            // a linear that has one
  int64_t layer = -1;
  Block block = Block::kTop;
  int64_t expert = -1;
  bool optional = false;
};

// Where the decoder's tensors live, read off the names: "model.", "language_model.model." ...
// Sets config->prefix and config->lm_head. GGUF's names have no prefix. Throws EngineError if no
// name says.
void FindPrefix(const std::set<std::string, std::less<>>& names, ModelConfig* config);

// All of one layer, data-flow order.
std::vector<Expected> LayerInventory(const ModelConfig& config, int64_t layer);
// embed, and behind the layers final_norm and logits.
std::vector<Expected> TopInventory(const ModelConfig& config);

// Whether a tensor that no parameter takes may be left unused: tables that engines compute
// themselves, layers beyond the model's (draft heads), other towers of a multimodal checkpoint.
bool MayBeIgnored(const ModelConfig& config, std::string_view name);
// n of "{prefix}layers.n.", -1 if the name has no layer.
int64_t LayerOf(const ModelConfig& config, std::string_view name);

}  // namespace assay::kernels
