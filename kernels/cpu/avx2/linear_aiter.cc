// MXFP4 weights in AITER's pre-shuffles (scalar/linear_aiter.cc says where things lie), with bf16,
// FP8 and MXFP4 activations. A lane is a row: the 16 bytes of eight rows are transposed, so that a
// register holds the same four bytes of each, and nothing is ever added across lanes.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kTileRows = 16;
constexpr int64_t kHalfRows = 8;
constexpr int64_t kGroupBytes = 16;   // of a row
constexpr int64_t kScaleBytes = 256;  // 32 rows, 8 groups
constexpr int64_t kWords = 4;         // of eight codes, a group of a row
constexpr int kChains = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct KLane {
  static constexpr const char* kTag = "aiter-klane";
  static constexpr int64_t kUnits = 4;
  static constexpr bool kGateUp = false;
};
struct Separated {
  static constexpr const char* kTag = "aiter-separated";
  static constexpr int64_t kUnits = 2;
  static constexpr bool kGateUp = false;
};
struct Interleaved {
  static constexpr const char* kTag = "aiter-interleaved";
  static constexpr int64_t kUnits = 4;
  static constexpr bool kGateUp = true;
};

struct Tile {
  const std::byte* codes;   // group 0 of its first row
  const std::byte* scales;  // of this tile and its neighbour, the first group's four bytes of row 0
  int64_t odd;              // which of the two it is
};

template <class Layout>
Tile TileOf(const WeightView& w, int64_t tile) {
  const int64_t groups = w.k / kGroup;
  const int64_t held = CeilDiv(groups, Layout::kUnits) * Layout::kUnits;
  return {w.codes + tile * held * kTileRows * kGroupBytes,
          w.scales + tile / 2 * CeilDiv(groups, 8) * kScaleBytes, tile % 2};
}

// Word j of each of eight rows, which lie kGroupBytes apart.
__attribute__((always_inline)) inline void Transpose(const std::byte* p, __m256i (&word)[kWords]) {
  __m256i row[4];  // rows i and i + 4
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto* at = reinterpret_cast<const __m128i*>(p + i * kGroupBytes);
    const __m128i low = _mm_loadu_si128(at), high = _mm_loadu_si128(at + 4);
    row[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  }
  const __m256i a = _mm256_unpacklo_epi32(row[0], row[1]),
                b = _mm256_unpacklo_epi32(row[2], row[3]);
  const __m256i c = _mm256_unpackhi_epi32(row[0], row[1]),
                d = _mm256_unpackhi_epi32(row[2], row[3]);
  word[0] = _mm256_unpacklo_epi64(a, b);
  word[1] = _mm256_unpackhi_epi64(a, b);
  word[2] = _mm256_unpacklo_epi64(c, d);
  word[3] = _mm256_unpackhi_epi64(c, d);
}

// Scales of eight rows for group g: one byte of each row's four.
__m256 ScaleOf(const Tile& t, int64_t g, int64_t half) {
  const std::byte* p = t.scales + g / 8 * kScaleBytes + g % 4 * 64 + half * 4 * kHalfRows;
  const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(8 * (g % 8 / 4 * 2 + t.odd)));
  const __m256i byte = _mm256_and_si256(_mm256_srl_epi32(four, shift), _mm256_set1_epi32(0xFF));
  // 0 is 2^-127, the only one below the normal numbers.
  return _mm256_castsi256_ps(
      _mm256_max_epu32(_mm256_slli_epi32(byte, 23), _mm256_set1_epi32(0x00400000)));
}

float ScaleOf(uint8_t byte) {  // of an activation's group
  if (byte == 0xFF) return __builtin_nanf("");
  const uint32_t bits = byte == 0 ? 0x00400000 : uint32_t{byte} << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return scale;
}

// The values of code `i` of each row's word.
template <int i>
__attribute__((always_inline)) inline __m256 ValuesOf(__m256i word) {
  const __m256 sizes = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
  // The permutation looks at three bits, which are the size; the fourth is the sign.
  const __m256 size = _mm256_permutevar8x32_ps(sizes, _mm256_srli_epi32(word, 4 * i));
  const __m256i sign = _mm256_slli_epi32(word, 28 - 4 * i);
  return _mm256_xor_ps(size, _mm256_and_ps(_mm256_castsi256_ps(sign), _mm256_set1_ps(-0.0F)));
}

