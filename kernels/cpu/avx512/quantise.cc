// 8-bit activations of bf16. bf16 without its sign is ordered as an integer, so the largest
// magnitude, infinities and NaNs are found without arithmetic. Every result is exact or one
// rounding that IEEE 754 defines: all tiers give the same bits.
#include "kernels/cpu/avx512/intrinsics.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/avx512/vector.h"

namespace assay::kernels::ASSAY_AVX512 {
namespace {

constexpr int64_t kSum = 32;           // elements that share a sum
constexpr int kInfinityBits = 0x7F80;  // of a bf16; NaNs lie above

// The largest of `count` bf16 without their signs, as bits.
int LargestBits(const uint16_t* x, int64_t count) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFF);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += kWidth) {
    const __m512i bits = _mm512_cvtepu16_epi32(Load256(x + i));
    largest = _mm512_max_epi32(largest, _mm512_and_si512(bits, magnitude));
  }
  int32_t lanes[kWidth];
  _mm512_storeu_si512(lanes, largest);
  int result = 0;
  for (const int32_t lane : lanes) result = lane > result ? lane : result;
  return result;
}

// Codes of 32 elements; returns their sum.
int32_t QuantiseSum(const uint16_t* x, __m512 scale, int8_t* codes) {
  const __m512i most = _mm512_set1_epi32(127), least = _mm512_set1_epi32(-127);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < kSum; i += kWidth) {
    const __m512 quotient = _mm512_div_ps(WidenBf16(Load256(x + i)), scale);
    const __m512i nearest = _mm512_cvtps_epi32(quotient);  // to even
    const __m512i code = _mm512_max_epi32(least, _mm512_min_epi32(most, nearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(code));
    sum = _mm512_add_epi32(sum, code);
  }
  int32_t lanes[kWidth];
  _mm512_storeu_si512(lanes, sum);
  int32_t result = 0;
  for (const int32_t lane : lanes) result += lane;
  return result;
}

float FromBf16(int bits) { return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits << 16))); }

}  // namespace

void Quantise(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
              int32_t* sums) {
  for (int64_t at = 0; at < m * k; at += group) {
    const int largest = LargestBits(x + at, group);
    const bool finite = largest < kInfinityBits;
    const float scale = finite ? FromBf16(largest) / 127.0F : __builtin_nanf("");
    const __m512 divisor = _mm512_set1_ps(scale);
    for (int64_t i = at; i < at + group; i += kSum) {
      scales[i / kSum] = scale;
      if (finite && largest > 0) {
        sums[i / kSum] = QuantiseSum(x + i, divisor, codes + i);
        continue;
      }
      sums[i / kSum] = 0;
      for (int64_t j = i; j < i + kSum; ++j) codes[j] = 0;
    }
  }
}

}  // namespace assay::kernels::ASSAY_AVX512
