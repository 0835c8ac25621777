// Scales that are quotients: int8 and E4M3, of a row or of 128.
#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/abi/contract.h"
#include "reference/quantisers/ways.h"

namespace assay::reference::quantisers {
namespace {

constexpr double kLargestE4M3 = 448;

uint8_t Byte(double integer) { return static_cast<uint8_t>(static_cast<int>(integer)); }

// x86's: a NaN is the lower bound, for it is no larger than it.
double ClampInt8(double value) {
  if (!(value > -128)) return -128;
  return std::min(value, 127.0);
}

template <typename Code>
void Each(const ActGroup& group, ActCoded* coded, Code code) {
  for (size_t i = 0; i < group.x.size(); ++i) coded->codes[i] = code(group.x[i]);
}

// vLLM's least scale of E4M3: 1 / (448 · 512).
double LeastScale() { return Fp32(1 / (kLargestE4M3 * 512)); }

void CodeByQuotient(const ActGroup& group, ActCoded* coded) {
  Each(group, coded, [&](double x) { return ToE4M3Clamped(Fp32(x / coded->scale)); });
}

}  // namespace

// The reciprocal is rounded; of a subnormal scale it is infinite, and 0·∞ is no number.
void Int8Vllm(const ActGroup& group, ActCoded* coded) {
  coded->scale = Fp32(group.amax / 127);
  const double inverse = Fp32(1 / coded->scale);
  Each(group, coded, [&](double x) { return Byte(RoundEven(ClampInt8(Fp32(x * inverse)))); });
}

void Int8VllmAsymmetric(const ActGroup& group, ActCoded* coded) {
  coded->scale = Fp32(Fp32(group.largest - group.least) / 255);
  const double inverse = Fp32(1 / coded->scale);
  const double shift = Fp32(-128 - Fp32(group.least / coded->scale));
  const double zero = std::isfinite(shift) ? RoundEven(shift) : shift;
  // The conversion of what is no int32 gives the least one.
  const bool fits = std::fabs(zero) <= std::numeric_limits<int32_t>::max();
  coded->zero = fits ? static_cast<int32_t>(zero) : std::numeric_limits<int32_t>::min();
  Each(group, coded,
       [&](double x) { return Byte(RoundEven(ClampInt8(Fp32(Fp32(x * inverse) + zero)))); });
}

void Int8Aiter(const ActGroup& group, ActCoded* coded) {
  coded->scale = Fp32(group.amax / 127);
  if (coded->scale == 0) coded->scale = 1;
  Each(group, coded, [&](double x) { return Byte(std::trunc(Fp32(x / coded->scale))); });
}

// All of it in the input's type; half of 255 steps, the zero between the outer two; 0 becomes the
// type's epsilon.
void Int8CompressedTensors(const ActGroup& group, ActCoded* coded) {
  coded->scale = RoundTo(group.amax / 127.5, group.type);
  if (coded->scale == 0) coded->scale = group.type == DType::kBF16 ? 0x1p-7 : 0x1p-23;
  Each(group, coded,
       [&](double x) { return Byte(RoundEven(ClampInt8(RoundTo(x / coded->scale, group.type)))); });
}

// Halves away from zero; the scale is stored in fp16 after the codes were made with fp32's.
void Q8Gguf(const ActGroup& group, ActCoded* coded) {
  const double scale = Fp32(group.amax / 127);
  const double inverse = scale == 0 ? 0 : Fp32(1 / scale);
  coded->scale = RoundTo(scale, DType::kF16);
  Each(group, coded, [&](double x) { return Byte(ClampInt8(std::round(Fp32(x * inverse)))); });
}

void Fp8Aiter(const ActGroup& group, ActCoded* coded) {
  coded->scale = Fp32(group.amax / kLargestE4M3);
  if (coded->scale == 0) coded->scale = 1;
  Each(group, coded, [&](double x) { return ToE4M3(Fp32(x / coded->scale)); });
}

void Fp8VllmToken(const ActGroup& group, ActCoded* coded) {
  coded->scale = std::max(Fp32(group.amax / kLargestE4M3), LeastScale());
  const double inverse = Fp32(1 / coded->scale);
  Each(group, coded, [&](double x) { return ToE4M3Clamped(Fp32(x * inverse)); });
}

void Fp8VllmGroup(const ActGroup& group, ActCoded* coded) {
  coded->scale = std::max(Fp32(group.amax / kLargestE4M3), LeastScale());
  CodeByQuotient(group, coded);
}

// The least scale, which is no power of two, is taken after the power.
void Fp8VllmPowers(const ActGroup& group, ActCoded* coded) {
  const double power = std::exp2(CeilLog2(Fp32(group.amax / kLargestE4M3)));
  coded->scale = std::max(power, LeastScale());
  CodeByQuotient(group, coded);
}

}  // namespace assay::reference::quantisers
