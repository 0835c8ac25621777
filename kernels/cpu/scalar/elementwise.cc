// The scalar tier's other ops. Functions are evaluated in double and rounded once, with an exp of
// our own so that the bits do not depend on the host's libm.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/scalar/rows.h"

namespace assay::kernels::scalar {
namespace {

constexpr int kLanes = 8;

// Relative error below 1e-14 for results in float's range; 0 and inf far outside it.
double ExpDouble(double x) {
  if (std::isnan(x)) return x;
  x = std::clamp(x, -1000.0, 1000.0);
  const double n = std::nearbyint(x * 1.4426950408889634);  // 1/ln 2
  // ln 2 in two parts, the first with 21 trailing zero bits: n·high is exact.
  const double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  // Taylor to r^12 on |r| ≤ ln2/2: the remainder is 2e-16 of the value.
  double p = 1;
  for (int i = 12; i > 0; --i) p = 1 + p * r / i;
  if (n > 1023) return std::numeric_limits<double>::infinity();
  if (n < -1022) return 0;
  return p * std::bit_cast<double>(static_cast<uint64_t>(1023 + static_cast<int64_t>(n)) << 52);
}

double SigmoidDouble(double x) {
  // exp of a negative number only: it cannot overflow, and small results keep their digits.
  const double e = ExpDouble(-std::fabs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}

// Of both signs, small arguments with all their digits: tanh(a) = m / (m + 2), m = exp(2a) − 1.
double TanhDouble(double x) {
  if (std::isnan(x)) return x;
  const double a = std::min(2 * std::fabs(x), 100.0);
  const double n = std::nearbyint(a * 1.4426950408889634);
  const double r = (a - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1;  // (exp(r) − 1) / r = 1 + r/2·(1 + r/3·(...))
  for (int i = 13; i > 1; --i) p = 1 + p * r / i;
  const double power =
      std::bit_cast<double>(static_cast<uint64_t>(1023 + static_cast<int64_t>(n)) << 52);
  const double m = power * (p * r) + (power - 1);
  return std::copysign(m / (m + 2), x);
}

float Sum(float* lanes) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

float Dot(const float* a, const float* b, int64_t n) {
  float acc[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) acc[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) acc[lane] += a[i] * b[i];
  return Sum(acc);
}

float Bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

void Softmax(float* scores, int64_t keys) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < keys; ++j) max = std::max(max, scores[j]);
  float sums[kLanes] = {};
  for (int64_t j = 0; j < keys; ++j) {
    scores[j] = static_cast<float>(ExpDouble(scores[j] - max));
    sums[j % kLanes] += scores[j];
  }
  const float sum = Sum(sums);
  for (int64_t j = 0; j < keys; ++j) scores[j] /= sum;
}

}  // namespace

void RmsNorm(const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    const float mean = Dot(x, x, n) / static_cast<float>(n);
    const auto scale = static_cast<float>(1.0 / std::sqrt(double{mean + eps}));
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * w[i];
  }
}

void SwiGlu(const float* gate, const float* up, float limit, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    // silu(-inf) is 0, not inf·0. In this order std::min and std::max keep a NaN.
    const double g = std::max(double{std::min(gate[i], limit)}, -1000.0);
    const float u = std::max(std::min(up[i], limit), -limit);
    y[i] = static_cast<float>(g * SigmoidDouble(g) * u);
  }
}

void Situ(const float* gate, const float* up, float beta, float beta_l, float limit, int64_t count,
          float* y) {
  const bool bounds_up = beta_l < std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    const double g = std::min(gate[i], limit);
    double u = std::max(std::min(up[i], limit), -limit);
    if (bounds_up) u = beta_l * TanhDouble(u / beta_l);
    y[i] = static_cast<float>(beta * TanhDouble(g / beta) * SigmoidDouble(g) * u);
  }
}

void Quantise(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
              int32_t* sums) {
  constexpr int64_t kSum = 32;
  for (int64_t at = 0; at < m * k; at += group) {
    float amax = 0;
    bool finite = true;
    for (int64_t i = 0; i < group; ++i) {
      const float value = std::fabs(Bf16(x[at + i]));
      finite &= std::isfinite(value);
      amax = std::max(amax, value);
    }
    const float scale = finite ? amax / 127.0F : std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 0; i < group; i += kSum) {
      int32_t sum = 0;
      for (int64_t j = at + i; j < at + i + kSum; ++j) {
        const float code = scale > 0 ? std::nearbyint(Bf16(x[j]) / scale) : 0.0F;
        codes[j] = static_cast<int8_t>(std::clamp(code, -127.0F, 127.0F));
        sum += codes[j];
      }
      scales[(at + i) / kSum] = scale;
      sums[(at + i) / kSum] = sum;
    }
  }
}

void Rope(float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
          const float* sin, bool interleaved) {
  const int64_t half = dim / 2;
  const int64_t step = interleaved ? 2 : 1;
  const int64_t partner = interleaved ? 1 : half;
  for (int64_t head = 0; head < heads; ++head) {
    float* h = x + head * head_stride;
    for (int64_t i = 0; i < half; ++i) {
      const float a = h[i * step], b = h[i * step + partner];
      h[i * step] = a * cos[i] - b * sin[i];
      h[i * step + partner] = b * cos[i] + a * sin[i];
    }
  }
}

void Scores(const float* q, const float* k, int64_t dim, int64_t k_stride, int64_t keys,
            float scale, float* scores) {
  for (int64_t j = 0; j < keys; ++j) scores[j] = Dot(q, k + j * k_stride, dim) * scale;
}

void Context(float* scores, const float* v, int64_t dim, int64_t v_stride, int64_t keys,
             float* ctx) {
  Softmax(scores, keys);
  constexpr int64_t kBlock = 16;  // columns of v a pass: v is read along its rows
  for (int64_t begin = 0; begin < dim; begin += kBlock) {
    const int64_t columns = std::min(kBlock, dim - begin);
    float acc[kBlock][kLanes] = {};
    for (int64_t j = 0; j < keys; ++j) {
      if (scores[j] == 0) continue;
      const float* values = v + j * v_stride + begin;
      for (int64_t i = 0; i < columns; ++i) acc[i][j % kLanes] += scores[j] * values[i];
    }
    for (int64_t i = 0; i < columns; ++i) ctx[begin + i] = Sum(acc[i]);
  }
}

void Add(const float* a, const float* b, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

void Axpy(float w, const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] += w * x[i];
}

void Sigmoid(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(SigmoidDouble(x[i]));
}

void Tanh(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(TanhDouble(x[i]));
}

void Exp(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(ExpDouble(x[i]));
}

void Rsqrt(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<float>(1.0 / std::sqrt(double{x[i]}));
}

}  // namespace assay::kernels::scalar
