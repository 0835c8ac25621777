#include "kernels/quantisers/elements.h"

#include <algorithm>

namespace assay::kernels::quantisers {
namespace {

constexpr float kE2m1[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

// The bits of |x| without their lowest `cut`, to the nearest, ties to even.
uint32_t WithoutBits(float x, int cut) {
  const uint32_t bits = Bits(x) & 0x7FFFFFFF;
  return (bits + (1U << (cut - 1)) - 1 + (bits >> cut & 1)) >> cut;
}

}  // namespace

float RoundToBf16(float x) { return FromBits((WithoutBits(x, 16) << 16) | (Bits(x) & 0x80000000)); }

uint16_t ToF16(float x) {
  if (x < 0x1p-14F) return static_cast<uint16_t>(RoundEven(x * 0x1p24F));
  const uint32_t code = WithoutBits(x, 13) - (112 << 10);  // the exponents' biases: 127 and 15
  return static_cast<uint16_t>(std::min<uint32_t>(code, 0x7C00));
}

uint8_t ToE4m3(float x) {
  const float size = std::fabs(x);
  const uint32_t sign = Bits(x) >> 31 << 7;
  uint32_t code = 0;
  if (size < 0x1p-6F) {
    code = static_cast<uint32_t>(RoundEven(size * 0x1p9F));
  } else {
    code = std::min<uint32_t>(WithoutBits(x, 20) - (120 << 3), 0x7E);
  }
  return static_cast<uint8_t>(sign | code);
}

float FromE4m3(uint8_t code) {
  const uint32_t size = code & 0x7F;
  const float value =
      size < 8 ? static_cast<float>(size) * 0x1p-9F : FromBits((size << 20) + (120U << 23));
  return code < 0x80 ? value : -value;
}

float FromE2m1(int code) { return code < 8 ? kE2m1[code] : -kE2m1[code - 8]; }

uint8_t ToE2m1(float x, Rounding rounding) {
  const float size = std::fabs(x);
  uint8_t code = 0;
  for (; code < 7; ++code) {
    const float middle = (kE2m1[code] + kE2m1[code + 1]) / 2;
    const bool odd = code % 2 == 1;
    const bool tie_up = rounding == Rounding::kAway || (rounding == Rounding::kEven && odd);
    if (size < middle || (size == middle && !tie_up)) break;
  }
  return static_cast<uint8_t>(code | Bits(x) >> 31 << 3);
}

std::vector<float> LoadGroup(const Activation& x, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float& value = values[static_cast<size_t>(i)];
    if (x.dtype == DType::kBF16) {
      uint16_t bits;
      std::memcpy(&bits, x.values + (first + i) * 2, sizeof bits);
      value = FromBits(uint32_t{bits} << 16);
    } else {
      std::memcpy(&value, x.values + (first + i) * 4, sizeof value);
    }
  }
  return values;
}

float Amax(const std::vector<float>& group) {
  float amax = 0;
  for (const float x : group) amax = std::max(amax, std::fabs(x));
  return amax;
}

void PutCode(const Quantiser& q, int64_t at, uint8_t code, QuantisedActivation* out) {
  if (q.element != Element::kE2m1) {
    out->codes[static_cast<size_t>(at)] = std::byte{code};
  } else {
    out->codes[static_cast<size_t>(at / 2)] |= std::byte{code} << (4 * (at % 2));
  }
}

}  // namespace assay::kernels::quantisers
