// The avx512 tier's element by element ops and its norm. attention.cc has scores and context,
// quantise.cc the 8-bit activations.
#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

// y[i] = f(inputs[i]...), sixteen at a time; the last ones by masked loads and stores.
template <class F, class... In>
__attribute__((always_inline)) inline void Map(int64_t count, float* y, F f, const In*... in) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) _mm512_storeu_ps(y + i, f(_mm512_loadu_ps(in + i)...));
  if (i == count) return;
  const __mmask16 mask = FirstLanes(count - i);
  _mm512_mask_storeu_ps(y + i, mask, f(_mm512_maskz_loadu_ps(mask, in + i)...));
}

// Four accumulators of sixteen: no deeper than one, and not bound by its latency.
float SumOfSquares(const float* x, int64_t n) {
  __m512 acc[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                   _mm512_setzero_ps()};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512 value = _mm512_loadu_ps(x + i + v * kWidth);
      acc[v] = _mm512_fmadd_ps(value, value, acc[v]);
    }
  }
  for (int v = 0; i < n; i += kWidth, ++v) {
    const __m512 value = _mm512_maskz_loadu_ps(LanesLeft(n - i), x + i);
    acc[v] = _mm512_fmadd_ps(value, value, acc[v]);
  }
  return Sum16(_mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3])));
}

float RsqrtOf(float x) {  // in double, rounded once
  return static_cast<float>(1.0 / __builtin_sqrt(double{x}));
}

// sigmoid(x) = numerator / (1 + exp(-|x|)), numerator 1 or, for negative x, exp(x): no overflow,
// and small results keep their digits. The powers of two of that exp are left to the caller.
struct SigmoidParts {
  __m512 numerator, denominator, low, high;
};
SigmoidParts SplitSigmoid(__m512 x) {
  const ExpParts e = SplitExp(_mm512_or_ps(x, _mm512_set1_ps(-0.0F)));  // of -|x|
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512 value = _mm512_mul_ps(_mm512_mul_ps(e.p, e.low), e.high);
  const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
  return {_mm512_mask_blend_ps(negative, one, e.p), _mm512_add_ps(one, value),
          _mm512_mask_blend_ps(negative, one, e.low), _mm512_mask_blend_ps(negative, one, e.high)};
}

__m512 Sigmoid16(__m512 x) {
  const SigmoidParts s = SplitSigmoid(x);
  const __m512 quotient = _mm512_div_ps(s.numerator, s.denominator);
  return _mm512_mul_ps(_mm512_mul_ps(quotient, s.low), s.high);
}

__m512 SwiGlu16(__m512 gate, __m512 up) {
  // exp is clamped at -150, so must the factor be: silu(-inf) is 0.
  const __m512 g = _mm512_max_ps(_mm512_set1_ps(-150.0F), gate);
  const SigmoidParts s = SplitSigmoid(g);
  const __m512 quotient = _mm512_div_ps(_mm512_mul_ps(g, s.numerator), s.denominator);
  // `up` between the powers of two: neither overflows nor loses digits where the result does not.
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(quotient, s.low), up), s.high);
}

// `bounded`: beta·tanh(gate/beta).
__m512 Situ16(__m512 gate, __m512 bounded, __m512 up) {
  const SigmoidParts s = SplitSigmoid(gate);
  const __m512 quotient = _mm512_div_ps(_mm512_mul_ps(bounded, s.numerator), s.denominator);
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(quotient, s.low), up), s.high);
}

void RotateHalves(float* x, int64_t half, const float* cos, const float* sin) {
  for (int64_t i = 0; i < half; i += kWidth) {
    const __mmask16 mask = LanesLeft(half - i);
    const __m512 a = _mm512_maskz_loadu_ps(mask, x + i);
    const __m512 b = _mm512_maskz_loadu_ps(mask, x + half + i);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos + i);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sin + i);
    _mm512_mask_storeu_ps(x + i, mask, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    _mm512_mask_storeu_ps(x + half + i, mask, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  }
}

