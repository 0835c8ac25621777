// 16-bit activations times layout "rows16". Codes become fp32 and meet activations that are the
// same for all rows; a group's four chains lie in neighbouring lanes (4-bit codes: even and odd
// elements in registers apart) and are added before the group's scale.
//
// A step works on 16 rows of one token or on 8 rows of two: eight registers of chains either way,
// enough to hide the latency of an addition, and as many as sixteen registers allow.
#include <immintrin.h>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kTokenBlock = 32;  // tokens whose x is widened at a time: stays in L2
constexpr int kChains = 4;

struct Token {
  const float* x;     // widened; of four elements, 4-bit codes: 0, 2, 1, 3
  const float* sums;  // of Q4_1: of each group
};

__m256 Even(__m256i w) { return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)); }
__m256 Odd(__m256i w) {
  return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}
__m256 Pair(const float* p) {
  double both;
  std::memcpy(&both, p, sizeof both);
  return _mm256_castpd_ps(_mm256_set1_pd(both));
}

// Of H halves of a tile and M tokens.
template <int H, int M>
using Registers = __m256[H][M];

template <int H, int M>
__attribute__((always_inline)) inline void Zero(Registers<H, M> (&chains)[kChains]) {
#pragma GCC unroll 4
  for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 2
    for (int i = 0; i < H * M; ++i) chains[c][i / M][i % M] = _mm256_setzero_ps();
  }
}

// Adds the chains of 4-bit codes. Registers: rows 0, 1, 4, 5 with chains 0 and 2, then 1 and 3;
// rows 2, 3, 6, 7 likewise.
template <int H, int M>
__attribute__((always_inline)) inline void AddChains(const Registers<H, M> (&chains)[kChains],
                                                     Registers<H, M>& sum) {
#pragma GCC unroll 2
  for (int i = 0; i < H * M; ++i) {
    const int h = i / M, m = i % M;
    sum[h][m] = _mm256_hadd_ps(_mm256_add_ps(chains[0][h][m], chains[1][h][m]),
                               _mm256_add_ps(chains[2][h][m], chains[3][h][m]));
  }
}

// Sums of a group whose codes' values are looked up, as bf16.
template <class F, int H, int M>
__attribute__((always_inline)) inline void SumLookedUp(const std::byte* codes,
                                                       const float* const (&x)[M],
                                                       Registers<H, M>& sum) {
  const __m256i nibble = _mm256_set1_epi8(0x0F), upper = F::Upper(), lower = F::Lower();
  Registers<H, M> chains[kChains];
  Zero<H, M>(chains);
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; ++quad) {
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const __m256i both = Load(codes + quad / 2 * kPartBytes + h * kHalfBytes);
      const __m256i code =
          _mm256_and_si256(quad % 2 == 0 ? both : _mm256_srli_epi16(both, 4), nibble);
      const __m256i up = _mm256_shuffle_epi8(upper, code), low = _mm256_shuffle_epi8(lower, code);
      const __m256i first = _mm256_unpacklo_epi8(low, up), second = _mm256_unpackhi_epi8(low, up);
      const __m256 w[4] = {Even(first), Odd(first), Even(second), Odd(second)};
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) {
        const __m256 even = Pair(x[m] + 4 * quad), odd = Pair(x[m] + 4 * quad + 2);
        chains[0][h][m] = _mm256_fmadd_ps(even, w[0], chains[0][h][m]);
        chains[1][h][m] = _mm256_fmadd_ps(odd, w[1], chains[1][h][m]);
        chains[2][h][m] = _mm256_fmadd_ps(even, w[2], chains[2][h][m]);
        chains[3][h][m] = _mm256_fmadd_ps(odd, w[3], chains[3][h][m]);
      }
    }
  }
  AddChains<H, M>(chains, sum);
}

// Nibble i of 16-bit words that lie under the exponent of 2^23: masked, the lane is 2^23 +
// code·16^i to the bit, and less 2^23 + kZero·16^i it is the value times 16^i, exact. x is times
// 16^-i.
template <class F, int kNibble, int H, int M>
__attribute__((always_inline)) inline void AddNibble(const __m256i (&words)[2][H],
                                                     const float* const (&x)[M], int part,
                                                     Registers<H, M> (&chains)[kChains]) {
  constexpr int kStep = 1 << (4 * kNibble);
  const __m256i mask = _mm256_set1_epi32(0x4B000000 | 15 * kStep);
  const __m256 zero = _mm256_set1_ps(0x1p23F + F::kZero * kStep);
  __m256 pair[M];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) pair[m] = Pair(x[m] + 8 * part + kNibble % 2 * 4 + kNibble / 2 * 2);
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      const __m256 masked = _mm256_castsi256_ps(_mm256_and_si256(words[r][h], mask));
      const __m256 w = _mm256_sub_ps(masked, zero);
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) {
        __m256& chain = chains[2 * r + kNibble / 2][h][m];
        chain = _mm256_fmadd_ps(w, pair[m], chain);
      }
    }
  }
}

