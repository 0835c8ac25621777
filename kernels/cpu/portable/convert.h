// From one kind of lane to another.
#pragma once

#include "kernels/cpu/portable/types.h"

namespace assay::kernels::avx512_portable {
namespace {

// Half of a part, 16-bit lanes widened with zeros.
ASSAY_INTRINSIC U32 WidenU16(I64 part, int half) {
  const U16 x = As<U16>(part), zero = {};
  const U16 low = {0, 8, 1, 8, 2, 8, 3, 8}, high = {4, 8, 5, 8, 6, 8, 7, 8};
  return As<U32>(half == 0 ? __builtin_shuffle(x, zero, low) : __builtin_shuffle(x, zero, high));
}
ASSAY_INTRINSIC __m128i _mm_cvtepu16_epi32(__m128i a) { return {{As<I64>(WidenU16(a.p[0], 0))}}; }
ASSAY_INTRINSIC __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return Parts<__m512i>([&](int i) { return WidenU16(a.p[i / 2], i % 2); });
}
ASSAY_INTRINSIC __m512i _mm512_cvtepu8_epi32(__m128i a) {
  const auto in = LanesOf<uint8_t>(a);
  Lanes<uint32_t, __m512i> out;
  for (int i = 0; i < out.kCount; ++i) out.lane[i] = in.lane[i];
  return FromLanes<__m512i>(out);
}
// The low byte of each lane.
ASSAY_INTRINSIC __m128i _mm512_cvtepi32_epi8(__m512i a) {
  const auto in = LanesOf<uint32_t>(a);
  Lanes<uint8_t, __m128i> out;
  for (int i = 0; i < out.kCount; ++i) out.lane[i] = static_cast<uint8_t>(in.lane[i]);
  return FromLanes<__m128i>(out);
}

// Nearest integer, ties to even; INT_MIN for NaN and for what no int holds.
ASSAY_INTRINSIC __m512i _mm512_cvtps_epi32(__m512 a) {
  return Parts<__m512i>([&](int i) {
    const F32 x = a.p[i];
    const I32 sign = As<I32>(x) & INT32_MIN;
    const F32 magnitude = As<F32>(As<I32>(x) ^ sign);
    // From 2^23 on floats are integers; below, adding 2^23 rounds at the units.
    const F32 units = (magnitude + 0x1p23F) - 0x1p23F;
    const F32 rounded = magnitude < 0x1p23F ? units : magnitude;
    const F32 nearest = As<F32>(As<I32>(rounded) | sign);
    const I32 fits = (nearest >= -0x1p31F) & (nearest < 0x1p31F);
    const F32 safe = As<F32>(As<I32>(nearest) & fits);
    return fits ? __builtin_convertvector(safe, I32) : I32{} + INT32_MIN;
  });
}
ASSAY_INTRINSIC __m512 _mm512_cvtepi32_ps(__m512i a) {
  return Parts<__m512>([&](int i) { return __builtin_convertvector(As<I32>(a.p[i]), F32); });
}
// fp16 to fp32: exact; a NaN keeps its bits and becomes quiet.
ASSAY_INTRINSIC F32 FromHalf(U32 half) {
  constexpr uint32_t kExponent = 0x7C00 << 13, kRebias = uint32_t{127 - 15} << 23;
  const U32 sign = (half & 0x8000) << 16, magnitude = (half & 0x7FFF) << 13;
  const U32 exponent = magnitude & kExponent;
  // A subnormal, read as a normal of the least exponent, is too large by that exponent's power.
  const F32 small = As<F32>(magnitude + (kRebias + (1u << 23))) - 0x1p-14F;
  const U32 large = magnitude + 2 * kRebias;  // infinities and NaNs
  const U32 quiet = large | (magnitude > kExponent ? U32{} + 0x00400000u : U32{});
  const U32 normal = magnitude + kRebias;
  const U32 finite = exponent == 0 ? As<U32>(small) : normal;
  return As<F32>((exponent == kExponent ? quiet : finite) | sign);
}
ASSAY_INTRINSIC __m512 _mm512_cvtph_ps(__m256i a) {
  return Parts<__m512>([&](int i) { return FromHalf(WidenU16(a.p[i / 2], i % 2)); });
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
