// The avx2 tier's element by element ops and its norm. attention.cc has scores and context.
#include <immintrin.h>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/avx2/vector.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kWidth = 8;

// y[i] = f(inputs[i]...), eight at a time; the last ones by masked loads and stores.
template <class F, class... In>
__attribute__((always_inline)) inline void Map(int64_t count, float* y, F f, const In*... in) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) _mm256_storeu_ps(y + i, f(_mm256_loadu_ps(in + i)...));
  if (i == count) return;
  const __m256i mask = FirstLanes(count - i);
  _mm256_maskstore_ps(y + i, mask, f(_mm256_maskload_ps(in + i, mask)...));
}

// Four accumulators of eight: no deeper than one of eight, and not bound by its latency.
float SumOfSquares(const float* x, int64_t n) {
  __m256 acc[4] = {};
  int64_t i = 0;
  for (; i + 4 * kWidth <= n; i += 4 * kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m256 value = _mm256_loadu_ps(x + i + v * kWidth);
      acc[v] = _mm256_fmadd_ps(value, value, acc[v]);
    }
  }
  for (int v = 0; i < n; i += kWidth, ++v) {
    const int64_t left = n - i < kWidth ? n - i : kWidth;
    const __m256 value = _mm256_maskload_ps(x + i, FirstLanes(left));
    acc[v] = _mm256_fmadd_ps(value, value, acc[v]);
  }
  return Sum8(_mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3])));
}

__m256 Negative(__m256 x) {  // -|x|
  return _mm256_or_ps(x, _mm256_set1_ps(-0.0F));
}

// sigmoid(x) = numerator / (1 + exp(-|x|)), numerator 1 or, for negative x, exp(x): no overflow,
// and small results keep their digits. The powers of two of that exp are left to the caller.
struct SigmoidParts {
  __m256 numerator, denominator, low, high;
};
SigmoidParts SplitSigmoid(__m256 x) {
  const ExpParts e = SplitExp(Negative(x));
  const __m256 one = _mm256_set1_ps(1.0F);
  const __m256 value = _mm256_mul_ps(_mm256_mul_ps(e.p, e.low), e.high);
  // blendv looks at the sign bit: negative x take exp's parts.
  return {_mm256_blendv_ps(one, e.p, x), _mm256_add_ps(one, value), _mm256_blendv_ps(one, e.low, x),
          _mm256_blendv_ps(one, e.high, x)};
}

__m256 Sigmoid8(__m256 x) {
  const SigmoidParts s = SplitSigmoid(x);
  const __m256 quotient = _mm256_div_ps(s.numerator, s.denominator);
  return _mm256_mul_ps(_mm256_mul_ps(quotient, s.low), s.high);
}

__m256 SwiGlu8(__m256 gate, __m256 up) {
  // exp is clamped at -150, so must the factor be: silu(-inf) is 0.
  const __m256 g = _mm256_max_ps(_mm256_set1_ps(-150.0F), gate);
  const SigmoidParts s = SplitSigmoid(g);
  const __m256 quotient = _mm256_div_ps(_mm256_mul_ps(g, s.numerator), s.denominator);
  // `up` between the powers of two: neither overflows nor loses digits where the result does not.
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(quotient, s.low), up), s.high);
}

// `bounded`: beta·tanh(gate/beta).
__m256 Situ8(__m256 gate, __m256 bounded, __m256 up) {
  const SigmoidParts s = SplitSigmoid(gate);
  const __m256 quotient = _mm256_div_ps(_mm256_mul_ps(bounded, s.numerator), s.denominator);
  return _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(quotient, s.low), up), s.high);
}

