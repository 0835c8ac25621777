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
  std::string_view name;   // "bf16", "ct-int4-g32", "deepseek-v4-mxfp4", "gguf-q4_1", "gguf-q8_0"
  Packing packing;         // logical elements in a storage word
  Elements group;          // elements along k of one scale in a component of its own; 0: none (a
                           // GGUF block holds its scales itself)
  DType weight_dtype;      // of one storage word
  DType scale_dtype;       // unused if group is 0
  int code_min, code_max;  // range of a code's value before its scale; 0, 0: not a code
  // out[n·k] = the float values of a matrix of n rows and k logical columns: exact, no rounding (a
  // product beyond float's range is ±inf); only gguf-q4_1's d·q + m is rounded, once, as it may
  // have more bits than a float. k is a multiple of packing.elements and of group. `scales` may be
  // nullptr if group is 0. No alignment is needed.
  void (*decode)(const std::byte* codes, const std::byte* scales, int64_t n, int64_t k, float* out);
};

std::span<const Method> Methods();
const Method* FindMethod(std::string_view name);

// Packs codes in [-8, 7], n rows of k, k a multiple of 8, into words[n·k/8] as compressed-tensors
// stores them: element i of a word in bits 4i..4i+3, code + 8. Aborts on a code out of range: it
// would silently become another one.
void PackCtInt4(const int8_t* codes, int64_t n, int64_t k, uint32_t* words);

// Packs E2M1 codes 0…15 (bit 3 the sign), k even, into bytes[n·k/2]: the even element in the low
// nibble. Aborts on a code out of range.
void PackMxfp4(const uint8_t* codes, int64_t n, int64_t k, std::byte* bytes);
// Packs blocks of 32, k a multiple of that, with fp16 bits d and m [n, k/32]. Q4_1: codes 0…15 (it
// aborts on another), value code·d + m. Q8_0: value code·d.
void PackQ41(const uint8_t* codes, const uint16_t* d, const uint16_t* m, int64_t n, int64_t k,
             std::byte* blocks);
void PackQ80(const int8_t* codes, const uint16_t* d, int64_t n, int64_t k, std::byte* blocks);

// The value of an E2M1 code 0…15; of an E8M0 byte, 2^(byte − 127), 255 a NaN; of fp16 bits.
float FloatFromE2m1(int code);
float FloatFromE8m0(uint8_t byte);
float FloatFromF16(uint16_t bits);
// Nearest fp16, ties to even, beyond its range an infinity; NaN stays NaN.
uint16_t F16FromFloat(float value);

// Nearest bf16, ties to even; NaN stays NaN. The inverse of decoding "bf16" for exact values.
uint16_t Bf16FromFloat(float value);
float FloatFromBf16(uint16_t bits);

}  // namespace assay::kernels
