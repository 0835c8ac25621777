#include "kernels/cpu/testing/linear_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kernels/cpu/testing/random.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"

namespace assay::kernels::testing {
namespace {

constexpr uint8_t kNanPoison = 0xFF;  // all ones is a NaN in fp32 and in bf16

const Method& MethodOf(const LinearKernel& row) {
  const Method* method = FindMethod(row.method);
  if (method == nullptr) std::abort();
  return *method;
}

StoredShape WeightShape(const LinearKernel& row, const LinearCase& c) {
  const Method& method = MethodOf(row);
  return {method.weight_dtype, c.n, c.k / method.packing.elements.count()};
}

StoredShape ScaleShape(const LinearKernel& row, const LinearCase& c) {
  const Method& method = MethodOf(row);
  const int64_t group = method.group.count();
  return {method.scale_dtype, c.n, group == 0 ? 0 : c.k / group};
}

size_t LayoutBytes(const LinearKernel& row, const char* part, const StoredShape& shape) {
  if (shape.columns == 0) return 0;
  const Layout* layout = FindLayout(row.layout, row.method, part);
  if (layout == nullptr) std::abort();
  return static_cast<size_t>(layout->bytes(shape));
}

// Value of element i of a tensor (salt tells tensors apart).
double Value(const LinearCase& c, uint64_t salt, uint64_t i) {
  const uint64_t seed = c.seed * 16 + salt;
  switch (c.fill) {
    case Fill::kNormal:
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

int CodeOf(const LinearCase& c, const Method& method, uint64_t i) {
  const int codes = method.code_max - method.code_min + 1;
  const uint64_t h = Hash(c.seed * 16 + 2, i);
  if (c.fill == Fill::kPositive) return static_cast<int>(h % (method.code_max + 1));
  if (c.fill == Fill::kCodes) {
    const uint64_t group = i / 32;
    if (group % 5 == 1) return 0;                                           // a zero group
    if (group % 5 == 3) return i % 32 == group % 32 ? method.code_min : 0;  // a one-hot one
    return static_cast<int>((i + i / 16) % static_cast<uint64_t>(codes)) + method.code_min;
  }
  return static_cast<int>(h % static_cast<uint64_t>(codes)) + method.code_min;
}

double ScaleOf(const LinearCase& c, uint64_t i) {
  const double normal = Normal(c.seed * 16 + 3, i);
  switch (c.fill) {
    case Fill::kInteger:  // powers of two within a factor of 8
      return std::ldexp(1, static_cast<int>(Hash(c.seed * 16 + 3, i) % 4));
    case Fill::kExtreme:
      return std::ldexp(1 + Uniform(c.seed, i), static_cast<int>(Hash(c.seed, i) % 250) - 135);
    default:
      return 0.01 * std::exp(0.6 * normal);
  }
}

}  // namespace

std::string LinearCase::Print() const {
  static constexpr const char* kNames[] = {"normal", "positive", "integer", "codes", "extreme"};
  char text[128];
  std::snprintf(text, sizeof text, "m=%lld n=%lld k=%lld fill=%s seed=%llu",
                static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
                kNames[static_cast<int>(fill)], static_cast<unsigned long long>(seed));
  return text;
}

LinearData::LinearData(const LinearKernel& row, const LinearCase& c, Guard guard, size_t slack)
    : row_(row),
      c_(c),
      guard_(guard),
      group_(MethodOf(row).group.count()),
      x_(static_cast<size_t>(2 * c.m * c.k), guard, kNanPoison),
      codes_(LayoutBytes(row, "weight", WeightShape(row, c)), guard, kNanPoison, slack),
      scales_(LayoutBytes(row, "scale", ScaleShape(row, c)), guard, kNanPoison, slack),
      w_(static_cast<size_t>(c.n * c.k)) {
  FillX();
  FillWeights();
}

void LinearData::FillX() {
  for (int64_t i = 0; i < c_.m * c_.k; ++i) {
    x_.as<uint16_t>()[i] = Bf16FromFloat(static_cast<float>(Value(c_, 1, i)));
  }
}

void LinearData::FillWeights() {
  const Method& method = MethodOf(row_);
  const auto count = static_cast<size_t>(c_.n * c_.k);
  if (count == 0) return;
  std::vector<uint16_t> scales(group_ == 0 ? 0 : count / static_cast<size_t>(group_));
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = Bf16FromFloat(static_cast<float>(ScaleOf(c_, i)));
  }
  std::vector<uint32_t> stored((count * 2 + 3) / 4);  // enough for bf16, and so for codes
  if (method.code_min == method.code_max) {
    std::vector<uint16_t> bits(count);
    for (size_t i = 0; i < count; ++i) {
      bits[i] = Bf16FromFloat(static_cast<float>(Value(c_, 2, i)));
    }
    std::memcpy(stored.data(), bits.data(), 2 * count);
  } else {
    std::vector<int8_t> codes(count);
    for (size_t i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(CodeOf(c_, method, i));
    PackCtInt4(codes.data(), c_.n, c_.k, stored.data());
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(stored.data());
  const auto* scale_bytes = reinterpret_cast<const std::byte*>(scales.data());
  method.decode(bytes, scale_bytes, c_.n, c_.k, w_.data());
  FindLayout(row_.layout, row_.method, "weight")->pack(WeightShape(row_, c_), bytes, codes_.data());
  if (scales.empty()) return;
  FindLayout(row_.layout, row_.method, "scale")
      ->pack(ScaleShape(row_, c_), scale_bytes, scales_.data());
}

WeightView LinearData::View() {
  return {row_.layout, c_.n, c_.k, codes_.data(), group_ == 0 ? nullptr : scales_.data(), group_};
}

std::vector<float> LinearData::Run(LinearFn run) { return RunSplit(run, {0, c_.n}); }

std::vector<float> LinearData::RunSplit(LinearFn run, const std::vector<int64_t>& splits) {
  std::vector<float> result(static_cast<size_t>(c_.m * c_.n),
                            std::numeric_limits<float>::quiet_NaN());
  std::vector<size_t> strays;  // elements that a call wrote outside its rows
  for (size_t s = 0; s + 1 < splits.size(); ++s) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(c_.m * c_.n);
    Guarded y(bytes, guard_, kNanPoison);
    run(View(), x(), c_.m, splits[s], splits[s + 1], y.as<float>(), c_.n);
    for (int64_t i = 0; i < c_.m * c_.n; ++i) {
      const bool mine = i % c_.n >= splits[s] && i % c_.n < splits[s + 1];
      const bool written = std::bit_cast<uint32_t>(y.as<float>()[i]) != 0xFFFFFFFF;
      if (mine) result[static_cast<size_t>(i)] = y.as<float>()[i];
      if (!mine && written) strays.push_back(static_cast<size_t>(i));
    }
  }
  for (const size_t i : strays) result[i] = std::nanf("");  // fails any check
  return result;
}

bool LinearData::ExactInAnyOrder(int64_t token, int64_t row) const {
  double sum = 0;
  int unit_x = std::numeric_limits<int>::max(), unit_w = unit_x;
  const auto unit = [](double value, int old) {  // exponent of the lowest set bit
    if (value == 0) return old;
    int exponent;
    const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
    return std::min(old, exponent - 53 + std::countr_zero(static_cast<uint64_t>(mantissa)));
  };
  for (int64_t i = 0; i < c_.k; ++i) {
    const double a = const_cast<LinearData*>(this)->x()[token * c_.k + i] == 0
                         ? 0
                         : FloatFromBf16(const_cast<LinearData*>(this)->x()[token * c_.k + i]);
    const double b = w_[static_cast<size_t>(row * c_.k + i)];
    sum += std::fabs(a * b);
    unit_x = unit(a, unit_x);
    unit_w = unit(b, unit_w);
  }
  return sum == 0 || sum <= std::ldexp(1, 24 + unit_x + unit_w);
}

float LinearData::Expected(int64_t token, int64_t row) const {
  double sum = 0;
  for (int64_t i = 0; i < c_.k; ++i) {
    sum += double{FloatFromBf16(const_cast<LinearData*>(this)->x()[token * c_.k + i])} *
           w_[static_cast<size_t>(row * c_.k + i)];
  }
  return static_cast<float>(sum);
}

std::string LinearData::Check(const std::vector<float>& y) {
  const double lanes = row_.lanes;
  // numerics: each rounding on a term's way costs u of it; γ = c·u/(1 − c·u) covers their products.
  const double c = std::ceil(static_cast<double>(c_.k) / lanes) + std::log2(lanes) + row_.extra;
  const double cu = c * 0x1p-24;
  const double gamma = cu / (1 - cu);
  for (int64_t token = 0; token < c_.m; ++token) {
    for (int64_t n = 0; n < c_.n; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < c_.k; ++i) {
        const double term =
            double{FloatFromBf16(x()[token * c_.k + i])} * w_[static_cast<size_t>(n * c_.k + i)];
        sum += term;
        magnitude += std::fabs(term);
      }
      // The last two: a subnormal rounding costs half of the smallest one; the loop's own double.
      const double tolerance =
          gamma * magnitude + c * 0x1p-150 + static_cast<double>(c_.k) * 0x1p-53 * magnitude;
      const double got = y[static_cast<size_t>(token * c_.n + n)];
      if (!(std::fabs(got - sum) <= tolerance)) {
        char text[320];
        std::snprintf(text, sizeof text,
                      "%s: y[%lld, %lld] = %.9g, expected %.9g, tolerance %.3g = %g roundings "
                      "(ceil(k/%d) + log2(%d) + %d) of 2^-24 on %.3g",
                      c_.Print().c_str(), static_cast<long long>(token), static_cast<long long>(n),
                      got, sum, tolerance, c, row_.lanes, row_.lanes, row_.extra, magnitude);
        return text;
      }
    }
  }
  return "";
}

}  // namespace assay::kernels::testing
