#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::kernels::mxfp4 {

inline constexpr int64_t kGroup = 32;

void Decode(const std::byte* codes, const std::byte* scales, int64_t n, int64_t k, float* out);

}  // namespace assay::kernels::mxfp4
