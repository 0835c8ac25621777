// Loads, stores, constants and what only moves or reinterprets lanes.
#pragma once

#include "kernels/cpu/portable/types.h"

namespace assay::kernels::avx512_portable {
namespace {

enum { _MM_HINT_T0 = 3 };
// A hint that moves no data.
ASSAY_INTRINSIC void _mm_prefetch(const void*, int) {}

template <class V>
ASSAY_INTRINSIC V Load(const void* p) {
  V v;
  std::memcpy(v.p, p, sizeof v.p);
  return v;
}
template <class V>
ASSAY_INTRINSIC void Store(void* p, const V& v) {
  std::memcpy(p, v.p, sizeof v.p);
}
// The instruction faults where the address is not a multiple of the vector's size; so does this.
template <class V>
ASSAY_INTRINSIC void CheckAligned(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(V) != 0) __builtin_trap();
}

// Lanes whose bit is clear are not touched, and keep `other`'s value.
template <class T, class V>
ASSAY_INTRINSIC V LoadLanes(uint64_t mask, const void* p, const V& other) {
  Lanes<T, V> lanes = LanesOf<T>(other);
  for (int i = 0; i < lanes.kCount; ++i) {
    if ((mask >> i & 1) == 0) continue;
    std::memcpy(&lanes.lane[i], static_cast<const char*>(p) + i * sizeof(T), sizeof(T));
  }
  return FromLanes<V>(lanes);
}
template <class T, class V>
ASSAY_INTRINSIC void StoreLanes(uint64_t mask, void* p, const V& v) {
  const Lanes<T, V> lanes = LanesOf<T>(v);
  for (int i = 0; i < lanes.kCount; ++i) {
    if ((mask >> i & 1) == 0) continue;
    std::memcpy(static_cast<char*>(p) + i * sizeof(T), &lanes.lane[i], sizeof(T));
  }
}

ASSAY_INTRINSIC __m256 _mm256_setzero_ps() { return {}; }
ASSAY_INTRINSIC __m512 _mm512_setzero_ps() { return {}; }
ASSAY_INTRINSIC __m512i _mm512_setzero_si512() { return {}; }
ASSAY_INTRINSIC __m512 _mm512_set1_ps(float x) {
  return Parts<__m512>([x](int) { return F32{x, x, x, x}; });
}
ASSAY_INTRINSIC __m512i _mm512_set1_epi32(int x) {
  return Parts<__m512i>([x](int) { return I32{x, x, x, x}; });
}
ASSAY_INTRINSIC __m512i _mm512_set1_epi16(short x) {
  return Parts<__m512i>([x](int) { return I16{} + x; });
}
ASSAY_INTRINSIC __m512i _mm512_set1_epi8(char x) {
  return Parts<__m512i>([x](int) { return U8{} + static_cast<uint8_t>(x); });
}
ASSAY_INTRINSIC __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h,
                                          int i, int j, int k, int l, int m, int n, int o, int p) {
  return {{As<I64>(I32{a, b, c, d}), As<I64>(I32{e, f, g, h}), As<I64>(I32{i, j, k, l}),
           As<I64>(I32{m, n, o, p})}};
}
ASSAY_INTRINSIC __m128i _mm_setr_epi8(char a, char b, char c, char d, char e, char f, char g,
                                      char h, char i, char j, char k, char l, char m, char n,
                                      char o, char p) {
  const char lanes[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};
  return Load<__m128i>(lanes);
}

ASSAY_INTRINSIC __m128i _mm_loadu_si128(const __m128i* p) { return Load<__m128i>(p); }
ASSAY_INTRINSIC __m256i _mm256_loadu_si256(const __m256i* p) { return Load<__m256i>(p); }
ASSAY_INTRINSIC __m512i _mm512_loadu_si512(const void* p) { return Load<__m512i>(p); }
ASSAY_INTRINSIC __m512 _mm512_loadu_ps(const void* p) { return Load<__m512>(p); }
ASSAY_INTRINSIC __m512 _mm512_load_ps(const void* p) {
  CheckAligned<__m512>(p);
  return Load<__m512>(p);
}
ASSAY_INTRINSIC __m512 _mm512_mask_loadu_ps(__m512 other, __mmask16 mask, const void* p) {
  return mask == 0xFFFF ? Load<__m512>(p) : LoadLanes<float>(mask, p, other);
}
ASSAY_INTRINSIC __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* p) {
  return _mm512_mask_loadu_ps(__m512{}, mask, p);
}
ASSAY_INTRINSIC __m512i _mm512_maskz_loadu_epi32(__mmask16 mask, const void* p) {
  return LoadLanes<int32_t>(mask, p, __m512i{});
}
ASSAY_INTRINSIC void _mm_storeu_si128(__m128i* p, __m128i v) { Store(p, v); }
ASSAY_INTRINSIC void _mm512_storeu_si512(void* p, __m512i v) { Store(p, v); }
ASSAY_INTRINSIC void _mm512_storeu_ps(void* p, __m512 v) { Store(p, v); }
ASSAY_INTRINSIC void _mm512_store_ps(void* p, __m512 v) {
  CheckAligned<__m512>(p);
  Store(p, v);
}
ASSAY_INTRINSIC void _mm512_mask_storeu_ps(void* p, __mmask16 mask, __m512 v) {
  if (mask == 0xFFFF) {
    Store(p, v);
  } else {
    StoreLanes<float>(mask, p, v);
  }
}