// Activations as fp32, with a scale of their groups or without: four chains a row.
template <bool kScaled>
struct Floats {
  static constexpr int kTokens = 2;
  const float* x;       // [m, k]
  const float* scales;  // [m, k / 32]

  template <int i, int M>
  __attribute__((always_inline)) static inline void AddCode(__m256i word,
                                                            const float* const (&x)[M],
                                                            __m256 (&chains)[kChains][M]) {
    const __m256 value = ValuesOf<i>(word);
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      chains[i % kChains][m] =
          _mm256_fmadd_ps(_mm256_broadcast_ss(x[m] + i), value, chains[i % kChains][m]);
    }
  }

  template <int M>
  __attribute__((always_inline)) inline void AddGroup(const __m256i (&word)[kWords], __m256 scale,
                                                      int64_t token, int64_t g, int64_t groups,
                                                      __m256 (&acc)[M]) const {
    __m256 chains[kChains][M];
#pragma GCC unroll 8
    for (int c = 0; c < kChains * M; ++c) chains[c / M][c % M] = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < kWords; ++j) {
      const float* at[M];
#pragma GCC unroll 2
      for (int m = 0; m < M; ++m) at[m] = x + ((token + m) * groups + g) * kGroup + 8 * j;
      AddCode<0>(word[j], at, chains);
      AddCode<1>(word[j], at, chains);
      AddCode<2>(word[j], at, chains);
      AddCode<3>(word[j], at, chains);
      AddCode<4>(word[j], at, chains);
      AddCode<5>(word[j], at, chains);
      AddCode<6>(word[j], at, chains);
      AddCode<7>(word[j], at, chains);
    }
#pragma GCC unroll 2
    for (int m = 0; m < M; ++m) {
      __m256 sum = _mm256_add_ps(_mm256_add_ps(chains[0][m], chains[1][m]),
                                 _mm256_add_ps(chains[2][m], chains[3][m]));
      if (kScaled) {
        sum = _mm256_mul_ps(sum, _mm256_set1_ps(scales[(token + m) * groups + g]));
      }
      acc[m] = _mm256_fmadd_ps(sum, scale, acc[m]);
    }
  }
};

// MXFP4 activations: sums of products of codes are whole numbers of quarters.
struct Codes {
  static constexpr int kTokens = 4;
  const int8_t* x;         // [m, k], twice the value; of eight elements the even ones, then the odd
  const int32_t* offsets;  // [m, k / 32]: what the weights' offset adds to a sum
  const float* scales;     // [m, k / 32]

  static __m256i Four(const int8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }

  template <int M>
  __attribute__((always_inline)) inline void AddGroup(const __m256i (&word)[kWords], __m256 scale,
                                                      int64_t token, int64_t g, int64_t groups,
                                                      __m256 (&acc)[M]) const {
    // Twice the value, and 12 more: an unsigned byte.
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    __m256i sum[M];
#pragma GCC unroll 4
    for (int j = 0; j < kWords; ++j) {
      const __m256i even = _mm256_shuffle_epi8(table, _mm256_and_si256(word[j], nibble));
      const __m256i odd =
          _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(word[j], 4), nibble));
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const int8_t* at = x + ((token + m) * groups + g) * kGroup + 8 * j;
        // Sixteen products of at most 24 · 12 in a 16-bit lane: below 2^13.
        const __m256i two = _mm256_add_epi16(_mm256_maddubs_epi16(even, Four(at)),
                                             _mm256_maddubs_epi16(odd, Four(at + 4)));
        sum[m] = j == 0 ? two : _mm256_add_epi16(sum[m], two);
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const int64_t at = (token + m) * groups + g;
      const __m256i wide = _mm256_madd_epi16(sum[m], _mm256_set1_epi16(1));
      const __m256i quarters = _mm256_sub_epi32(wide, _mm256_set1_epi32(offsets[at]));
      const __m256 exact = _mm256_mul_ps(_mm256_cvtepi32_ps(quarters), _mm256_set1_ps(0.25F));
      acc[m] = _mm256_fmadd_ps(_mm256_mul_ps(exact, _mm256_set1_ps(scales[at])), scale, acc[m]);
    }
  }
};

