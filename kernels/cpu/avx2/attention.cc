// Scores and context of one head for one token.
#include <immintrin.h>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/avx2/vector.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kWidth = 8;
constexpr int kKeys = 8;  // keys that context takes in a step

// q·k for K keys at once: a chain a key, so that latency hides.
template <int K>
void Dots(const float* q, const float* k, int64_t dim, int64_t k_stride, float scale, float* out) {
  __m256 acc[K];
#pragma GCC unroll 4
  for (int j = 0; j < K; ++j) acc[j] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kWidth <= dim; i += kWidth) {
    const __m256 value = _mm256_loadu_ps(q + i);
#pragma GCC unroll 4
    for (int j = 0; j < K; ++j) {
      acc[j] = _mm256_fmadd_ps(value, _mm256_loadu_ps(k + j * k_stride + i), acc[j]);
    }
  }
  if (i < dim) {
    const __m256i mask = FirstLanes(dim - i);
    const __m256 value = _mm256_maskload_ps(q + i, mask);
#pragma GCC unroll 4
    for (int j = 0; j < K; ++j) {
      acc[j] = _mm256_fmadd_ps(value, _mm256_maskload_ps(k + j * k_stride + i, mask), acc[j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < K; ++j) out[j] = Sum8(acc[j]) * scale;
}

float Max(const float* x, int64_t n) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 max = lowest;
  for (int64_t i = 0; i < n; i += kWidth) {
    const __m256i mask = FirstLanes(n - i < kWidth ? n - i : kWidth);
    const __m256 value = _mm256_maskload_ps(x + i, mask);
    max = _mm256_max_ps(max, _mm256_blendv_ps(lowest, value, _mm256_castsi256_ps(mask)));
  }
  alignas(32) float lanes[kWidth];
  _mm256_store_ps(lanes, max);
  float result = lanes[0];
  for (int i = 1; i < kWidth; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

void Softmax(float* scores, int64_t keys) {
  const __m256 max = _mm256_set1_ps(Max(scores, keys));
  __m256 sums = _mm256_setzero_ps();
  for (int64_t j = 0; j < keys; j += kWidth) {
    const __m256i mask = FirstLanes(keys - j < kWidth ? keys - j : kWidth);
    const __m256 p = _mm256_and_ps(Exp8(_mm256_sub_ps(_mm256_maskload_ps(scores + j, mask), max)),
                                   _mm256_castsi256_ps(mask));
    _mm256_maskstore_ps(scores + j, mask, p);
    sums = _mm256_add_ps(sums, p);
  }
  const __m256 sum = _mm256_set1_ps(Sum8(sums));
  for (int64_t j = 0; j < keys; j += kWidth) {
    const __m256i mask = FirstLanes(keys - j < kWidth ? keys - j : kWidth);
    const __m256 p = _mm256_maskload_ps(scores + j, mask);
    _mm256_maskstore_ps(scores + j, mask, _mm256_div_ps(p, sum));
  }
}

// ctx += Σ p[j]·v[j] over C keys, as a tree: products, then halves. `first`: ctx = instead.
template <int C>
void AddKeys(const float* p, const float* const* v, int64_t dim, bool first, float* ctx) {
  __m256 weight[C];
#pragma GCC unroll 8
  for (int j = 0; j < C; ++j) weight[j] = _mm256_set1_ps(p[j]);
  const auto sum = [&](int64_t i, __m256i mask) __attribute__((always_inline)) {
    __m256 t[C < 4 ? C : 4];
#pragma GCC unroll 4
    for (int j = 0; j < C && j < 4; ++j) {
      t[j] = _mm256_mul_ps(weight[j], _mm256_maskload_ps(v[j] + i, mask));
      if (j + 4 < C) {
        t[j] = _mm256_fmadd_ps(weight[j + 4 < C ? j + 4 : 0],
                               _mm256_maskload_ps(v[j + 4] + i, mask), t[j]);
      }
    }
    if constexpr (C > 2) t[0] = _mm256_add_ps(t[0], t[2]);
    if constexpr (C > 3) t[1] = _mm256_add_ps(t[1], t[3]);
    if constexpr (C > 1) t[0] = _mm256_add_ps(t[0], t[1]);
    const __m256 old = first ? _mm256_setzero_ps() : _mm256_maskload_ps(ctx + i, mask);
    _mm256_maskstore_ps(ctx + i, mask, _mm256_add_ps(old, t[0]));
  };
  int64_t i = 0;
  for (; i + kWidth <= dim; i += kWidth) sum(i, _mm256_set1_epi32(-1));
  if (i < dim) sum(i, FirstLanes(dim - i));
}

using AddKeysFn = void (*)(const float*, const float* const*, int64_t, bool, float*);
constexpr AddKeysFn kAddKeys[kKeys + 1] = {nullptr,    AddKeys<1>, AddKeys<2>,
                                           AddKeys<3>, AddKeys<4>, AddKeys<5>,
                                           AddKeys<6>, AddKeys<7>, AddKeys<8>};

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

}  // namespace assay::kernels::avx2