ASSAY_INTRINSIC __m128 _mm_castsi128_ps(__m128i a) { return {{As<F32>(a.p[0])}}; }
ASSAY_INTRINSIC __m512 _mm512_castsi512_ps(__m512i a) {
  return Parts<__m512>([&](int i) { return a.p[i]; });
}
ASSAY_INTRINSIC __m512i _mm512_castps_si512(__m512 a) {
  return Parts<__m512i>([&](int i) { return a.p[i]; });
}
ASSAY_INTRINSIC __m128 _mm256_castps256_ps128(__m256 a) { return {{a.p[0]}}; }
ASSAY_INTRINSIC __m256 _mm512_castps512_ps256(__m512 a) { return {{a.p[0], a.p[1]}}; }
ASSAY_INTRINSIC __m512i _mm512_zextsi128_si512(__m128i a) {
  return {{a.p[0], I64{}, I64{}, I64{}}};
}
ASSAY_INTRINSIC float _mm_cvtss_f32(__m128 a) { return a.p[0][0]; }
ASSAY_INTRINSIC __m128i _mm_cvtsi32_si128(int a) { return {{As<I64>(I32{a, 0, 0, 0})}}; }
ASSAY_INTRINSIC __m128i _mm_cvtsi64_si128(long long a) { return {{I64{a, 0}}}; }

ASSAY_INTRINSIC __m128 _mm256_extractf128_ps(__m256 a, int i) { return {{a.p[i & 1]}}; }
ASSAY_INTRINSIC __m256 _mm512_extractf32x8_ps(__m512 a, int i) {
  return (i & 1) == 0 ? __m256{{a.p[0], a.p[1]}} : __m256{{a.p[2], a.p[3]}};
}
ASSAY_INTRINSIC __m512i _mm512_inserti32x4(__m512i a, __m128i b, int i) {
  a.p[i & 3] = b.p[0];
  return a;
}
ASSAY_INTRINSIC __m512i _mm512_broadcast_i32x4(__m128i a) {
  return {{a.p[0], a.p[0], a.p[0], a.p[0]}};
}

ASSAY_INTRINSIC __m128 _mm_movehl_ps(__m128 a, __m128 b) {
  return {{__builtin_shuffle(a.p[0], b.p[0], I32{6, 7, 2, 3})}};
}
ASSAY_INTRINSIC __m128 _mm_shuffle_ps(__m128 a, __m128 b, int imm) {
  const I32 from = {imm & 3, imm >> 2 & 3, 4 + (imm >> 4 & 3), 4 + (imm >> 6 & 3)};
  return {{__builtin_shuffle(a.p[0], b.p[0], from)}};
}
ASSAY_INTRINSIC __m512 _mm512_permute_ps(__m512 a, int imm) {
  const I32 from = {imm & 3, imm >> 2 & 3, imm >> 4 & 3, imm >> 6 & 3};
  return Map<F32>(a, [&](F32 x) { return __builtin_shuffle(x, from); });
}
// Lane i is a's lane index[i] mod 16.
template <class T, class V>
ASSAY_INTRINSIC V Permute(__m512i index, const V& a) {
  const auto at = LanesOf<int32_t>(index);
  const Lanes<T, V> in = LanesOf<T>(a);
  Lanes<T, V> out;
  for (int i = 0; i < out.kCount; ++i) out.lane[i] = in.lane[at.lane[i] & (out.kCount - 1)];
  return FromLanes<V>(out);
}
ASSAY_INTRINSIC __m512 _mm512_permutexvar_ps(__m512i index, __m512 a) {
  return Permute<float>(index, a);
}
ASSAY_INTRINSIC __m512i _mm512_permutexvar_epi32(__m512i index, __m512i a) {
  return Permute<int32_t>(index, a);
}
// In each part: byte i is a's byte index[i] mod 16, or 0 where the index is negative.
ASSAY_INTRINSIC __m512i _mm512_shuffle_epi8(__m512i a, __m512i index) {
  return Map<I8>(a, index, [](I8 x, I8 at) { return __builtin_shuffle(x, at & 15) & (at >= 0); });
}
ASSAY_INTRINSIC __m512i _mm512_unpacklo_epi8(__m512i a, __m512i b) {
  return Map<I8>(a, b, [](I8 x, I8 y) {
    const I8 from = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    return __builtin_shuffle(x, y, from);
  });
}
ASSAY_INTRINSIC __m512i _mm512_unpackhi_epi8(__m512i a, __m512i b) {
  return Map<I8>(a, b, [](I8 x, I8 y) {
    const I8 from = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return __builtin_shuffle(x, y, from);
  });
}
ASSAY_INTRINSIC __m512 _mm512_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {
  return Parts<__m512>([&](int i) { return MaskOf(mask, i) ? b.p[i] : a.p[i]; });
}
ASSAY_INTRINSIC __mmask16 _mm512_movepi32_mask(__m512i a) {
  const auto lanes = LanesOf<uint32_t>(a);
  uint32_t mask = 0;
  for (int i = 0; i < lanes.kCount; ++i) mask |= lanes.lane[i] >> 31 << i;
  return static_cast<__mmask16>(mask);
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
