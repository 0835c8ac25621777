// What each intrinsic is, lane by lane and in the words of the makers' manual: nothing here knows
// of parts, of tricks, or of the header.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/portable/testing/probe.h"

namespace assay::kernels::testing {
namespace {

template <class T>
T At(const uint8_t* bytes, int i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<int>(sizeof value), sizeof value);
  return value;
}
template <class T, class F>
void Lanes(uint8_t* out, int count, F f) {
  for (int i = 0; i < count; ++i) {
    const T value = static_cast<T>(f(i));
    std::memcpy(out + i * static_cast<int>(sizeof value), &value, sizeof value);
  }
}
bool Bit(const Operands& o, int i) { return (o.mask >> i & 1) != 0; }

int32_t ToInt(float x) {
  const double nearest = std::nearbyint(double{x});  // to even
  if (!(nearest >= -0x1p31 && nearest < 0x1p31)) return std::numeric_limits<int32_t>::min();
  return static_cast<int32_t>(nearest);
}

uint32_t HalfToFloat(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  if (exponent == 31) {
    const uint32_t quiet = fraction == 0 ? 0 : 1u << 22;
    return sign | 255u << 23 | static_cast<uint32_t>(fraction) << 13 | quiet;
  }
  const double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return sign | std::bit_cast<uint32_t>(static_cast<float>(value));
}

int Saturated(int x) { return std::clamp(x, -32768, 32767); }

// Comparisons are of floats; what is chosen keeps its bits.
float F(uint32_t bits) { return std::bit_cast<float>(bits); }

void SignBits(const Operands& o, uint8_t* out) {
  uint16_t mask = 0;
  for (int i = 0; i < 16; ++i) {
    if (At<int32_t>(o.a, i) < 0) mask = static_cast<uint16_t>(mask | 1 << i);
  }
  std::memcpy(out, &mask, sizeof mask);
}

// T: lanes of the result; `i`: the lane; a, b, c: lanes of the operands as U.
#define DEFINE(name, T, U, count, ...)                                             \
  {                                                                                \
    name, Same::kBits, [](const Operands& o, uint8_t* out) {                       \
      [[maybe_unused]] const auto a = [&o](int j) { return At<U>(o.a, j); };       \
      [[maybe_unused]] const auto b = [&o](int j) { return At<U>(o.b, j); };       \
      [[maybe_unused]] const auto c = [&o](int j) { return At<U>(o.c, j); };       \
      Lanes<T>(out, count, [&]([[maybe_unused]] int i) { return (__VA_ARGS__); }); \
    }                                                                              \
  }

constexpr Probe kDefinitions[] = {
    {"_mm512_movepi32_mask", Same::kBits, SignBits},
    DEFINE("_mm_add_ps", float, float, 4, a(i) + b(i)),
    DEFINE("_mm_add_ss", float, float, 4, i == 0 ? a(0) + b(0) : a(i)),
    DEFINE("_mm256_add_ps", float, float, 8, a(i) + b(i)),
    DEFINE("_mm512_add_ps", float, float, 16, a(i) + b(i)),
    DEFINE("_mm512_sub_ps", float, float, 16, a(i) - b(i)),
    DEFINE("_mm512_mul_ps", float, float, 16, a(i) * b(i)),
    DEFINE("_mm512_div_ps", float, float, 16, a(i) / b(i)),
    DEFINE("_mm512_mask_add_ps", float, float, 16, Bit(o, i) ? a(i) + b(i) : c(i)),
    DEFINE("_mm512_fmadd_ps", float, float, 16, std::fma(a(i), b(i), c(i))),
    DEFINE("_mm512_fmsub_ps", float, float, 16, std::fma(a(i), b(i), -c(i))),
    DEFINE("_mm512_fnmadd_ps", float, float, 16, std::fma(-a(i), b(i), c(i))),
    DEFINE("_mm512_fmaddsub_ps", float, float, 16, std::fma(a(i), b(i), i % 2 == 0 ? -c(i) : c(i))),
    DEFINE("chain of fmadd", float, float, 16,
           std::fma(std::fma(std::fma(a(i), b(i), c(i)), b(i), 0.3F), b(i), 0.7F)),
    DEFINE("_mm512_or_ps", uint32_t, uint32_t, 16, a(i) | b(i)),
    DEFINE("_mm512_min_ps", uint32_t, uint32_t, 16, F(a(i)) < F(b(i)) ? a(i) : b(i)),
    DEFINE("_mm512_max_ps", uint32_t, uint32_t, 16, F(a(i)) > F(b(i)) ? a(i) : b(i)),
    DEFINE("_mm512_and_si512", uint32_t, uint32_t, 16, a(i) & b(i)),
    DEFINE("_mm512_add_epi16", uint16_t, uint16_t, 32, a(i) + b(i)),
    DEFINE("_mm512_add_epi32", uint32_t, uint32_t, 16, a(i) + b(i)),
    DEFINE("_mm512_sub_epi32", uint32_t, uint32_t, 16, a(i) - b(i)),
    DEFINE("_mm512_min_epi32", int32_t, int32_t, 16, std::min(a(i), b(i))),
    DEFINE("_mm512_max_epi32", int32_t, int32_t, 16, std::max(a(i), b(i))),
    DEFINE("_mm512_maddubs_epi16", int16_t, uint8_t, 32,
           Saturated(a(2 * i) * static_cast<int8_t>(b(2 * i)) +
                     a(2 * i + 1) * static_cast<int8_t>(b(2 * i + 1)))),
    DEFINE("_mm512_madd_epi16", uint32_t, int16_t, 16,
           int64_t(a(2 * i)) * b(2 * i) + int64_t(a(2 * i + 1)) * b(2 * i + 1)),
    DEFINE("_mm_slli_epi32/16", uint32_t, uint32_t, 4, a(i) << 16),
    DEFINE("_mm512_slli_epi32/0", uint32_t, uint32_t, 16, a(i)),
    DEFINE("_mm512_slli_epi32/23", uint32_t, uint32_t, 16, a(i) << 23),
    DEFINE("_mm512_slli_epi32/31", uint32_t, uint32_t, 16, a(i) << 31),
    DEFINE("_mm512_slli_epi32/32", uint32_t, uint32_t, 16, 0),
    DEFINE("_mm512_srli_epi32/4", uint32_t, uint32_t, 16, a(i) / 16),
    DEFINE("_mm512_srli_epi32/31", uint32_t, uint32_t, 16, a(i) >> 31),
    DEFINE("_mm512_srli_epi32/32", uint32_t, uint32_t, 16, 0),
    DEFINE("_mm512_srai_epi32/1", int32_t, int32_t, 16, std::floor(a(i) / 2.0)),
    DEFINE("_mm512_srai_epi32/31", int32_t, int32_t, 16, a(i) < 0 ? -1 : 0),
    DEFINE("_mm512_srai_epi32/40", int32_t, int32_t, 16, a(i) < 0 ? -1 : 0),
    DEFINE("_mm512_srli_epi16/4", uint16_t, uint16_t, 32, a(i) / 16),
    DEFINE("_mm512_srli_epi16/16", uint16_t, uint16_t, 32, 0),
    DEFINE("_mm512_slli_epi16/8", uint16_t, uint16_t, 32, a(i) * 256),
    DEFINE("_mm512_slli_epi16/16", uint16_t, uint16_t, 32, 0),
    DEFINE("_mm512_srai_epi16/8", int16_t, int16_t, 32, std::floor(a(i) / 256.0)),
    DEFINE("_mm512_srai_epi16/20", int16_t, int16_t, 32, a(i) < 0 ? -1 : 0),
    DEFINE("_mm_cvtepu16_epi32", uint32_t, uint16_t, 4, a(i)),
    DEFINE("_mm512_cvtepu16_epi32", uint32_t, uint16_t, 16, a(i)),
    DEFINE("_mm512_cvtepu8_epi32", uint32_t, uint8_t, 16, a(i)),
    DEFINE("_mm512_cvtepi32_epi8", uint8_t, uint32_t, 16, a(i) % 256),
    DEFINE("_mm512_cvtepi32_ps", float, int32_t, 16, a(i)),
    DEFINE("_mm512_cvtps_epi32", int32_t, float, 16, ToInt(a(i))),
    DEFINE("_mm512_cvtph_ps", uint32_t, uint16_t, 16, HalfToFloat(a(i))),
    DEFINE("_mm_cvtss_f32", uint32_t, uint32_t, 1, a(0)),
    DEFINE("_mm_cvtsi32_si128", uint32_t, uint32_t, 4, i == 0 ? a(0) : 0),
    DEFINE("_mm_cvtsi64_si128", uint64_t, uint64_t, 2, i == 0 ? a(0) : 0),
    DEFINE("_mm_castsi128_ps", uint32_t, uint32_t, 4, a(i)),
    DEFINE("_mm512_castsi512_ps", uint32_t, uint32_t, 16, a(i)),
    DEFINE("_mm512_castps_si512", uint32_t, uint32_t, 16, a(i)),
    DEFINE("_mm256_castps256_ps128", uint32_t, uint32_t, 4, a(i)),
    DEFINE("_mm512_castps512_ps256", uint32_t, uint32_t, 8, a(i)),
    DEFINE("_mm512_zextsi128_si512", uint32_t, uint32_t, 16, i < 4 ? a(i) : 0),
    DEFINE("_mm256_setzero_ps", uint32_t, uint32_t, 8, 0),
    DEFINE("_mm512_setzero_ps", uint32_t, uint32_t, 16, 0),
    DEFINE("_mm512_setzero_si512", uint32_t, uint32_t, 16, 0),
    DEFINE("_mm512_set1_ps", uint32_t, uint32_t, 16, a(0)),
    DEFINE("_mm512_set1_epi32", uint32_t, uint32_t, 16, a(0)),
    DEFINE("_mm512_set1_epi16", uint16_t, uint16_t, 32, a(0)),
    DEFINE("_mm512_set1_epi8", uint8_t, uint8_t, 64, a(0)),
    DEFINE("_mm512_setr_epi32", uint32_t, uint32_t, 16, a(i)),
    DEFINE("_mm_setr_epi8", uint8_t, uint8_t, 16, a(i)),
    DEFINE("_mm_loadu_si128", uint8_t, uint8_t, 16, a(i + 3)),
    DEFINE("_mm256_loadu_si256", uint8_t, uint8_t, 32, a(i + 3)),
    DEFINE("_mm512_loadu_"
           "si512",
           uint8_t, uint8_t, 64, a(i + 3)),
    DEFINE("_mm512_loadu_ps", uint8_t, uint8_t, 64, a(i + 3)),
    DEFINE("_mm512_load_"
           "ps",
           uint8_t, uint8_t, 64, a(i)),
    DEFINE("_mm512_mask_loadu_ps", uint32_t, uint32_t, 16, Bit(o, i) ? a(i) : b(i)),
    DEFINE("_mm512_maskz_loadu_"
           "ps",
           uint32_t, uint32_t, 16, Bit(o, i) ? a(i) : 0),
    DEFINE("_mm512_maskz_"
           "loadu_epi32",
           uint32_t, uint32_t, 16, Bit(o, i) ? a(i) : 0),
    DEFINE("_mm_storeu_si128", uint8_t, uint8_t, 16, a(i)),
    DEFINE("_mm512_storeu_"
           "si512",
           uint8_t, uint8_t, 64, a(i)),
    DEFINE("_"
           "m"
           "m"
           "5"
           "1"
           "2"
           "_"
           "s"
           "t"
           "o"
           "r"
           "e"
           "u"
           "_"
           "p"
           "s",
           uint8_t, uint8_t, 64, a(i)),
    DEFINE("_mm512_"
           "store_ps",
           uint8_t, uint8_t, 64, a(i)),
    DEFINE("_mm512"
           "_mask_"
           "storeu"
           "_ps",
           uint32_t, uint32_t, 16, Bit(o, i) ? a(i) : At<uint32_t>(out, i)),
    DEFINE("_m"
           "m2"
           "56"
           "_e"
           "xt"
           "ra"
           "ct"
           "f1"
           "28"
           "_p"
           "s/"
           "0",
           uint32_t, uint32_t, 4, a(i)),
    DEFINE("_mm256_extractf128_ps/1", uint32_t, uint32_t, 4, a(i + 4)),
    DEFINE("_mm512_extractf32x8_ps/0", uint32_t, uint32_t, 8, a(i)),
    DEFINE("_mm512_extractf32x8_ps/1", uint32_t, uint32_t, 8, a(i + 8)),
    DEFINE("_mm512_inserti32x4/0", uint32_t, uint32_t, 16, i < 4 ? b(i) : a(i)),
    DEFINE("_mm512_inserti32x4/3", uint32_t, uint32_t, 16, i < 12 ? a(i) : b(i - 12)),
    DEFINE("_mm512_broadcast_i32x4", uint32_t, uint32_t, 16, a(i % 4)),
    DEFINE("_mm_movehl_ps", uint32_t, uint32_t, 4, i < 2 ? b(i + 2) : a(i)),
    DEFINE("_mm_shuffle_ps/1", uint32_t, uint32_t, 4,
           i == 0   ? a(1)
           : i == 1 ? a(0)
                    : b(0)),
    DEFINE("_mm_shuffle_ps/0xD8", uint32_t, uint32_t, 4,
           i == 0   ? a(0)
           : i == 1 ? a(2)
           : i == 2 ? b(1)
                    : b(3)),
    DEFINE("_mm512_permute_ps/0xB1", uint32_t, uint32_t, 16, a(i ^ 1)),
    DEFINE("_mm512_permute_ps/0x1E", uint32_t, uint32_t, 16,
           a(i / 4 * 4 + (i % 4 == 0   ? 2
                          : i % 4 == 1 ? 3
                          : i % 4 == 2 ? 1
                                       : 0))),
    DEFINE("_mm512_permutexvar_ps", uint32_t, uint32_t, 16, b(static_cast<int>(a(i) % 16))),
    DEFINE("_mm512_permutexvar_epi32", uint32_t, uint32_t, 16, b(static_cast<int>(a(i) % 16))),
    DEFINE("_mm512_shuffle_epi8", uint8_t, uint8_t, 64,
           b(i) > 127 ? 0 : a(i / 16 * 16 + b(i) % 16)),
    DEFINE("_mm512_unpacklo_epi8", uint8_t, uint8_t, 64,
           i % 2 == 0 ? a(i / 16 * 16 + i % 16 / 2) : b(i / 16 * 16 + i % 16 / 2)),
    DEFINE("_mm512_unpackhi_epi8", uint8_t, uint8_t, 64,
           i % 2 == 0 ? a(i / 16 * 16 + 8 + i % 16 / 2) : b(i / 16 * 16 + 8 + i % 16 / 2)),
    DEFINE("_mm512_mask_blend_ps", uint32_t, uint32_t, 16, Bit(o, i) ? b(i) : a(i)),
};

}  // namespace

Probes Definitions() { return {kDefinitions, sizeof kDefinitions / sizeof kDefinitions[0]}; }

}  // namespace assay::kernels::testing
