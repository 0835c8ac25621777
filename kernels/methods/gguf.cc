#include "kernels/methods/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/methods/methods.h"

namespace assay::kernels {
namespace {

constexpr int64_t kHalf = gguf::kBlock / 2;

uint16_t Bits16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return bits;
}

}  // namespace

float FloatFromF16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, rest = bits & 0x7FFF;
  if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | rest << 13);
  // The exponent is 127 − 15 too small then: exactly that power of two, subnormals included.
  const float size = std::bit_cast<float>(rest << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(size));
}

uint16_t F16FromFloat(float value) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
  if (std::isnan(value)) return sign | 0x7E00;
  const double size = std::fabs(double{value});
  if (size >= 65520) return sign | 0x7C00;  // half a step beyond the largest: rounds to infinity
  if (size == 0) return sign;
  // In steps of the value's binade, the subnormals' being the least: a carry into the next binade
  // is the next code.
  const int exponent = std::max(std::ilogb(size), -14);
  // Ties to even by hand: std::nearbyint would follow the host's rounding mode.
  const double exact = std::ldexp(size, 10 - exponent);
  auto steps = static_cast<int>(exact);
  const double rest = exact - steps;
  if (rest > 0.5 || (rest == 0.5 && steps % 2 != 0)) ++steps;
  return static_cast<uint16_t>(sign | (steps + ((exponent + 14) << 10)));
}

void PackQ41(const uint8_t* codes, const uint16_t* d, const uint16_t* m, int64_t n, int64_t k,
             std::byte* blocks) {
  for (int64_t b = 0; b < n * k / gguf::kBlock; ++b, blocks += gguf::kQ41Bytes) {
    std::memcpy(blocks, d + b, 2);
    std::memcpy(blocks + 2, m + b, 2);
    const uint8_t* block = codes + b * gguf::kBlock;
    for (int64_t i = 0; i < gguf::kBlock; ++i) {
      if (block[i] < 16) continue;
      std::fprintf(stderr, "gguf-q4_1: code %d at element %lld; allowed are 0 to 15\n", block[i],
                   static_cast<long long>(b * gguf::kBlock + i));
      std::abort();
    }
    for (int64_t j = 0; j < kHalf; ++j) {
      blocks[4 + j] = static_cast<std::byte>(block[j] | block[j + kHalf] << 4);
    }
  }
}

void PackQ80(const int8_t* codes, const uint16_t* d, int64_t n, int64_t k, std::byte* blocks) {
  for (int64_t b = 0; b < n * k / gguf::kBlock; ++b, blocks += gguf::kQ80Bytes) {
    std::memcpy(blocks, d + b, 2);
    std::memcpy(blocks + 2, codes + b * gguf::kBlock, gguf::kBlock);
  }
}

namespace gguf {

void DecodeQ41(const std::byte* blocks, const std::byte* /*scales*/, int64_t n, int64_t k,
               float* out) {
  for (int64_t b = 0; b < n * k / kBlock; ++b, blocks += kQ41Bytes, out += kBlock) {
    const double d = FloatFromF16(Bits16(blocks)), m = FloatFromF16(Bits16(blocks + 2));
    for (int64_t j = 0; j < kHalf; ++j) {
      // Exact in double: 15 bits times a power of two, and 11 bits within 2^45 of it.
      out[j] = static_cast<float>(d * std::to_integer<int>(blocks[4 + j] & std::byte{0xF}) + m);
      out[j + kHalf] = static_cast<float>(d * std::to_integer<int>(blocks[4 + j] >> 4) + m);
    }
  }
}

void DecodeQ80(const std::byte* blocks, const std::byte* /*scales*/, int64_t n, int64_t k,
               float* out) {
  for (int64_t b = 0; b < n * k / kBlock; ++b, blocks += kQ80Bytes, out += kBlock) {
    const float d = FloatFromF16(Bits16(blocks));
    for (int64_t j = 0; j < kBlock; ++j) {
      out[j] = d * static_cast<float>(std::to_integer<int8_t>(blocks[2 + j]));
    }
  }
}

}  // namespace gguf
}  // namespace assay::kernels
