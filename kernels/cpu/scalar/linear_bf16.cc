// bf16 weights in layout "row": [n, k] bf16, row after row.
//
// Every term is added with one rounding, as a fused multiply-add would. There is no FMA on every
// host, but double gives the same bits: the product of two bf16 has 16 significant bits and is
// exact in double, and a sum of two numbers of at most 24 bits, rounded to 53 and then to 24 bits,
// equals the sum rounded to 24 at once (53 ≥ 2·24 + 2).
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/scalar/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::scalar {
namespace {

constexpr int kLanes = 16;

double Bf16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);  // rows may lie at odd addresses
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Accumulators 2i and 2i+1 first, then halves: the order of the vector tiers' horizontal sum.
float Sum(const float* lanes) {
  float sums[kLanes / 2];
  for (int i = 0; i < kLanes / 2; ++i) sums[i] = lanes[2 * i] + lanes[2 * i + 1];
  for (int width = kLanes / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0];
}

float Dot(const std::byte* w, const std::byte* x, int64_t k) {
  float acc[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t at = 2 * (i + lane);
      acc[lane] = static_cast<float>(acc[lane] + Bf16(x + at) * Bf16(w + at));
    }
  }
  for (int lane = 0; i < k; ++i, ++lane) {
    acc[lane] = static_cast<float>(acc[lane] + Bf16(x + 2 * i) * Bf16(w + 2 * i));
  }
  return Sum(acc);
}

}  // namespace

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride) {
  CheckLinear(w, "row", 0, 1, n_begin, n_end);
  const auto* x_bytes = reinterpret_cast<const std::byte*>(x.bf16);
  for (int64_t n = n_begin; n < n_end; ++n) {
    const std::byte* row = w.codes + 2 * n * w.k;
    for (int64_t token = 0; token < m; ++token) {
      y[token * y_stride + n] = Dot(row, x_bytes + 2 * token * w.k, w.k);
    }
  }
}

}  // namespace assay::kernels::scalar
