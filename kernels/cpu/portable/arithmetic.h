// Floats. Each operation rounds once, to nearest even, as the instruction does in its default mode;
// NaNs come out as NaNs, with bits that nobody may rely on (the compiler chooses the operand that
// an instruction takes them from).
//
// Left out on purpose: approximations whose bits differ between makers (rsqrt14, rcp14), and sums
// over lanes whose order is the compiler's (reduce_add): sources write their tree.
#pragma once

#include "kernels/cpu/portable/types.h"

namespace assay::kernels::avx512_portable {
namespace {

// p + c rounded to odd: to the neighbour whose last bit is 1 wherever the sum is not a double. A
// second rounding, to at most 51 bits, then gives what one rounding of the exact sum would (Boldo
// and Melquiond, "When double rounding is odd"). The error is Knuth's TwoSum.
ASSAY_INTRINSIC F64 AddToOdd(F64 p, F64 c) {
  const F64 s = p + c;
  const F64 t = s - p;
  const F64 error = (p - (s - t)) + (c - t);  // NaN where s is an infinity or a NaN: none is lost
  const I64 below = error < 0;
  const I64 inexact = below | (error > 0);
  const I64 away = (below ^ (s < 0)) | 1;  // -1: the exact sum is nearer to zero than s
  const I64 even = (As<I64>(s) & 1) - 1;
  return As<F64>(As<I64>(s) + (away & inexact & even));
}

// a·b + c with one rounding: the product of two floats is exact in double. Without fmaf, which
// without an FMA unit is 25 times slower than this; the test holds the two against each other.
ASSAY_INTRINSIC F64 LowToDouble(F32 a) {
  return __builtin_convertvector(__builtin_shufflevector(a, a, 0, 1), F64);
}
ASSAY_INTRINSIC F64 HighToDouble(F32 a) {
  return __builtin_convertvector(__builtin_shufflevector(a, a, 2, 3), F64);
}
// Not inlined: kernels would take three times as long to compile and be no faster.
__attribute__((noinline)) inline F32 Fma(F32 a, F32 b, F32 c) {
  const F64 low = AddToOdd(LowToDouble(a) * LowToDouble(b), LowToDouble(c));
  const F64 high = AddToOdd(HighToDouble(a) * HighToDouble(b), HighToDouble(c));
  return __builtin_shufflevector(__builtin_convertvector(low, F32Half),
                                 __builtin_convertvector(high, F32Half), 0, 1, 2, 3);
}

template <class V>
ASSAY_INTRINSIC V AddF(V a, V b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x + y; });
}
template <class V>
ASSAY_INTRINSIC V MulF(V a, V b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x * y; });
}
template <class V>
ASSAY_INTRINSIC V FmaF(V a, V b, V c) {
  return Map<F32>(a, b, c, [](F32 x, F32 y, F32 z) { return Fma(x, y, z); });
}

ASSAY_INTRINSIC __m128 _mm_add_ps(__m128 a, __m128 b) { return AddF(a, b); }
ASSAY_INTRINSIC __m128 _mm_add_ss(__m128 a, __m128 b) {
  a.p[0][0] += b.p[0][0];
  return a;
}
ASSAY_INTRINSIC __m256 _mm256_add_ps(__m256 a, __m256 b) { return AddF(a, b); }
ASSAY_INTRINSIC __m512 _mm512_add_ps(__m512 a, __m512 b) { return AddF(a, b); }
ASSAY_INTRINSIC __m512 _mm512_sub_ps(__m512 a, __m512 b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x - y; });
}
ASSAY_INTRINSIC __m512 _mm512_mul_ps(__m512 a, __m512 b) { return MulF(a, b); }
ASSAY_INTRINSIC __m512 _mm512_div_ps(__m512 a, __m512 b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x / y; });
}
ASSAY_INTRINSIC __m512 _mm512_mask_add_ps(__m512 other, __mmask16 mask, __m512 a, __m512 b) {
  return Parts<__m512>([&](int i) { return MaskOf(mask, i) ? a.p[i] + b.p[i] : other.p[i]; });
}
ASSAY_INTRINSIC __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) { return FmaF(a, b, c); }
ASSAY_INTRINSIC __m512 _mm512_fmsub_ps(__m512 a, __m512 b, __m512 c) {
  return Map<F32>(a, b, c, [](F32 x, F32 y, F32 z) { return Fma(x, y, -z); });
}
ASSAY_INTRINSIC __m512 _mm512_fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return Map<F32>(a, b, c, [](F32 x, F32 y, F32 z) { return Fma(-x, y, z); });
}
// Even lanes subtract c, odd ones add it.
ASSAY_INTRINSIC __m512 _mm512_fmaddsub_ps(__m512 a, __m512 b, __m512 c) {
  return Map<F32>(a, b, c, [](F32 x, F32 y, F32 z) {
    return Fma(x, y, F32{-z[0], z[1], -z[2], z[3]});
  });
}
// The second operand where either is a NaN, and where both are zeros.
ASSAY_INTRINSIC __m512 _mm512_min_ps(__m512 a, __m512 b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x < y ? x : y; });
}
ASSAY_INTRINSIC __m512 _mm512_max_ps(__m512 a, __m512 b) {
  return Map<F32>(a, b, [](F32 x, F32 y) { return x > y ? x : y; });
}
ASSAY_INTRINSIC __m512 _mm512_or_ps(__m512 a, __m512 b) {
  return Map<I32>(a, b, [](I32 x, I32 y) { return x | y; });
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
