// One row of the table of layouts: a layout and the methods that it takes.
#pragma once

#include <span>

#include "harness/units/scheme.h"
#include "kernels/layouts/layouts.h"

namespace assay::kernels {

struct Rule {
  Layout layout;
  bool (*takes)(const Scheme& scheme);
};

// The rooms of the table, in the order in which Tags names them.
std::span<const Rule> Rows16Rules();
std::span<const Rule> TileRules();    // vnni, amx, ktile, vllm-cpu-moe-vec, gate-up-rows
std::span<const Rule> MarlinRules();  // marlin, marlin-padded
std::span<const Rule> AiterRules();   // aiter-klane, -separated, -interleaved, -gfx1250*
std::span<const Rule> AiterInt4Rules();
std::span<const Rule> SwizzleRules();  // blockscale-128x4, triton-*
std::span<const Rule> MlaRules();      // mla-absorb
std::span<const Rule> AscendRules();   // ascend-w4a8

// Sets of methods that several of these need.
inline bool IsMxfp4(const Scheme& s) {
  return s.family == MethodFamily::kCtMxfp4 || s.family == MethodFamily::kGptOssMxfp4 ||
         s.family == MethodFamily::kDeepseekV4Mxfp4 || s.family == MethodFamily::kQuarkMxfp4;
}
inline bool IsNvfp4(const Scheme& s) {
  return s.family == MethodFamily::kCtNvfp4 || s.family == MethodFamily::kModelOptNvfp4;
}
inline bool IsFp8(const Scheme& s) {
  return s.family == MethodFamily::kCtFp8 || s.family == MethodFamily::kDeepseekFp8;
}
inline bool IsInt8(const Scheme& s) {
  return s.family == MethodFamily::kCtW8a8 || s.family == MethodFamily::kModelSlimW8a8;
}
inline bool IsDense(const Scheme& s) { return s.family == MethodFamily::kDense; }
inline bool IsCtInt4(const Scheme& s) {
  return s.family == MethodFamily::kCtInt && s.bits == 4 && !s.old_packing;
}
// The stored type is one byte.
inline bool IsByte(DType d) {
  return d == DType::kU8 || d == DType::kI8 || d == DType::kF8E4M3 || d == DType::kF8E5M2 ||
         d == DType::kF8E8M0;
}

}  // namespace assay::kernels
