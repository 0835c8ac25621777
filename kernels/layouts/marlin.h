// Marlin, the layout of vLLM's (and GPTQModel's) mixed-precision CUDA kernels: where an element
// lies, and the values that the engine derives beside the repack.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/layouts/layouts.h"

namespace assay::kernels::marlin {

// The stable order by group of one rank's g_idx: order[i] is the element of K that stands i-th.
// Layout "marlin" of `.g_idx` holds the sorted groups, then this.
std::vector<int32_t> SortedOrder(std::span<const int32_t> g_idx);

// Extents of a matrix that Marlin's kernels take: n a multiple of 64 and k of 128, or n of 128 and
// k of 64, whichever is less; k stays a multiple of the group (0: none). {-1, -1}: too large.
struct Extents {
  int64_t n = 0, k = 0;
};
Extents Padded(int64_t n, int64_t k, int64_t group);

// What 16-bit scales of FP8 weights are multiplied by, because the kernel turns codes into bf16 (or
// fp16) by moving bits: 2^120 (2^8). One scale's bits; what overflows is infinite.
uint16_t FusedExponentBiasBf16(uint16_t scale);

// The power of two by which NVFP4 block scales (E4M3 codes) are raised before they become S0E5M3:
// the largest scale stays at 448 or below. 1 if none is above 0.
float Nvfp4ScaleFactor(std::span<const std::byte> scales);
// NVFP4's global scale (the one that multiplies) as Marlin's bf16 kernels take it: rounded to bf16,
// divided by the factor, times 2^119. Not a layout: the rounding has no inverse.
uint16_t Nvfp4GlobalScaleBf16(float global_scale, float factor);

}  // namespace assay::kernels::marlin
