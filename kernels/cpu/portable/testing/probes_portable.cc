#include "kernels/cpu/portable/avx512_intrinsics.h"
#include "kernels/cpu/portable/testing/probe.h"
#include "kernels/cpu/portable/testing/probe_macros.h"

#define ASSAY_LACKING

namespace assay::kernels::testing {
namespace {

using namespace avx512_portable;

constexpr Probe kProbes[] = {
#include "kernels/cpu/portable/testing/probes.inc"
};

}  // namespace

Probes PortableProbes() { return {kProbes, sizeof kProbes / sizeof kProbes[0]}; }

}  // namespace assay::kernels::testing