void RotatePairs(float* x, int64_t half, const float* cos, const float* sin) {
  constexpr int64_t kPairs = kWidth / 2;
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  for (int64_t i = 0; i < half; i += kPairs) {
    const int64_t pairs = half - i < kPairs ? half - i : kPairs;
    const __mmask16 factors = FirstLanes(pairs), values = FirstLanes(2 * pairs);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(factors, cos + i));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(factors, sin + i));
    const __m512 value = _mm512_maskz_loadu_ps(values, x + 2 * i);
    const __m512 partner = _mm512_permute_ps(value, 0xB1);  // the other of each pair
    // Even lanes subtract, odd ones add.
    const __m512 turned = _mm512_fmaddsub_ps(value, c, _mm512_mul_ps(partner, s));
    _mm512_mask_storeu_ps(x + 2 * i, values, turned);
  }
}

}  // namespace

void RmsNorm(const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const __m512 scale = _mm512_set1_ps(RsqrtOf(SumOfSquares(x, n) / static_cast<float>(n) + eps));
    const auto step = [scale](__m512 value, __m512 weight) {
      return _mm512_mul_ps(_mm512_mul_ps(value, scale), weight);
    };
    Map(n, y, step, x, w);
  }
}

void SwiGlu(const float* gate, const float* up, float limit, int64_t count, float* y) {
  const __m512 most = _mm512_set1_ps(limit), least = _mm512_set1_ps(-limit);
  const auto step = [most, least](__m512 g, __m512 u) {
    // min and max give their second operand where one is a NaN: so it stays.
    const __m512 clamped = _mm512_max_ps(least, _mm512_min_ps(most, u));
    return SwiGlu16(_mm512_min_ps(most, g), clamped);
  };
  Map(count, y, step, gate, up);
}

void Situ(const float* gate, const float* up, float beta, float beta_l, float limit, int64_t count,
          float* y) {
  const __m512 most = _mm512_set1_ps(limit), least = _mm512_set1_ps(-limit);
  const __m512 b = _mm512_set1_ps(beta), b_l = _mm512_set1_ps(beta_l);
  const bool bounds_up = beta_l < __builtin_inff();
  const auto step = [=](__m512 gate, __m512 up) {
    // min and max give their second operand where one is a NaN: so it stays.
    const __m512 g = _mm512_min_ps(most, gate);
    __m512 u = _mm512_max_ps(least, _mm512_min_ps(most, up));
    if (bounds_up) u = _mm512_mul_ps(b_l, Tanh16(_mm512_div_ps(u, b_l)));
    return Situ16(g, _mm512_mul_ps(b, Tanh16(_mm512_div_ps(g, b))), u);
  };
  Map(count, y, step, gate, up);
}

void Tanh(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m512 v) { return Tanh16(v); }, x);
}

void Rope(float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
          const float* sin, bool interleaved) {
  for (int64_t head = 0; head < heads; ++head) {
    (interleaved ? RotatePairs : RotateHalves)(x + head * head_stride, dim / 2, cos, sin);
  }
}

void Add(const float* a, const float* b, int64_t count, float* y) {
  Map(
      count, y, [](__m512 u, __m512 v) { return _mm512_add_ps(u, v); }, a, b);
}

void Axpy(float w, const float* x, int64_t count, float* y) {
  const __m512 factor = _mm512_set1_ps(w);
  const auto step = [factor](__m512 v, __m512 sum) { return _mm512_fmadd_ps(factor, v, sum); };
  Map(count, y, step, x, static_cast<const float*>(y));
}

void Sigmoid(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m512 v) { return Sigmoid16(v); }, x);
}

void Exp(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m512 v) { return Exp16(v); }, x);
}

void Rsqrt(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = RsqrtOf(x[i]);
}

}  // namespace assay::kernels::ASSAY_AVX512
