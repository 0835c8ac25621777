// Integers. Sums and products wrap as the instructions' do: lanes are unsigned where C++ would not
// let them.
#pragma once

#include "kernels/cpu/portable/types.h"

namespace assay::kernels::avx512_portable {
namespace {

ASSAY_INTRINSIC __m512i _mm512_and_si512(__m512i a, __m512i b) {
  return Map<I64>(a, b, [](I64 x, I64 y) { return x & y; });
}
ASSAY_INTRINSIC __m512i _mm512_add_epi32(__m512i a, __m512i b) {
  return Map<U32>(a, b, [](U32 x, U32 y) { return x + y; });
}
ASSAY_INTRINSIC __m512i _mm512_add_epi16(__m512i a, __m512i b) {
  return Map<U16>(a, b, [](U16 x, U16 y) { return x + y; });
}
ASSAY_INTRINSIC __m512i _mm512_sub_epi32(__m512i a, __m512i b) {
  return Map<U32>(a, b, [](U32 x, U32 y) { return x - y; });
}
ASSAY_INTRINSIC __m512i _mm512_min_epi32(__m512i a, __m512i b) {
  return Map<I32>(a, b, [](I32 x, I32 y) { return x < y ? x : y; });
}
ASSAY_INTRINSIC __m512i _mm512_max_epi32(__m512i a, __m512i b) {
  return Map<I32>(a, b, [](I32 x, I32 y) { return x > y ? x : y; });
}

// Shifts. Left and logical ones past the lane's width give 0, arithmetic ones the sign.
ASSAY_INTRINSIC __m128i _mm_slli_epi32(__m128i a, int count) {
  return Map<U32>(a, [count](U32 x) { return count > 31 ? U32{} : x << count; });
}
ASSAY_INTRINSIC __m512i _mm512_slli_epi32(__m512i a, unsigned count) {
  return Map<U32>(a, [count](U32 x) { return count > 31 ? U32{} : x << count; });
}
ASSAY_INTRINSIC __m512i _mm512_srai_epi32(__m512i a, unsigned count) {
  return Map<I32>(a, [count](I32 x) { return x >> (count > 31 ? 31 : count); });
}
ASSAY_INTRINSIC __m512i _mm512_srli_epi16(__m512i a, unsigned count) {
  return Map<U16>(a, [count](U16 x) { return count > 15 ? U16{} : x >> count; });
}
ASSAY_INTRINSIC __m512i _mm512_slli_epi16(__m512i a, unsigned count) {
  return Map<U16>(a, [count](U16 x) { return count > 15 ? U16{} : x << count; });
}
ASSAY_INTRINSIC __m512i _mm512_srai_epi16(__m512i a, unsigned count) {
  return Map<I16>(a, [count](I16 x) { return x >> (count > 15 ? 15 : count); });
}
ASSAY_INTRINSIC __m512i _mm512_srli_epi32(__m512i a, unsigned count) {
  return Map<U32>(a, [count](U32 x) { return count > 31 ? U32{} : x >> count; });
}

// x + y, kept within 16 bits.
ASSAY_INTRINSIC I16 AddSaturated(I16 x, I16 y) {
  const I16 sum = As<I16>(As<U16>(x) + As<U16>(y));
  const I16 overflow = ((x ^ sum) & (y ^ sum)) < 0;
  const I16 limit = (x >> 15) ^ INT16_MAX;
  return overflow ? limit : sum;
}
// a's unsigned bytes times b's signed ones; neighbouring products are added, with saturation.
ASSAY_INTRINSIC __m512i _mm512_maddubs_epi16(__m512i a, __m512i b) {
  return Map<I16>(a, b, [](I16 x, I16 y) {
    const I16 even = (x & 0xFF) * (As<I16>(As<U16>(y) << 8) >> 8);
    const I16 odd = As<I16>(As<U16>(x) >> 8) * (y >> 8);
    return AddSaturated(even, odd);
  });
}
// Products of signed 16-bit lanes; neighbouring ones are added.
ASSAY_INTRINSIC __m512i _mm512_madd_epi16(__m512i a, __m512i b) {
  return Map<U32>(a, b, [](U32 x, U32 y) {
    const auto low = [](U32 v) { return As<U32>(As<I32>(v << 16) >> 16); };
    const auto high = [](U32 v) { return As<U32>(As<I32>(v) >> 16); };
    return low(x) * low(y) + high(x) * high(y);
  });
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
