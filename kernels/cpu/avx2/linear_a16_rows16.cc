// 16-bit activations times layout "rows16". Codes become fp32 and meet activations that are the
// same for all rows; a group's four chains lie in neighbouring lanes (4-bit codes: even and odd
// elements in registers apart) and are added before the group's scale.
#include <immintrin.h>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

// A page: nearer, the hardware's own prefetcher stops at the end of each. Measured on Zen 5, 2 KiB
// lose a fifth.
constexpr int64_t kAheadBytes = 4096;
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

// Sums of a group of eight rows for M tokens. Registers: rows 0, 1, 4, 5 with chains 0 and 2, then
// 1 and 3; rows 2, 3, 6, 7 likewise.
template <class F, int M>
__attribute__((always_inline)) inline void SumNibbles(const std::byte* codes, const Token* tokens,
                                                      int64_t at, __m256 (&sum)[M]) {
  const __m256i nibble = _mm256_set1_epi8(0x0F), upper = F::Upper(), lower = F::Lower();
  __m256 chains[4][M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    for (int c = 0; c < kChains; ++c) chains[c][m] = _mm256_setzero_ps();
  }
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; ++quad) {
    const __m256i both = Load(codes + quad / 2 * kPartBytes);
    const __m256i code =
        _mm256_and_si256(quad % 2 == 0 ? both : _mm256_srli_epi16(both, 4), nibble);
    const __m256i up = _mm256_shuffle_epi8(upper, code), low = _mm256_shuffle_epi8(lower, code);
    const __m256i first = _mm256_unpacklo_epi8(low, up), second = _mm256_unpackhi_epi8(low, up);
    const __m256 w[4] = {Even(first), Odd(first), Even(second), Odd(second)};
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const float* x = tokens[m].x + at + 4 * quad;
      const __m256 even = Pair(x), odd = Pair(x + 2);
      chains[0][m] = _mm256_fmadd_ps(even, w[0], chains[0][m]);
      chains[1][m] = _mm256_fmadd_ps(odd, w[1], chains[1][m]);
      chains[2][m] = _mm256_fmadd_ps(even, w[2], chains[2][m]);
      chains[3][m] = _mm256_fmadd_ps(odd, w[3], chains[3][m]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    sum[m] = _mm256_hadd_ps(_mm256_add_ps(chains[0][m], chains[1][m]),
                            _mm256_add_ps(chains[2][m], chains[3][m]));
  }
}

// The same for bytes: a register holds the four chains of two rows.
template <int M>
__attribute__((always_inline)) inline void SumBytes(const std::byte* codes, const Token* tokens,
                                                    int64_t at, __m256 (&sum)[M]) {
  __m256 chains[4][M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    for (int c = 0; c < kChains; ++c) chains[c][m] = _mm256_setzero_ps();
  }
#pragma GCC unroll 8
  for (int quad = 0; quad < 8; ++quad) {
    __m256 w[4];
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      const auto* eight = reinterpret_cast<const __m128i*>(codes + quad * kPartBytes + 8 * pair);
      w[pair] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(eight)));
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const __m256 x =
          _mm256_broadcast_ps(reinterpret_cast<const __m128*>(tokens[m].x + at + 4 * quad));
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        chains[pair][m] = _mm256_fmadd_ps(x, w[pair], chains[pair][m]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    // Two rows a register, four chains a row: twice neighbours. Rows come out as 0, 2, 4, 6, 1, 3,
    // 5, 7.
    const __m256 rows = _mm256_hadd_ps(_mm256_hadd_ps(chains[0][m], chains[1][m]),
                                       _mm256_hadd_ps(chains[2][m], chains[3][m]));
    sum[m] = _mm256_permutevar8x32_ps(rows, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
}

template <class F, int M>
__attribute__((noinline)) void Tile(const Tiles& t, int64_t groups, const Token* tokens,
                                    int64_t count, float* y, int64_t y_stride) {
  __m256 acc[2][M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[0][m] = acc[1][m] = _mm256_setzero_ps();
  const std::byte* codes = t.codes;
  const std::byte* scales = t.scales;
  for (int64_t g = 0; g < groups; ++g, codes += F::kCodeBytes, scales += F::kScaleBytes) {
    for (int64_t line = 0; line < F::kCodeBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(codes) + kAheadBytes + line, _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      // Without this the compiler keeps half 0's broadcasts for half 1: in memory, for want of
      // registers.
      __asm__ volatile("" ::: "memory");
      __m256 sum[M];
      if constexpr (F::kBytes) {
        SumBytes<M>(codes + half * kHalfBytes, tokens, g * kGroup, sum);
      } else {
        SumNibbles<F, M>(codes + half * kHalfBytes, tokens, g * kGroup, sum);
      }
      const __m256 scale = F::Scale(scales, half);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        acc[half][m] = _mm256_fmadd_ps(sum[m], scale, acc[half][m]);
        if constexpr (F::kMin) {
          acc[half][m] = _mm256_fmadd_ps(_mm256_set1_ps(tokens[m].sums[g]), F::Min(scales, half),
                                         acc[half][m]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) StoreTile(acc[0][m], acc[1][m], count, y + m * y_stride);
}

// x [k] to fp32; 4-bit codes want elements 0, 2 and 1, 3 of four side by side. sums: each group's
// four chains, added as the products' chains are.
template <class F>
void Widen(const uint16_t* x, int64_t groups, float* out, float* sums) {
  for (int64_t g = 0; g < groups; ++g, x += kGroup, out += kGroup) {
    __m128 chains = _mm_setzero_ps();
    for (int64_t i = 0; i < kGroup; i += 4) {
      const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + i));
      const __m128 value = _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(four), 16));
      if (F::kMin) chains = _mm_add_ps(chains, value);
      _mm_store_ps(out + i, F::kBytes ? value : _mm_shuffle_ps(value, value, 0b11011000));
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

template <class F>
void Run(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  const Tiles first = TilesOf<F>(w, n_begin, n_end);
  const int64_t groups = w.k / kGroup;
  for (int64_t begin = 0; begin < m; begin += kTokenBlock) {
    const int64_t tokens = m - begin < kTokenBlock ? m - begin : kTokenBlock;
    float* wide = Scratch(tokens * groups * (kGroup + 1));
    float* sums = wide + tokens * groups * kGroup;
    for (int64_t i = 0; i < tokens; ++i) {
      Widen<F>(x.bf16 + (begin + i) * w.k, groups, wide + i * groups * kGroup, sums + i * groups);
    }
    Tiles t = first;
    for (int64_t n = n_begin; n < n_end; n += kTileRows) {
      const int64_t count = n_end - n < kTileRows ? n_end - n : kTileRows;
      TileTimesTokens<F>(t, groups, wide, sums, tokens, count, y + begin * y_stride + n, y_stride);
      t.codes += t.tile_codes;
      t.scales += t.tile_scales;
    }
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
