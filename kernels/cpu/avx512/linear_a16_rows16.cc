// 16-bit activations times layout "rows16". A lane holds the codes of one row, and its byte j those
// of elements whose index is j modulo four: the class's chain j. A shift brings a code to the
// lowest bits, a look-up among 16 values makes it fp32, and an activation broadcast to all lanes
// meets it. Nothing is added across lanes.
#include <cstring>

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kTokenBlock = 16;  // tokens whose x is widened at a time: stays in L2
constexpr int kChains = 4;

struct Token {
  const float* x;     // widened
  const float* sums;  // with minima: of each group
};

// The value of a nibble: the look-up reads an index's lowest four bits.
template <class F, int kShift>
__attribute__((always_inline)) inline __m512 Value(__m512i codes) {
  const __m512 values = _mm512_loadu_ps(F::kValues);
  return _mm512_permutexvar_ps(kShift == 0 ? codes : _mm512_srli_epi32(codes, kShift), values);
}
// The value of byte kByte.
template <int kByte>
__attribute__((always_inline)) inline __m512 ByteValue(__m512i codes) {
  const __m512i top = kByte == 3 ? codes : _mm512_slli_epi32(codes, 24 - 8 * kByte);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
}

// Chain kChain of a part: x at the part's element of that chain, and how far to the next of it.
template <class F, int kChain, int M>
__attribute__((always_inline)) inline void AddPart(__m512i codes, const Token* tokens, int64_t at,
                                                   __m512 (&chains)[kChains][M]) {
  if constexpr (F::kBytes) {
    const __m512 w = ByteValue<kChain>(codes);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const __m512 x = _mm512_set1_ps(tokens[m].x[at + kChain]);
      chains[kChain][m] = _mm512_fmadd_ps(x, w, chains[kChain][m]);
    }
  } else {
    const __m512 low = Value<F, 8 * kChain>(codes), high = Value<F, 8 * kChain + 4>(codes);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const float* x = tokens[m].x + at + kChain;
      chains[kChain][m] = _mm512_fmadd_ps(_mm512_set1_ps(x[0]), low, chains[kChain][m]);
      chains[kChain][m] = _mm512_fmadd_ps(_mm512_set1_ps(x[4]), high, chains[kChain][m]);
    }
  }
}

// Sums of a group of 16 rows for M tokens.
template <class F, int M>
__attribute__((always_inline)) inline void SumGroup(const std::byte* codes, const Token* tokens,
                                                    int64_t at, __m512 (&sum)[M]) {
  constexpr int kParts = F::kCodeBytes / kPartBytes;
  constexpr int kElements = kGroup / kParts;
  __m512 chains[kChains][M];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) chains[c][m] = _mm512_setzero_ps();
  }
#pragma GCC unroll 8
  for (int v = 0; v < kParts; ++v) {
    const __m512i part = LoadPart(codes, v);
    AddPart<F, 0, M>(part, tokens, at + v * kElements, chains);
    AddPart<F, 1, M>(part, tokens, at + v * kElements, chains);
    AddPart<F, 2, M>(part, tokens, at + v * kElements, chains);
    AddPart<F, 3, M>(part, tokens, at + v * kElements, chains);
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    sum[m] = _mm512_add_ps(_mm512_add_ps(chains[0][m], chains[1][m]),
                           _mm512_add_ps(chains[2][m], chains[3][m]));
  }
}

template <class F, int M>
void Tile(const Tiles& t, int64_t groups, const Token* tokens, __mmask16 rows, float* y,
          int64_t y_stride) {
  __m512 acc[M];
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) acc[m] = _mm512_setzero_ps();
  const std::byte* codes = t.codes;
  const std::byte* scales = t.scales;
  for (int64_t g = 0; g < groups; ++g, codes += F::kCodeBytes, scales += F::kScaleBytes) {
    Prefetch<F>(codes);
    __m512 sum[M];
    SumGroup<F, M>(codes, tokens, g * kGroup, sum);
    const __m512 scale = F::Scale(scales);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      acc[m] = _mm512_fmadd_ps(sum[m], scale, acc[m]);
      if constexpr (F::kMin) {
        acc[m] = _mm512_fmadd_ps(_mm512_set1_ps(tokens[m].sums[g]), F::Min(scales), acc[m]);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) _mm512_mask_storeu_ps(y + m * y_stride, rows, acc[m]);
}

// x [groups·32] to fp32; and each group's four chains, added as the products' chains are.
template <class F>
void Widen(const uint16_t* x, int64_t groups, float* out, float* sums) {
  for (int64_t g = 0; g < groups; ++g, x += kGroup, out += kGroup) {
    _mm512_storeu_ps(out, WidenBf16(Load256(x)));
    _mm512_storeu_ps(out + kWidth, WidenBf16(Load256(x + kWidth)));
    if (!F::kMin) continue;
    float chains[kChains] = {};
    for (int64_t i = 0; i < kGroup; ++i) chains[i % kChains] += out[i];
    sums[g] = (chains[0] + chains[1]) + (chains[2] + chains[3]);
  }
}

template <class F>
void TileTimesTokens(const Tiles& t, int64_t groups, const float* wide, const float* sums,
                     int64_t m, __mmask16 rows, float* y, int64_t y_stride) {
  constexpr int kTokens = 4;
  for (int64_t i = 0, step = 0; i < m; i += step) {
    Token tokens[kTokens];
    const int64_t left = m - i;
    step = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    for (int64_t j = 0; j < step; ++j) {
      tokens[j] = {wide + (i + j) * groups * kGroup, sums + (i + j) * groups};
    }
    float* out = y + i * y_stride;
    if (step == 4) Tile<F, 4>(t, groups, tokens, rows, out, y_stride);
    if (step == 2) Tile<F, 2>(t, groups, tokens, rows, out, y_stride);
    if (step == 1) Tile<F, 1>(t, groups, tokens, rows, out, y_stride);
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
      const __mmask16 rows = LanesLeft(n_end - n);
      TileTimesTokens<F>(t, groups, wide, sums, tokens, rows, y + begin * y_stride + n, y_stride);
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

}  // namespace assay::kernels::ASSAY_AVX512