// Sums of a group whose values are code − kZero: as many operations as looking them up, but no
// shuffles or shifts that crowd the ports of the multiply-adds. From L2 on Zen 5 a ninth less time.
template <class F, int H, int M>
__attribute__((always_inline)) inline void SumScaled(const std::byte* codes,
                                                     const float* const (&x)[M],
                                                     Registers<H, M>& sum) {
  const __m256i exponent = _mm256_set1_epi16(0x4B00);
  Registers<H, M> chains[kChains];
  Zero<H, M>(chains);
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    __m256i words[2][H];
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const __m256i w = Load(codes + part * kPartBytes + h * kHalfBytes);
      words[0][h] = _mm256_unpacklo_epi16(w, exponent);
      words[1][h] = _mm256_unpackhi_epi16(w, exponent);
    }
    // Nibbles 0 and 1 go to the same chains, in this order: others in between.
    AddNibble<F, 0, H, M>(words, x, part, chains);
    AddNibble<F, 2, H, M>(words, x, part, chains);
    AddNibble<F, 1, H, M>(words, x, part, chains);
    AddNibble<F, 3, H, M>(words, x, part, chains);
  }
  AddChains<H, M>(chains, sum);
}

// The same for bytes: a register holds the four chains of two rows.
template <int H, int M>
__attribute__((always_inline)) inline void SumBytes(const std::byte* codes,
                                                    const float* const (&x)[M],
                                                    Registers<H, M>& sum) {
  Registers<H, M> chains[kChains];
  Zero<H, M>(chains);
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; ++quad) {
    __m256 four[M];
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      four[m] = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(x[m] + 4 * quad));
    }
    const std::byte* part = codes + quad * kPartBytes;
#pragma GCC unroll 8
    for (int i = 0; i < H * 4; ++i) {
      const int h = i / 4, pair = i % 4;
      const auto* eight = reinterpret_cast<const __m128i*>(part + h * kHalfBytes + 8 * pair);
      const __m256 w = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(eight)));
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) {
        chains[pair][h][m] = _mm256_fmadd_ps(four[m], w, chains[pair][h][m]);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < H * M; ++i) {
    const int h = i / M, m = i % M;
    // Two rows a register, four chains a row: twice neighbours. Rows come out as 0, 2, 4, 6, 1, 3,
    // 5, 7.
    const __m256 rows = _mm256_hadd_ps(_mm256_hadd_ps(chains[0][h][m], chains[1][h][m]),
                                       _mm256_hadd_ps(chains[2][h][m], chains[3][h][m]));
    sum[h][m] = _mm256_permutevar8x32_ps(rows, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
}

// Adds a group of the halves from `first` on.
template <class F, int H, int M>
__attribute__((always_inline)) inline void AddGroup(const std::byte* codes, const std::byte* scales,
                                                    const Token* tokens, int64_t g, int first,
                                                    __m256 (&acc)[2][M]) {
  const float* x[M];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) {
    x[m] = tokens[m].x + g * kGroup;
    // Without this the compiler keeps the first half's broadcasts for the second one: in memory,
    // for want of registers.
    __asm__ volatile("" : "+r"(x[m]));
  }
  Registers<H, M> sum;
  codes += first * kHalfBytes;
  if constexpr (F::kBytes) {
    SumBytes<H, M>(codes, x, sum);
  } else if constexpr (F::kScaled) {
    SumScaled<F, H, M>(codes, x, sum);
  } else {
    SumLookedUp<F, H, M>(codes, x, sum);
  }
#pragma GCC unroll 2
  for (int h = 0; h < H; ++h) {
    const __m256 scale = F::Scale(scales, first + h);
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      __m256& y = acc[first + h][m];
      y = _mm256_fmadd_ps(sum[h][m], scale, y);
      if constexpr (F::kMin) {
        const __m256 s = _mm256_set1_ps(tokens[m].sums[g]);
        y = _mm256_fmadd_ps(s, F::Min(scales, first + h), y);
      }
    }
  }
}

template <class F, int M>
__attribute__((noinline)) void Tile(const Tiles& t, int64_t groups, const Token* tokens,
                                    int64_t count, float* y, int64_t y_stride) {
  __m256 acc[2][M];
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) acc[0][m] = acc[1][m] = _mm256_setzero_ps();
  const std::byte* codes = t.codes;
  const std::byte* scales = t.scales;
  for (int64_t g = 0; g < groups; ++g, codes += F::kCodeBytes, scales += F::kScaleBytes) {
    Prefetch<F>(t, groups, g);
    constexpr int kHalves = M == 1 ? 2 : 1;
#pragma GCC unroll 2
    for (int first = 0; first < 2; first += kHalves) {
      AddGroup<F, kHalves, M>(codes, scales, tokens, g, first, acc);
    }
  }
#pragma GCC unroll 2
  for (int m = 0; m < M; ++m) StoreTile(acc[0][m], acc[1][m], count, y + m * y_stride);
}

