// The checkpoint's components with how each is cut: what the planner works on.
// Internal to the room.
#pragma once

#include <string>
#include <vector>

#include "harness/shard/graph.h"
#include "harness/shard/plan.h"

namespace assay::shard {

struct Listed {
  Component component;
  Cut cut = Cut::kWhole;
  std::string segment;
  // Of a routed expert's parameters, whatever their cut (a bias that counts once too): which ranks
  // hold them at all depends on it.
  int64_t expert = -1;
};

// The stored tensors of one parameter, weight before scale before bias, appended to `out`. What is
// in the source decides how the parameter is stored. Errors as ListComponents'.
Status ResolveSpec(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                   bool headers_only, std::vector<Listed>* out);

// compressed-tensors pack-quantized int4, symmetric: weight_packed, weight_scale, weight_shape.
// packed.cc.
Status ResolvePacked(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                     bool headers_only, std::vector<Listed>* out);

// A matrix in GGUF's blocks: one component, whose columns are blocks. blocks.cc.
Status ResolveBlocks(const std::string& name, const TensorView& tensor, const Spec& spec,
                     std::vector<Listed>* out);

// DeepSeek-V4's MXFP4: `weight`, I8 with two E2M1 codes, and `scale`, E8M0 by groups of 32.
// blocks.cc.
Status ResolveMxfp4(const Spec& spec, const TensorView& weight, const TensorView& scale,
                    bool headers_only, std::vector<Listed>* out);

// "model.x.weight (model.safetensors)": a tensor as messages name it.
std::string Where(const TensorView& tensor);
// A tensor that the config implies. Error: it is missing, which names `implied_by`.
Result<const TensorView*> Need(const TensorSource& source, const std::string& name,
                               const std::string& implied_by);
// The view's shape must be `expected`, and its bytes must be as many as shape and type say.
// `column_unit` is the unit of the last of two axes. Errors name tensor, axis, unit, both extents.
Status CheckShape(const TensorView& tensor, const std::vector<int64_t>& expected,
                  const std::string& column_unit);

Result<std::vector<Listed>> ListAll(const ModelConfig& config, const TensorSource& source,
                                    const Selection& selection);

}  // namespace assay::shard
