// Scales that are powers of two (E8M0), of 32 elements.
#include <algorithm>
#include <cmath>

#include "reference/methods/method.h"
#include "reference/quantisers/ways.h"

namespace assay::reference::quantisers {
namespace {

constexpr int kBias = 127;
constexpr int kLastByte = 254;
constexpr double kLeastNormal = 0x1p-126;

// Largest value, exponent of the largest power of two, bits of fraction.
template <ActElement element>
struct Of;
template <>
struct Of<ActElement::kE4M3> {
  static constexpr double kLargest = 448;
  static constexpr int kExponent = 8, kBits = 3;
};
template <>
struct Of<ActElement::kE2M1> {
  static constexpr double kLargest = 6;
  static constexpr int kExponent = 2, kBits = 1;
};

// The field of amax's exponent after rounding, half up, to the element's bits.
template <ActElement element>
int EvenField(const Fields& fields) {
  const double middle = 1 - std::ldexp(1.0, -Of<element>::kBits - 1);
  return fields.exponent + (fields.fraction >= middle ? 1 : 0);
}
int CeilField(const Fields& fields) { return fields.exponent + (fields.fraction > 0 ? 1 : 0); }

template <ActElement element>
uint8_t Cast(double value) {
  return element == ActElement::kE4M3 ? ToE4M3(value) : ToE2M1(value);
}
template <ActElement element>
uint8_t Clamped(double value) {
  return element == ActElement::kE4M3 ? ToE4M3Clamped(value) : ToE2M1(value);
}

template <typename Code>
void Each(const ActGroup& group, ActCoded* coded, Code code) {
  for (size_t i = 0; i < group.x.size(); ++i) coded->codes[i] = code(group.x[i]);
}
void TakeByte(int byte, ActCoded* coded) {
  coded->scale = FromE8M0(static_cast<unsigned>(std::clamp(byte, 0, kLastByte)));
}

}  // namespace

// amax is divided first, so below 2^-126 it is what is left of it that is looked at; codes are
// quotients by the scale as stored, 2^-127 included.
template <ActElement element, Exponent exponent>
void MxAiter(const ActGroup& group, ActCoded* coded) {
  using E = Of<element>;
  const double power = std::ldexp(1.0, E::kExponent);
  int byte = 0;
  if (exponent == Exponent::kQuotientUp) {
    byte = CeilField(FieldsOf(Fp32(group.amax / E::kLargest)));
  } else if (exponent == Exponent::kCeil) {
    byte = CeilField(FieldsOf(Fp32(group.amax / power)));
  } else if (exponent == Exponent::kFloor) {
    byte = FieldsOf(Fp32(group.amax / power)).exponent;
  } else {
    byte = EvenField<element>(FieldsOf(group.amax)) - E::kExponent;
  }
  TakeByte(byte, coded);
  Each(group, coded, [&](double x) { return Cast<element>(Fp32(x / coded->scale)); });
}

// Fields of amax itself. Codes are quotients by 2^-126 at least; with kQuotientUp products with
// 2^-exponent, or x itself where the byte is 0.
template <ActElement element, Exponent exponent>
void MxTorchao(const ActGroup& group, ActCoded* coded) {
  using E = Of<element>;
  if (exponent == Exponent::kQuotientUp) {
    const double quotient = Fp32(group.amax / E::kLargest);
    const double log2 = std::clamp(CeilLog2(quotient), -double{kBias}, double{kBias});
    TakeByte(static_cast<int>(log2) + kBias, coded);
    const double factor = log2 == -kBias ? 1 : std::exp2(-log2);
    Each(group, coded, [&](double x) { return Clamped<element>(Fp32(x * factor)); });
    return;
  }
  const Fields fields = FieldsOf(group.amax);
  const int field = exponent == Exponent::kCeil   ? CeilField(fields)
                    : exponent == Exponent::kEven ? EvenField<element>(fields)
                                                  : fields.exponent;
  TakeByte(field - E::kExponent, coded);
  const double divisor = std::max(coded->scale, kLeastNormal);
  Each(group, coded, [&](double x) { return Clamped<element>(Fp32(x / divisor)); });
}

// The field of amax / largest, and products with its reciprocal; where it is 0 so are the codes,
// but for their sign. Halves of E2M1 go away from zero.
template <ActElement element, Exponent exponent>
void MxTriton(const ActGroup& group, ActCoded* coded) {
  const Fields fields = FieldsOf(Fp32(group.amax / Of<element>::kLargest));
  const int byte = exponent == Exponent::kQuotientUp ? CeilField(fields) : fields.exponent;
  TakeByte(byte, coded);
  const double factor = byte == 0 ? 0 : 1 / coded->scale;
  Each(group, coded, [&](double x) {
    const double value = Fp32(x * factor);
    return element == ActElement::kE4M3 ? ToE4M3Clamped(value) : ToE2M1Away(value);
  });
}

void Mxfp8Vllm(const ActGroup& group, ActCoded* coded) {
  const double amax = std::max(group.amax, kLeastNormal);
  TakeByte(static_cast<int>(CeilLog2(Fp32(amax / 448))) + kBias, coded);
  Each(group, coded, [&](double x) { return ToE4M3(Fp32(x / coded->scale)); });
}

// Without the element's own exponent: codes stay below 2.
void Mxfp8SglangKt(const ActGroup& group, ActCoded* coded) {
  const double amax = std::max(group.amax, kLeastNormal);
  TakeByte(static_cast<int>(FloorLog2(amax)) + kBias, coded);
  Each(group, coded, [&](double x) { return ToE4M3(Fp32(x / coded->scale)); });
}

// The code of the least |d·code − x|, the first in order: halves towards zero, and never −0.
void Mxfp4Gguf(const ActGroup& group, ActCoded* coded) {
  const int byte = group.amax > 0 ? static_cast<int>(FloorLog2(group.amax)) - 2 + kBias : 0;
  TakeByte(byte, coded);
  Each(group, coded, [&](double x) {
    uint8_t best = 0;
    double least = INFINITY;
    for (unsigned code = 0; code < 16; ++code) {
      const double error = std::fabs(Fp32(Fp32(coded->scale * FromE2M1(code)) - x));
      if (error < least) least = error, best = static_cast<uint8_t>(code);
    }
    return best;
  });
}

#define ASSAY_MX(way, element, exponent) \
  template void way<ActElement::element, Exponent::exponent>(const ActGroup&, ActCoded*)
ASSAY_MX(MxAiter, kE2M1, kFloor);
ASSAY_MX(MxAiter, kE2M1, kCeil);
ASSAY_MX(MxAiter, kE2M1, kEven);
ASSAY_MX(MxAiter, kE2M1, kQuotientUp);
ASSAY_MX(MxAiter, kE4M3, kQuotientUp);
ASSAY_MX(MxTorchao, kE2M1, kFloor);
ASSAY_MX(MxTorchao, kE2M1, kCeil);
ASSAY_MX(MxTorchao, kE2M1, kEven);
ASSAY_MX(MxTorchao, kE2M1, kQuotientUp);
ASSAY_MX(MxTorchao, kE4M3, kFloor);
ASSAY_MX(MxTorchao, kE4M3, kCeil);
ASSAY_MX(MxTorchao, kE4M3, kEven);
ASSAY_MX(MxTorchao, kE4M3, kQuotientUp);
ASSAY_MX(MxTriton, kE2M1, kQuotientUp);
ASSAY_MX(MxTriton, kE2M1, kQuotientDown);
ASSAY_MX(MxTriton, kE4M3, kQuotientUp);
ASSAY_MX(MxTriton, kE4M3, kQuotientDown);
#undef ASSAY_MX

}  // namespace assay::reference::quantisers
