// Two levels of scales: E4M3 over groups of 16, and one F32 for all.
#include <algorithm>

#include "kernels/quantisers/elements.h"

namespace assay::kernels::quantisers {
namespace {

constexpr int64_t kGroup = 16;
constexpr float kMost = 448.0F * 6.0F;

float AmaxOfAll(const Activation& x) { return Amax(LoadGroup(x, 0, x.rows * x.columns)); }

// 1/x, and 1e-8 for 0.
float Reciprocal(float x) { return 1.0F / (x == 0 ? 1e8F : x); }

}  // namespace

// value = E2M1 · scale · global_scale. Scales are at least 2^-6, E4M3's smallest normal number.
void Nvfp4Torchao(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const float global = AmaxOfAll(x) / kMost;
  out->global_scale = global;
  for (int64_t g = 0; g < x.rows * (x.columns / kGroup); ++g) {
    const std::vector<float> values = LoadGroup(x, g * kGroup, kGroup);
    const float exact = std::clamp(Amax(values) / 6.0F / global, 0x1p-6F, 448.0F);
    const uint8_t scale = ToE4m3(exact);
    const float factor = 1.0F / global / FromE4m3(scale);
    for (int64_t i = 0; i < kGroup; ++i) {
      const float scaled = values[static_cast<size_t>(i)] * factor;
      PutCode(q, g * kGroup + i, ToE2m1(scaled, q.rounding), out);
    }
    PutScale(g, scale, out);
  }
}

// value = E2M1 · scale / global_scale. A scale may be subnormal or 0.
void Nvfp4Vllm(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  // The library writes 448·6 / amax, of which torch makes a product with the reciprocal.
  const float global = 1.0F / AmaxOfAll(x) * kMost;
  out->global_scale = global;
  for (int64_t g = 0; g < x.rows * (x.columns / kGroup); ++g) {
    const std::vector<float> values = LoadGroup(x, g * kGroup, kGroup);
    const float exact = std::min(global * (Amax(values) * (1.0F / 6.0F)), 448.0F);
    const uint8_t scale = ToE4m3(exact);
    const float factor = Reciprocal(FromE4m3(scale) * Reciprocal(global));
    for (int64_t i = 0; i < kGroup; ++i) {
      const float value = values[static_cast<size_t>(i)];
      // The sign is a factor there, and 0 has none.
      const uint8_t code = value == 0 ? 0 : ToE2m1(value * factor, q.rounding);
      PutCode(q, g * kGroup + i, code, out);
    }
    PutScale(g, scale, out);
  }
}

}  // namespace assay::kernels::quantisers
