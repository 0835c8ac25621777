// Tensors against the parameters that take them: representation, type and extents.
#pragma once

#include "harness/checkpoint/tensor_source.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels {

// Throws EngineError (refused) that names the tensor, the axis, and both extents in their units:
// 48 "packed bytes (u4x2)" against 96 "unpacked elements".
void CheckTensor(const ParameterSpec& spec, const TensorView& tensor);

// compressed-tensors' weight_shape: int64 [2], the logical (N, K). Throws as CheckTensor.
void CheckWeightShape(const TensorView& tensor, int64_t n, int64_t k);

}  // namespace assay::kernels
