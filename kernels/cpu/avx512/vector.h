// exp, masks and sums for this tier's own files. Everything has internal linkage, so that no other
// tier, and not the other way of compiling this one, can be linked to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/intrinsics.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kWidth = 16;  // fp32 lanes

// A mask of the first `count` lanes, count in [0, 16]: masked loads do not touch the others.
inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>((uint32_t{1} << count) - 1);
}
inline __mmask16 LanesLeft(int64_t left) {
  return left < kWidth ? FirstLanes(left) : static_cast<__mmask16>(0xFFFF);
}

// 16 bf16 as fp32, in order.
inline __m512 WidenBf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline __m256i Load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Sums of halves: i + (i + 4), + 2, + 1.
inline float Sum8(__m256 s8) {
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}
inline float Sum16(__m512 v) {
  return Sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

// exp(x) = p·low·high with p in [0.70, 1.42] and powers of two low, high: a product with something
// else is then rounded into the subnormals once, at the end.
struct ExpParts {
  __m512 p, low, high;
};

inline __m512 PowerOfTwo(__m512i e) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127)), 23));
}

// ±inf and everything beyond ±150 is clamped first; NaN stays NaN.
inline ExpParts SplitExp(__m512 x) {
  // Beyond ±150 the two halves of the exponent would leave fp32; exp is 0 or inf there anyway.
  // The clamped operand comes second: min and max return it when it is NaN.
  x = _mm512_max_ps(_mm512_set1_ps(-150.0F), _mm512_min_ps(_mm512_set1_ps(150.0F), x));
  const __m512i exponent = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)));
  const __m512 n = _mm512_cvtepi32_ps(exponent);
  // ln 2 in two parts: the first has 15 bits, so n times it is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6F), r);
  // Taylor's series to r^7: the rest is below 2^-27 of the value on |r| ≤ ln2/2.
  __m512 p = _mm512_set1_ps(1.0F / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  // 1 + (r + r²·p): the small part is rounded before the large one.
  p = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r), _mm512_set1_ps(1.0F));
  // A NaN's exponent is INT_MIN: whatever powers it makes, its p is a NaN.
  const __m512i half = _mm512_srai_epi32(exponent, 1);
  return {p, PowerOfTwo(half), PowerOfTwo(_mm512_sub_epi32(exponent, half))};
}

inline __m512 Exp16(__m512 x) {
  const ExpParts e = SplitExp(x);
  return _mm512_mul_ps(_mm512_mul_ps(e.p, e.low), e.high);
}

// tanh(|x|) = m / (m + 2) with m = exp(2|x|) − 1, which keeps the digits of small x; the sign put
// back. From 2|x| = 20 on it is 1; NaN stays NaN.
inline __m512 Tanh16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x), rest = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512 size = _mm512_castsi512_ps(_mm512_and_si512(bits, rest));
  const __m512 sign =
      _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000))));
  // The clamped operand comes second: min returns it when it is NaN.
  const __m512 a = _mm512_min_ps(_mm512_set1_ps(20.0F), _mm512_add_ps(size, size));
  const __m512i exponent = _mm512_cvtps_epi32(_mm512_mul_ps(a, _mm512_set1_ps(1.44269504F)));
  const __m512 n = _mm512_cvtepi32_ps(exponent);
  // As in SplitExp, without the 1 that would hide a small r.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752F), a);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6F), r);
  __m512 p = _mm512_set1_ps(1.0F / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
  const __m512 power = PowerOfTwo(exponent);
  const __m512 m = _mm512_fmadd_ps(power, small, _mm512_sub_ps(power, _mm512_set1_ps(1.0F)));
  return _mm512_or_ps(_mm512_div_ps(m, _mm512_add_ps(m, _mm512_set1_ps(2.0F))), sign);
}

}  // namespace
}  // namespace assay::kernels::ASSAY_AVX512
