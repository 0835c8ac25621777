#include <immintrin.h>

#include "kernels/bench/peak_loops.h"

namespace assay::kernels::bench {

// Chains enough to hide the latency of two or more units.
int64_t FmaAvx2(float* sink) {
  constexpr int kChains = 12;
  const __m256 a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(0.001F);
  __m256 acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = _mm256_set1_ps(static_cast<float>(c));
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm256_add_ps(acc[0], acc[c]);
  _mm256_storeu_ps(sink, acc[0]);
  return kPeakSteps * kChains * 2 * (256 / 32);
}

// Bytes times bytes, added in pairs and again, then to the sum: three instructions.
int64_t Int8Avx2(float* sink) {
  constexpr int kChains = 8;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i x = _mm256_set1_epi8(3), acc[kChains], w[kChains];
  for (int c = 0; c < kChains; ++c) {
    acc[c] = _mm256_setzero_si256();
    w[c] = _mm256_set1_epi8(static_cast<char>(c));
  }
  for (int64_t i = 0; i < kPeakSteps; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) {
      __asm__ volatile("" : "+x"(x));  // a new product every time
      acc[c] = _mm256_add_epi32(acc[c], _mm256_madd_epi16(_mm256_maddubs_epi16(w[c], x), ones));
    }
  }
  for (int c = 1; c < kChains; ++c) acc[0] = _mm256_add_epi32(acc[0], acc[c]);
  _mm256_storeu_ps(sink, _mm256_castsi256_ps(acc[0]));
  return kPeakSteps * kChains * 2 * (256 / 8);
}

}  // namespace assay::kernels::bench
