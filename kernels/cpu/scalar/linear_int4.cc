// compressed-tensors int4, group 32, symmetric, in layout "row": codes are int32 words [n, k/8] as
// in the checkpoint (element i of a word in bits 4i..4i+3, value nibble − 8), scales bf16 [n,
// k/32].
//
// A group is summed before its scale is applied. x·q has at most 12 significant bits, so each term
// costs one rounding (linear_bf16.cc says why double gives a fused one); the scale product is
// rounded, then added.
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/scalar/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::scalar {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kGroupBytes = kGroup / 2;
// Element e of a group goes to accumulator (e % 8) / 2 of four, even and odd ones apart; an even
// and an odd group have four long accumulators each. It is what a 256-bit register of two groups
// gives for nothing.
constexpr int kQuads = 4;

float Bf16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// t[a] = Σ x·(code − 8) over the elements of one group that belong to accumulator a.
void SumGroup(const std::byte* codes, const std::byte* x, float t[kQuads]) {
  float parts[2][kQuads] = {};  // even, odd elements
  for (int block = 0; block < kGroup / 8; ++block) {
    uint32_t word;
    std::memcpy(&word, codes + 4 * block, sizeof word);
    for (int e = 0; e < 8; ++e) {
      float& part = parts[e % 2][e / 2];
      const int q = static_cast<int>((word >> (4 * e)) & 0xF) - 8;
      part = static_cast<float>(part + double{Bf16(x + 2 * (8 * block + e))} * q);
    }
  }
  for (int a = 0; a < kQuads; ++a) t[a] = parts[0][a] + parts[1][a];
}

float Dot(const std::byte* codes, const std::byte* scales, const std::byte* x, int64_t groups) {
  float acc[2 * kQuads] = {};
  for (int64_t g = 0; g < groups; ++g) {
    float t[kQuads];
    SumGroup(codes + g * kGroupBytes, x + 2 * g * kGroup, t);
    const float scale = Bf16(scales + 2 * g);
    for (int a = 0; a < kQuads; ++a) acc[(g % 2) * kQuads + a] += scale * t[a];
  }
  for (int width = kQuads; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) acc[i] += acc[i + width];
  }
  return acc[0];
}

}  // namespace

void LinearCtInt4Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride) {
  CheckLinear(w, "row", kGroup, 1, n_begin, n_end);
  const auto* x_bytes = reinterpret_cast<const std::byte*>(x.bf16);
  const int64_t groups = w.k / kGroup;
  for (int64_t n = n_begin; n < n_end; ++n) {
    const std::byte* codes = w.codes + n * groups * kGroupBytes;
    const std::byte* scales = w.scales + 2 * n * groups;
    for (int64_t token = 0; token < m; ++token) {
      y[token * y_stride + n] = Dot(codes, scales, x_bytes + 2 * token * w.k, groups);
    }
  }
}

}  // namespace assay::kernels::scalar
