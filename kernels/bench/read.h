// Read bandwidth of this machine, the yardstick of every memory-bound kernel.
#pragma once

#include <cstdint>

namespace assay::kernels::bench {

// GB/s (1e9) at which `threads` threads together read `bytes` of memory: the best pass of several
// over prefetch distances, in plain 16-byte loads that every x86-64 has.
double MeasureRead(int threads, int64_t bytes);

}  // namespace assay::kernels::bench