// Rows [first, last) of a tile times M tokens; y is where row `first` of the first token goes.
template <int M, class X>
__attribute__((noinline)) void TileTimesTokens(const Tile& t, int64_t groups, const X& x,
                                               int64_t token, int64_t first, int64_t last, float* y,
                                               int64_t y_stride) {
  float sums[M][kTileRows];
  for (int64_t half = first / kHalfRows; half * kHalfRows < last; ++half) {
    __m256 acc[M];
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) acc[m] = _mm256_setzero_ps();
    const std::byte* codes = t.codes + half * kHalfRows * kGroupBytes;
    for (int64_t g = 0; g < groups; ++g, codes += kTileRows * kGroupBytes) {
      __m256i word[kWords];
      Transpose(codes, word);
      x.template AddGroup<M>(word, ScaleOf(t, g, half), token, g, groups, acc);
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) _mm256_storeu_ps(sums[m] + half * kHalfRows, acc[m]);
  }
  for (int m = 0; m < M; ++m) {
    std::memcpy(y + m * y_stride, sums[m] + first,
                static_cast<size_t>(last - first) * sizeof(float));
  }
}

template <class X>
void TileTimesAll(const Tile& t, int64_t groups, const X& x, int64_t m, int64_t first, int64_t last,
                  float* y, int64_t y_stride) {
  for (int64_t token = 0; token < m; token += X::kTokens) {
    const int64_t left = m - token;
    float* out = y + token * y_stride;
    if constexpr (X::kTokens == 4) {
      if (left >= 4) {
        TileTimesTokens<4>(t, groups, x, token, first, last, out, y_stride);
        continue;
      }
      if (left == 3) {
        TileTimesTokens<3>(t, groups, x, token, first, last, out, y_stride);
        continue;
      }
    }
    if (left >= 2) {
      TileTimesTokens<2>(t, groups, x, token, first, last, out, y_stride);
    } else {
      TileTimesTokens<1>(t, groups, x, token, first, last, out, y_stride);
    }
  }
}

// Rows [begin, end) of the matrix that all are gate's, or all up's (`up`, which begins at row
// `base`), or of a matrix that has neither.
template <class Layout, class X>
void Rows(const WeightView& w, const X& x, int64_t m, int64_t base, int64_t up, int64_t begin,
          int64_t end, float* y, int64_t y_stride) {
  for (int64_t n = begin; n < end;) {
    const int64_t row = n - base, number = row / kTileRows, first = row % kTileRows;
    const int64_t left = end - n, last = first + left < kTileRows ? first + left : kTileRows;
    const int64_t tile = Layout::kGateUp ? 2 * number + up : number;
    TileTimesAll(TileOf<Layout>(w, tile), w.k / kGroup, x, m, first, last, y + n, y_stride);
    n += last - first;
  }
}

template <class Layout, class X>
void AllRows(const WeightView& w, const X& x, int64_t m, int64_t n_begin, int64_t n_end, float* y,
             int64_t y_stride) {
  if (!Layout::kGateUp) {
    Rows<Layout>(w, x, m, 0, 0, n_begin, n_end, y, y_stride);
    return;
  }
  const int64_t half = w.n / 2;
  const int64_t gate_end = n_end < half ? n_end : half, up_begin = n_begin > half ? n_begin : half;
  Rows<Layout>(w, x, m, 0, 0, n_begin, gate_end, y, y_stride);
  Rows<Layout>(w, x, m, half, 1, up_begin, n_end, y, y_stride);
}

constexpr int64_t kTokenBlock = 32;  // tokens whose x is widened at a time: stays in L2

void WidenBf16(const uint16_t* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
    _mm256_storeu_ps(out + i, _mm256_castsi256_ps(wide));
  }
}

