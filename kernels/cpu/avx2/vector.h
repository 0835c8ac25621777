// exp and partial loads for the avx2 tier's own files; everything has internal linkage, so that no
// other tier can be linked to it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::kernels::avx2 {

// exp(x) = p·low·high with p in [0.70, 1.42] and powers of two low, high: a product with something
// else is then rounded into the subnormals once, at the end.
struct ExpParts {
  __m256 p, low, high;
};

// ±inf and everything beyond ±150 is clamped first; NaN stays NaN.
static inline ExpParts SplitExp(__m256 x) {
  // Beyond ±150 the two halves of the exponent would leave fp32; exp is 0 or inf there anyway.
  // The clamped operand comes second: min and max return it when it is NaN.
  const __m256 limit = _mm256_set1_ps(150.0F);
  x = _mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), limit), _mm256_min_ps(limit, x));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts: the first has 15 bits, so n times it is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6F), r);
  // Taylor's series to r^7: the rest is below 2^-27 of the value on |r| ≤ ln2/2.
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  // 1 + (r + r²·p): the small part is rounded before the large one.
  p = _mm256_add_ps(_mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r), _mm256_set1_ps(1.0F));
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {p, power(half), power(_mm256_sub_epi32(exponent, half))};
}

static inline __m256 Exp8(__m256 x) {
  const ExpParts e = SplitExp(x);
  return _mm256_mul_ps(_mm256_mul_ps(e.p, e.low), e.high);
}

// tanh(|x|) = m / (m + 2) with m = exp(2|x|) − 1, which keeps the digits of small x; the sign put
// back. From 2|x| = 20 on it is 1; NaN stays NaN.
static inline __m256 Tanh8(__m256 x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0F));
  const __m256 size = _mm256_xor_ps(x, sign);
  // The clamped operand comes second: min returns it when it is NaN.
  const __m256 a = _mm256_min_ps(_mm256_set1_ps(20.0F), _mm256_add_ps(size, size));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(a, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256i exponent = _mm256_cvtps_epi32(n);
  // As in SplitExp, without the 1 that would hide a small r.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752F), a);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
  const __m256 power = _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
  const __m256 m = _mm256_fmadd_ps(power, small, _mm256_sub_ps(power, _mm256_set1_ps(1.0F)));
  return _mm256_or_ps(_mm256_div_ps(m, _mm256_add_ps(m, _mm256_set1_ps(2.0F))), sign);
}

// A mask of the first `count` lanes, count in [0, 8]: masked loads do not touch the others.
static inline __m256i FirstLanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline float Sum8(__m256 v) {
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

}  // namespace assay::kernels::avx2
