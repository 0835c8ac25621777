// compressed-tensors int4, group 32, in layout "i4-split16", 16-bit activations.
//
// A 32-byte load holds two groups, one in each 128-bit half. Two masks give a code per byte; two
// byte look-ups give the halves of the code's value as bf16 (−8…7 fit it), an interleave joins
// them, and a shift and a mask widen to fp32. Even and odd elements of a pair of groups are summed
// apart (a chain of four instead of eight: the latency would fill the scheduler), no product is
// rounded; their sum is multiplied by each half's own scale and added to the output's long sum. The
// scalar tier sums in the same order.
//
// A single token is bound by decoding, not by memory: some 31 vector operations for 64 codes, 9
// cycles on Zen 5, which is 15 GB/s a core whatever the memory could deliver.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kPair = 2 * kGroup;
constexpr int64_t kGroupBytes = kGroup / 2;
constexpr int64_t kTokenBlock = 32;    // tokens whose x is widened at a time: stays in L2
constexpr int64_t kAheadBytes = 4096;  // linear_bf16_row.cc says why so far

struct Row {
  const std::byte* codes;
  const std::byte* scales;
  const float* x;  // widened, of the first token
  int64_t x_stride;
  float* y;
  int64_t y_stride;
};

// A byte in both halves of a register, for each of 16 codes: value − 8 as bf16, its upper and lower
// byte.
__m256i UpperBytes() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(-63, -64, -64, -64, -64, -64, -64, -65, 0, 63, 64, 64, 64, 64, 64, 64));
}
__m256i LowerBytes() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -32, -64, -96, -128, 64, 0, -128, 0, -128, 0, 64, -128, -96, -64, -32));
}

__m256 Even(__m256i w) { return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)); }
__m256 Odd(__m256i w) {
  return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// Two bf16 scales, the first in the lower half's four lanes, the second in the upper's.
__m256 WidenScales(uint32_t both) {
  const __m256i spread =
      _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1, -1, -1, 0, 1,  //
                       -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3, -1, -1, 2, 3);
  return _mm256_castsi256_ps(
      _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(both)), spread));
}

float Sum(__m256 s8) {
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

// Adds a pair of groups (x at element i) to the long sums of M tokens.
template <int M>
__attribute__((always_inline)) inline void AddPair(const Row& t, __m256i codes, uint32_t scales,
                                                   int64_t i, __m256 (&acc)[M]) {
  const __m256i nibble = _mm256_set1_epi8(0x0F);
  const __m256i halves[2] = {_mm256_and_si256(codes, nibble),
                             _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
  __m256 even[M], odd[M];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m256i upper = _mm256_shuffle_epi8(UpperBytes(), halves[half]);
    const __m256i lower = _mm256_shuffle_epi8(LowerBytes(), halves[half]);
    const __m256i words[2] = {_mm256_unpacklo_epi8(lower, upper),
                              _mm256_unpackhi_epi8(lower, upper)};
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m256 we = Even(words[v]), wo = Odd(words[v]);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const float* x = t.x + m * t.x_stride + i + 32 * half + 16 * v;
        const __m256 xe = _mm256_load_ps(x), xo = _mm256_load_ps(x + 8);
        const bool first = half + v == 0;
        even[m] = first ? _mm256_mul_ps(xe, we) : _mm256_fmadd_ps(xe, we, even[m]);
        odd[m] = first ? _mm256_mul_ps(xo, wo) : _mm256_fmadd_ps(xo, wo, odd[m]);
      }
    }
  }
  const __m256 scale = WidenScales(scales);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const __m256 group = _mm256_add_ps(even[m], odd[m]);
    acc[m] = _mm256_add_ps(acc[m], _mm256_mul_ps(group, scale));
  }
}

