// NVFP4: an E4M3 scale for 16 elements, and an fp32 one for the whole tensor.
#include <algorithm>
#include <cmath>

#include "reference/methods/method.h"
#include "reference/quantisers/ways.h"

namespace assay::reference::quantisers {
namespace {

constexpr double kLargestE4M3 = 448, kLargestE2M1 = 6;

double AsE4M3(double value) { return FromFloat8(ToE4M3(value), Float8::kE4M3); }

}  // namespace

double GlobalTorchao(double amax) { return Fp32(amax / (kLargestE4M3 * kLargestE2M1)); }
// A number over a tensor is, in torch, the number times its reciprocal.
double GlobalVllm(double amax) { return Fp32(kLargestE4M3 * kLargestE2M1 * Fp32(1 / amax)); }

// Scales are at least E4M3's least normal number; x times (1 / global) / scale.
void Nvfp4Torchao(const ActGroup& group, ActCoded* coded) {
  constexpr double kLeast = 0x1p-6;
  const double wanted = Fp32(Fp32(group.amax / kLargestE2M1) / group.global);
  coded->scale = AsE4M3(std::clamp(wanted, kLeast, kLargestE4M3));
  const double factor = Fp32(Fp32(1 / group.global) / coded->scale);
  for (size_t i = 0; i < group.x.size(); ++i) coded->codes[i] = ToE2M1(Fp32(group.x[i] * factor));
}

// Products with fp32 reciprocals throughout, that of 0 is 0.
void Nvfp4Vllm(const ActGroup& group, ActCoded* coded) {
  const auto reciprocal = [](double value) { return value == 0 ? 0 : Fp32(1 / value); };
  const double sixth = Fp32(group.amax * reciprocal(kLargestE2M1));
  coded->scale = AsE4M3(std::min(Fp32(group.global * sixth), kLargestE4M3));
  const double factor = reciprocal(Fp32(coded->scale * reciprocal(group.global)));
  for (size_t i = 0; i < group.x.size(); ++i) coded->codes[i] = ToE2M1(Fp32(group.x[i] * factor));
}

}  // namespace assay::reference::quantisers
