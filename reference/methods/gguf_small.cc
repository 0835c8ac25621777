// Blocks of 32 and 64 elements. In all of them byte j of a run of codes holds element j in its low
// nibble and element j + half the run in its high one.
#include <cmath>

#include "reference/methods/gguf_blocks.h"
#include "reference/methods/method.h"

namespace assay::reference::gguf {
namespace {

constexpr size_t kHalf = 16;
constexpr size_t kElements = 32;

// 32 codes of five bits: four in nibbles, the fifth of element i in bit i of the word at `high`.
void FiveBits(const std::byte* block, size_t high, size_t nibbles, double scale, double offset,
              double minimum, double* out) {
  const unsigned word = Byte(block, high) | Byte(block, high + 1) << 8 |
                        Byte(block, high + 2) << 16 | Byte(block, high + 3) << 24;
  for (size_t j = 0; j < kHalf; ++j) {
    const unsigned byte = Byte(block, nibbles + j);
    const unsigned low = (byte & 15u) | (word >> j & 1u) << 4;
    const unsigned top = byte >> 4 | (word >> (j + kHalf) & 1u) << 4;
    out[j] = scale * (low - offset) + minimum;
    out[j + kHalf] = scale * (top - offset) + minimum;
  }
}

void Fill(double value, double* out) {
  for (size_t i = 0; i < kElements; ++i) out[i] = value;
}

// E4M3 without a sign; the codes 0 and 0x7F read as 0.
double BlockScale(unsigned code) {
  if (code == 0 || code == 0x7f) return 0;
  const int exponent = static_cast<int>(code >> 3 & 15u);
  const double fraction = code & 7u;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

}  // namespace

double Half(const std::byte* block, size_t at) {
  return FromHalf(static_cast<uint16_t>(Byte(block, at) | Byte(block, at + 1) << 8));
}

// fp16 d; 16 bytes of nibbles: (n − 8)·d.
void Q4_0(const std::byte* block, double* out) {
  const double d = Half(block, 0);
  for (size_t j = 0; j < kHalf; ++j) {
    const unsigned byte = Byte(block, 2 + j);
    out[j] = (static_cast<int>(byte & 15u) - 8) * d;
    out[j + kHalf] = (static_cast<int>(byte >> 4) - 8) * d;
  }
}

// fp16 d, fp16 m; nibbles: n·d + m.
void Q4_1(const std::byte* block, double* out) {
  const double d = Half(block, 0), m = Half(block, 2);
  for (size_t j = 0; j < kHalf; ++j) {
    const unsigned byte = Byte(block, 4 + j);
    out[j] = static_cast<int>(byte & 15u) * d + m;
    out[j + kHalf] = static_cast<int>(byte >> 4) * d + m;
  }
}
void Q4_1Minima(const std::byte* block, double* out) { Fill(Half(block, 2), out); }

// fp16 d; 32 fifth bits; nibbles: (n − 16)·d.
void Q5_0(const std::byte* block, double* out) {
  FiveBits(block, 2, 6, Half(block, 0), 16, 0, out);
}

// fp16 d, fp16 m; 32 fifth bits; nibbles: n·d + m.
void Q5_1(const std::byte* block, double* out) {
  FiveBits(block, 4, 8, Half(block, 0), 0, Half(block, 2), out);
}
void Q5_1Minima(const std::byte* block, double* out) { Fill(Half(block, 2), out); }

// fp16 d; 32 signed bytes, −128 among them.
void Q8_0(const std::byte* block, double* out) {
  const double d = Half(block, 0);
  for (size_t j = 0; j < kElements; ++j) out[j] = static_cast<int8_t>(Byte(block, 2 + j)) * d;
}

// E8M0 byte; nibbles of E2M1.
void Mxfp4(const std::byte* block, double* out) {
  const double d = FromE8M0(Byte(block, 0));
  for (size_t j = 0; j < kHalf; ++j) {
    const unsigned byte = Byte(block, 1 + j);
    out[j] = FromE2M1(byte & 15u) * d;
    out[j + kHalf] = FromE2M1(byte >> 4) * d;
  }
}

// Four E4M3 bytes, one for each 16 elements; then 8 bytes of E2M1 nibbles for each.
void Nvfp4(const std::byte* block, double* out) {
  constexpr size_t kRun = 16;
  for (size_t group = 0; group < 4; ++group) {
    const double d = BlockScale(Byte(block, group));
    for (size_t j = 0; j < kRun / 2; ++j) {
      const unsigned byte = Byte(block, 4 + group * kRun / 2 + j);
      out[group * kRun + j] = FromE2M1(byte & 15u) * d;
      out[group * kRun + j + kRun / 2] = FromE2M1(byte >> 4) * d;
    }
  }
}

}  // namespace assay::reference::gguf
