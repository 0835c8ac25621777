// Quantised weights made from the seed, for cells of methods that the checkpoint does not have: the
// same parameters, the same logical shapes, other tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/run/fill.h"
#include "harness/units/status.h"

namespace assay::run {

// Methods whose weights can be made: "ct-int4-g32", "deepseek-v4-mxfp4", "gguf-q4_1", "gguf-q8_0".
const std::vector<std::string_view>& MadeMethods();

// One linear parameter: `name` is its tensors' name without suffix, as in the checkpoint
// ("model.layers.0.mlp.up_proj"); a weight of n rows of k elements.
struct MadeParameter {
  std::string name;
  int64_t n = 0, k = 0;
};

// A source in which some parameters are stored by another method. The base's tensors of those
// parameters (all but biases) are not there; the others are the base's own.
class MadeSource : public TensorSource {
 public:
  // Fills the tensors' bytes: codes and scales are a function of (seed, tensor name, index).
  // kExact: scales are powers of two and minima lie on their grid; kExtreme: every code, scales
  // that are tiny, huge and special (E8M0 0, 1, 254; Q8_0's code -128); otherwise scales are
  // log-normal per group and per row. Until then the bytes are 0.
  virtual void Make(Fill fill, int64_t seed) = 0;
  // Whether this tensor is one of the made ones.
  virtual bool IsMade(std::string_view tensor) const = 0;
};

// Headers only; nothing is filled yet. `base` must outlive the result. Error (kBadInput): a method
// that cannot be made, or rows that are no whole number of its groups.
Result<std::unique_ptr<MadeSource>> MakeSource(const TensorSource& base, const std::string& method,
                                               const std::vector<MadeParameter>& parameters);

}  // namespace assay::run
