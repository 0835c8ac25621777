// Superblocks of 256 elements ("K-quants"): one fp16 scale for the whole, small integer scales (and
// minima) for parts of 16 or 32.
#include <array>
#include <cstring>

#include "reference/methods/gguf_blocks.h"

namespace assay::reference::gguf {
namespace {

constexpr size_t kElements = 256;

// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in 12 bytes. The first four of each are
// the low six bits of bytes 0–3 and 4–7; of the others the low four bits stand in bytes 8–11 and
// the high two above those of the first.
struct SixBits {
  std::array<unsigned, 8> scales, minima;
};
SixBits Unpack(const std::byte* packed) {
  SixBits out{};
  for (size_t i = 0; i < 4; ++i) {
    out.scales[i] = Byte(packed, i) & 63u;
    out.minima[i] = Byte(packed, i + 4) & 63u;
    out.scales[i + 4] = (Byte(packed, i + 8) & 15u) | Byte(packed, i) >> 6 << 4;
    out.minima[i + 4] = Byte(packed, i + 8) >> 4 | Byte(packed, i + 4) >> 6 << 4;
  }
  return out;
}

// d and dmin stand first, then the twelve bytes of scales. Element e belongs to part e / 32.
void SixBitMinima(const std::byte* block, double* out) {
  const double d = Half(block, 2);
  const SixBits six = Unpack(block + 4);
  for (size_t e = 0; e < kElements; ++e) out[e] = -(d * six.minima[e / 32]);
}

// The nibble of element e where each 32 bytes hold 32 elements low and the next 32 high.
unsigned Nibble(const std::byte* codes, size_t e) {
  const unsigned byte = Byte(codes, e / 64 * 32 + e % 32);
  return e % 64 < 32 ? byte & 15u : byte >> 4;
}

}  // namespace

// 16 bytes of 4-bit scale (low) and minimum (high); 64 bytes of codes, two bits each; d; dmin.
// 128 elements share 32 bytes: element e of them is bits 2·(e / 32) of byte e % 32.
void Q2KMinima(const std::byte* block, double* out) {
  const double d = Half(block, 82);
  for (size_t e = 0; e < kElements; ++e) out[e] = -(d * (Byte(block, e / 16) >> 4));
}
void Q2K(const std::byte* block, double* out) {
  Q2KMinima(block, out);
  const double d = Half(block, 80);
  for (size_t e = 0; e < kElements; ++e) {
    const size_t within = e % 128;
    const unsigned code = Byte(block, 16 + e / 128 * 32 + within % 32) >> 2 * (within / 32) & 3u;
    out[e] += d * (Byte(block, e / 16) & 15u) * code;
  }
}

// 32 bytes of third bits, set where nothing is to be taken away; 64 bytes of two bits as in Q2_K;
// 16 6-bit scales less 32 in 12 bytes: low four bits in bytes 0–7 (low nibbles, then high ones),
// high two in bytes 8–11; d.
void Q3K(const std::byte* block, double* out) {
  const double d = Half(block, 108);
  const std::byte* packed = block + 96;
  std::array<int, 16> scales{};
  for (size_t i = 0; i < 16; ++i) {
    const unsigned low = i < 8 ? Byte(packed, i) & 15u : Byte(packed, i - 8) >> 4;
    const unsigned high = Byte(packed, 8 + i % 4) >> 2 * (i / 4) & 3u;
    scales[i] = static_cast<int>(low | high << 4) - 32;
  }
  for (size_t e = 0; e < kElements; ++e) {
    const size_t within = e % 128;
    const auto code =
        static_cast<int>(Byte(block, 32 + e / 128 * 32 + within % 32) >> 2 * (within / 32) & 3u);
    const bool set = (Byte(block, e % 32) >> e / 32 & 1u) != 0;
    out[e] = d * scales[e / 16] * (code - (set ? 0 : 4));
  }
}

void Q4KMinima(const std::byte* block, double* out) { SixBitMinima(block, out); }
// d; dmin; 12 bytes of scales and minima; 128 bytes of nibbles.
void Q4K(const std::byte* block, double* out) {
  SixBitMinima(block, out);
  const double d = Half(block, 0);
  const SixBits six = Unpack(block + 4);
  for (size_t e = 0; e < kElements; ++e) out[e] += d * six.scales[e / 32] * Nibble(block + 16, e);
}

void Q5KMinima(const std::byte* block, double* out) { SixBitMinima(block, out); }
// As Q4_K with 32 bytes of fifth bits before the nibbles: element e is bit e / 32 of byte e % 32.
void Q5K(const std::byte* block, double* out) {
  SixBitMinima(block, out);
  const double d = Half(block, 0);
  const SixBits six = Unpack(block + 4);
  for (size_t e = 0; e < kElements; ++e) {
    const unsigned fifth = Byte(block, 16 + e % 32) >> e / 32 & 1u;
    out[e] += d * six.scales[e / 32] * (Nibble(block + 48, e) | fifth << 4);
  }
}

// 128 bytes of nibbles, 64 of two high bits, 16 signed scales, d. 128 elements share 64 bytes of
// nibbles (elements 0–63 low, the others high) and 32 bytes of pairs: bits 2·(e / 32) of byte
// e % 32.
void Q6K(const std::byte* block, double* out) {
  const double d = Half(block, 208);
  for (size_t e = 0; e < kElements; ++e) {
    const size_t half = e / 128, within = e % 128;
    const unsigned byte = Byte(block, half * 64 + within % 64);
    const unsigned low = within < 64 ? byte & 15u : byte >> 4;
    const unsigned high = Byte(block, 128 + half * 32 + within % 32) >> 2 * (within / 32) & 3u;
    const int scale = static_cast<int8_t>(Byte(block, 192 + e / 16));
    out[e] = d * scale * (static_cast<int>(low | high << 4) - 32);
  }
}

}  // namespace assay::reference::gguf
