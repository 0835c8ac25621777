// SIMDe in plain C++: without the host's instructions, whatever the flags.
#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// Release 0.7.4 gives this alias the four arguments of the masked form.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

#include "kernels/cpu/portable/testing/probe.h"
#include "kernels/cpu/portable/testing/probe_macros.h"

namespace assay::kernels::testing {
namespace {

constexpr Probe kProbes[] = {
#include "kernels/cpu/portable/testing/probes.inc"
};

}  // namespace

Probes SimdeProbes() { return {kProbes, sizeof kProbes / sizeof kProbes[0]}; }

}  // namespace assay::kernels::testing
