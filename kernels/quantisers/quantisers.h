// Activation quantisers as libraries have them, each under a name: they disagree on ties, on how an
// exponent is rounded, on amax/127 or amax/127.5, and on what becomes of zeros and tiny numbers. A
// contract says by name which one an engine has. Definitions, not kernels: plain, not fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::kernels {

enum class Element { kInt8, kE4m3, kE2m1 };

enum class ScaleType {
  kF32,
  kInput,    // BF16 or F32, as the activations are
  kF16,      // GGUF
  kE8m0,     // 2^(byte − 127)
  kE4m3F32,  // NVFP4: an E4M3 a group and one F32 for all
};

// The scale s of a group. `largest` and emax are the element's: 127, 448 = 1.75·2^8, 6 = 1.5·2^2.
enum class ScaleRule {
  kLinear,       // amax / divisor
  kRange,        // (max − min) / divisor, with a zero point
  kFloor,        // 2^(⌊log2 amax⌋ − emax)
  kCeil,         // 2^(⌈log2 amax⌉ − emax)
  kEven,         // floor of amax rounded to the element's mantissa, ties up
  kRoundUp,      // 2^⌈log2(amax / largest)⌉
  kRoundDown,    // 2^⌊log2(amax / largest)⌋
  kFloorNoEmax,  // 2^⌊log2 amax⌋
  kTwoLevel,     // E4M3 of (amax / 6) over one scale for all: amax of all / (448·6)
};

// How x/s becomes a code: the nearest, and on a tie the even code, the larger or the smaller one;
// or what is left without its fraction.
enum class Rounding { kEven, kAway, kTowardsZero, kTruncate };

std::string_view NameOf(Element element);
std::string_view NameOf(ScaleType type);
std::string_view NameOf(ScaleRule rule);
std::string_view NameOf(Rounding rounding);

// [rows, columns] of BF16 or F32, row after row, at any address.
struct Activation {
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;
  const std::byte* values = nullptr;
};

struct QuantisedActivation {
  // One a byte; E2M1 two a byte, the even element in the low nibble.
  std::vector<std::byte> codes;
  // [rows, columns / group] of `scale_dtype`: F32, BF16, F16, F8_E8M0 or F8_E4M3.
  std::vector<std::byte> scales;
  DType scale_dtype = DType::kF32;
  std::vector<int32_t> zeros;  // [rows]: kRange
  float global_scale = 1;      // kE4m3F32; whether it multiplies or divides is the library's
};

struct Quantiser {
  std::string_view name;  // "mxfp4-rceil-aiter"
  Element element;
  int64_t group;  // elements along a row that share a scale; 0: the row
  ScaleType scale;
  ScaleRule rule;
  Rounding rounding;
  std::string_view library;  // whose code it equals, with the function
  // `x` is finite and whole groups: Quantise sees to it.
  void (*run)(const Quantiser& self, const Activation& x, QuantisedActivation* out);
};

// All of them, sorted by name.
std::span<const Quantiser> Quantisers();
const Quantiser* FindQuantiser(std::string_view name);  // nullptr: none has the name

// Errors: a type other than BF16 and F32, negative extents, columns that are not whole groups, a
// NaN or an infinity (libraries differ there, and no vector says how).
Result<QuantisedActivation> Quantise(const Quantiser& quantiser, const Activation& x);

}  // namespace assay::kernels
