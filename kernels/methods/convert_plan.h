// What a conversion makes of each tensor, before any value is read. Private to this room.
#pragma once

#include "kernels/methods/convert.h"

namespace assay::kernels {

struct OutTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// One tensor of the source and what becomes of it.
struct ConvertStep {
  const TensorView* in = nullptr;
  std::vector<OutTensor> out;  // the tensor itself, or the parts of the method in PartsOf's order
  bool converts = false;
  std::string module;
  int64_t n = 0, k = 0;
  int64_t experts = 0;  // > 0: fused [experts, k, n], each transposed
};

struct ConvertPlan {
  std::vector<ConvertStep> steps;  // sorted by the source's names
  std::vector<ConvertedModule> modules;
  std::vector<std::string> ignored;
  std::string description;
  int64_t in_bytes = 0;
};

Result<ConvertPlan> PlanConversion(const TensorSource& source, const Scheme& scheme,
                                   const ConvertOptions& options);

// Receives bytes of tensor `out` of a step from `offset` on.
using Emit = std::function<Status(size_t out, int64_t offset, std::span<const std::byte> bytes)>;
// Makes one step's tensors.
Status RunStep(const TensorSource& source, const ConvertPlan& plan, const ConvertStep& step,
               const Scheme& scheme, const ConvertOptions& options, const Emit& emit);

}  // namespace assay::kernels
