// Scales that are a quotient: int8 and E4M3 for a token or a group of it.
#include <algorithm>
#include <limits>

#include "kernels/quantisers/elements.h"

namespace assay::kernels::quantisers {
namespace {

int8_t ToInt8(float x, Rounding rounding) {
  if (std::isnan(x)) return -128;  // what a vector conversion and a saturating pack make of it
  x = std::clamp(x, -128.0F, 127.0F);
  switch (rounding) {
    case Rounding::kTruncate:
      return static_cast<int8_t>(x);
    case Rounding::kAway:
      // The size first: x + ½ would be rounded before it is cut.
      return static_cast<int8_t>(std::copysign(std::round(std::fabs(x)), x));
    default:
      return static_cast<int8_t>(RoundEven(x));
  }
}

void PutCodes(const Quantiser& q, int64_t first, const std::vector<float>& scaled,
              QuantisedActivation* out) {
  for (size_t i = 0; i < scaled.size(); ++i) {
    const uint8_t code = q.element == Element::kInt8
                             ? static_cast<uint8_t>(ToInt8(scaled[i], q.rounding))
                             : ToE4m3(scaled[i]);
    PutCode(q, first + static_cast<int64_t>(i), code, out);
  }
}

// Calls f(index of the group, its first element, its values), the values to be replaced by x/s.
template <class F>
void ForEachGroup(const Quantiser& q, const Activation& x, QuantisedActivation* out, F f) {
  const int64_t group = GroupOf(q, x), count = group == 0 ? 0 : x.rows * (x.columns / group);
  for (int64_t g = 0; g < count; ++g) {
    std::vector<float> values = LoadGroup(x, g * group, group);
    f(g, &values);
    PutCodes(q, g * group, values, out);
  }
}

}  // namespace

// vLLM's CPU operator multiplies by the reciprocal, which it rounds once from double; of a
// subnormal scale it is an infinity, of 0 as well, and 0·inf is NaN.
void Int8VllmCpu(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    const float scale = Amax(*values) / 127.0F;
    const auto inverse = static_cast<float>(1.0 / double{scale});
    for (float& value : *values) value *= inverse;
    PutScale(g, scale, out);
  });
}

// With a zero point, which is not kept in int8's range. Where min = max the scale is 0 and the zero
// point an infinity, stored as the smallest int32.
void Int8VllmCpuAsym(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    const auto [min, max] = std::minmax_element(values->begin(), values->end());
    const float least = *min, scale = (*max - least) / 255.0F;
    const float exact = -128.0F - least / scale;
    const bool fits = std::fabs(exact) < 0x1p31F;
    // From 2^23 on every float is whole.
    const float zero = std::fabs(exact) < 0x1p22F ? RoundEven(exact) : exact;
    const auto inverse = static_cast<float>(1.0 / double{scale});
    for (float& value : *values) value = value * inverse + zero;
    PutScale(g, scale, out);
    out->zeros[static_cast<size_t>(g)] =
        fits ? static_cast<int32_t>(zero) : std::numeric_limits<int32_t>::min();
  });
}

// amax over half of 255, and everything in the input's type.
void Int8CompressedTensors(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const bool narrow = x.dtype == DType::kBF16;
  const auto rounded = [narrow](float value) { return narrow ? RoundToBf16(value) : value; };
  const float least = narrow ? 0x1p-7F : 0x1p-23F;  // the type's epsilon, in the place of 0
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    const float quotient = rounded(Amax(*values) / 127.5F);
    const float scale = quotient == 0 ? least : quotient;
    for (float& value : *values) value = rounded(value / scale);
    if (narrow) {
      PutScale(g, static_cast<uint16_t>(Bits(scale) >> 16), out);
    } else {
      PutScale(g, scale, out);
    }
  });
}

// AITER's reference: a scale of 1 in the place of 0.
void LinearAiter(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const float largest = q.element == Element::kInt8 ? 127.0F : 448.0F;
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    const float quotient = Amax(*values) / largest;
    const float scale = quotient == 0 ? 1.0F : quotient;
    for (float& value : *values) value /= scale;
    PutScale(g, scale, out);
  });
}

// vLLM's FP8: a scale is at least 1/(448·512). For a token it multiplies by the reciprocal, for a
// group it divides; with ue8m0 the scale is first raised to a power of two, but the least is none.
void Fp8Vllm(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  constexpr auto kLeast = static_cast<float>(1.0 / (448.0 * 512.0));
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    float scale = Amax(*values) / 448.0F;
    if (q.rule == ScaleRule::kRoundUp && scale > 0) {
      scale = std::ldexp(1.0F, static_cast<int>(std::ceil(Log2(scale))));
    }
    scale = std::max(scale, kLeast);
    const float inverse = 1.0F / scale;
    for (float& value : *values) value = q.group == 0 ? value * inverse : value / scale;
    PutScale(g, scale, out);
  });
}

// gguf rounds away from zero and keeps the scale in fp16, after the codes were made.
void Q80Gguf(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  ForEachGroup(q, x, out, [&](int64_t g, std::vector<float>* values) {
    const float scale = Amax(*values) / 127.0F, inverse = scale == 0 ? 0 : 1.0F / scale;
    // Beyond fp32 the library converts a NaN to int8, which C leaves open: 0.
    for (float& value : *values) value = std::isinf(inverse) ? 0 : value * inverse;
    PutScale(g, ToF16(scale), out);
  });
}

}  // namespace assay::kernels::quantisers
