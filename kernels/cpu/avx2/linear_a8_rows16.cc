// 8-bit activations times layout "rows16". A lane holds four neighbouring elements of one row; four
// activation codes are broadcast to all lanes, multiplied byte by byte and added within the lane.
// Nothing is added across lanes, and a group's sum is exact whatever the order: the class's
// arithmetic is one chain of fused additions a row.
#include <immintrin.h>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

// Of a token and group: its scale, what the codes' offset adds to the sum, and Q4_1's fl(S·s).
struct Token {
  const int8_t* codes;
  const float* scales;
  const int32_t* offsets;
  const float* sums;
};

__m256i Broadcast4(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm256_set1_epi32(four);
}

// Sums of a group of eight rows for M tokens, in 32-bit lanes, the codes' offset still in them.
template <class F, int M>
__attribute__((always_inline)) inline void SumNibbles(const std::byte* codes, const Token* tokens,
                                                      int64_t at, __m256i (&sum)[M]) {
  const __m256i nibble = _mm256_set1_epi8(0x0F), ones = _mm256_set1_epi16(1);
  __m256i part[M];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m256i both = Load(codes + v * kPartBytes);
    __m256i low = _mm256_and_si256(both, nibble);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    if constexpr (F::kTable) {
      low = _mm256_shuffle_epi8(F::Table(), low);
      high = _mm256_shuffle_epi8(F::Table(), high);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int8_t* x = tokens[m].codes + at + 8 * v;
      const __m256i a = _mm256_maddubs_epi16(low, Broadcast4(x));
      const __m256i b = _mm256_maddubs_epi16(high, Broadcast4(x + 4));
      const __m256i two = _mm256_add_epi16(a, b);
      const bool first = 2 * v % F::kTermsPer16 == 0;
      part[m] = first ? two : _mm256_add_epi16(part[m], two);
      if ((2 * v + 2) % F::kTermsPer16 != 0) continue;
      const __m256i wide = _mm256_madd_epi16(part[m], ones);
      sum[m] = 2 * v + 2 == F::kTermsPer16 ? wide : _mm256_add_epi32(sum[m], wide);
    }
  }
}

// Signed codes: |w| times x with w's sign. |−128| is 128 as an unsigned byte, and a pair of
// products is at most 2·128·127 < 2^15.
template <int M>
__attribute__((always_inline)) inline void SumBytes(const std::byte* codes, const Token* tokens,
                                                    int64_t at, __m256i (&sum)[M]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m256i w = Load(codes + v * kPartBytes), size = _mm256_abs_epi8(w);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const __m256i x = _mm256_sign_epi8(Broadcast4(tokens[m].codes + at + 4 * v), w);
      const __m256i wide = _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones);
      sum[m] = v == 0 ? wide : _mm256_add_epi32(sum[m], wide);
    }
  }
}

// One tile times M tokens.
template <class F, int M>
__attribute__((noinline)) void Tile(const Tiles& t, int64_t groups, const Token* tokens,
                                    int64_t count, float* y, int64_t y_stride) {
  __m256 acc[2][M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[0][m] = acc[1][m] = _mm256_setzero_ps();
  const std::byte* codes = t.codes;
  const std::byte* scales = t.scales;
  for (int64_t g = 0; g < groups; ++g, codes += F::kCodeBytes, scales += F::kScaleBytes) {
    Prefetch<F>(t, groups, g);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256i sum[M];
      if constexpr (F::kBytes) {
        SumBytes<M>(codes + half * kHalfBytes, tokens, g * kGroup, sum);
      } else {
        SumNibbles<F, M>(codes + half * kHalfBytes, tokens, g * kGroup, sum);
      }
      const __m256 scale = F::Scale(scales, half);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        if constexpr (F::kOffset != 0) {
          sum[m] = _mm256_sub_epi32(sum[m], _mm256_set1_epi32(tokens[m].offsets[g]));
        }
        __m256 exact = _mm256_cvtepi32_ps(sum[m]);
        if constexpr (F::kStep != 1) exact = _mm256_mul_ps(exact, _mm256_set1_ps(F::kStep));
        const __m256 product = _mm256_mul_ps(exact, _mm256_set1_ps(tokens[m].scales[g]));
        acc[half][m] = _mm256_fmadd_ps(product, scale, acc[half][m]);
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

template <class F>
void Prepare(const Activations& x, int64_t count, int32_t* offsets, float* sums) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (F::kOffset != 0) offsets[i] = F::kOffset * x.sums[i];
    if constexpr (F::kMin) sums[i] = static_cast<float>(x.sums[i]) * x.scales[i];
  }
}

template <class F>
void Run(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  Tiles t = TilesOf<F>(w, n_begin, n_end);
  constexpr int kTokens = 4;
  const int64_t groups = w.k / kGroup;
  auto* offsets = reinterpret_cast<int32_t*>(Scratch(2 * m * groups));
  auto* sums = reinterpret_cast<float*>(offsets + m * groups);
  Prepare<F>(x, m * groups, offsets, sums);
  for (int64_t n = n_begin; n < n_end; n += kTileRows) {
    const int64_t count = n_end - n < kTileRows ? n_end - n : kTileRows;
    for (int64_t i = 0; i < m; i += kTokens) {
      Token tokens[kTokens];
      const int64_t left = m - i < kTokens ? m - i : kTokens;
      for (int64_t j = 0; j < left; ++j) {
        const int64_t at = (i + j) * groups;
        tokens[j] = {x.codes + at * kGroup, x.scales + at, offsets + at, sums + at};
      }
      float* out = y + i * y_stride + n;
      if (left == 4) Tile<F, 4>(t, groups, tokens, count, out, y_stride);
      if (left == 3) Tile<F, 3>(t, groups, tokens, count, out, y_stride);
      if (left == 2) Tile<F, 2>(t, groups, tokens, count, out, y_stride);
      if (left == 1) Tile<F, 1>(t, groups, tokens, count, out, y_stride);
    }
    t.codes += t.tile_codes;
    t.scales += t.tile_scales;
  }
}

}  // namespace

void LinearCtInt4A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                          int64_t n_end, float* y, int64_t y_stride) {
  Run<CtInt4>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                         int64_t n_end, float* y, int64_t y_stride) {
  Run<Mxfp4>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearQ41A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride) {
  Run<Q41>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearQ80A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride) {
  Run<Q80>(w, x, m, n_begin, n_end, y, y_stride);
}

}  // namespace assay::kernels::avx2
