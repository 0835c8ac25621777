// MXFP4 weights in AITER's pre-shuffles, with bf16, FP8 and MXFP4 activations. rows.h states the
// arithmetic; products and sums in double are the fused ones, as linear_groups.cc says.
//
// In all three layouts 16 rows of the packed matrix are a tile, and the 16 bytes of a row's group
// stay together: [tile][group][16 rows][16 bytes]. Scales: [tile / 2][group / 8][group % 4][row]
// [group % 8 / 4][tile % 2]. The layouts differ in how many groups a row is filled up to, and in
// which row stands where: interleaved, even tiles are gate's rows (the upper half of the matrix)
// and odd ones up's.
#include <cmath>
#include <limits>

#include "kernels/cpu/scalar/formats.h"
#include "kernels/cpu/scalar/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::scalar {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kGroupBytes = 16;
constexpr int64_t kScaleBytes = 256;  // 32 rows, 8 groups

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct KLane {
  static constexpr const char* kTag = "aiter-klane";
  static constexpr int64_t kUnits = 4;  // a row's groups are filled up to a multiple of this
  static constexpr bool kGateUp = false;
};
struct Separated {
  static constexpr const char* kTag = "aiter-separated";
  static constexpr int64_t kUnits = 2;
  static constexpr bool kGateUp = false;
};
struct Interleaved {
  static constexpr const char* kTag = "aiter-interleaved";
  static constexpr int64_t kUnits = 4;
  static constexpr bool kGateUp = true;
};

// One row: where its groups lie.
struct Row {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* Codes(int64_t g) const { return codes + g * kTileRows * kGroupBytes; }
  float Scale(int64_t g) const {
    return E8m0(scales[g / 8 * kScaleBytes + g % 4 * 64 + g % 8 / 4 * 2]);
  }
};

template <class Layout>
Row RowOf(const WeightView& w, int64_t row) {
  int64_t tile = row / kTileRows;
  if (Layout::kGateUp) {
    const int64_t half = w.n / 2, up = row >= half ? 1 : 0;
    row -= up * half;
    tile = row / kTileRows * 2 + up;
  }
  const int64_t groups = w.k / kGroup, lane = row % kTileRows;
  const int64_t held = CeilDiv(groups, Layout::kUnits) * Layout::kUnits;
  return {w.codes + (tile * held * kTileRows + lane) * kGroupBytes,
          w.scales + tile / 2 * CeilDiv(groups, 8) * kScaleBytes + lane * 4 + tile % 2};
}

float ScaleOf(const Activations& x, int64_t at) {
  return x.e8m0[at] == 0xFF ? std::numeric_limits<float>::quiet_NaN() : E8m0(std::byte{x.e8m0[at]});
}

// What an activation type adds to the sum of a row for group g of a token.
struct Bf16Activations {
  static float Add(const Activations& x, int64_t first, const std::byte* codes, float scale,
                   float sum) {
    const auto* values = reinterpret_cast<const std::byte*>(x.bf16 + first);
    float t[kChains] = {};
    for (int64_t i = 0; i < kGroup; ++i) {
      const double code = 0.5 * kE2m1Doubled[Nibble(codes, i)];
      t[i % kChains] = static_cast<float>(t[i % kChains] + Bf16(values + 2 * i) * code);
    }
    return std::fma(SumChains(t), scale, sum);
  }
};

struct Mxfp8Activations {
  static float Add(const Activations& x, int64_t first, const std::byte* codes, float scale,
                   float sum) {
    float t[kChains] = {};
    for (int64_t i = 0; i < kGroup; ++i) {
      const double code = 0.5 * kE2m1Doubled[Nibble(codes, i)];
      t[i % kChains] = static_cast<float>(t[i % kChains] + E4m3(x.e4m3[first + i]) * code);
    }
    return std::fma(SumChains(t) * ScaleOf(x, first / kGroup), scale, sum);
  }
};

struct Mxfp4Activations {
  static float Add(const Activations& x, int64_t first, const std::byte* codes, float scale,
                   float sum) {
    const std::byte* values = x.e2m1 + first / 2;
    int32_t products = 0;
    for (int64_t i = 0; i < kGroup; ++i) {
      products += kE2m1Doubled[Nibble(values, i)] * kE2m1Doubled[Nibble(codes, i)];
    }
    const float exact = static_cast<float>(products) * 0.25F;
    return std::fma(exact * ScaleOf(x, first / kGroup), scale, sum);
  }
};

template <class Layout, class X>
void Run(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  CheckLinear(w, Layout::kTag, kGroup, 1, n_begin, n_end);
  if (Layout::kGateUp) CheckGateUp(w);
  const int64_t groups = w.k / kGroup;
  for (int64_t n = n_begin; n < n_end; ++n) {
    const Row row = RowOf<Layout>(w, n);
    for (int64_t token = 0; token < m; ++token) {
      float sum = 0;
      for (int64_t g = 0; g < groups; ++g) {
        sum = X::Add(x, token * w.k + g * kGroup, row.Codes(g), row.Scale(g), sum);
      }
      y[token * y_stride + n] = sum;
    }
  }
}

}  // namespace

#define ASSAY_ROW(name, layout, activations)                                                      \
  void name(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end, \
            float* y, int64_t y_stride) {                                                         \
    Run<layout, activations>(w, x, m, n_begin, n_end, y, y_stride);                               \
  }
ASSAY_ROW(LinearMxfp4KLane, KLane, Bf16Activations)
ASSAY_ROW(LinearMxfp4Interleaved, Interleaved, Bf16Activations)
ASSAY_ROW(LinearMxfp4Mxfp8KLane, KLane, Mxfp8Activations)
ASSAY_ROW(LinearMxfp4Mxfp8Interleaved, Interleaved, Mxfp8Activations)
ASSAY_ROW(LinearMxfp4Mxfp4Separated, Separated, Mxfp4Activations)
#undef ASSAY_ROW

}  // namespace assay::kernels::scalar
