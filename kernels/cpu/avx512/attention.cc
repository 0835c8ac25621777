// Scores and context of one head for one token.
#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int kKeys = 16;   // keys that context takes in a step
constexpr int kChains = 8;  // of sums in a step

// q·k for K keys at once: a chain a key, so that latency hides.
template <int K>
void Dots(const float* q, const float* k, int64_t dim, int64_t k_stride, float scale, float* out) {
  __m512 acc[K];
#pragma GCC unroll 4
  for (int j = 0; j < K; ++j) acc[j] = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + kWidth <= dim; i += kWidth) {
    const __m512 value = _mm512_loadu_ps(q + i);
#pragma GCC unroll 4
    for (int j = 0; j < K; ++j) {
      acc[j] = _mm512_fmadd_ps(value, _mm512_loadu_ps(k + j * k_stride + i), acc[j]);
    }
  }
  if (i < dim) {
    const __mmask16 mask = FirstLanes(dim - i);
    const __m512 value = _mm512_maskz_loadu_ps(mask, q + i);
#pragma GCC unroll 4
    for (int j = 0; j < K; ++j) {
      acc[j] = _mm512_fmadd_ps(value, _mm512_maskz_loadu_ps(mask, k + j * k_stride + i), acc[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < K; ++j) out[j] = Sum16(acc[j]) * scale;
}

float Max(const float* x, int64_t n) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 max = lowest;
  for (int64_t i = 0; i < n; i += kWidth) {
    max = _mm512_max_ps(max, _mm512_mask_loadu_ps(lowest, LanesLeft(n - i), x + i));
  }
  float lanes[kWidth];
  _mm512_storeu_ps(lanes, max);
  float result = lanes[0];
  for (int i = 1; i < kWidth; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

void Softmax(float* scores, int64_t keys) {
  const __m512 max = _mm512_set1_ps(Max(scores, keys));
  __m512 sums = _mm512_setzero_ps();
  for (int64_t j = 0; j < keys; j += kWidth) {
    const __mmask16 mask = LanesLeft(keys - j);
    const __m512 p = Exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, scores + j), max));
    _mm512_mask_storeu_ps(scores + j, mask, p);
    sums = _mm512_mask_add_ps(sums, mask, sums, p);
  }
  const __m512 sum = _mm512_set1_ps(Sum16(sums));
  for (int64_t j = 0; j < keys; j += kWidth) {
    const __mmask16 mask = LanesLeft(keys - j);
    const __m512 p = _mm512_maskz_loadu_ps(mask, scores + j);
    _mm512_mask_storeu_ps(scores + j, mask, _mm512_div_ps(p, sum));
  }
}

// t[j] += t[half + j] for those of C chains that there are.
template <int kHalf, int C>
__attribute__((always_inline)) inline void AddUpper(__m512 (&t)[kChains]) {
#pragma GCC unroll 4
  for (int j = 0; j < kHalf; ++j) {
    if (j + kHalf < C) t[j] = _mm512_add_ps(t[j], t[j + kHalf]);
  }
}

// ctx += Σ p[j]·v[j] over C keys, as a tree: products in pairs, then halves: five roundings on the
// longest way. `first`: ctx = instead.
template <int C>
void AddKeys(const float* p, const float* const* v, int64_t dim, bool first, float* ctx) {
  for (int64_t i = 0; i < dim; i += kWidth) {
    const __mmask16 mask = LanesLeft(dim - i);
    __m512 t[kChains];
#pragma GCC unroll 8
    for (int j = 0; j < (C < kChains ? C : kChains); ++j) {
      t[j] = _mm512_mul_ps(_mm512_set1_ps(p[j]), _mm512_maskz_loadu_ps(mask, v[j] + i));
      if (j + kChains < C) {
        const __m512 other = _mm512_maskz_loadu_ps(mask, v[j + kChains] + i);
        t[j] = _mm512_fmadd_ps(_mm512_set1_ps(p[j + kChains]), other, t[j]);
      }
    }
    if constexpr (C > 4) AddUpper<4, C>(t);
    if constexpr (C > 2) AddUpper<2, C>(t);
    if constexpr (C > 1) AddUpper<1, C>(t);
    const __m512 old = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, ctx + i);
    _mm512_mask_storeu_ps(ctx + i, mask, _mm512_add_ps(old, t[0]));
  }
}

using AddKeysFn = void (*)(const float*, const float* const*, int64_t, bool, float*);
constexpr AddKeysFn kAddKeys[kKeys + 1] = {
    nullptr,     AddKeys<1>,  AddKeys<2>,  AddKeys<3>,  AddKeys<4>,  AddKeys<5>,
    AddKeys<6>,  AddKeys<7>,  AddKeys<8>,  AddKeys<9>,  AddKeys<10>, AddKeys<11>,
    AddKeys<12>, AddKeys<13>, AddKeys<14>, AddKeys<15>, AddKeys<16>};

}  // namespace

void Scores(const float* q, const float* k, int64_t dim, int64_t k_stride, int64_t keys,
            float scale, float* scores) {
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) Dots<4>(q, k + j * k_stride, dim, k_stride, scale, scores + j);
  for (; j < keys; ++j) Dots<1>(q, k + j * k_stride, dim, k_stride, scale, scores + j);
}

void Context(float* scores, const float* v, int64_t dim, int64_t v_stride, int64_t keys,
             float* ctx) {
  Softmax(scores, keys);
  for (int64_t i = 0; i < dim; ++i) ctx[i] = 0;
  float p[kKeys];
  const float* rows[kKeys];
  int count = 0;
  bool first = true;
  for (int64_t j = 0; j < keys; ++j) {
    if (scores[j] != 0) {  // a masked key's v may never have been written
      p[count] = scores[j];
      rows[count++] = v + j * v_stride;
    }
    if (count == kKeys || (j + 1 == keys && count > 0)) {
      kAddKeys[count](p, rows, dim, first, ctx);
      first = false;
      count = 0;
    }
  }
}

}  // namespace assay::kernels::ASSAY_AVX512
