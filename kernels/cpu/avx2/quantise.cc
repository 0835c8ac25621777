// 8-bit activations.
#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/avx2/rows.h"

namespace assay::kernels::avx2 {
namespace {

constexpr int64_t kSum = 32;

// The largest |x| of a group as bits of bf16, which sort as the values do; of a NaN or an infinity
// 0x7F80 or more.
int LargestBits(const uint16_t* x, int64_t group) {
  const __m256i size = _mm256_set1_epi16(0x7FFF);
  __m256i most = _mm256_setzero_si256();
  for (int64_t i = 0; i < group; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    most = _mm256_max_epu16(most, _mm256_and_si256(bits, size));
  }
  // The least of the complements is one instruction.
  const __m128i half =
      _mm_max_epu16(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
  return 0xFFFF ^ (_mm_cvtsi128_si32(least) & 0xFFFF);
}

__m256i CodesOf8(const uint16_t* x, __m256 scale) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  const __m256 value = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  const __m256 most = _mm256_set1_ps(127.0F), least = _mm256_set1_ps(-127.0F);
  const __m256 code = _mm256_max_ps(least, _mm256_min_ps(most, _mm256_div_ps(value, scale)));
  return _mm256_cvtps_epi32(code);  // to nearest, ties to even; after the clamp, which is whole
}

// 32 codes; their sum.
int32_t Quantise32(const uint16_t* x, __m256 scale, int8_t* codes) {
  const __m256i a = _mm256_packs_epi32(CodesOf8(x, scale), CodesOf8(x + 8, scale));
  const __m256i b = _mm256_packs_epi32(CodesOf8(x + 16, scale), CodesOf8(x + 24, scale));
  const __m256i mixed = _mm256_packs_epi16(a, b);  // in fours: 0, 2, 4, 6 in one half, 1, 3, 5, 7
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_permutevar8x32_epi32(mixed, order));
  const __m256i pairs = _mm256_add_epi16(a, b);
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const __m128i s4 = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  const __m128i s2 = _mm_add_epi32(s4, _mm_shuffle_epi32(s4, 0b01001110));
  return _mm_cvtsi128_si32(_mm_add_epi32(s2, _mm_shuffle_epi32(s2, 0b10110001)));
}

}  // namespace

void Quantise(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
              int32_t* sums) {
  for (int64_t at = 0; at < m * k; at += group) {
    const int bits = LargestBits(x + at, group);
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float amax;
    std::memcpy(&amax, &wide, sizeof amax);
    const bool finite = bits < 0x7F80;
    const float scale = finite ? amax / 127.0F : __builtin_nanf("");
    for (int64_t i = at; i < at + group; i += kSum) {
      scales[i / kSum] = scale;
      sums[i / kSum] = 0;
      if (scale > 0) {
        sums[i / kSum] = Quantise32(x + i, _mm256_set1_ps(scale), codes + i);
      } else {
        std::memset(codes + i, 0, kSum);
      }
    }
  }
}

}  // namespace assay::kernels::avx2
