// The loops of one tier each, in files of their own: only their .cc may be compiled for the tier.
#pragma once

#include <cstdint>

namespace assay::kernels::bench {

inline constexpr int64_t kPeakSteps = 200000;

int64_t FmaAvx2(float* sink);
int64_t Int8Avx2(float* sink);
int64_t FmaAvx512(float* sink);
int64_t Int8Avx512(float* sink);

}  // namespace assay::kernels::bench
