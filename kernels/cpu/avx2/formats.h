// Layout "rows16" as the avx2 kernels read it: where a tile's codes and scales lie, and how eight
// rows' scales become fp32. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/support.h"
#include "kernels/registry.h"

namespace assay::kernels::avx2 {

constexpr int64_t kGroup = 32;
constexpr int64_t kTileRows = 16;
constexpr int64_t kHalfRows = 8;    // a register of 32-bit lanes
constexpr int64_t kHalfBytes = 32;  // of a 64-byte part, half 0: rows 0…7
constexpr int64_t kPartBytes = 64;  // 16 rows × 4 bytes

// Codes and scales of the tile that begins at a row; `tile_*` from one tile to the next.
struct Tiles {
  const std::byte* codes;
  const std::byte* scales;
  int64_t tile_codes, tile_scales;
};

static inline __m256i Load(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
static inline __m128i LoadHalf(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

static inline __m256 WidenBf16(const std::byte* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalf(p)), 16));
}

// fp16 by integers: no F16C in this tier.
static inline __m256 WidenF16(const std::byte* p) {
  const __m256i bits = _mm256_slli_epi32(_mm256_cvtepi16_epi32(LoadHalf(p)), 13);
  // Sign, five bits of exponent, mantissa; an exponent bias of 127 − 15 is missing.
  const __m256i small = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x8FFFE000)));
  const __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(small), _mm256_set1_ps(0x1p112F));
  // Infinities and NaN have all five bits set; then all eight must be.
  const __m256i exponent = _mm256_set1_epi32(0x0F800000);
  const __m256i special = _mm256_cmpeq_epi32(_mm256_and_si256(bits, exponent), exponent);
  return _mm256_or_ps(
      value, _mm256_castsi256_ps(_mm256_and_si256(special, _mm256_set1_epi32(0x7F800000))));
}

static inline __m256 WidenE8m0(const std::byte* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
  // 0 is 2^-127, the only one below the normal numbers.
  return _mm256_castsi256_ps(_mm256_max_epu32(exponent, _mm256_set1_epi32(0x00400000)));
}

// A code's value as bf16, its upper and lower byte, by code; and what a8 takes for it: an unsigned
// byte, value = (byte − kOffset)·kStep. kScaled: a16 takes value = code − kZero by arithmetic.
struct CtInt4 {
  static constexpr bool kBytes = false, kMin = false, kTable = false, kScaled = true;
  static constexpr int kZero = 8;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 32;  // a group of a tile
  static constexpr int kOffset = 8;
  static constexpr float kStep = 1;
  static constexpr int kTermsPer16 = 8;  // products of two that a 16-bit lane holds
  static __m256i Upper() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-63, -64, -64, -64, -64, -64, -64, -65, 0, 63, 64, 64, 64, 64, 64, 64));
  }
  static __m256i Lower() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -32, -64, -96, -128, 64, 0, -128, 0, -128, 0, 64, -128, -96, -64, -32));
  }
  static __m256 Scale(const std::byte* p, int half) { return WidenBf16(p + 16 * half); }
};

struct Mxfp4 {
  static constexpr bool kBytes = false, kMin = false, kTable = true, kScaled = false;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 16;
  static constexpr int kOffset = 12;  // of twice the value
  static constexpr float kStep = 0.5F;
  static constexpr int kTermsPer16 = 4;
  static __m256i Upper() {
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                     -128, -65, -65, -65, -64, -64, -64, -64));
  }
  static __m256i Lower() {
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64,  //
                                                     0, 0, -128, -64, 0, 64, -128, -64));
  }
  static __m256i Table() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
  }
  static __m256 Scale(const std::byte* p, int half) { return WidenE8m0(p + 8 * half); }
};

struct Q41 {
  static constexpr bool kBytes = false, kMin = true, kTable = false, kScaled = true;
  static constexpr int kZero = 0;
  static constexpr int64_t kCodeBytes = 256, kScaleBytes = 64;
  static constexpr int kOffset = 0;
  static constexpr float kStep = 1;
  static constexpr int kTermsPer16 = 8;
  static __m256i Upper() {
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3F, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40,
                                                     0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41,
                                                     0x41));
  }
  static __m256i Lower() {
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -128, 0, 0x40, -128, -96, -64, -32,  //
                                                     0, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70));
  }
  static __m256 Scale(const std::byte* p, int half) { return WidenF16(p + 16 * half); }
  static __m256 Min(const std::byte* p, int half) { return WidenF16(p + 32 + 16 * half); }
};

struct Q80 {
  static constexpr bool kBytes = true, kMin = false, kTable = false, kScaled = false;
  static constexpr int64_t kCodeBytes = 512, kScaleBytes = 32;
  static constexpr int kOffset = 0;
  static constexpr float kStep = 1;
  static __m256 Scale(const std::byte* p, int half) { return WidenF16(p + 16 * half); }
};

// Checks the view, and gives the tile of row n_begin.
template <class Format>
static inline Tiles TilesOf(const WeightView& w, int64_t n_begin, int64_t n_end) {
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

// A page: nearer, the hardware's own prefetcher stops at the end of each. Measured on Zen 5, 2 KiB
// lose a fifth.
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kScalesAheadBytes = 1024;

// What is read that far after group g of a tile. Behind a GGUF tile's codes lie its scales: there
// the next tile's codes are next, and the hardware, which loses both streams at each tile, is told
// of scales too. Measured on Zen 5 from memory with 8-bit activations: Q8_0 gains 5%, Q4_1 18%; the
// other two, whose tiles join up, lose 4%. Always inlined: GCC takes a function that does nothing
// else for one without effects, and drops its calls.
template <class Format>
__attribute__((always_inline)) static inline void Prefetch(const Tiles& t, int64_t groups,
                                                           int64_t g) {
  const auto* codes = reinterpret_cast<const char*>(t.codes) + g * Format::kCodeBytes + kAheadBytes;
  if constexpr (Format::kMin || Format::kBytes) {
    const bool beyond = g >= groups - kAheadBytes / Format::kCodeBytes;
    codes += beyond ? t.tile_codes - groups * Format::kCodeBytes : 0;
  }
#pragma GCC unroll 8
  for (int64_t line = 0; line < Format::kCodeBytes; line += 64) {
    _mm_prefetch(codes + line, _MM_HINT_T0);
  }
  if constexpr (Format::kMin || Format::kBytes) {
    const auto* scales = reinterpret_cast<const char*>(t.scales) + g * Format::kScaleBytes;
    _mm_prefetch(scales + kScalesAheadBytes, _MM_HINT_T0);
  }
}

// The first `count` of the 16 sums of a tile, count in [0, 16].
static inline void StoreTile(__m256 low, __m256 high, int64_t count, float* y) {
  if (count == kTileRows) {
    _mm256_storeu_ps(y, low);
    _mm256_storeu_ps(y + kHalfRows, high);
    return;
  }
  float sums[kTileRows];
  _mm256_storeu_ps(sums, low);
  _mm256_storeu_ps(sums + kHalfRows, high);
  std::memcpy(y, sums, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace assay::kernels::avx2