// One row times M tokens. (Two rows at a time gain nothing: decoding is what it costs.)
template <int M>
void RowTimes(const Row& t, int64_t groups) {
  __m256 acc[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = _mm256_setzero_ps();
  int64_t g = 0;
  for (; g + 2 <= groups; g += 2) {
    const std::byte* codes = t.codes + g * kGroupBytes;
    _mm_prefetch(reinterpret_cast<const char*>(codes) + kAheadBytes, _MM_HINT_T0);
    uint32_t scales;
    std::memcpy(&scales, t.scales + 2 * g, sizeof scales);
    AddPair<M>(t, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), scales, g * kGroup,
               acc);
  }
  if (g < groups) {  // a group without a partner: x and scale are 0 in its place
    const auto* codes = reinterpret_cast<const __m128i*>(t.codes + g * kGroupBytes);
    uint16_t scale;
    std::memcpy(&scale, t.scales + 2 * g, sizeof scale);
    AddPair<M>(t, _mm256_zextsi128_si256(_mm_loadu_si128(codes)), scale, g * kGroup, acc);
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) t.y[m * t.y_stride] = Sum(acc[m]);
}

// out: for each pair of groups 8 vectors; vector 2b + odd has elements 8b + odd, 8b + odd + 2, + 4,
// + 6 of the first group, then those of the second (zeros where there is none).
void Widen(const uint16_t* x, int64_t groups, float* out) {
  const auto* p = reinterpret_cast<const std::byte*>(x);
  for (int64_t g = 0; g < groups; g += 2, p += 2 * kPair, out += kPair) {
    const bool partner = g + 1 < groups;
    for (int b = 0; b < kPair / 16; ++b) {
      const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * b));
      const __m128i high =
          partner ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * kGroup + 16 * b))
                  : _mm_setzero_si128();
      const __m256i bits = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
      _mm256_store_ps(out + 16 * b, Even(bits));
      _mm256_store_ps(out + 16 * b + 8, Odd(bits));
    }
  }
}

template <int M>
void Rows(Row t, int64_t groups, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    RowTimes<M>(t, groups);
    t.codes += groups * kGroupBytes;
    t.scales += 2 * groups;
    ++t.y;
  }
}

// A block of rows, whose codes stay in L2, times all tokens of a block.
void RowsTimesTokens(Row t, int64_t groups, int64_t rows, int64_t tokens) {
  const auto advance = [&t](int64_t by) {
    t.x += by * t.x_stride;
    t.y += by * t.y_stride;
  };
  int64_t i = 0;
  for (; i + 4 <= tokens; i += 4, advance(4)) Rows<4>(t, groups, rows);
  for (; i + 2 <= tokens; i += 2, advance(2)) Rows<2>(t, groups, rows);
  if (i < tokens) Rows<1>(t, groups, rows);
}

}  // namespace

void LinearCtInt4Split16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                         int64_t n_end, float* y, int64_t y_stride) {
  CheckLinear(w, "i4-split16", kGroup, 1, n_begin, n_end);
  constexpr int64_t kRowBlock = 32;
  const int64_t groups = w.k / kGroup;
  const int64_t x_stride = (groups + 1) / 2 * kPair;
  for (int64_t first = 0; first < m; first += kTokenBlock) {
    const int64_t tokens = m - first < kTokenBlock ? m - first : kTokenBlock;
    float* wide = Scratch(tokens * x_stride);
    for (int64_t i = 0; i < tokens; ++i) {
      Widen(x.bf16 + (first + i) * w.k, groups, wide + i * x_stride);
    }
    for (int64_t n = n_begin; n < n_end; n += kRowBlock) {
      const int64_t rows = n_end - n < kRowBlock ? n_end - n : kRowBlock;
      const Row t{w.codes + n * groups * kGroupBytes,
                  w.scales + 2 * n * groups,
                  wide,
                  x_stride,
                  y + first * y_stride + n,
                  y_stride};
      RowsTimesTokens(t, groups, rows, tokens);
    }
  }
}

}  // namespace assay::kernels::avx2
