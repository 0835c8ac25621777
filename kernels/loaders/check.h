// The parts that the engine makes against what is stored.
#pragma once

#include "harness/shard/plan.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels {

// The part that is made for a component: the whole tensor's extents, in stored values.
ParameterSpec SpecOf(const shard::Component& component);

// Throws EngineError (refused) that names the tensor, the axis, and both extents in the ABI's
// units; the message says the representations: "axis k has 48 packed bytes (u4x2), the parameter
// takes 96 unpacked elements". Another floating type than the parameter's is unsupported.
void CheckTensor(const ParameterSpec& spec, const shard::Component& stored);

}  // namespace assay::kernels
