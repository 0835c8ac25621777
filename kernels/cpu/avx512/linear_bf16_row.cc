// bf16 weights in layout "row". A 32-byte load holds 16 weights, widened in order: element k goes
// to accumulator k mod 16.
//
// Several tokens share the weights' widening, and x is widened once for all rows. A single token is
// bound by memory: its rows are one stream read far ahead, and x stays bf16 so that it does not
// push that stream out of L1. Both add in the same order.
#include <cstring>

#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kStep = 16;          // elements a load
constexpr int64_t kTokenBlock = 48;    // tokens whose x is widened at a time: stays in L2
constexpr int64_t kAheadBytes = 4096;  // measured for the avx2 kernel, where the figures stand

struct Task {
  const std::byte* w;  // first row of the tile
  int64_t row_bytes;
  int64_t k;
  const float* x;           // widened, of the tile's first token; nullptr: one token, in x_bf16
  const std::byte* x_bf16;  // filled up with zeros to a whole step
  int64_t x_stride;
  float* y;
  int64_t y_stride;
};

// The last k mod 16 weights of a row, the rest zero: never reads behind the row.
__m256i LoadTail(const std::byte* p, int64_t count) {
  uint16_t tail[kStep] = {};
  std::memcpy(tail, p, static_cast<size_t>(2 * count));
  return Load256(tail);
}

// Neighbours first, then halves: the order of the class.
float SumPairs(__m512 v) {
  const __m512 s = _mm512_add_ps(v, _mm512_permute_ps(v, 0xB1));  // in lanes 2i: of 2i and 2i + 1
  const __m256 s4 = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  const __m128 s2 = _mm_add_ps(_mm256_castps256_ps128(s4), _mm256_extractf128_ps(s4, 1));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehl_ps(s2, s2)));
}

// R rows times M tokens. kWide: x is widened already.
template <int R, int M, bool kWide>
void Tile(const Task& t) {
  __m512 acc[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[r][m] = _mm512_setzero_ps();
  }
  const auto step = [&](int r, __m256i bits, int64_t i) __attribute__((always_inline)) {
    const __m512 w = WidenBf16(bits);
    if constexpr (!kWide) {
      acc[r][0] = _mm512_fmadd_ps(WidenBf16(Load256(t.x_bf16 + 2 * i)), w, acc[r][0]);
      return;
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      acc[r][m] = _mm512_fmadd_ps(_mm512_load_ps(t.x + m * t.x_stride + i), w, acc[r][m]);
    }
  };
  int64_t i = 0;
  for (; i + 2 * kStep <= t.k; i += 2 * kStep) {  // a cache line of each row
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::byte* w = t.w + r * t.row_bytes + 2 * i;
      _mm_prefetch(reinterpret_cast<const char*>(w) + kAheadBytes, _MM_HINT_T0);
      step(r, Load256(w), i);
      step(r, Load256(w + 2 * kStep), i + kStep);
    }
  }
  for (; i < t.k; i += kStep) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::byte* w = t.w + r * t.row_bytes + 2 * i;
      step(r, i + kStep <= t.k ? Load256(w) : LoadTail(w, t.k - i), i);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) t.y[m * t.y_stride + r] = SumPairs(acc[r][m]);
  }
}

// out: x as fp32, the last 16 filled up with zeros.
void Widen(const uint16_t* x, int64_t k, float* out) {
  const auto* p = reinterpret_cast<const std::byte*>(x);
  for (int64_t i = 0; i < k; i += kStep) {
    const __m256i bits = i + kStep <= k ? Load256(p + 2 * i) : LoadTail(p + 2 * i, k - i);
    _mm512_store_ps(out + i, WidenBf16(bits));
  }
}

template <int M>
void WideRows(Task t, int64_t rows) {
  constexpr int kRows = 4;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows, t.w += kRows * t.row_bytes, t.y += kRows) {
    Tile<kRows, M, true>(t);
  }
  for (; r < rows; ++r, t.w += t.row_bytes, ++t.y) Tile<1, M, true>(t);
}

void OneToken(Task t, const uint16_t* x, int64_t rows) {
  const int64_t steps = (t.k + kStep - 1) / kStep;
  auto* padded = reinterpret_cast<std::byte*>(Scratch(steps * kStep / 2));
  std::memset(padded, 0, static_cast<size_t>(steps * kStep * 2));
  if (t.k > 0) std::memcpy(padded, x, static_cast<size_t>(2 * t.k));
  t.x_bf16 = padded;
  for (int64_t r = 0; r < rows; ++r, t.w += t.row_bytes, ++t.y) Tile<1, 1, false>(t);
}

void ManyTokens(Task t, const uint16_t* x, int64_t tokens, int64_t rows) {
  float* wide = Scratch(tokens * t.x_stride);
  for (int64_t i = 0; i < tokens; ++i) Widen(x + i * t.k, t.k, wide + i * t.x_stride);
  constexpr int64_t kRowBlock = 32;  // rows whose weights stay in L2 while the tokens go by
  constexpr int kTokens = 6;         // 24 accumulators with four rows: what 32 registers hold
  for (int64_t n = 0; n < rows; n += kRowBlock) {
    const int64_t block = rows - n < kRowBlock ? rows - n : kRowBlock;
    Task tile = t;
    tile.w += n * t.row_bytes;
    tile.y += n;
    tile.x = wide;
    const auto advance = [&tile](int by) {
      tile.x += by * tile.x_stride;
      tile.y += by * tile.y_stride;
    };
    int64_t i = 0;
    for (; i + kTokens <= tokens; i += kTokens, advance(kTokens)) WideRows<kTokens>(tile, block);
    for (; i + 2 <= tokens; i += 2, advance(2)) WideRows<2>(tile, block);
    if (i < tokens) WideRows<1>(tile, block);
  }
}

}  // namespace

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride) {
  CheckLinear(w, "row", 0, 1, n_begin, n_end);
  const std::byte* rows = w.codes + 2 * n_begin * w.k;
  const int64_t x_stride = (w.k + kStep - 1) / kStep * kStep;
  for (int64_t first = 0; first < m; first += kTokenBlock) {
    const int64_t tokens = m - first < kTokenBlock ? m - first : kTokenBlock;
    const Task t{rows,    2 * w.k, w.k, nullptr, nullptr, x_stride, y + first * y_stride + n_begin,
                 y_stride};
    if (m == 1) {
      OneToken(t, x.bf16, n_end - n_begin);
    } else {
      ManyTokens(t, x.bf16 + first * w.k, tokens, n_end - n_begin);
    }
  }
}

}  // namespace assay::kernels::ASSAY_AVX512
