// Scales that are powers of two over groups of 32 (MXFP4, MXFP8). Libraries agree on ordinary
// numbers once the rule has a name; below 2^-126 and just beside powers of two they do not, and
// each of these functions is one library's way there.
#include <algorithm>
#include <limits>

#include "kernels/quantisers/elements.h"

namespace assay::kernels::quantisers {
namespace {

constexpr int64_t kGroup = 32;

int Emax(const Quantiser& q) { return q.element == Element::kE2m1 ? 2 : 8; }
float Largest(const Quantiser& q) { return q.element == Element::kE2m1 ? 6.0F : 448.0F; }
int MantissaBits(const Quantiser& q) { return q.element == Element::kE2m1 ? 1 : 3; }

uint32_t ExponentOf(float x) { return Bits(x) >> 23 & 0xFF; }
bool HasMantissa(float x) { return (Bits(x) & 0x7FFFFF) != 0; }

// amax rounded to a power of two as if to the element's mantissa: half a step is added, and the
// mantissa cut off.
float RoundedUpToEven(const Quantiser& q, float amax) {
  return FromBits((Bits(amax) + (1U << (22 - MantissaBits(q)))) & 0xFF800000);
}

uint8_t CodeOf(const Quantiser& q, float scaled) {
  return q.element == Element::kE2m1 ? ToE2m1(scaled, q.rounding) : ToE4m3(scaled);
}

// byte(amax) is the scale's, apply(x, byte) is x over it.
template <class ByteOf, class Apply>
void Run(const Quantiser& q, const Activation& x, QuantisedActivation* out, ByteOf byte_of,
         Apply apply) {
  for (int64_t g = 0; g < x.rows * (x.columns / kGroup); ++g) {
    const std::vector<float> values = LoadGroup(x, g * kGroup, kGroup);
    const uint32_t byte = byte_of(Amax(values));
    for (int64_t i = 0; i < kGroup; ++i) {
      const float scaled = apply(values[static_cast<size_t>(i)], byte);
      PutCode(q, g * kGroup + i, CodeOf(q, scaled), out);
    }
    PutScale(g, static_cast<uint8_t>(byte), out);
  }
}

float Divide(float x, uint32_t byte) { return x / PowerOf(byte); }

}  // namespace

// Exponents by their bits, kept within the byte, and no scale below 2^-126 where it divides.
void MxTorchao(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const auto byte_of = [&q](float amax) {
    const float size = q.rule == ScaleRule::kEven ? RoundedUpToEven(q, amax) : amax;
    const int up = q.rule == ScaleRule::kCeil && HasMantissa(size);
    return static_cast<uint32_t>(std::max(static_cast<int>(ExponentOf(size)) + up - Emax(q), 0));
  };
  Run(q, x, out, byte_of,
      [](float value, uint32_t byte) { return value / PowerOf(std::max<uint32_t>(byte, 1)); });
}

// torchao's other way: log2 in fp32, and under byte 0 the activations stay as they are.
void MxRoundUpTorchao(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const auto byte_of = [&q](float amax) {
    const float exponent = std::ceil(Log2(amax / Largest(q)));
    return static_cast<uint32_t>(std::clamp(exponent, -127.0F, 127.0F) + 127.0F);
  };
  Run(q, x, out, byte_of,
      [](float value, uint32_t byte) { return byte == 0 ? value : value * PowerOf(254 - byte); });
}

// Exponents of the quotient's bits: any mantissa raises them, below 2^-126 too.
void MxAiter(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const auto byte_of = [&q](float amax) -> uint32_t {
    const float power = std::ldexp(1.0F, Emax(q));
    switch (q.rule) {
      case ScaleRule::kRoundUp: {
        const float quotient = amax / Largest(q);
        return ExponentOf(quotient) + HasMantissa(quotient);
      }
      case ScaleRule::kCeil:
        return ExponentOf(amax / power) + HasMantissa(amax / power);
      case ScaleRule::kEven:
        return ExponentOf(RoundedUpToEven(q, amax) / power);
      default:
        return ExponentOf(amax / power);
    }
  };
  Run(q, x, out, byte_of, Divide);
}

// The quotient by the largest element, up or down to a power of two by its bits. A scale below
// 2^-126 is 0, and so are then all codes.
void MxTriton(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const auto byte_of = [&q](float amax) {
    const uint32_t up = q.rule == ScaleRule::kRoundUp ? 0x7FFFFF : 0;
    return (Bits(amax / Largest(q)) + up) >> 23;
  };
  const auto apply = [](float value, uint32_t byte) {
    const float inverse = byte == 0 ? 0 : 1.0F / PowerOf(byte);
    return value * inverse;
  };
  Run(q, x, out, byte_of, apply);
}

// vLLM and SGLang take log2 in fp32, which is a whole number just beside a power of two, and no
// amax below 2^-126.
void MxLog2(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  const auto byte_of = [&q](float amax) {
    const float size = std::max(amax, std::numeric_limits<float>::min());
    const float exponent =
        q.rule == ScaleRule::kRoundUp ? std::ceil(Log2(size / Largest(q))) : std::floor(Log2(size));
    return static_cast<uint32_t>(std::clamp(exponent + 127.0F, 0.0F, 254.0F));
  };
  Run(q, x, out, byte_of, Divide);
}

// gguf compares |value − x| for every code in fp32 and takes the first of the least: ties go to the
// smaller size, and −0 never wins against 0. A scale beyond the byte's range is kept at 0.
void Mxfp4Gguf(const Quantiser& q, const Activation& x, QuantisedActivation* out) {
  for (int64_t g = 0; g < x.rows * (x.columns / kGroup); ++g) {
    const std::vector<float> values = LoadGroup(x, g * kGroup, kGroup);
    const float amax = Amax(values);
    const float exponent = amax > 0 ? std::floor(Log2(amax)) - 2 + 127 : 0;
    const auto byte = static_cast<uint32_t>(std::max(exponent, 0.0F));
    for (int64_t i = 0; i < kGroup; ++i) {
      uint8_t best = 0;
      float least = std::numeric_limits<float>::infinity();
      for (uint8_t code = 0; code < 16; ++code) {
        // Twice the value times half the scale, as the library stores them.
        const float value = PowerOf(byte) / 2 * (2 * FromE2m1(code));
        const float error = std::fabs(value - values[static_cast<size_t>(i)]);
        if (error < least) least = error, best = code;
      }
      PutCode(q, g * kGroup + i, best, out);
    }
    PutScale(g, static_cast<uint8_t>(byte), out);
  }
}

}  // namespace assay::kernels::quantisers
