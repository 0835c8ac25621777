// What vllm-ascend derives beside the repack "ascend-w4a8": sums, which no layout gives back.
#pragma once

#include <cstdint>
#include <span>

namespace assay::kernels::ascend {

// The scale bias of one row of W4A8: ModelSlim's parts of it, added in order in fp32.
float ScaleBias(std::span<const float> parts);
// The same for weights that come without one: 8·scale·Σ codes, by which the operator, whose codes
// are unsigned, takes the 8 off again. Codes −8 … 7; exact up to the last rounding to fp32.
float ScaleBiasOfCodes(float scale, std::span<const int8_t> codes);

}  // namespace assay::kernels::ascend
