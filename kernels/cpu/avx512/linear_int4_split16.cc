// compressed-tensors int4, group 32, in layout "i4-split16", 16-bit activations.
//
// A 64-byte load holds four groups, one in each 128-bit quarter. Two masks give a code per byte;
// two byte look-ups give the halves of the code's value as bf16 (−8…7 fit it), an interleave joins
// them, and a shift and a mask widen to fp32. Even and odd elements are summed apart, no product is
// rounded; their sum is multiplied by each quarter's own scale. The lower two groups, then the upper
// two are added to the output's long sum of eight lanes: the order of the class, which a 256-bit
// register of two groups set.
#include <cstring>

#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kQuad = 4 * kGroup;  // groups of a step
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

// For each of 16 codes: value − 8 as bf16, its upper and lower byte.
__m512i UpperBytes() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(-63, -64, -64, -64, -64, -64, -64, -65, 0, 63, 64, 64, 64, 64, 64, 64));
}
__m512i LowerBytes() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, -32, -64, -96, -128, 64, 0, -128, 0, -128, 0, 64, -128, -96, -64, -32));
}

__m512 Even(__m512i w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }
__m512 Odd(__m512i w) {
  return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
}

// Four bf16 scales, one in each quarter's four lanes.
__m512 WidenScales(uint64_t four) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  const __m128i wide = _mm_slli_epi32(
      _mm_cvtepu16_epi32(_mm_cvtsi64_si128(static_cast<long long>(four))), 16);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi32(lanes, _mm512_zextsi128_si512(wide)));
}

// Adds four groups (x at element i) to the long sums of M tokens.
template <int M>
__attribute__((always_inline)) inline void AddQuad(const Row& t, __m512i codes, uint64_t scales,
                                                   int64_t i, __m256 (&acc)[M]) {
  const __m512i nibble = _mm512_set1_epi8(0x0F);
  const __m512i halves[2] = {_mm512_and_si512(codes, nibble),
                             _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble)};
  __m512 even[M], odd[M];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512i upper = _mm512_shuffle_epi8(UpperBytes(), halves[half]);
    const __m512i lower = _mm512_shuffle_epi8(LowerBytes(), halves[half]);
    const __m512i words[2] = {_mm512_unpacklo_epi8(lower, upper),
                              _mm512_unpackhi_epi8(lower, upper)};
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const __m512 we = Even(words[v]), wo = Odd(words[v]);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const float* x = t.x + m * t.x_stride + i + 64 * half + 32 * v;
        const __m512 xe = _mm512_load_ps(x), xo = _mm512_load_ps(x + 16);
        const bool first = half + v == 0;
        even[m] = first ? _mm512_mul_ps(xe, we) : _mm512_fmadd_ps(xe, we, even[m]);
        odd[m] = first ? _mm512_mul_ps(xo, wo) : _mm512_fmadd_ps(xo, wo, odd[m]);
      }
    }
  }
  const __m512 scale = WidenScales(scales);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const __m512 term = _mm512_mul_ps(_mm512_add_ps(even[m], odd[m]), scale);
    acc[m] = _mm256_add_ps(acc[m], _mm512_castps512_ps256(term));
    acc[m] = _mm256_add_ps(acc[m], _mm512_extractf32x8_ps(term, 1));
  }
}

// One row times M tokens.
template <int M>
void RowTimes(const Row& t, int64_t groups) {
  __m256 acc[M];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) acc[m] = _mm256_setzero_ps();
  int64_t g = 0;
  for (; g + 4 <= groups; g += 4) {
    const std::byte* codes = t.codes + g * kGroupBytes;
    _mm_prefetch(reinterpret_cast<const char*>(codes) + kAheadBytes, _MM_HINT_T0);
    uint64_t scales;
    std::memcpy(&scales, t.scales + 2 * g, sizeof scales);
    AddQuad<M>(t, _mm512_loadu_si512(codes), scales, g * kGroup, acc);
  }
  if (g < groups) {  // fewer than four: x and scales are 0 in place of the others
    const auto left = static_cast<size_t>(groups - g);
    uint64_t scales = 0;
    std::memcpy(&scales, t.scales + 2 * g, 2 * left);
    const __mmask16 words = FirstLanes(4 * static_cast<int64_t>(left));
    AddQuad<M>(t, _mm512_maskz_loadu_epi32(words, t.codes + g * kGroupBytes), scales, g * kGroup,
               acc);
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) t.y[m * t.y_stride] = Sum8(acc[m]);
}

// out: for each four groups 8 vectors; vector 2b + odd has elements 8b + odd, 8b + odd + 2, + 4, + 6
// of the first group, then those of the second, third and fourth (zeros where there is none).
void Widen(const uint16_t* x, int64_t groups, float* out) {
  const auto* p = reinterpret_cast<const std::byte*>(x);
  for (int64_t g = 0; g < groups; g += 4, p += 2 * kQuad, out += kQuad) {
    std::byte padded[2 * kQuad] = {};
    const std::byte* from = p;
    if (groups - g < 4) {
      std::memcpy(padded, p, static_cast<size_t>(2 * kGroup * (groups - g)));
      from = padded;
    }
    for (int b = 0; b < kGroup / 8; ++b) {
      const auto part = [from, b](int group) {
        return _mm_loadu_si128(
            reinterpret_cast<const __m128i*>(from + 2 * kGroup * group + 16 * b));
      };
      __m512i bits = _mm512_zextsi128_si512(part(0));
      bits = _mm512_inserti32x4(bits, part(1), 1);
      bits = _mm512_inserti32x4(bits, part(2), 2);
      bits = _mm512_inserti32x4(bits, part(3), 3);
      _mm512_store_ps(out + 32 * b, Even(bits));
      _mm512_store_ps(out + 32 * b + 16, Odd(bits));
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
  for (; i + 8 <= tokens; i += 8, advance(8)) Rows<8>(t, groups, rows);
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
  const int64_t x_stride = (groups + 3) / 4 * kQuad;
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

}  // namespace assay::kernels::ASSAY_AVX512
