// 8-bit activations times layout "rows16". A lane holds four neighbouring elements of one row; four
// activation codes are broadcast to all lanes, multiplied byte by byte and added within the lane.
// Nothing is added across lanes, and a group's sum is exact whatever the order: the class's
// arithmetic is one chain of fused additions a row.
//
// Eight-bit weight codes are multiplied as 16-bit numbers, the even and the odd bytes of a lane
// apart: products of two signed bytes do not fit the instruction for bytes.
#include <cstring>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

// Of a token: what a group needs.
struct Token {
  const int8_t* codes;
  const int16_t* even;  // eight-bit weights: codes 0 and 2 of each four as 16 bits,
  const int16_t* odd;   // and codes 1 and 3
  const float* scales;
  const int32_t* offsets;  // kOffset·S: what the codes' offset adds to the sum
  const float* sums;       // fl(S·scale), with minima
};

__m512i Broadcast4(const void* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof four);
  return _mm512_set1_epi32(four);
}

__m512i EvenBytes(__m512i bytes) { return _mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 8); }
__m512i OddBytes(__m512i bytes) { return _mm512_srai_epi16(bytes, 8); }

// Sums of a group of 16 rows for M tokens, the codes' offset still in them.
template <class F, int M>
__attribute__((always_inline)) inline void SumNibbles(const std::byte* codes, const Token* tokens,
                                                      int64_t at, __m512i (&sum)[M]) {
  const __m512i nibble = _mm512_set1_epi8(0x0F), ones = _mm512_set1_epi16(1);
  __m512i part[M];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512i both = LoadPart(codes, v);
    __m512i low = _mm512_and_si512(both, nibble);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    if constexpr (F::kTable) {
      low = _mm512_shuffle_epi8(F::Table(), low);
      high = _mm512_shuffle_epi8(F::Table(), high);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int8_t* x = tokens[m].codes + at + 8 * v;
      const __m512i two = _mm512_add_epi16(_mm512_maddubs_epi16(low, Broadcast4(x)),
                                           _mm512_maddubs_epi16(high, Broadcast4(x + 4)));
      part[m] = 2 * v % F::kTermsPer16 == 0 ? two : _mm512_add_epi16(part[m], two);
      if ((2 * v + 2) % F::kTermsPer16 != 0) continue;
      const __m512i wide = _mm512_madd_epi16(part[m], ones);
      sum[m] = 2 * v + 2 == F::kTermsPer16 ? wide : _mm512_add_epi32(sum[m], wide);
    }
  }
}

template <int M>
__attribute__((always_inline)) inline void SumBytes(const std::byte* codes, const Token* tokens,
                                                    int64_t at, __m512i (&sum)[M]) {
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) {
    const __m512i w = LoadPart(codes, v), even = EvenBytes(w), odd = OddBytes(w);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const int64_t i = (at + 4 * v) / 2;
      const __m512i two = _mm512_add_epi32(_mm512_madd_epi16(even, Broadcast4(tokens[m].even + i)),
                                           _mm512_madd_epi16(odd, Broadcast4(tokens[m].odd + i)));
      sum[m] = v == 0 ? two : _mm512_add_epi32(sum[m], two);
    }
  }
}

// One tile times M tokens.
template <class F, int M>
void Tile(const Tiles& t, int64_t groups, const Token* tokens, __mmask16 rows, float* y,
          int64_t y_stride) {
  __m512 acc[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
  const std::byte* codes = t.codes;
  const std::byte* scales = t.scales;
  for (int64_t g = 0; g < groups; ++g, codes += F::kCodeBytes, scales += F::kScaleBytes) {
    Prefetch<F>(codes);
    __m512i sum[M];
    if constexpr (F::kBytes) {
      SumBytes<M>(codes, tokens, g * kGroup, sum);
    } else {
      SumNibbles<F, M>(codes, tokens, g * kGroup, sum);
    }
    const __m512 scale = F::Scale(scales);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      if constexpr (F::kOffset != 0) {
        sum[m] = _mm512_sub_epi32(sum[m], _mm512_set1_epi32(tokens[m].offsets[g]));
      }
      __m512 exact = _mm512_cvtepi32_ps(sum[m]);
      if constexpr (F::kStep != 1) exact = _mm512_mul_ps(exact, _mm512_set1_ps(F::kStep));
      const __m512 product = _mm512_mul_ps(exact, _mm512_set1_ps(tokens[m].scales[g]));
      acc[m] = _mm512_fmadd_ps(product, scale, acc[m]);
      if constexpr (F::kMin) {
        acc[m] = _mm512_fmadd_ps(_mm512_set1_ps(tokens[m].sums[g]), F::Min(scales), acc[m]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) _mm512_mask_storeu_ps(y + m * y_stride, rows, acc[m]);
}

// What is computed once for all rows. even, odd: [m·groups·16] each.
template <class F>
void Prepare(const Activations& x, int64_t count, int32_t* offsets, float* sums, int16_t* even,
             int16_t* odd) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (F::kOffset != 0) offsets[i] = F::kOffset * x.sums[i];
    if constexpr (F::kMin) sums[i] = static_cast<float>(x.sums[i]) * x.scales[i];
    if constexpr (F::kBytes) {  // half a register a group
      const __m512i codes = _mm512_maskz_loadu_epi32(0xFF, x.codes + i * kGroup);
      _mm512_mask_storeu_ps(even + i * kGroup / 2, 0xFF, _mm512_castsi512_ps(EvenBytes(codes)));
      _mm512_mask_storeu_ps(odd + i * kGroup / 2, 0xFF, _mm512_castsi512_ps(OddBytes(codes)));
    }
  }
}

template <class F>
void Run(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  Tiles t = TilesOf<F>(w, n_begin, n_end);
  constexpr int kTokens = 8;
  const int64_t groups = w.k / kGroup, all = m * groups;
  auto* offsets = reinterpret_cast<int32_t*>(Scratch((2 + kGroup / 2) * all));
  auto* sums = reinterpret_cast<float*>(offsets + all);
  auto* even = reinterpret_cast<int16_t*>(sums + all);
  int16_t* odd = even + all * kGroup / 2;
  Prepare<F>(x, all, offsets, sums, even, odd);
  for (int64_t n = n_begin; n < n_end; n += kTileRows) {
    const __mmask16 rows = LanesLeft(n_end - n);
    for (int64_t i = 0, step = 0; i < m; i += step) {
      Token tokens[kTokens];
      const int64_t left = m - i;
      step = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
      for (int64_t j = 0; j < step; ++j) {
        const int64_t at = (i + j) * groups;
        tokens[j] = {x.codes + at * kGroup, even + at * kGroup / 2, odd + at * kGroup / 2,
                     x.scales + at,         offsets + at,           sums + at};
      }
      float* out = y + i * y_stride + n;
      if (step == 8) Tile<F, 8>(t, groups, tokens, rows, out, y_stride);
      if (step == 4) Tile<F, 4>(t, groups, tokens, rows, out, y_stride);
      if (step == 2) Tile<F, 2>(t, groups, tokens, rows, out, y_stride);
      if (step == 1) Tile<F, 1>(t, groups, tokens, rows, out, y_stride);
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

}  // namespace assay::kernels::ASSAY_AVX512