// Whether x is as exact times 16^-3, or zero, infinite or NaN.
bool CanBeScaled(const uint16_t* x, int64_t count) {
  constexpr int16_t kLeast = 27 << 7;  // 2^-100: far from the subnormal numbers
  // One less: zero becomes the largest.
  const __m256i sign = _mm256_set1_epi16(0x7FFF), one = _mm256_set1_epi16(1);
  __m256i least = _mm256_set1_epi16(kLeast - 1);
  for (int64_t i = 0; i < count; i += kGroup / 2) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    least = _mm256_min_epu16(least, _mm256_sub_epi16(_mm256_and_si256(bits, sign), one));
  }
  const __m256i none = _mm256_cmpeq_epi16(least, _mm256_set1_epi16(kLeast - 1));
  return _mm256_movemask_epi8(none) == -1;
}

// x [k] to fp32; 4-bit codes want elements 0, 2 and 1, 3 of four side by side, and of eight that
// meet one word of codes element 4·h + j times 16^-(2·(j mod 2) + h) where they are scaled. sums:
// each group's four chains, added as the products' chains are.
template <class F>
void Widen(const uint16_t* x, int64_t groups, float* out, float* sums) {
  for (int64_t g = 0; g < groups; ++g, x += kGroup, out += kGroup) {
    __m128 chains = _mm_setzero_ps();
    for (int64_t i = 0; i < kGroup; i += 4) {
      const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + i));
      const __m128 value = _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(four), 16));
      if (F::kMin) chains = _mm_add_ps(chains, value);
      __m128 ordered = F::kBytes ? value : _mm_shuffle_ps(value, value, 0b11011000);
      if constexpr (F::kScaled) {
        const __m128 even = _mm_setr_ps(1, 1, 0x1p-8F, 0x1p-8F);
        const __m128 odd = _mm_setr_ps(0x1p-4F, 0x1p-4F, 0x1p-12F, 0x1p-12F);
        ordered = _mm_mul_ps(ordered, i % 8 == 0 ? even : odd);
      }
      _mm_store_ps(out + i, ordered);
    }
    if (!F::kMin) continue;
    const __m128 halves = _mm_hadd_ps(chains, chains);
    sums[g] = _mm_cvtss_f32(_mm_hadd_ps(halves, halves));
  }
}

template <class F>
void TileTimesTokens(const Tiles& t, int64_t groups, const float* wide, const float* sums,
                     int64_t m, int64_t count, float* y, int64_t y_stride) {
  constexpr int kTokens = 2;
  for (int64_t i = 0; i < m; i += kTokens) {
    const Token tokens[kTokens] = {
        {wide + i * groups * kGroup, sums + i * groups},
        {wide + (i + 1) * groups * kGroup, sums + (i + 1) * groups},
    };
    float* out = y + i * y_stride;
    if (m - i >= 2) {
      Tile<F, 2>(t, groups, tokens, count, out, y_stride);
    } else {
      Tile<F, 1>(t, groups, tokens, count, out, y_stride);
    }
  }
}

// At most kTokenBlock tokens.
template <class F>
void Block(Tiles t, const uint16_t* x, int64_t groups, int64_t tokens, int64_t rows, float* y,
           int64_t y_stride) {
  float* wide = Scratch(tokens * groups * (kGroup + 1));
  float* sums = wide + tokens * groups * kGroup;
  for (int64_t i = 0; i < tokens; ++i) {
    Widen<F>(x + i * groups * kGroup, groups, wide + i * groups * kGroup, sums + i * groups);
  }
  for (int64_t n = 0; n < rows; n += kTileRows) {
    const int64_t count = rows - n < kTileRows ? rows - n : kTileRows;
    TileTimesTokens<F>(t, groups, wide, sums, tokens, count, y + n, y_stride);
    t.codes += t.tile_codes;
    t.scales += t.tile_scales;
  }
}

// The same format and the same bits for activations that are too small to be scaled.
template <class F>
struct LookedUp : F {
  static constexpr bool kScaled = false;
};

template <class F>
void Run(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  const Tiles t = TilesOf<F>(w, n_begin, n_end);
  const int64_t groups = w.k / kGroup, rows = n_end - n_begin;
  for (int64_t begin = 0; begin < m; begin += kTokenBlock) {
    const int64_t tokens = m - begin < kTokenBlock ? m - begin : kTokenBlock;
    const uint16_t* from = x.bf16 + begin * w.k;
    float* to = y + begin * y_stride + n_begin;
    if constexpr (F::kScaled) {
      if (!CanBeScaled(from, tokens * w.k)) {
        Block<LookedUp<F>>(t, from, groups, tokens, rows, to, y_stride);
        continue;
      }
    }
    Block<F>(t, from, groups, tokens, rows, to, y_stride);
  }
}

}  // namespace

void LinearCtInt4Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                        int64_t n_end, float* y, int64_t y_stride) {
  Run<CtInt4>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride) {
  Run<Mxfp4>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearQ41Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride) {
  Run<Q41>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearQ80Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride) {
  Run<Q80>(w, x, m, n_begin, n_end, y, y_stride);
}

}  // namespace assay::kernels::avx2