// E4M3 as fp32, exact; 0x7F and 0xFF are NaN.
void WidenE4m3(const uint8_t* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x + i));
    const __m256i code = _mm256_cvtepu8_epi32(bytes);
    const __m256i size = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
    // Exponent and mantissa where fp32 has them, the bias 127 - 7 too small.
    const __m256 value =
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(size, 20)), _mm256_set1_ps(0x1p120F));
    const __m256i nan = _mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x7F));
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(code, 7), 31);
    const __m256 exact = _mm256_or_ps(value, _mm256_castsi256_ps(sign));
    _mm256_storeu_ps(out + i, _mm256_or_ps(exact, _mm256_castsi256_ps(nan)));
  }
}

template <class Layout>
void Check(const WeightView& w, int64_t n_begin, int64_t n_end) {
  CheckLinear(w, Layout::kTag, kGroup, 1, n_begin, n_end);
  if (Layout::kGateUp) CheckGateUp(w);
}

template <class Layout, bool kScaled>
void RunFloats(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
               float* y, int64_t y_stride) {
  Check<Layout>(w, n_begin, n_end);
  const int64_t groups = w.k / kGroup;
  for (int64_t begin = 0; begin < m; begin += kTokenBlock) {
    const int64_t tokens = m - begin < kTokenBlock ? m - begin : kTokenBlock;
    float* wide = Scratch(tokens * groups * (kGroup + 1));
    float* scales = wide + tokens * w.k;
    if (kScaled) {
      WidenE4m3(x.e4m3 + begin * w.k, tokens * w.k, wide);
      for (int64_t i = 0; i < tokens * groups; ++i) scales[i] = ScaleOf(x.e8m0[begin * groups + i]);
    } else {
      WidenBf16(x.bf16 + begin * w.k, tokens * w.k, wide);
    }
    const Floats<kScaled> values{wide, scales};
    AllRows<Layout>(w, values, tokens, n_begin, n_end, y + begin * y_stride, y_stride);
  }
}

// Codes of one group as the products take them; their sum.
int32_t Unpack(const std::byte* packed, int8_t* out) {
  static constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  int32_t sum = 0;
  for (int64_t i = 0; i < kGroupBytes; ++i) {
    const auto both = std::to_integer<unsigned>(packed[i]);
    int8_t* at = out + i / 4 * 8 + i % 4;
    at[0] = kDoubled[both & 15];
    at[4] = kDoubled[both >> 4];
    sum += at[0] + at[4];
  }
  return sum;
}

template <class Layout>
void RunCodes(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
              float* y, int64_t y_stride) {
  Check<Layout>(w, n_begin, n_end);
  const int64_t groups = m * (w.k / kGroup);
  float* scales = Scratch(groups * (2 + kGroup / 4));
  auto* offsets = reinterpret_cast<int32_t*>(scales + groups);
  auto* codes = reinterpret_cast<int8_t*>(offsets + groups);
  for (int64_t g = 0; g < groups; ++g) {
    scales[g] = ScaleOf(x.e8m0[g]);
    offsets[g] = 12 * Unpack(x.e2m1 + g * kGroupBytes, codes + g * kGroup);
  }
  AllRows<Layout>(w, Codes{codes, offsets, scales}, m, n_begin, n_end, y, y_stride);
}

}  // namespace

void LinearMxfp4KLane(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                      int64_t n_end, float* y, int64_t y_stride) {
  RunFloats<KLane, false>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4Interleaved(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                            int64_t n_end, float* y, int64_t y_stride) {
  RunFloats<Interleaved, false>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4Mxfp8KLane(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                           int64_t n_end, float* y, int64_t y_stride) {
  RunFloats<KLane, true>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4Mxfp8Interleaved(const WeightView& w, const Activations& x, int64_t m,
                                 int64_t n_begin, int64_t n_end, float* y, int64_t y_stride) {
  RunFloats<Interleaved, true>(w, x, m, n_begin, n_end, y, y_stride);
}
void LinearMxfp4Mxfp4Separated(const WeightView& w, const Activations& x, int64_t m,
                               int64_t n_begin, int64_t n_end, float* y, int64_t y_stride) {
  RunCodes<Separated>(w, x, m, n_begin, n_end, y, y_stride);
}

}  // namespace assay::kernels::avx2
