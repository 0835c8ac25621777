// Tensors of a checkpoint that no component takes, and may be passed over.
#pragma once

#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/plan.h"

namespace assay::shard {

struct Passed {
  std::string name;
  // "DeepSeek-V4's attention is not planned", "another model beside the decoder" ...: for people.
  std::string reason;
  // Of the decoder's own parameters: what depends on them cannot be said to be right.
  bool unplanned = false;
};

// Sorted by name. A tensor that neither a component nor this list names belongs to nothing: nobody
// loads it. Only names are looked at.
std::vector<Passed> Unplanned(const ModelConfig& config, const TensorSource& source);
// The same of one name; empty where it is neither.
std::string WhyPassed(const ModelConfig& config, std::string_view name);

}  // namespace assay::shard
