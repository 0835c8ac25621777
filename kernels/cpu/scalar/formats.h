// Small types and group sums of the scalar tier's own files; everything has internal linkage.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/registry.h"

namespace assay::kernels::scalar {

constexpr int64_t kGroup = 32;
constexpr int kChains = 4;

// E2M1 times two, by code.
constexpr int32_t kE2m1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline float Bf16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);  // rows may lie at odd addresses
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

static inline float E8m0(std::byte byte) {
  const auto exponent = std::to_integer<uint32_t>(byte);
  return std::bit_cast<float>(exponent == 0 ? 0x00400000 : exponent << 23);
}

static inline float E4m3(uint8_t code) {
  const uint32_t size = code & 0x7F, sign = uint32_t{code} >> 7 << 31;
  if (size == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  // The exponent's bias is 127 - 7 too small; below the normal numbers a step is 2^-9.
  const float value = size < 8 ? static_cast<float>(size) * 0x1p-9F
                               : std::bit_cast<float>((size << 20) + (120U << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

static inline int Nibble(const std::byte* p, int64_t i) {
  return std::to_integer<int>(p[i / 2] >> (4 * (i % 2)) & std::byte{0xF});
}

static inline float SumChains(const float t[kChains]) { return (t[0] + t[1]) + (t[2] + t[3]); }

}  // namespace assay::kernels::scalar
