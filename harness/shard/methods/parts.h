// The stored tensors of one linear's parameter, found: each a tensor of its own, or one expert's
// part of a tensor that holds all of them. Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/graph.h"

namespace assay::shard {

// A stored tensor as its parameter sees it.
struct Part {
  std::string suffix;  // as most producers spell it: "weight_packed", "weight_scale", "bias"
  const TensorView* tensor = nullptr;
  // Of the part, in stored values: [rows, columns], [n] or [].
  std::vector<int64_t> shape;
  // As Component's; row_step 0: the part is the whole tensor.
  int64_t first = 0, row_step = 0, column_step = 1;
  mutable bool taken = false;  // a method has used it

  int64_t values() const;  // how many there are; −1 where that is no number
  // Value (row, column) of a part with values of one byte.
  std::byte Byte(int64_t row, int64_t column, int64_t columns) const;
};

// All parts of one parameter that are in the source.
class PartSet {
 public:
  // Error: a tensor of all experts that has not the axes or the number of experts that it must.
  static Result<PartSet> Collect(const Spec& spec, const TensorSource& source);
  // One tensor that is the whole parameter.
  static PartSet Of(Part part);

  // nullptr: there is none. Marks it as taken.
  const Part* Find(std::string_view suffix) const;
  bool Has(std::string_view suffix) const;
  bool empty() const { return parts_.empty(); }
  const std::vector<Part>& parts() const { return parts_; }
  // As the checkpoint calls a part that is missing, for messages.
  std::string NameOf(std::string_view suffix) const;

 private:
  Status CollectFused(const Spec& spec, const TensorSource& source);
  std::string module_;
  std::vector<Part> parts_;
  std::vector<std::pair<std::string_view, std::string>> fused_;  // suffix, name below the module
};

// Whether the module's matrices lie in tensors of all experts, and as which producer writes them;
// `experts`: the module that holds the experts, without a dot at the end.
Fusion FusionOf(const ModelConfig& config, const TensorSource& source, const std::string& experts);

}  // namespace assay::shard
