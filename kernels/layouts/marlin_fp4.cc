// Scales of FP4 and FP8 weights in Marlin's kernels: E8M0 and E4M3 block scales of one byte, and
// the factors that the engine folds into others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/layouts/marlin.h"
#include "kernels/layouts/marlin_tile.h"

namespace assay::kernels::marlin {
namespace {

// Bytes [N, groups], packed [groups, N]: permuted as other scales are, then bytes 1 and 2 of every
// four exchanged, as the kernel's conversion of four bytes wants them.
template <class F>
void ForEachByte(const StoredShape& s, F f) {
  const int64_t filled = CeilDiv(s.rows, kTileN) * kTileN;
  for (int64_t g = 0, to = 0; g < s.columns; ++g) {
    for (int64_t i = 0; i < filled; ++i, ++to) {
      const int64_t p = i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
      const int64_t n = s.columns == 1 ? ByChannel(p) : ByGroups(p);
      f(n < s.rows ? n * s.columns + g : -1, to);
    }
  }
}
int64_t ByteCount(const StoredShape& s) {
  if (!IsByte(s.dtype) || Product({s.rows, s.columns}) < 0) return -1;
  return Product({CeilDiv(s.rows, kTileN), kTileN, s.columns});
}

void Mxfp4Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachByte(shape,
              [=](int64_t from, int64_t to) { out[to] = from < 0 ? std::byte{0} : in[from]; });
}
void Mxfp4Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachByte(shape, [=](int64_t to, int64_t from) {
    if (to >= 0) out[to] = in[from];
  });
}

// E4M3 without sign, as exponent and three bits of the fraction: value (8 + fraction)·2^(exponent −
// 3). 0 and NaN are not asked for.
struct Unsigned {
  int exponent, fraction;
};
Unsigned FromE4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3), fraction = static_cast<int>(code & 7);
  if (exponent > 0) return {exponent - 7, fraction};
  const int up = fraction >= 4 ? 1 : fraction >= 2 ? 2 : 3;  // subnormal: fraction·2^−9
  return {-6 - up, (fraction << up) & 7};
}
unsigned ToE4m3(Unsigned u) {
  if (u.exponent >= -6) return static_cast<unsigned>((u.exponent + 7) << 3 | u.fraction);
  return static_cast<unsigned>((8 | u.fraction) >> (-6 - u.exponent));
}

// S0E5M3: the upper byte of fp16(scale·factor·2^7) without its sign bit. 15 is fp16's bias, 7 the
// kernel's.
constexpr int kBias = 15 + 7;
constexpr unsigned kE4m3Nan = 0x7F, kS0e5m3Nan = 0xFC;

std::byte ToS0e5m3(std::byte scale, int log2_factor) {
  const auto code = static_cast<unsigned>(scale) & 0x7F;
  if (code == 0) return std::byte{0};
  if (code == kE4m3Nan) return std::byte{kS0e5m3Nan};
  const Unsigned u = FromE4m3(code);
  return static_cast<std::byte>((u.exponent + log2_factor + kBias) << 3 | u.fraction);
}
// Bytes that no scale becomes (somebody broke them) give the nearest that E4M3 has room for.
std::byte FromS0e5m3(std::byte byte, int log2_factor) {
  const auto code = static_cast<unsigned>(byte);
  if (code == 0) return std::byte{0};
  if (code == kS0e5m3Nan) return std::byte{kE4m3Nan};
  const int exponent = static_cast<int>(code >> 3) - kBias - log2_factor;
  return static_cast<std::byte>(ToE4m3({std::clamp(exponent, -9, 8), static_cast<int>(code & 7)}));
}

// The scales, then the factor as fp32.
int64_t Nvfp4Bytes(const StoredShape& shape) {
  const int64_t bytes = shape.dtype == DType::kF8E4M3 ? ByteCount(shape) : -1;
  return bytes < 0 || bytes > INT64_MAX - 4 ? -1 : bytes + 4;
}
void Nvfp4Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const float factor = Nvfp4ScaleFactor({in, static_cast<size_t>(shape.rows * shape.columns)});
  const int log2_factor = std::ilogb(factor);
  ForEachByte(shape, [=](int64_t from, int64_t to) {
    out[to] = from < 0 ? std::byte{0} : ToS0e5m3(in[from], log2_factor);
  });
  std::memcpy(out + ByteCount(shape), &factor, 4);
}
void Nvfp4Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  float factor = 1;
  std::memcpy(&factor, in + ByteCount(shape), 4);
  const int log2_factor =
      std::isfinite(factor) && factor >= 1 ? std::min(std::ilogb(factor), 31) : 0;
  ForEachByte(shape, [=](int64_t to, int64_t from) {
    if (to >= 0) out[to] = FromS0e5m3(in[from], log2_factor);
  });
}
const char* Nvfp4Objection(const StoredShape& shape, const std::byte* in) {
  for (int64_t i = 0; i < shape.rows * shape.columns; ++i) {
    if (static_cast<unsigned>(in[i]) >= 0x80) {
      return "a block scale is negative, and Marlin's S0E5M3 has no sign";
    }
  }
  return nullptr;
}

constexpr Rule kRules[] = {
    {{"marlin", "MXFP4", "scale", ByteCount, Mxfp4Pack, Mxfp4Unpack}, IsMxfp4},
    {{"marlin", "NVFP4", "scale", Nvfp4Bytes, Nvfp4Pack, Nvfp4Unpack, Nvfp4Objection}, IsNvfp4},
};

uint16_t RoundToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

std::span<const Rule> Fp4ScaleRules() { return kRules; }

uint16_t FusedExponentBiasBf16(uint16_t scale) { return RoundToBf16(FromBf16(scale) * 0x1p120f); }

float Nvfp4ScaleFactor(std::span<const std::byte> scales) {
  unsigned largest = 0;
  for (const std::byte scale : scales) {
    const auto code = static_cast<unsigned>(scale);
    if (code < kE4m3Nan) largest = std::max(largest, code);  // neither NaN nor negative
  }
  if (largest == 0) return 1;
  const Unsigned u = FromE4m3(largest);
  return std::ldexp(1.0F, (u.fraction == 7 ? 7 : 8) - u.exponent);  // 448 is 1.75·2^8
}

uint16_t Nvfp4GlobalScaleBf16(float global_scale, float factor) {
  return RoundToBf16(FromBf16(RoundToBf16(FromBf16(RoundToBf16(global_scale)) / factor)) *
                     0x1p119f);
}

}  // namespace assay::kernels::marlin