void RotateHalves(float* x, int64_t half, const float* cos, const float* sin) {
  int64_t i = 0;
  for (; i + kWidth <= half; i += kWidth) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(x + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

void RotatePairs(float* x, int64_t half, const float* cos, const float* sin) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  const auto spread = [twice](const float* p) {
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), twice);
  };
  int64_t i = 0;
  for (; i + 4 <= half; i += 4) {
    const __m256 value = _mm256_loadu_ps(x + 2 * i);
    const __m256 partner = _mm256_permute_ps(value, 0xB1);  // the other of each pair
    // Even lanes subtract, odd ones add.
    const __m256 product = _mm256_mul_ps(partner, spread(sin + i));
    _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(value, spread(cos + i), product));
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace

void RmsNorm(const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    float scale = SumOfSquares(x, n) / static_cast<float>(n) + eps;
    Rsqrt(&scale, 1, &scale);
    const __m256 scales = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const __m256 value = _mm256_mul_ps(_mm256_loadu_ps(x + i), scales);
      _mm256_storeu_ps(y + i, _mm256_mul_ps(value, _mm256_loadu_ps(w + i)));
    }
    for (; i < n; ++i) y[i] = x[i] * scale * w[i];
  }
}

void SwiGlu(const float* gate, const float* up, float limit, int64_t count, float* y) {
  const __m256 most = _mm256_set1_ps(limit), least = _mm256_set1_ps(-limit);
  const auto step = [most, least](__m256 g, __m256 u) {
    // minps and maxps give their second operand where one is a NaN: so it stays.
    const __m256 up = _mm256_max_ps(least, _mm256_min_ps(most, u));
    return SwiGlu8(_mm256_min_ps(most, g), up);
  };
  Map(count, y, step, gate, up);
}

void Situ(const float* gate, const float* up, float beta, float beta_l, float limit, int64_t count,
          float* y) {
  const __m256 most = _mm256_set1_ps(limit), least = _mm256_set1_ps(-limit);
  const __m256 b = _mm256_set1_ps(beta), b_l = _mm256_set1_ps(beta_l);
  const bool bounds_up = beta_l < __builtin_inff();
  const auto step = [=](__m256 gate, __m256 up) {
    // min and max give their second operand where one is a NaN: so it stays.
    const __m256 g = _mm256_min_ps(most, gate);
    __m256 u = _mm256_max_ps(least, _mm256_min_ps(most, up));
    if (bounds_up) u = _mm256_mul_ps(b_l, Tanh8(_mm256_div_ps(u, b_l)));
    return Situ8(g, _mm256_mul_ps(b, Tanh8(_mm256_div_ps(g, b))), u);
  };
  Map(count, y, step, gate, up);
}

void Tanh(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m256 v) { return Tanh8(v); }, x);
}

void Rope(float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
          const float* sin, bool interleaved) {
  for (int64_t head = 0; head < heads; ++head) {
    (interleaved ? RotatePairs : RotateHalves)(x + head * head_stride, dim / 2, cos, sin);
  }
}

void Add(const float* a, const float* b, int64_t count, float* y) {
  Map(
      count, y, [](__m256 u, __m256 v) { return _mm256_add_ps(u, v); }, a, b);
}

void Axpy(float w, const float* x, int64_t count, float* y) {
  const __m256 factor = _mm256_set1_ps(w);
  const auto step = [factor](__m256 v, __m256 sum) { return _mm256_fmadd_ps(factor, v, sum); };
  Map(count, y, step, x, static_cast<const float*>(y));
}

void Sigmoid(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m256 v) { return Sigmoid8(v); }, x);
}

void Exp(const float* x, int64_t count, float* y) {
  Map(
      count, y, [](__m256 v) { return Exp8(v); }, x);
}

void Rsqrt(const float* x, int64_t count, float* y) {
  // One a row: exact rounding costs nothing here.
  for (int64_t i = 0; i < count; ++i) {
    const __m128d value = _mm_set_sd(double{x[i]});
    y[i] = static_cast<float>(1.0 / _mm_cvtsd_f64(_mm_sqrt_sd(value, value)));
  }
}

}  // namespace assay::kernels::avx2
