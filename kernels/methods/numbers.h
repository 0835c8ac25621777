// Small floating types and rounding, in double: what the decoders and the packers share. Private to
// this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "harness/units/dtype.h"

namespace assay::kernels {

// A type of a sign, an exponent and `mantissa` stored bits; `largest` is its largest finite value.
struct SmallFloat {
  int mantissa;
  int bias;
  double largest;
};
inline constexpr SmallFloat kE2m1{1, 1, 6}, kE4m3{3, 7, 448}, kE4m3Fnuz{3, 8, 240},
    kF16{10, 15, 65504}, kBf16{7, 127, 0x1.FEp127}, kF32{23, 127, 0x1.FFFFFEp127};

// To the nearest integer, ties to even, whatever the host's rounding mode is. |x| < 2^52 or the
// value itself.
double RoundEven(double x);

// The code, without a sign, of the nearest value to `size` >= 0, ties to the even code; beyond the
// largest the largest; of a NaN 0.
uint32_t NearestCode(double size, const SmallFloat& type);
// The least code whose value is at least `size`; the largest's where none is.
uint32_t CodeAtLeast(double size, const SmallFloat& type);
// The value of a code without a sign.
double ValueOfCode(uint32_t code, const SmallFloat& type);

// E4M3 of either kind. FN: 0x7F and 0xFF are NaN. FNUZ: half of that value, 0x80 is NaN, and 0x7F
// and 0xFF are ±240.
double FromE4m3(uint8_t code, bool fnuz);
// Nearest, ties to even, saturating; FNUZ has no −0.
uint8_t ToE4m3(double value, bool fnuz);
// 0…15; nearest, ties to even, saturating at ±6, −0 keeps its sign.
double FromE2m1(int code);
int ToE2m1(double value);
// 2^(byte − 127). 255, which is NaN, is the caller's to refuse.
double FromE8m0(uint8_t byte);

// Value `i` of an array of F64, F32, F16, BF16, I8, U8, I32 or I64, at any address.
double LoadValue(DType dtype, const std::byte* values, int64_t i);
// Writes `value` as F32, F16 or BF16, nearest, ties to even; as I8 or I32 exactly.
void StoreValue(DType dtype, double value, std::byte* values, int64_t i);

// `scale` > 0 as a value of F32, F16 or BF16 will hold it: nearest, but never 0; nullopt where it
// is beyond the type's range.
std::optional<double> StoredScale(double scale, DType dtype);
const SmallFloat& TypeOf(DType dtype);  // of F32, F16 or BF16

}  // namespace assay::kernels
