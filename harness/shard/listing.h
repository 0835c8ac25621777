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
// in the source decides how the parameter is stored. Of the selection only headers_only and
// present_only matter. Errors as ListComponents'.
Status ResolveSpec(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                   const Selection& selection, std::vector<Listed>* out);
// Of Storage::kLinear. methods/resolve.cc.
Status ListLinear(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                  const Selection& selection, std::vector<Listed>* out);

// "model.x.weight (model.safetensors)": a tensor as messages name it.
std::string Where(const TensorView& tensor);
// A tensor that the config implies. Error: it is missing, which names `implied_by`.
Result<const TensorView*> Need(const TensorSource& source, const std::string& name,
                               const std::string& implied_by);
Result<std::vector<Listed>> ListAll(const ModelConfig& config, const TensorSource& source,
                                    const Selection& selection);

}  // namespace assay::shard
