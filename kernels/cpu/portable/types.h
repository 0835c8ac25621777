// Vectors of 128, 256 and 512 bits as parts of 128, which every host of this compiler has. All in
// an anonymous namespace: the names are those of immintrin.h, and nothing of them may be linked to
// another file's.
#pragma once

#include <cstdint>
#include <cstring>

namespace assay::kernels::avx512_portable {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

#define ASSAY_INTRINSIC __attribute__((always_inline)) inline

// One part, seen as lanes.
using F32 = float __attribute__((vector_size(16)));
using F32Half = float __attribute__((vector_size(8)));
using F64 = double __attribute__((vector_size(16)));
using I8 = int8_t __attribute__((vector_size(16)));
using U8 = uint8_t __attribute__((vector_size(16)));
using I16 = int16_t __attribute__((vector_size(16)));
using U16 = uint16_t __attribute__((vector_size(16)));
using I32 = int32_t __attribute__((vector_size(16)));
using U32 = uint32_t __attribute__((vector_size(16)));
using I64 = int64_t __attribute__((vector_size(16)));
using U64 = uint64_t __attribute__((vector_size(16)));

template <class Part, int N>
struct Vector {
  static constexpr int kParts = N;
  using PartType = Part;
  Part p[N];
};

using __m128 = Vector<F32, 1>;
using __m256 = Vector<F32, 2>;
using __m512 = Vector<F32, 4>;
using __m128i = Vector<I64, 1>;
using __m256i = Vector<I64, 2>;
using __m512i = Vector<I64, 4>;
using __mmask8 = uint8_t;
using __mmask16 = uint16_t;
using __mmask32 = uint32_t;
using __mmask64 = uint64_t;

template <class To, class From>
ASSAY_INTRINSIC To As(From part) {
  return reinterpret_cast<To>(part);
}

// A vector whose part i is f(i). Written out, so that the parts become registers.
template <class V, class F>
ASSAY_INTRINSIC V Parts(F f) {
  using P = typename V::PartType;
  if constexpr (V::kParts == 1) {
    return V{{As<P>(f(0))}};
  } else if constexpr (V::kParts == 2) {
    return V{{As<P>(f(0)), As<P>(f(1))}};
  } else {
    return V{{As<P>(f(0)), As<P>(f(1)), As<P>(f(2)), As<P>(f(3))}};
  }
}

// f on each part, its lanes seen as `Lanes`.
template <class Lanes, class V, class F>
ASSAY_INTRINSIC V Map(V a, F f) {
  return Parts<V>([&](int i) { return f(As<Lanes>(a.p[i])); });
}
template <class Lanes, class V, class F>
ASSAY_INTRINSIC V Map(V a, V b, F f) {
  return Parts<V>([&](int i) { return f(As<Lanes>(a.p[i]), As<Lanes>(b.p[i])); });
}
template <class Lanes, class V, class F>
ASSAY_INTRINSIC V Map(V a, V b, V c, F f) {
  return Parts<V>(
      [&](int i) { return f(As<Lanes>(a.p[i]), As<Lanes>(b.p[i]), As<Lanes>(c.p[i])); });
}

// All lanes of a vector, for what crosses parts.
template <class T, class V>
struct Lanes {
  static constexpr int kCount = sizeof(V) / sizeof(T);
  T lane[kCount];
};
template <class T, class V>
ASSAY_INTRINSIC Lanes<T, V> LanesOf(const V& v) {
  Lanes<T, V> lanes;
  std::memcpy(lanes.lane, v.p, sizeof v.p);
  return lanes;
}
template <class V, class T>
ASSAY_INTRINSIC V FromLanes(const Lanes<T, V>& lanes) {
  V v;
  std::memcpy(v.p, lanes.lane, sizeof v.p);
  return v;
}

// Four lanes, -1 where bits 4i … 4i + 3 of a mask are set.
ASSAY_INTRINSIC I32 MaskOf(uint32_t mask, int part) {
  const auto bits = static_cast<int32_t>(mask >> (4 * part) & 0xF);
  return (I32{1, 2, 4, 8} & bits) != 0;
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
