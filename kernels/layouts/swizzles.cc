// Swizzles of block scales for tensor cores, and of MXFP4 weights in triton_kernels.
#include "kernels/layouts/rules.h"
#include "kernels/layouts/tiled.h"

namespace assay::kernels {
namespace {

// 128 rows × `Units` scales, four neighbours of a row together: [row % 32][row / 32][scale % 4].
template <int64_t Units>
struct BlockScaleTile {
  static constexpr int64_t kRows = 128, kUnit = 4, kUnits = Units / 4;
  static constexpr uint8_t kPad = 0;
  static constexpr int64_t Offset(int64_t r, int64_t u) {
    return u * 512 + r % 32 * 16 + r / 32 * 4;
  }
};
using BlockScale = Tiled<BlockScaleTile<4>, RowsInOrder<128>, IsByte>;
using Blackwell = Tiled<BlockScaleTile<8>, RowsInOrder<128>, IsByte>;

using Cdna4 = Tiled<LaneScaleTile<0>, RowsInOrder<32>, IsByte>;

// A warp's 32 rows of the 32·Warps that it shares: [half 2][warp][quarter 2][8] of the matrix; in
// the tile of two scales a row [half][8][scale % 2][quarter].
template <int64_t Warps>
struct RowsOfWarps {
  static constexpr bool kEven = false;
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows, 32 * Warps) * Warps; }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row =
        tile / Warps * 32 * Warps + r / 16 * 16 * Warps + tile % Warps * 16 + r % 16;
    return row < rows ? row : -1;
  }
};
struct HopperScaleTile {
  static constexpr int64_t kRows = 32, kUnit = 1, kUnits = 2;
  static constexpr uint8_t kPad = 0;
  static constexpr int64_t Offset(int64_t r, int64_t u) {
    return r / 16 * 32 + r % 8 * 4 + u * 2 + r % 16 / 8;
  }
};
template <int64_t Warps>
using HopperScale = Tiled<HopperScaleTile, RowsOfWarps<Warps>, IsByte>;

// Values: of 16 rows the threads' four each, [half 2][thread 4][2] of the matrix; in the tile of 32
// bytes a row (64 elements) [row % 2][byte % 4][byte / 8][byte / 4 % 2][row / 2].
struct RowsOfThreads {
  static constexpr bool kEven = false;
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows, 16) * 4; }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row = tile / 4 * 16 + r / 2 * 8 + tile % 4 * 2 + r % 2;
    return row < rows ? row : -1;
  }
};
struct HopperTile {
  static constexpr int64_t kRows = 4, kUnit = 1, kUnits = 32;
  static constexpr uint8_t kPad = 0;
  static constexpr int64_t Offset(int64_t r, int64_t u) {
    return r % 2 * 64 + u % 4 * 16 + u / 8 * 4 + u / 4 % 2 * 2 + r / 2;
  }
};
using HopperBytes = Tiled<HopperTile, RowsOfThreads, IsByte>;

// The eight codes of four bytes, mixed so that masks and shifts make bf16 of them: of each half
// word (low nibbles, high nibbles) bits s e e m of codes 0, 1, 2 stand at 15 and 8…6, three places
// lower for each next code; of code 3 the sign at 14, e e at 11 and 10, m at 13.
constexpr uint32_t Spread(uint32_t code) { return (code & 8) << 12 | (code & 7) << 6; }
constexpr uint32_t SpreadLast(uint32_t code) {
  return (code & 8) << 11 | (code & 6) << 9 | (code & 1) << 13;
}
uint32_t Mix(uint32_t bytes) {
  uint32_t mixed = 0;
  for (int half = 0; half < 2; ++half) {
    const uint32_t codes = bytes >> 4 * half & 0x0F0F0F0F;
    uint32_t bits = SpreadLast(codes >> 24);
    for (int i = 0; i < 3; ++i) bits |= Spread(codes >> 8 * i & 15) >> 3 * i;
    mixed |= bits << 16 * half;
  }
  return mixed;
}
uint32_t Unmix(uint32_t mixed) {
  uint32_t bytes = 0;
  for (int half = 0; half < 2; ++half) {
    const uint32_t bits = mixed >> 16 * half & 0xFFFF;
    uint32_t codes = ((bits >> 11 & 8) | (bits >> 9 & 6) | (bits >> 13 & 1)) << 24;
    for (int i = 0; i < 3; ++i) {
      const uint32_t one = bits << 3 * i;
      codes |= ((one >> 12 & 8) | (one >> 6 & 7)) << 8 * i;
    }
    bytes |= codes << 4 * half;
  }
  return bytes;
}

template <uint32_t (*F)(uint32_t)>
void Each32(const std::byte* in, int64_t bytes, std::byte* out) {
  for (int64_t i = 0; i < bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, in + i, 4);
    word = F(word);
    std::memcpy(out + i, &word, 4);
  }
}
void HopperPack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  HopperBytes::Pack(shape, in, out);
  Each32<Mix>(out, HopperBytes::Bytes(shape), out);
}
void HopperUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  std::vector<std::byte> plain(static_cast<size_t>(HopperBytes::Bytes(shape)));
  Each32<Unmix>(in, HopperBytes::Bytes(shape), plain.data());
  HopperBytes::Unpack(shape, plain.data(), out);
}

bool HasBlockScales(const Scheme& s) {
  return IsNvfp4(s) || IsMxfp4(s) || s.family == MethodFamily::kCtMxfp8;
}

template <class S>
constexpr Rule OfScale(std::string_view tag, std::string_view methods,
                       bool (*takes)(const Scheme&)) {
  return {{tag, methods, "scale", S::Bytes, S::Pack, S::Unpack}, takes};
}
constexpr Rule HopperWeight(std::string_view tag) {
  return {{tag, "MXFP4", "weight", HopperBytes::Bytes, HopperPack, HopperUnpack}, IsMxfp4};
}

constexpr Rule kRules[] = {
    OfScale<BlockScale>("blockscale-128x4", "NVFP4, MXFP4, MXFP8", HasBlockScales),
    HopperWeight("triton-hopper"),
    OfScale<HopperScale<8>>("triton-hopper", "MXFP4", IsMxfp4),
    HopperWeight("triton-hopper-w4"),
    OfScale<HopperScale<4>>("triton-hopper-w4", "MXFP4", IsMxfp4),
    OfScale<Blackwell>("triton-blackwell", "MXFP4", IsMxfp4),
    OfScale<Cdna4>("triton-cdna4", "MXFP4", IsMxfp4),
};

}  // namespace

std::span<const Rule> SwizzleRules() { return kRules; }

}  // namespace assay::kernels
