// Rows of the avx512 tier, as instructions and as portable intrinsics. Declarations and constants
// only.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::avx512 {
inline constexpr How kHow = How::kHardware;
#include "kernels/cpu/avx512/rows.inc"
}  // namespace assay::kernels::avx512

namespace assay::kernels::avx512_portable {
inline constexpr How kHow = How::kPortable;
#include "kernels/cpu/avx512/rows.inc"
}  // namespace assay::kernels::avx512_portable
