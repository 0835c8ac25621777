#include "kernels/cpu/testing/linear_fill.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "kernels/cpu/testing/random.h"

namespace assay::kernels::testing {
namespace {

constexpr int64_t kGroup = 32;

// Value of element i of a tensor (salt tells tensors apart).
double Value(const LinearCase& c, uint64_t salt, uint64_t i) {
  const uint64_t seed = c.seed * 16 + salt;
  switch (c.fill) {
    case Fill::kNormal:
    case Fill::kEveryCode:
      return Normal(seed, i);
    case Fill::kPositive:
      return std::fabs(Normal(seed, i));
    case Fill::kInteger:
      return static_cast<double>(Hash(seed, i) % 15) - 7;
    case Fill::kCodes:
      return Hash(seed, i) % 7 == 0
                 ? -0.0
                 : (Hash(seed, i) % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(1 + i % 5);
    case Fill::kExtreme:
      return std::ldexp(1 + Uniform(seed, i), static_cast<int>(Hash(seed, i) % 250) - 135) *
             (Hash(seed, i + 1) % 2 == 0 ? 1 : -1);
  }
  return 0;
}

// The stored code of element i: 0 … count − 1. `zero` is the one whose value is 0; codes from
// `zero` up to `most` have positive values.
int CodeOf(const LinearCase& c, int count, int zero, int most, uint64_t i) {
  const uint64_t h = Hash(c.seed * 16 + 2, i);
  if (c.fill == Fill::kPositive) {
    return zero + static_cast<int>(h % static_cast<uint64_t>(most - zero + 1));
  }
  if (c.fill == Fill::kEveryCode) {
    return static_cast<int>(i / static_cast<uint64_t>(c.k) % static_cast<uint64_t>(count));
  }
  if (c.fill == Fill::kCodes) {
    const uint64_t group = i / kGroup;
    if (group % 5 == 1) return zero;                                  // a zero group
    if (group % 5 == 3 && i % kGroup != group % kGroup) return zero;  // a one-hot one
    if (group % 5 == 3) return group % 2 == 0 ? 0 : count - 1;
    return static_cast<int>((i + i / 16) % static_cast<uint64_t>(count));
  }
  return static_cast<int>(h % static_cast<uint64_t>(count));
}

// Scale of group i as fp32; kExtreme and kEveryCode are each type's own affair.
double ScaleOf(const LinearCase& c, uint64_t i) {
  if (c.fill == Fill::kInteger) {  // powers of two within a factor of 8
    return std::ldexp(1, static_cast<int>(Hash(c.seed * 16 + 3, i) % 4));
  }
  return 0.01 * std::exp(0.6 * Normal(c.seed * 16 + 3, i));
}

// Which of a list of scales the rows of kEveryCode have: a run of rows with every code each.
template <size_t N>
uint16_t Listed(const uint16_t (&list)[N], const LinearCase& c, int count, uint64_t group) {
  const uint64_t row = group / static_cast<uint64_t>(c.k / kGroup);
  return list[row / static_cast<uint64_t>(count) % N];
}

uint16_t Bf16Scale(const LinearCase& c, uint64_t i) {
  // Least subnormal and normal, one, largest.
  static constexpr uint16_t kListed[] = {0x0001, 0x0080, 0x3F80, 0x7F7F};
  if (c.fill == Fill::kEveryCode) return Listed(kListed, c, 16, i);
  if (c.fill == Fill::kExtreme) {
    return Bf16FromFloat(static_cast<float>(
        std::ldexp(1 + Uniform(c.seed, i), static_cast<int>(Hash(c.seed, i) % 250) - 135)));
  }
  return Bf16FromFloat(static_cast<float>(ScaleOf(c, i)));
}

uint16_t F16Scale(const LinearCase& c, uint64_t salt, int count, uint64_t i) {
  static constexpr uint16_t kListed[] = {0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF};
  if (c.fill == Fill::kEveryCode) return Listed(kListed, c, count, i);
  if (c.fill == Fill::kExtreme) {
    const auto bits = static_cast<uint16_t>(Hash(c.seed * 16 + salt, i));
    return (bits & 0x7C00) == 0x7C00 ? bits ^ 0x4000 : bits;  // finite
  }
  return F16FromFloat(static_cast<float>(ScaleOf(c, i)));
}

uint8_t E8m0Scale(const LinearCase& c, uint64_t i) {
  static constexpr uint16_t kListed[] = {0, 1, 2, 127, 253, 254};
  if (c.fill == Fill::kEveryCode) return static_cast<uint8_t>(Listed(kListed, c, 16, i));
  if (c.fill == Fill::kExtreme) return static_cast<uint8_t>(Hash(c.seed * 16 + 3, i) % 255);
  return static_cast<uint8_t>(127 + std::lround(std::log2(ScaleOf(c, i))));
}

void MakeInt4(const LinearCase& c, StoredWeights* w) {
  const size_t count = w->scaled.size();
  std::vector<int8_t> codes(count);
  std::vector<uint16_t> scales(count / kGroup);
  for (size_t g = 0; g < scales.size(); ++g) scales[g] = Bf16Scale(c, g);
  for (size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<int8_t>(CodeOf(c, 16, 8, 15, i) - 8);
    w->scaled[i] = codes[i] * double{FloatFromBf16(scales[i / kGroup])};
  }
  std::vector<uint32_t> words(count / 8);
  PackCtInt4(codes.data(), c.n, c.k, words.data());
  w->weights.resize(count / 2);
  w->scales.resize(scales.size() * 2);
  std::memcpy(w->weights.data(), words.data(), count / 2);
  std::memcpy(w->scales.data(), scales.data(), scales.size() * 2);
}

void MakeMxfp4(const LinearCase& c, StoredWeights* w) {
  const size_t count = w->scaled.size();
  std::vector<uint8_t> codes(count);
  w->scales.resize(count / kGroup);
  for (size_t g = 0; g < w->scales.size(); ++g) w->scales[g] = std::byte{E8m0Scale(c, g)};
  for (size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(CodeOf(c, 16, 0, 7, i));
    w->scaled[i] = double{FloatFromE2m1(codes[i])} *
                   FloatFromE8m0(std::to_integer<uint8_t>(w->scales[i / kGroup]));
  }
  w->weights.resize(count / 2);
  PackMxfp4(codes.data(), c.n, c.k, w->weights.data());
}

void MakeQ41(const LinearCase& c, StoredWeights* w) {
  const size_t count = w->scaled.size();
  std::vector<uint8_t> codes(count);
  std::vector<uint16_t> d(count / kGroup), m(d.size());
  for (size_t g = 0; g < d.size(); ++g) {
    d[g] = F16Scale(c, 3, 16, g);
    const double times = static_cast<double>(Hash(c.seed * 16 + 4, g) % 16);
    const double min = times * FloatFromF16(d[g]) * (c.fill == Fill::kPositive ? 1 : -1);
    m[g] = c.fill == Fill::kExtreme ? F16Scale(c, 4, 16, g) : F16FromFloat(static_cast<float>(min));
    if ((m[g] & 0x7C00) == 0x7C00) m[g] = 0;  // the largest d
  }
  for (size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(CodeOf(c, 16, 0, 15, i));
    w->scaled[i] = codes[i] * double{FloatFromF16(d[i / kGroup])};
    w->minima[i] = FloatFromF16(m[i / kGroup]);
  }
  w->weights.resize(count / kGroup * 20);
  PackQ41(codes.data(), d.data(), m.data(), c.n, c.k, w->weights.data());
}

void MakeQ80(const LinearCase& c, StoredWeights* w) {
  const size_t count = w->scaled.size();
  std::vector<int8_t> codes(count);
  std::vector<uint16_t> d(count / kGroup);
  for (size_t g = 0; g < d.size(); ++g) d[g] = F16Scale(c, 3, 256, g);
  for (size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<int8_t>(CodeOf(c, 256, 128, 255, i) - 128);
    w->scaled[i] = codes[i] * double{FloatFromF16(d[i / kGroup])};
  }
  w->weights.resize(count / kGroup * 34);
  PackQ80(codes.data(), d.data(), c.n, c.k, w->weights.data());
}

}  // namespace

double ActivationOf(const LinearCase& c, uint64_t i) {
  if (c.fill != Fill::kEveryCode) return Value(c, 1, i);
  const uint64_t token = i / static_cast<uint64_t>(c.k), at = i % static_cast<uint64_t>(c.k);
  if (at != token * 5 % kGroup) return 0;
  return token % 2 == 0 ? 1 : -1;
}

double WeightOf(const LinearCase& c, uint64_t i) { return Value(c, 2, i); }

StoredWeights MakeWeights(const Method& method, const LinearCase& c) {
  StoredWeights w;
  w.scaled.resize(static_cast<size_t>(c.n * c.k));
  w.minima.resize(w.scaled.size());
  if (method.name == "ct-int4-g32") {
    MakeInt4(c, &w);
  } else if (method.name == "deepseek-v4-mxfp4") {
    MakeMxfp4(c, &w);
  } else if (method.name == "gguf-q4_1") {
    MakeQ41(c, &w);
  } else if (method.name == "gguf-q8_0") {
    MakeQ80(c, &w);
  } else {
    std::abort();  // a method of the registry that this test does not know
  }
  return w;
}

}  // namespace assay::kernels::testing
