// Small floating types, to the nearest, and the pieces of an fp32.
#include <algorithm>
#include <cmath>

#include "harness/abi/contract.h"
#include "reference/methods/method.h"
#include "reference/quantisers/ways.h"

namespace assay::reference {

double ValueOf(uint8_t code, ActElement element) {
  switch (element) {
    case ActElement::kInt8:
      return static_cast<int8_t>(code);
    case ActElement::kE4M3:
      return FromFloat8(code, Float8::kE4M3);
    case ActElement::kE2M1:
      break;
  }
  const double value = FromE2M1(code);
  return (code & 8u) != 0 ? std::copysign(value, -1.0) : value;
}

namespace quantisers {
namespace {

constexpr int kFractionBits = 23;
constexpr int kLeastExponent = -126;  // of a normal fp32
constexpr double kLargestE4M3 = 448;

}  // namespace

double Fp32(double value) { return RoundTo(value, DType::kF32); }

Fields FieldsOf(double value) {
  const int exponent = value > 0 ? std::ilogb(value) : kLeastExponent - 1;
  if (exponent < kLeastExponent) return {0, std::ldexp(value, -kLeastExponent)};
  return {exponent - kLeastExponent + 1, std::ldexp(value, -exponent) - 1};
}

double FloorLog2(double value) { return std::floor(Fp32(std::log2(value))); }
double CeilLog2(double value) { return std::ceil(Fp32(std::log2(value))); }

double RoundEven(double value) {
  // nearbyint would follow the host's mode.
  const double below = std::floor(value), rest = value - below;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
  return below + (up ? 1 : 0);
}

uint8_t ToE4M3(double value) {
  constexpr int kBits = 3, kLeast = -6, kNan = 0x7F;
  const unsigned sign = std::signbit(value) ? 0x80u : 0u;
  const double size = std::fabs(value);
  if (size == 0) return static_cast<uint8_t>(sign);
  if (!(size <= 2 * kLargestE4M3)) return static_cast<uint8_t>(sign | kNan);
  const int exponent = std::max(std::ilogb(size), kLeast);
  // In units of the last place: 8 to 15 of a normal number, less of a subnormal one; 16, which
  // rounding may give, carries into the exponent.
  const auto units = static_cast<int>(RoundEven(std::ldexp(size, kBits - exponent)));
  const int code = ((exponent - kLeast) << kBits) + units;
  return static_cast<uint8_t>(sign | static_cast<unsigned>(std::min(code, kNan)));
}

uint8_t ToE4M3Clamped(double value) {
  return ToE4M3(std::clamp(value, -kLargestE4M3, kLargestE4M3));
}

namespace {

uint8_t NearestE2M1(double value, bool tie_to_even) {
  constexpr unsigned kLast = 7;
  const double size = std::fabs(value);
  unsigned code = 0;
  for (unsigned next = 1; next <= kLast; ++next) {
    const double middle = (FromE2M1(next) + FromE2M1(next - 1)) / 2;
    if (size > middle || (size == middle && (!tie_to_even || next % 2 == 0))) code = next;
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8u : 0u));
}

}  // namespace

uint8_t ToE2M1(double value) { return NearestE2M1(value, true); }
uint8_t ToE2M1Away(double value) { return NearestE2M1(value, false); }

}  // namespace quantisers
}  // namespace assay::reference
