// Integers. Sums and products wrap as the instructions' do: lanes are unsigned where C++ would not
// let them.
#pragma once

#include "kernels/cpu/portable/types.h"

namespace assay::kernels::avx512_portable {
namespace {

ASSAY_INTRINSIC __m512i _mm512_and_si512(__m512i a, __m512i b) {
  return Map<I64>(a, b, [](I64 x, I64 y) ASSAY_INLINE { return x & y; });
}
ASSAY_INTRINSIC __m512i _mm512_add_epi32(__m512i a, __m512i b) {
  return Map<U32>(a, b, [](U32 x, U32 y) ASSAY_INLINE { return x + y; });
}
ASSAY_INTRINSIC __m512i _mm512_sub_epi32(__m512i a, __m512i b) {
  return Map<U32>(a, b, [](U32 x, U32 y) ASSAY_INLINE { return x - y; });
}
ASSAY_INTRINSIC __m512i _mm512_min_epi32(__m512i a, __m512i b) {
  return Map<I32>(a, b, [](I32 x, I32 y) ASSAY_INLINE { return x < y ? x : y; });
}
ASSAY_INTRINSIC __m512i _mm512_max_epi32(__m512i a, __m512i b) {
  return Map<I32>(a, b, [](I32 x, I32 y) ASSAY_INLINE { return x > y ? x : y; });
}

// Shifts. Left and logical ones past the lane's width give 0, arithmetic ones the sign.
ASSAY_INTRINSIC __m128i _mm_slli_epi32(__m128i a, int count) {
  return Map<U32>(a, [count](U32 x) ASSAY_INLINE { return count > 31 ? U32{} : x << count; });
}
ASSAY_INTRINSIC __m512i _mm512_slli_epi32(__m512i a, unsigned count) {
  return Map<U32>(a, [count](U32 x) ASSAY_INLINE { return count > 31 ? U32{} : x << count; });
}
ASSAY_INTRINSIC __m512i _mm512_srai_epi32(__m512i a, unsigned count) {
  return Map<I32>(a, [count](I32 x) ASSAY_INLINE { return x >> (count > 31 ? 31 : count); });
}
ASSAY_INTRINSIC __m512i _mm512_srli_epi16(__m512i a, unsigned count) {
  return Map<U16>(a, [count](U16 x) ASSAY_INLINE { return count > 15 ? U16{} : x >> count; });
}

// Four or eight lanes of a part widened with zeros.
ASSAY_INTRINSIC U32 WidenU16(I64 part, int half) {
  const U16 x = As<U16>(part), zero = {};
  const U16 low = {0, 8, 1, 8, 2, 8, 3, 8}, high = {4, 8, 5, 8, 6, 8, 7, 8};
  return As<U32>(half == 0 ? __builtin_shuffle(x, zero, low) : __builtin_shuffle(x, zero, high));
}
ASSAY_INTRINSIC __m128i _mm_cvtepu16_epi32(__m128i a) { return {{As<I64>(WidenU16(a.p[0], 0))}}; }
ASSAY_INTRINSIC __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return Parts<__m512i>([&](int i) ASSAY_INLINE { return WidenU16(a.p[i / 2], i % 2); });
}
// The low byte of each lane.
ASSAY_INTRINSIC __m128i _mm512_cvtepi32_epi8(__m512i a) {
  const auto in = LanesOf<uint32_t>(a);
  Lanes<uint8_t, __m128i> out;
  for (int i = 0; i < out.kCount; ++i) out.lane[i] = static_cast<uint8_t>(in.lane[i]);
  return FromLanes<__m128i>(out);
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
