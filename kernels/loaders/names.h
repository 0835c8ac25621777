// Where a decoder's tensors lie, read off the names of those that a load brings.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "harness/checkpoint/model_config.h"

namespace assay::kernels {

using Names = std::set<std::string, std::less<>>;

// "model.", "language_model.model.", "" ... Sets config->prefix and config->lm_head; GGUF's names
// have no prefix. Throws EngineError (refused) if no name says.
void FindPrefix(const Names& names, ModelConfig* config);

// n of "{prefix}layers.n." or "blk.n."; -1 if the name has no layer.
int64_t LayerOf(const ModelConfig& config, std::string_view name);

// "L1.moe.e5.gate.weight" -> "L1.moe.e5.gate", "weight".
std::pair<std::string_view, std::string_view> SplitComponent(std::string_view component);

// 5 of "L1.moe.e5.gate"; -1 where it is no routed expert's.
int64_t ExpertOf(std::string_view op);

}  // namespace assay::kernels
