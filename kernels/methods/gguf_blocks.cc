// GGUF: a tensor is rows of blocks, which hold their scales themselves. Here Q4_0 to Q8_0, and what
// all types share.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/methods/blocks.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {

double Half(const std::byte* at) { return LoadValue(DType::kF16, at, 0); }

Status PutHalf(double value, std::byte* at) {
  if (std::fabs(value) >= 65520) {
    return Error{fmt::format("its scale {} is beyond F16", value)};
  }
  StoreValue(DType::kF16, value, at, 0);
  return Ok();
}

Status PutHalfAtLeast(double value, std::byte* at) {
  if (value > kF16.largest) return Error{fmt::format("its scale {} is beyond F16", value)};
  const auto bits = static_cast<uint16_t>(CodeAtLeast(value, kF16));
  std::memcpy(at, &bits, sizeof bits);
  return Ok();
}

Status HalvesFinite(const std::byte* first, const std::byte* second) {
  for (const std::byte* at : {first, second}) {
    if (at != nullptr && !std::isfinite(Half(at))) {
      return Error{fmt::format("a scale is {}; it must be finite", Half(at))};
    }
  }
  return Ok();
}

int ClampCode(double code, int least, int most) {
  if (!(code > least)) return least;
  return code < most ? static_cast<int>(code) : most;
}

namespace {

constexpr int kBlock = 32, kHalf = kBlock / 2;

// Q4_0, Q4_1, Q5_0, Q5_1: fp16 d, perhaps fp16 m, perhaps the fifth bits of 32 codes, 16 bytes:
// element j low, element j + 16 high. Value (q − middle)·d or q·d + m.
template <int kBits, bool kHasMin>
struct Legacy {
  static constexpr int kCodes = 1 << kBits, kMiddle = kHasMin ? 0 : kCodes / 2;
  static constexpr int kHigh = kHasMin ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0);

  static int Get(const std::byte* block, int i) {
    const int byte = std::to_integer<int>(block[kLow + i % kHalf]);
    int code = i < kHalf ? byte & 15 : byte >> 4;
    if (kBits == 5) code |= (std::to_integer<int>(block[kHigh + i / 8]) >> (i % 8) & 1) << 4;
    return code;
  }
  static void Put(std::byte* block, int i, int code) {
    block[kLow + i % kHalf] |= static_cast<std::byte>((code & 15) << (i < kHalf ? 0 : 4));
    if (kBits == 5) block[kHigh + i / 8] |= static_cast<std::byte>((code >> 4) << (i % 8));
  }
  static Status Decode(const std::byte* block, double* out) {
    if (Status good = HalvesFinite(block, kHasMin ? block + 2 : nullptr); !good.ok()) return good;
    const double d = Half(block), m = kHasMin ? Half(block + 2) : 0;
    for (int i = 0; i < kBlock; ++i) out[i] = (Get(block, i) - kMiddle) * d + m;
    return Ok();
  }
  // In float and with the scale before it is rounded, as ggml's reference does it.
  static Status Pack(const double* x, std::byte* block) {
    float least = static_cast<float>(x[0]), most = least, largest = 0;
    for (int i = 0; i < kBlock; ++i) {
      const auto value = static_cast<float>(x[i]);
      least = std::min(least, value);
      most = std::max(most, value);
      if (std::fabs(value) > std::fabs(largest)) largest = value;
    }
    const float d = kHasMin ? (most - least) / static_cast<float>(kCodes - 1)
                            : largest / -static_cast<float>(kMiddle);
    const float inverse = d == 0 ? 0 : 1 / d, from = kHasMin ? least : 0;
    if (Status good = PutHalf(d, block); !good.ok()) return good;
    if (kHasMin) {
      if (Status good = PutHalf(least, block + 2); !good.ok()) return good;
    }
    for (int i = 0; i < kBlock; ++i) {
      const float code = (static_cast<float>(x[i]) - from) * inverse;
      Put(block, i,
          ClampCode(std::trunc(code + (static_cast<float>(kMiddle) + 0.5F)), 0, kCodes - 1));
    }
    return Ok();
  }
  static void Encode(const double* x, std::byte* block) {
    const double d = Half(block), m = kHasMin ? Half(block + 2) : 0;
    for (int i = 0; i < kBlock; ++i) {
      const double code = d == 0 ? 0 : RoundEven((x[i] - m) / d);
      Put(block, i, ClampCode(code + kMiddle, 0, kCodes - 1));
    }
  }
  static void Clear(std::byte* block) { std::memset(block + kHigh, 0, kLow + kHalf - kHigh); }
};

Status Q80Decode(const std::byte* block, double* out) {
  if (Status good = HalvesFinite(block); !good.ok()) return good;
  const double d = Half(block);
  for (int i = 0; i < kBlock; ++i) out[i] = LoadValue(DType::kI8, block + 2, i) * d;
  return Ok();
}

Status Q80Pack(const double* x, std::byte* block) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::fabs(static_cast<float>(x[i])));
  }
  const float d = largest / 127, inverse = d == 0 ? 0 : 1 / d;
  if (Status good = PutHalf(d, block); !good.ok()) return good;
  for (int i = 0; i < kBlock; ++i) {
    // Halves go away from zero, as roundf does.
    const float code = std::round(static_cast<float>(x[i]) * inverse);
    StoreValue(DType::kI8, ClampCode(code, -128, 127), block + 2, i);
  }
  return Ok();
}

void Q80Encode(const double* x, std::byte* block) {
  const double d = Half(block);
  for (int i = 0; i < kBlock; ++i) {
    StoreValue(DType::kI8, ClampCode(d == 0 ? 0 : RoundEven(x[i] / d), -128, 127), block + 2, i);
  }
}

void Q80Clear(std::byte* block) { std::memset(block + 2, 0, kBlock); }

template <int kBits, bool kHasMin>
constexpr BlockType RowOf(DType dtype) {
  using L = Legacy<kBits, kHasMin>;
  return {dtype, L::Decode, L::Pack, L::Encode, L::Clear};
}

}  // namespace

const BlockType kQ4_0Block = RowOf<4, false>(DType::kQ4_0);
const BlockType kQ4_1Block = RowOf<4, true>(DType::kQ4_1);
const BlockType kQ5_0Block = RowOf<5, false>(DType::kQ5_0);
const BlockType kQ5_1Block = RowOf<5, true>(DType::kQ5_1);
const BlockType kQ8_0Block = {DType::kQ8_0, Q80Decode, Q80Pack, Q80Encode, Q80Clear};

}  // namespace assay::kernels
