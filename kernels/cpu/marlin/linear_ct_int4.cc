// ct-int4-g32 in layout "marlin", 16-bit activations. Tiles are 16 elements of K by 64 rows, one
// after the other along the rows; kernels/layouts/README.md says where a code and a scale lie.
//
// A product of a bf16 and a code has at most 16 significant bits: in double it is exact, and a sum
// rounded to 53 and then to 24 bits is the fused one.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/marlin/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::marlin_scalar {
namespace {

constexpr int64_t kGroup = 32, kTileK = 16, kTileN = 64;
constexpr int64_t kTileBytes = kTileK * kTileN / 2;
constexpr int kChains = 4;

float Bf16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);  // rows may lie at odd addresses
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// A lane of the tensor core has, of four parts of 16 rows, two halves of 8, and of each its four
// elements of K; the eight codes of a word lie in the order 0 2 4 6 1 3 5 7.
int CodeAt(const std::byte* tile, int64_t k, int64_t n) {
  constexpr int64_t kField[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const int64_t lane = n % 8 * 4 + k % 8 / 2;
  const int64_t part = n / 16, half = n % 16 / 8, e = k % 2 + k / 8 * 2;
  const int64_t field = lane * 32 + part * 8 + kField[half * 4 + e];
  return std::to_integer<int>(tile[field / 2] >> (4 * (field % 2)) & std::byte{0xF}) - 8;
}

// Where a row's scale stands among those of its group.
int64_t PlaceOf(int64_t n, bool one_group) {
  if (!one_group) return n / 64 * 64 + n % 8 * 8 + n % 64 / 8;
  return n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2;
}

}  // namespace

void LinearCtInt4(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                  int64_t n_end, float* y, int64_t y_stride) {
  CheckLinear(w, "marlin", kGroup, 1, n_begin, n_end);
  const int64_t groups = w.k / kGroup, tiles = (w.n + kTileN - 1) / kTileN;
  const auto* x_bytes = reinterpret_cast<const std::byte*>(x.bf16);
  for (int64_t n = n_begin; n < n_end; ++n) {
    for (int64_t token = 0; token < m; ++token) y[token * y_stride + n] = 0;
    for (int64_t g = 0; g < groups; ++g) {
      double codes[kGroup];
      for (int64_t i = 0; i < kGroup; ++i) {
        const int64_t k = g * kGroup + i;
        const std::byte* tile = w.codes + (k / kTileK * tiles + n / kTileN) * kTileBytes;
        codes[i] = CodeAt(tile, k % kTileK, n % kTileN);
      }
      const float scale = Bf16(w.scales + 2 * (g * tiles * kTileN + PlaceOf(n, groups == 1)));
      for (int64_t token = 0; token < m; ++token) {
        const std::byte* at = x_bytes + 2 * (token * w.k + g * kGroup);
        float chains[kChains] = {};
        for (int64_t i = 0; i < kGroup; ++i) {
          chains[i % kChains] =
              static_cast<float>(chains[i % kChains] + Bf16(at + 2 * i) * codes[i]);
        }
        float& sum = y[token * y_stride + n];
        sum = std::fma((chains[0] + chains[1]) + (chains[2] + chains[3]), scale, sum);
      }
    }
  }
}

}  // namespace assay::kernels::marlin_scalar
