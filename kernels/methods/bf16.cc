#include "kernels/methods/bf16.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/methods/methods.h"

namespace assay::kernels {

float FloatFromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t Bf16FromFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // The payload's upper bits may be all zero: rounding would then make an infinity of a NaN.
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  const uint32_t half_less_one = 0x7FFF;
  const uint32_t odd = (bits >> 16) & 1;  // a tie goes up only from an odd value
  return static_cast<uint16_t>((bits + half_less_one + odd) >> 16);
}

namespace bf16 {

void Decode(const std::byte* codes, const std::byte* /*scales*/, int64_t n, int64_t k, float* out) {
  for (int64_t i = 0; i < n * k; ++i) {
    uint16_t bits;
    std::memcpy(&bits, codes + 2 * i, sizeof bits);
    out[i] = FloatFromBf16(bits);
  }
}

}  // namespace bf16
}  // namespace assay::kernels
