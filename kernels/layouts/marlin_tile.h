// Marlin's tile: 16 elements of K × 64 columns, and the scale permutations. Facts of the GPU's
// tensor core fragments, used by weights, scales and zero points alike.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/layouts/marlin.h"
#include "kernels/layouts/rules.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels::marlin {

constexpr int64_t kTileK = 16, kTileN = 64, kTileCodes = kTileK * kTileN;

// Field f of a word of `Bits`-bit codes holds the kInterleave[f]-th of the codes it holds.
template <int Bits>
constexpr auto Interleave() {
  if constexpr (Bits == 4) {
    return std::array<int, 8>{0, 2, 4, 6, 1, 3, 5, 7};
  } else {
    return std::array<int, 4>{0, 2, 1, 3};
  }
}

// For each code of a tile in the order of the words and their fields, its k·64 + n. A lane of 32
// holds, for each of four 16-column parts and both 8-column halves of one, the elements of K
// 2(lane % 4) + {0, 1, 8, 9} of column lane / 4.
template <int Bits>
constexpr std::array<uint16_t, kTileCodes> TileOrder() {
  std::array<uint16_t, kTileCodes> order{};
  constexpr int64_t kFields = 32 / Bits;
  const auto interleave = Interleave<Bits>();
  for (int64_t i = 0; i < kTileCodes; ++i) {
    const int64_t j = i / kFields * kFields + interleave[static_cast<size_t>(i % kFields)];
    const int64_t lane = j / 32, part = j % 32 / 8, half = j % 8 / 4, e = j % 4;
    const int64_t k = 2 * (lane % 4) + e % 2 + e / 2 * 8;
    const int64_t n = 16 * part + lane / 4 + 8 * half;
    order[static_cast<size_t>(i)] = static_cast<uint16_t>(k * kTileN + n);
  }
  return order;
}

// Column at place p of a row of scales. By groups: 8 × 8 transposed in each 64 columns. One scale a
// column: in each 32, pairs 0, 1, 8, 9, 16, 17, 24, 25, then 2, 3, ...
constexpr int64_t ByGroups(int64_t p) { return p / 64 * 64 + p % 64 / 8 + p % 8 * 8; }
constexpr int64_t ByChannel(int64_t p) {
  return p / 32 * 32 + p % 32 / 8 * 2 + p % 2 + p % 8 / 2 * 8;
}

// "marlin" fills up to whole tiles, "marlin-padded" to what the kernels take.
enum class Fill { kTiles, kKernels };

// Extents that no file has; below them the sums and products here stay in range.
constexpr int64_t kMostExtent = int64_t{1} << 40;

// {−1, −1}: too large.
template <Fill F>
Extents Filled(Extents e, int64_t group) {
  if constexpr (F == Fill::kKernels) {
    return Padded(e.n, e.k, group);
  } else {
    if (e.n > kMostExtent || e.k > kMostExtent) return {-1, -1};
    return {CeilDiv(e.n, kTileN) * kTileN, CeilDiv(e.k, kTileK) * kTileK};
  }
}

// marlin_scales.cc's and marlin_fp4.cc's part of the table.
std::span<const Rule> ScaleRules();
std::span<const Rule> Fp4ScaleRules();
// What the integer methods that Marlin has have in common.
inline bool IsMarlinInt(const Scheme& s) {
  return (s.family == MethodFamily::kCtInt || s.family == MethodFamily::kGptq) &&
         (s.bits == 4 || s.bits == 8) && !s.old_packing;
}
inline bool IsMarlinCt(const Scheme& s) {
  return s.family == MethodFamily::kCtInt && IsMarlinInt(s);
}
// GPTQ's zero points have no place in Marlin: symmetric files only.
inline bool IsMarlinGptq(const Scheme& s) {
  return s.family == MethodFamily::kGptq && IsMarlinInt(s) && !s.asymmetric;
}

}  // namespace assay::kernels::marlin
