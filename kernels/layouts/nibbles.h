// Eight 4-bit codes in a word of 32 bits.
#pragma once

#include <cstdint>

namespace assay::kernels {

// Nibbles 0…3 of the lower half to a byte each, and back.
constexpr uint32_t SpreadNibbles(uint32_t half) {
  const uint32_t bytes = (half | half << 8) & 0x00FF00FF;
  return (bytes | bytes << 4) & 0x0F0F0F0F;
}
constexpr uint32_t GatherNibbles(uint32_t nibbles) {
  const uint32_t bytes = (nibbles | nibbles >> 4) & 0x00FF00FF;
  return (bytes | bytes >> 8) & 0xFFFF;
}

// Eight codes in order to four bytes: elements 0…3 low, 4…7 high; and back.
constexpr uint32_t InterleaveNibbles(uint32_t word) {
  return SpreadNibbles(word & 0xFFFF) | SpreadNibbles(word >> 16) << 4;
}
constexpr uint32_t OrderNibbles(uint32_t bytes) {
  return GatherNibbles(bytes & 0x0F0F0F0F) | GatherNibbles(bytes >> 4 & 0x0F0F0F0F) << 16;
}

}  // namespace assay::kernels
