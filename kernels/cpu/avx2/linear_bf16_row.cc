// bf16 weights in layout "row". A 32-byte load holds 16 weights; a shift gives the even ones as
// fp32 and a mask the odd ones, and nothing is shuffled. Even and odd have an accumulator each:
// element k goes to accumulator k mod 16.
//
// Several tokens share the weights' widening, and x is widened once for all rows. A single token is
// bound by memory: its rows are one stream read far ahead, and x stays bf16 so that it does not
// push that stream out of L1. Both add in the same order.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kStep = 16;        // elements a load
constexpr int64_t kTokenBlock = 48;  // tokens whose x is widened at a time: stays in L2
// Measured on Zen 5: one stream with 4 KiB ahead reads at 0.8 to 1.0 of a plain read loop; 2 KiB
// ahead, or several rows at a time, lose up to a third of that.
constexpr int64_t kAheadBytes = 4096;

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

__m256i LoadWeights(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
__m256 Even(__m256i w) { return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)); }
__m256 Odd(__m256i w) {
  return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// The last k mod 16 weights of a row, the rest zero: never reads behind the row.
__m256i LoadTail(const std::byte* p, int64_t count) {
  alignas(32) uint16_t tail[kStep] = {};
  std::memcpy(tail, p, static_cast<size_t>(2 * count));
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(tail));
}

float Sum(__m256 even, __m256 odd) {
  const __m256 s8 = _mm256_add_ps(even, odd);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

// R rows times M tokens. kWide: x is widened already.
template <int R, int M, bool kWide>
void Tile(const Task& t) {
  __m256 even[R][M], odd[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) even[r][m] = odd[r][m] = _mm256_setzero_ps();
  }
  const auto step = [&](int r, __m256i w, int64_t i) __attribute__((always_inline)) {
    const __m256 we = Even(w), wo = Odd(w);
    if constexpr (!kWide) {
      const __m256i x = LoadWeights(t.x_bf16 + 2 * i);
      even[r][0] = _mm256_fmadd_ps(Even(x), we, even[r][0]);
      odd[r][0] = _mm256_fmadd_ps(Odd(x), wo, odd[r][0]);
      return;
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const float* x = t.x + m * t.x_stride + i;
      even[r][m] = _mm256_fmadd_ps(_mm256_load_ps(x), we, even[r][m]);
      odd[r][m] = _mm256_fmadd_ps(_mm256_load_ps(x + 8), wo, odd[r][m]);
    }
  };
  int64_t i = 0;
  for (; i + 2 * kStep <= t.k; i += 2 * kStep) {  // a cache line of each row
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::byte* w = t.w + r * t.row_bytes + 2 * i;
      _mm_prefetch(reinterpret_cast<const char*>(w) + kAheadBytes, _MM_HINT_T0);
      step(r, LoadWeights(w), i);
      step(r, LoadWeights(w + 2 * kStep), i + kStep);
    }
  }
  for (; i < t.k; i += kStep) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::byte* w = t.w + r * t.row_bytes + 2 * i;
      step(r, i + kStep <= t.k ? LoadWeights(w) : LoadTail(w, t.k - i), i);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) t.y[m * t.y_stride + r] = Sum(even[r][m], odd[r][m]);
  }
}

// out: 8 even, 8 odd fp32 values for each 16 of x, the last 16 filled up with zeros.
void Widen(const uint16_t* x, int64_t k, float* out) {
  const auto* p = reinterpret_cast<const std::byte*>(x);
  for (int64_t i = 0; i < k; i += kStep) {
    const __m256i bits = i + kStep <= k ? LoadWeights(p + 2 * i) : LoadTail(p + 2 * i, k - i);
    _mm256_store_ps(out + i, Even(bits));
    _mm256_store_ps(out + i + 8, Odd(bits));
  }
}

template <int M>
void WideRows(Task t, int64_t rows) {
  constexpr int kRows = 2;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows, t.w += kRows * t.row_bytes, t.y += kRows) {
    Tile<kRows, M, true>(t);
  }
  if (r < rows) Tile<1, M, true>(t);
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
  constexpr int kTokens = 3;         // twelve accumulators with two rows: what 16 registers hold
  for (int64_t n = 0; n < rows; n += kRowBlock) {
    const int64_t block = rows - n < kRowBlock ? rows - n : kRowBlock;
    Task tile = t;
    tile.w += n * t.row_bytes;
    tile.y += n;
    tile.x = wide;
    int64_t i = 0;
    for (; i + kTokens <= tokens; i += kTokens) {
      WideRows<kTokens>(tile, block);
      tile.x += kTokens * t.x_stride;
      tile.y += kTokens * t.y_stride;
    }
    if (tokens - i == 2) WideRows<2>(tile, block);
    if (tokens - i == 1) WideRows<1>(tile, block);
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

}  // namespace assay::kernels::avx2
