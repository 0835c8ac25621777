// Small floating types by code: E4M3, E5M2, E8M0, E2M1 (formats.md §1, §2).
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/methods/method.h"

namespace assay::reference {

double FromFloat8(unsigned code, Float8 kind) {
  const bool e5m2 = kind == Float8::kE5M2 || kind == Float8::kE5M2Fnuz;
  const bool fnuz = kind == Float8::kE4M3Fnuz || kind == Float8::kE5M2Fnuz;
  const int fraction_bits = e5m2 ? 2 : 3;
  const int largest = e5m2 ? 31 : 15;
  const int bias = (e5m2 ? 15 : 7) + (fnuz ? 1 : 0);
  const int exponent = static_cast<int>(code & 127u) >> fraction_bits;
  const int fraction = static_cast<int>(code & ((1u << fraction_bits) - 1));
  const double sign = (code & 128u) != 0 ? -1 : 1;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (fnuz && code == 0x80) return kNan;
  if (!fnuz && exponent == largest) {
    if (kind == Float8::kE4M3 && fraction == 7) return kNan;
    if (e5m2) return fraction != 0 ? kNan : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit = exponent == 0 ? 0 : 1 << fraction_bits;
  const int power = std::max(exponent, 1) - bias - fraction_bits;
  return sign * std::ldexp(implicit + fraction, power);
}

double FromE2M1(unsigned code) {
  constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double size = kSizes[code & 7u];
  return (code & 8u) != 0 ? -size : size;
}

double FromE8M0(unsigned code) { return std::ldexp(1.0, static_cast<int>(code) - 127); }

}  // namespace assay::reference
