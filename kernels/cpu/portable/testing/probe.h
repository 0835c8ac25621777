// Each intrinsic of the portable header called on given operands, by four parties that are compiled
// apart: the portable header, the instructions, SIMDe, and a definition lane by lane.
#pragma once

#include <cstdint>

namespace assay::kernels::testing {

struct Operands {
  alignas(64) uint8_t a[128];  // more than a vector: loads start anywhere in the first half
  alignas(64) uint8_t b[64];
  alignas(64) uint8_t c[64];
  uint16_t mask;
};

// When two results are the same: equal bits; or, of fp32 lanes, also where both are NaNs.
enum class Same { kBits, kNans };

struct Probe {
  const char* name;  // of the intrinsic; "name/imm" where it takes a constant
  Same same;
  // Writes the result from out[0] on, at most 64 bytes; masked stores leave the others as they are.
  void (*run)(const Operands& operands, uint8_t* out);
};

struct Probes {
  const Probe* first;
  int count;
};

Probes PortableProbes();
Probes HardwareProbes();  // only on a host that has the tier
Probes SimdeProbes();     // without what SIMDe 0.7.4 lacks
Probes Definitions();

}  // namespace assay::kernels::testing
