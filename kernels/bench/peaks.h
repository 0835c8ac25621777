// What a host computes at most, by loops that touch no memory.
#pragma once

#include <cstdint>

#include "kernels/registry.h"

namespace assay::kernels::bench {

// One pass of a loop of independent operations on this thread; returns how many operations (a
// multiply and an add are two) it did. `sink` keeps the compiler from dropping them.
using PeakFn = int64_t (*)(float* sink);

// nullptr where this binary has no loop for the tier. Only for a tier that HostHas.
PeakFn FmaLoop(Tier tier);   // fp32 multiply and add, fused where the tier has it
PeakFn Int8Loop(Tier tier);  // 8-bit products into 32 bits

// GFLOP/s of the best tier of this host on `threads` threads: the best pass of several.
double MeasureFma(int threads);
double MeasureInt8(int threads);

}  // namespace assay::kernels::bench
