// What the host can run, decided by hand from CPUID and XGETBV so that it can be faked in a test.
#pragma once

#include <cstdint>

#include "kernels/registry.h"

namespace assay::kernels {

// The registers that decide. A leaf that the processor does not have is all zero.
struct CpuRegisters {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint64_t xcr0 = 0;  // 0 where leaf 1 says that XGETBV is not enabled (OSXSAVE)
};
CpuRegisters ReadCpu();

// Whether a processor with these registers, and its operating system, run the tier's code. AVX2
// needs AVX2 and FMA (no F16C: the kernels do not use it), and YMM state saved by the system.
bool CpuRuns(Tier tier, const CpuRegisters& cpu);

// Whether a comma list of tiers names `tier`. nullptr: no list, all are named. An empty list names
// none. Blanks around a name do not count; unknown names take nothing away and add nothing.
bool ListNames(const char* list, Tier tier);

}  // namespace assay::kernels
