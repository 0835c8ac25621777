// How a logical weight is stored, production side: decode and pack of each method in layout "row".
// A method is one row here; kernels have their own inner decode, which their tests hold against
// this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "harness/units/dtype.h"
#include "harness/units/units.h"

namespace assay::kernels {

struct Method {
  std::string_view name;   // "bf16", "ct-int4-g32"
  Packing packing;         // logical elements in a storage word
  Elements group;          // elements along k that share a scale; 0: no scales
  DType weight_dtype;      // of one storage word
  DType scale_dtype;       // unused if group is 0
  int code_min, code_max;  // values of a code before its scale; 0, 0: not a code but a float
  // out[n·k] = the float values of a matrix of n rows and k logical columns: exact, no rounding (a
  // product beyond float's range is ±inf). k is a multiple of packing.elements and of group.
  // `scales` may be nullptr if group is 0. No alignment is needed.
  void (*decode)(const std::byte* codes, const std::byte* scales, int64_t n, int64_t k, float* out);
};

std::span<const Method> Methods();
const Method* FindMethod(std::string_view name);

// Packs codes in [-8, 7], n rows of k, k a multiple of 8, into words[n·k/8] as compressed-tensors
// stores them: element i of a word in bits 4i..4i+3, code + 8. Aborts on a code out of range: it
// would silently become another one.
void PackCtInt4(const int8_t* codes, int64_t n, int64_t k, uint32_t* words);

// Nearest bf16, ties to even; NaN stays NaN. The inverse of decoding "bf16" for exact values.
uint16_t Bf16FromFloat(float value);
float FloatFromBf16(uint16_t bits);

}  // namespace assay::kernels
