// Tensors against the parameters that take them: representation, type and extents.
#pragma once

#include "harness/checkpoint/tensor_source.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels {

// Throws EngineError (refused) that names the tensor, the axis, and both extents in the ABI's
// units; the message says the representations: "axis k has 48 packed bytes (u4x2), the parameter
// takes 96 unpacked elements". Another floating type than the parameter's is unsupported.
void CheckTensor(const ParameterSpec& spec, const TensorView& tensor);

// compressed-tensors' weight_shape: int64 or int32 [2], the logical (N, K). Throws as CheckTensor.
void CheckWeightShape(const TensorView& tensor, int64_t n, int64_t k);

}  // namespace assay::kernels
