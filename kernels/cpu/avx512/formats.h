// Layout "rows16" as this tier's kernels read it: where a tile's codes and scales lie, what a code
// means, and how 16 rows' scales become fp32. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/support.h"
#include "kernels/registry.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kTileRows = 16;   // one a lane
constexpr int64_t kPartBytes = 64;  // 16 rows × 4 bytes

// Codes and scales of the tile that begins at a row; `tile_*` from one tile to the next.
struct Tiles {
  const std::byte* codes;
  const std::byte* scales;
  int64_t tile_codes, tile_scales;
};

inline __m512 WidenF16(const std::byte* p) { return _mm512_cvtph_ps(Load256(p)); }
inline __m512 WidenE8m0(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m512i exponent = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
  // 0 is 2^-127, the only one below the normal numbers.
  return _mm512_castsi512_ps(_mm512_max_epi32(exponent, _mm512_set1_epi32(0x00400000)));
}

// kValues: what a 4-bit code means before its scale. With 8-bit activations a code is an unsigned
// byte, value = (byte − kOffset)·kStep, and kTermsPer16 such products of two fit 16 bits.
struct CtInt4 {
  static constexpr bool kBytes = false, kMin = false, kTable = false;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 32;  // a group of a tile
  static constexpr float kValues[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  static constexpr int kOffset = 8;
  static constexpr float kStep = 1;
  static constexpr int kTermsPer16 = 8;
  static __m512 Scale(const std::byte* p) { return WidenBf16(Load256(p)); }
};

struct Mxfp4 {
  static constexpr bool kBytes = false, kMin = false, kTable = true;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 16;
  static constexpr float kValues[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                        -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  static constexpr int kOffset = 12;  // of twice the value
  static constexpr float kStep = 0.5F;
  static constexpr int kTermsPer16 = 4;
  static __m512i Table() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  }
  static __m512 Scale(const std::byte* p) { return WidenE8m0(p); }
};

struct Q41 {
  static constexpr bool kBytes = false, kMin = true, kTable = false;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 64;
  static constexpr float kValues[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  static constexpr int kOffset = 0;
  static constexpr float kStep = 1;
  static constexpr int kTermsPer16 = 8;
  static __m512 Scale(const std::byte* p) { return WidenF16(p); }
  static __m512 Min(const std::byte* p) { return WidenF16(p + 2 * kTileRows); }
};

struct Q80 {
  static constexpr bool kBytes = true, kMin = false, kTable = false;
  static constexpr int64_t kCodeBytes = 512, kScaleBytes = 32;
  static constexpr int kOffset = 0;
  static constexpr float kStep = 1;
  static __m512 Scale(const std::byte* p) { return WidenF16(p); }
};

// Checks the view, and gives the tile of row n_begin.
template <class Format>
Tiles TilesOf(const WeightView& w, int64_t n_begin, int64_t n_end) {
  const bool blocks = Format::kMin || Format::kBytes;  // GGUF: one component
  if (blocks) {
    CheckBlocks(w, "rows16", kGroup, kTileRows, n_begin, n_end);
  } else {
    CheckLinear(w, "rows16", kGroup, kTileRows, n_begin, n_end);
  }
  const int64_t groups = w.k / kGroup, tile = n_begin / kTileRows;
  const int64_t codes = groups * Format::kCodeBytes, scales = groups * Format::kScaleBytes;
  if (!blocks) return {w.codes + tile * codes, w.scales + tile * scales, codes, scales};
  const std::byte* first = w.codes + tile * (codes + scales);
  return {first, first + codes, codes + scales, codes + scales};
}

inline __m512i LoadPart(const std::byte* codes, int part) {
  return _mm512_loadu_si512(codes + part * kPartBytes);
}

// Asks for the codes of a group that lie `kAheadBytes` ahead. Inlined by force: GCC 12 drops calls
// of a function that only prefetches.
template <class Format>
__attribute__((always_inline)) inline void Prefetch(const std::byte* codes) {
  constexpr int64_t kAheadBytes = 4096;  // linear_bf16_row.cc says why so far
#pragma GCC unroll 8
  for (int64_t line = 0; line < Format::kCodeBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(codes) + kAheadBytes + line, _MM_HINT_T0);
  }
}

}  // namespace
}  // namespace assay::kernels::ASSAY_AVX512
