// AITER's pre-shuffles of weights and scales (ops/shuffle.py there). In all of them a lane's 16
// bytes stay together; what differs is the order of rows, and of a scale within its tile.
#include "kernels/layouts/aiter.h"

#include "kernels/layouts/rules.h"
#include "kernels/layouts/tiled.h"

namespace assay::kernels {
namespace {

// Gate and up by tiles: of the packed tiles, even ones are 16 rows of gate, odd ones of up.
struct RowsGateUp {
  static constexpr bool kEven = true;
  static int64_t Tiles(int64_t rows) { return 2 * CeilDiv(rows / 2, 16); }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row = tile / 2 * 16 + r;
    return row < rows / 2 ? tile % 2 * (rows / 2) + row : -1;
  }
};

// The same for scales: a tile has 16 rows of gate, then the same 16 of up.
struct RowsGateUpPair {
  static constexpr bool kEven = true;
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows / 2, 16); }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row = tile * 16 + r % 16;
    return row < rows / 2 ? r / 16 * (rows / 2) + row : -1;
  }
};

// Gate 0, up 0, gate 1, up 1, ...
template <int64_t Count>
struct RowsAlternate {
  static constexpr bool kEven = true;
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows, Count); }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row = tile * Count + r;
    return row < rows ? row % 2 * (rows / 2) + row / 2 : -1;
  }
};

// Tiles of 32 rows, but as many that the rows are a multiple of 256.
struct RowsTo256 {
  static constexpr bool kEven = false;
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows, 256) * 8; }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    return RowsInOrder<32>::Row(tile, r, rows);
  }
};

constexpr uint8_t kOne = 0x7F;  // E8M0; of codes 0 as harmless as 0, and AITER's choice

bool IsPlain(DType d) { return IsByte(d) || d == DType::kBF16 || d == DType::kF16; }

// Weights: [row tile][k / 16 bytes][16 rows][16 bytes]; K is filled up to `Units` times 16 bytes.
template <class Rows, int64_t Units>
using Weight = Tiled<UnitTile<16, 16, Units>, Rows, IsPlain>;
using KLane = Weight<RowsInOrder<16>, 4>;
using Separated = Weight<RowsInOrder<16>, 2>;
using Interleaved = Weight<RowsGateUp, 4>;
using F4 = Weight<RowsInOrder<16>, 1>;
using Gfx1250Interleaved = Weight<RowsAlternate<16>, 2>;

using KLaneScale = Tiled<LaneScaleTile<kOne>, RowsInOrder<32>, IsByte>;
using SeparatedScale = Tiled<LaneScaleTile<0>, RowsTo256, IsByte>;
using InterleavedScale = Tiled<LaneScaleTile<kOne>, RowsGateUpPair, IsByte>;
using F4Scale4 = Tiled<UnitTile<32, 4>, RowsInOrder<32>, IsByte>;
using F4Scale8 = Tiled<UnitTile<32, 8>, RowsInOrder<32>, IsByte>;
using N32K4Interleaved = Tiled<UnitTile<32, 4>, RowsAlternate<32>, IsByte>;
using Fp8Activations = Tiled<UnitTile<2, 128>, RowsInOrder<2>, IsByte>;

bool IsFp4(const Scheme& s) { return IsMxfp4(s) || IsNvfp4(s); }
// Everything whose rows are the matrix's and whose values are bytes or 16-bit numbers.
bool IsShuffled(const Scheme& s) {
  return IsFp4(s) || IsInt8(s) || IsFp8(s) || (IsDense(s) && s.dtype != DType::kF32);
}

// Weights of `takes` are tiled by W, its scales by S.
template <class W>
constexpr Rule OfWeight(std::string_view tag, std::string_view methods,
                        bool (*takes)(const Scheme&)) {
  return {{tag, methods, "weight", W::Bytes, W::Pack, W::Unpack}, takes};
}
template <class S>
constexpr Rule OfScale(std::string_view tag, std::string_view methods,
                       bool (*takes)(const Scheme&)) {
  return {{tag, methods, "scale", S::Bytes, S::Pack, S::Unpack}, takes};
}

constexpr Rule kRules[] = {
    OfWeight<KLane>("aiter-klane", "bytes, 16-bit numbers", IsShuffled),
    OfScale<KLaneScale>("aiter-klane", "MXFP4", IsMxfp4),
    OfWeight<Separated>("aiter-separated", "MXFP4", IsMxfp4),
    OfScale<SeparatedScale>("aiter-separated", "MXFP4", IsMxfp4),
    OfWeight<Interleaved>("aiter-interleaved", "MXFP4", IsMxfp4),
    OfScale<InterleavedScale>("aiter-interleaved", "MXFP4", IsMxfp4),
    OfWeight<F4>("aiter-gfx1250", "MXFP4, NVFP4", IsFp4),
    OfScale<F4Scale4>("aiter-gfx1250", "MXFP4", IsMxfp4),
    OfScale<F4Scale8>("aiter-gfx1250", "NVFP4", IsNvfp4),
    {{"aiter-gfx1250", "MXFP4", "act", Fp8Activations::Bytes, Fp8Activations::Pack,
      Fp8Activations::Unpack},
     IsMxfp4},
    OfWeight<Separated>("aiter-gfx1250-separated", "MXFP4", IsMxfp4),
    OfScale<F4Scale4>("aiter-gfx1250-separated", "MXFP4", IsMxfp4),
    OfWeight<Gfx1250Interleaved>("aiter-gfx1250-interleaved", "MXFP4", IsMxfp4),
    OfScale<N32K4Interleaved>("aiter-gfx1250-interleaved", "MXFP4", IsMxfp4),
};

}  // namespace

std::span<const Rule> AiterRules() { return kRules; }

AiterMode AiterModeFor(AiterFlags flags) {
  if (flags.a8w4) return AiterMode::kA8W4;
  return flags.a4w4 ? AiterMode::kA4W4 : AiterMode::kA16W4;
}

AiterLayouts AiterLayoutFor(std::optional<AiterMode> mode, AiterFlags flags) {
  switch (mode.value_or(AiterModeFor(flags))) {
    case AiterMode::kA16W4:
    case AiterMode::kA8W4:
      return {"aiter-interleaved", "aiter-klane"};
    case AiterMode::kA4W4:
      break;
  }
  return {"aiter-separated", "aiter-separated"};
}

}  // namespace assay::kernels
