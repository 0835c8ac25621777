// Weights in groups of 32 with a scale each, in layout "row": ct-int4-g32, deepseek-v4-mxfp4,
// gguf-q4_1 and gguf-q8_0, with 16-bit and with 8-bit activations. rows.h states the arithmetic.
//
// A product of a bf16 and a code has at most 16 significant bits: in double it is exact, and a sum
// rounded to 53 and then to 24 bits is the fused one (linear_bf16.cc says why). The product by a
// scale has more bits and takes a true fused multiply-add.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/scalar/formats.h"
#include "kernels/cpu/scalar/rows.h"
#include "kernels/cpu/support.h"

namespace assay::kernels::scalar {
namespace {

// A group of one row: value = code·step·scale + min, `step` a half for E2M1, whose codes are
// doubled.
struct Group {
  int32_t codes[kGroup];
  float scale;
  float min;
};

float F16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  const uint32_t sign = uint32_t{bits} >> 15 << 31, rest = bits & 0x7FFF;
  if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | rest << 13);
  // The exponent's bias is 127 - 15 too small; subnormals of fp16 are subnormals here too.
  const float value = std::bit_cast<float>(rest << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

struct CtInt4 {
  static constexpr bool kMin = false;
  static constexpr float kStep = 1;
  static void Check(const WeightView& w, int64_t n_begin, int64_t n_end) {
    CheckLinear(w, "row", kGroup, 1, n_begin, n_end);
  }
  static void Read(const WeightView& w, int64_t g, Group* out) {
    // Least significant nibble first: as bytes, too.
    const std::byte* codes = w.codes + g * kGroup / 2;
    for (int64_t i = 0; i < kGroup; ++i) out->codes[i] = Nibble(codes, i) - 8;
    out->scale = Bf16(w.scales + 2 * g);
  }
};

struct Mxfp4 {
  static constexpr bool kMin = false;
  static constexpr float kStep = 0.5F;
  static void Check(const WeightView& w, int64_t n_begin, int64_t n_end) {
    CheckLinear(w, "row", kGroup, 1, n_begin, n_end);
  }
  static void Read(const WeightView& w, int64_t g, Group* out) {
    const std::byte* codes = w.codes + g * kGroup / 2;
    for (int64_t i = 0; i < kGroup; ++i) out->codes[i] = kE2m1Doubled[Nibble(codes, i)];
    out->scale = E8m0(w.scales[g]);
  }
};

struct Q41 {
  static constexpr bool kMin = true;
  static constexpr float kStep = 1;
  static void Check(const WeightView& w, int64_t n_begin, int64_t n_end) {
    CheckBlocks(w, "row", kGroup, 1, n_begin, n_end);
  }
  static void Read(const WeightView& w, int64_t g, Group* out) {
    const std::byte* block = w.codes + g * 20;
    for (int64_t i = 0; i < kGroup; ++i) {
      out->codes[i] = std::to_integer<int>(block[4 + i % 16] >> (i < 16 ? 0 : 4) & std::byte{0xF});
    }
    out->scale = F16(block);
    out->min = F16(block + 2);
  }
};

struct Q80 {
  static constexpr bool kMin = false;
  static constexpr float kStep = 1;
  static void Check(const WeightView& w, int64_t n_begin, int64_t n_end) {
    CheckBlocks(w, "row", kGroup, 1, n_begin, n_end);
  }
  static void Read(const WeightView& w, int64_t g, Group* out) {
    const std::byte* block = w.codes + g * 34;
    for (int64_t i = 0; i < kGroup; ++i) out->codes[i] = std::to_integer<int8_t>(block[2 + i]);
    out->scale = F16(block);
  }
};

// y of a row starts at +0, and each group is added to it for all tokens.
template <class Format, class AddGroup>
void Rows(const WeightView& w, int64_t m, int64_t n_begin, int64_t n_end, float* y,
          int64_t y_stride, AddGroup add) {
  Format::Check(w, n_begin, n_end);
  const int64_t groups = w.k / kGroup;
  for (int64_t n = n_begin; n < n_end; ++n) {
    for (int64_t token = 0; token < m; ++token) y[token * y_stride + n] = 0;
    for (int64_t g = 0; g < groups; ++g) {
      Group group;
      Format::Read(w, n * groups + g, &group);
      for (int64_t token = 0; token < m; ++token) {
        float& sum = y[token * y_stride + n];
        sum = add(group, token, g, sum);
      }
    }
  }
}

template <class Format>
void A16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
         float* y, int64_t y_stride) {
  const auto* x_bytes = reinterpret_cast<const std::byte*>(x.bf16);
  const auto add = [&](const Group& group, int64_t token, int64_t g, float sum) {
    const std::byte* at = x_bytes + 2 * (token * w.k + g * kGroup);
    float products[kChains] = {}, values[kChains] = {};
    for (int64_t i = 0; i < kGroup; ++i) {
      const float value = Bf16(at + 2 * i);
      const double code = double{Format::kStep} * group.codes[i];
      products[i % kChains] = static_cast<float>(products[i % kChains] + value * code);
      if (Format::kMin) values[i % kChains] += value;
    }
    sum = std::fma(SumChains(products), group.scale, sum);
    return Format::kMin ? std::fma(SumChains(values), group.min, sum) : sum;
  };
  Rows<Format>(w, m, n_begin, n_end, y, y_stride, add);
}

template <class Format>
void A8(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
        float* y, int64_t y_stride) {
  const auto add = [&](const Group& group, int64_t token, int64_t g, float sum) {
    const int8_t* codes = x.codes + token * w.k + g * kGroup;
    const int64_t at = token * (w.k / kGroup) + g;
    int32_t products = 0;
    for (int64_t i = 0; i < kGroup; ++i) products += codes[i] * group.codes[i];
    const float exact = static_cast<float>(products) * Format::kStep;
    sum = std::fma(exact * x.scales[at], group.scale, sum);
    if (!Format::kMin) return sum;
    return std::fma(static_cast<float>(x.sums[at]) * x.scales[at], group.min, sum);
  };
  Rows<Format>(w, m, n_begin, n_end, y, y_stride, add);
}

}  // namespace

#define ASSAY_ROW(name, body, format)                                                             \
  void name(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end, \
            float* y, int64_t y_stride) {                                                         \
    body<format>(w, x, m, n_begin, n_end, y, y_stride);                                           \
  }
ASSAY_ROW(LinearCtInt4Row, A16, CtInt4)
ASSAY_ROW(LinearCtInt4A8Row, A8, CtInt4)
ASSAY_ROW(LinearMxfp4Row, A16, Mxfp4)
ASSAY_ROW(LinearMxfp4A8Row, A8, Mxfp4)
ASSAY_ROW(LinearQ41Row, A16, Q41)
ASSAY_ROW(LinearQ41A8Row, A8, Q41)
ASSAY_ROW(LinearQ80Row, A16, Q80)
ASSAY_ROW(LinearQ80A8Row, A8, Q80)
#undef ASSAY_ROW

}  // namespace assay::kernels::scalar
