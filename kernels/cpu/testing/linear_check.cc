#include "kernels/cpu/testing/linear_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "kernels/cpu/testing/linear_fill.h"
#include "kernels/cpu/testing/random.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"
#include "kernels/quantisers/quantisers.h"

namespace assay::kernels::testing {
namespace {

constexpr uint8_t kNanPoison = 0xFF;  // all ones is a NaN in fp32 and in bf16
constexpr int64_t kStep = 32;         // elements of an activation scale

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

// Bytes of a part of the activations, by what a step of 32 elements takes of it.
size_t XBytes(const LinearCase& c, int64_t per_step) {
  return static_cast<size_t>(c.m * c.k / kStep * per_step);
}
int64_t CodeBytes(std::string_view act) {
  return act == "a16" ? 0 : act == "amxfp4" ? kStep / 2 : kStep;
}
int64_t ScaleBytes(std::string_view act) {
  if (act == "a16") return 0;
  return IsMx(act) ? 1 : static_cast<int64_t>(sizeof(float));
}
int64_t SumBytes(std::string_view act) {
  return act == "a16" || IsMx(act) ? 0 : static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

int CodesOf(const LinearKernel& row) {
  const Method& method = MethodOf(row);
  if (method.code_min == method.code_max) return 0;
  return method.name == "gguf-q8_0" ? 256 : 16;
}

double FloatFromE4m3(uint8_t code) {
  const int size = code & 0x7F, exponent = size >> 3, mantissa = size & 7;
  const double value =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code < 0x80 ? value : -value;
}

int64_t RowUnitOf(const LinearKernel& row) {
  const LinearCase odd{1, 1, MethodOf(row).group.count() == 0 ? 1 : kStep};
  const Layout* layout = FindLayout(row.layout, row.method, "weight");
  if (layout == nullptr) std::abort();
  return layout->bytes(WeightShape(row, odd)) < 0 ? 2 : 1;
}

bool IsMx(std::string_view act) { return act == "amxfp8" || act == "amxfp4"; }

std::string LinearCase::Print() const {
  static constexpr const char* kNames[] = {"normal", "positive", "integer",
                                           "codes",  "extreme",  "every code"};
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
      x_(row.act == "a16" ? static_cast<size_t>(2 * c.m * c.k) : 0, guard, kNanPoison),
      x_codes_(XBytes(c, CodeBytes(row.act)), guard, kNanPoison),
      x_scales_(XBytes(c, ScaleBytes(row.act)), guard, kNanPoison),
      x_sums_(XBytes(c, SumBytes(row.act)), guard, kNanPoison),
      codes_(LayoutBytes(row, "weight", WeightShape(row, c)), guard, kNanPoison, slack),
      scales_(LayoutBytes(row, "scale", ScaleShape(row, c)), guard, kNanPoison, slack) {
  FillX();
  FillWeights();
}

void LinearData::FillX() {
  x_values_.resize(static_cast<size_t>(c_.m * c_.k));
  for (size_t i = 0; i < x_values_.size(); ++i) {
    const uint16_t bits = Bf16FromFloat(static_cast<float>(ActivationOf(c_, i)));
    x_values_[i] = FloatFromBf16(bits);
    if (row_.act == "a16") x_.as<uint16_t>()[i] = bits;
  }
  if (IsMx(row_.act)) {
    QuantiseXMx();
  } else if (row_.act != "a16") {
    QuantiseX();
  }
}

// By AITER's definition; every one has a test of its own. Integers up to 7 stay what they are in
// FP8, and in MXFP4 become others.
void LinearData::QuantiseXMx() {
  const std::vector<float> values(x_values_.begin(), x_values_.end());
  const bool wide = row_.act == "amxfp8";
  const auto quantised =
      Quantise(*FindQuantiser(wide ? "mxfp8-rceil-aiter" : "mxfp4-rceil-aiter"),
               {DType::kF32, c_.m, c_.k, reinterpret_cast<const std::byte*>(values.data())});
  if (!quantised.ok()) std::abort();
  std::copy(quantised->codes.begin(), quantised->codes.end(), x_codes_.data());
  std::copy(quantised->scales.begin(), quantised->scales.end(), x_scales_.data());
  for (size_t i = 0; i < x_values_.size(); ++i) {
    const auto byte = std::to_integer<int>(quantised->codes[wide ? i : i / 2]);
    const double code = wide ? FloatFromE4m3(static_cast<uint8_t>(byte))
                             : FloatFromE2m1(byte >> (4 * (i % 2)) & 15);
    x_values_[i] = code * FloatFromE8m0(std::to_integer<uint8_t>(quantised->scales[i / kStep]));
  }
}

// By the definition, in plain steps; the tiers' own quantisers have a test of their own.
void LinearData::QuantiseX() {
  const int64_t group = row_.act == "a8row" ? c_.k : kStep;
  for (int64_t i = 0; i < c_.m * c_.k; ++i) {
    const auto begin = x_values_.begin() + i / group * group;
    const auto less = [](double a, double b) { return std::fabs(a) < std::fabs(b); };
    // Integers stay what they are: every sum is exact only under a scale that is a power of two.
    float scale = 1;
    if (c_.fill != Fill::kInteger && i % group == 0) {
      scale = static_cast<float>(std::fabs(*std::max_element(begin, begin + group, less))) / 127.0F;
    } else if (c_.fill != Fill::kInteger) {
      scale = x_scales_.as<float>()[i / group * group / kStep];
    }
    if (i % kStep == 0) {
      x_scales_.as<float>()[i / kStep] = scale;
      x_sums_.as<int32_t>()[i / kStep] = 0;
    }
    const double code =
        scale == 0 ? 0
                   : std::nearbyint(static_cast<float>(x_values_[static_cast<size_t>(i)]) / scale);
    x_codes_.as<int8_t>()[i] = static_cast<int8_t>(std::clamp(code, -127.0, 127.0));
    x_sums_.as<int32_t>()[i / kStep] += x_codes_.as<int8_t>()[i];
  }
  for (int64_t i = 0; i < c_.m * c_.k; ++i) {
    x_values_[static_cast<size_t>(i)] =
        x_codes_.as<int8_t>()[i] * double{x_scales_.as<float>()[i / kStep]};
  }
}

void LinearData::FillWeights() {
  const Method& method = MethodOf(row_);
  const auto count = static_cast<size_t>(c_.n * c_.k);
  if (count == 0) return;
  if (method.code_min != method.code_max) {
    StoredWeights stored = MakeWeights(method, c_);
    Pack(stored.weights.data(), stored.scales.data());
    scaled_ = std::move(stored.scaled);
    minima_ = std::move(stored.minima);
    return;
  }
  std::vector<uint16_t> bits(count);
  scaled_.resize(count);
  minima_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    bits[i] = Bf16FromFloat(static_cast<float>(WeightOf(c_, i)));
    scaled_[i] = FloatFromBf16(bits[i]);
  }
  Pack(reinterpret_cast<const std::byte*>(bits.data()), nullptr);
}

void LinearData::Pack(const std::byte* weights, const std::byte* scales) {
  FindLayout(row_.layout, row_.method, "weight")
      ->pack(WeightShape(row_, c_), weights, codes_.data());
  if (group_ == 0) return;
  FindLayout(row_.layout, row_.method, "scale")->pack(ScaleShape(row_, c_), scales, scales_.data());
}

WeightView LinearData::View() {
  return {row_.layout, c_.n, c_.k, codes_.data(), group_ == 0 ? nullptr : scales_.data(), group_};
}

Activations LinearData::x(int64_t token) {
  if (row_.act == "a16") return {.bf16 = x_.as<uint16_t>() + token * c_.k};
  const int64_t step = token * c_.k / kStep;
  if (row_.act == "amxfp8") {
    return {.e4m3 = x_codes_.as<uint8_t>() + token * c_.k, .e8m0 = x_scales_.as<uint8_t>() + step};
  }
  if (row_.act == "amxfp4") {
    return {.e2m1 = x_codes_.data() + token * c_.k / 2, .e8m0 = x_scales_.as<uint8_t>() + step};
  }
  return {.codes = x_codes_.as<int8_t>() + token * c_.k,
          .scales = x_scales_.as<float>() + step,
          .sums = x_sums_.as<int32_t>() + step};
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
    const double a = x_values_[static_cast<size_t>(token * c_.k + i)];
    const auto at = static_cast<size_t>(row * c_.k + i);
    sum += std::fabs(a) * (std::fabs(scaled_[at]) + std::fabs(minima_[at]));
    unit_x = unit(a, unit_x);
    unit_w = unit(minima_[at], unit(scaled_[at], unit_w));
  }
  return sum == 0 || sum <= std::ldexp(1, 24 + unit_x + unit_w);
}

float LinearData::Expected(int64_t token, int64_t row) const {
  double sum = 0;
  for (int64_t i = 0; i < c_.k; ++i) {
    const auto at = static_cast<size_t>(row * c_.k + i);
    sum += x_values_[static_cast<size_t>(token * c_.k + i)] * (scaled_[at] + minima_[at]);
  }
  return static_cast<float>(sum);
}

std::string LinearData::Check(const std::vector<float>& y) const {
  const double lanes = row_.lanes;
  // numerics: each rounding on a term's way costs u of it; γ = c·u/(1 − c·u) covers their products.
  const double c = std::ceil(static_cast<double>(c_.k) / lanes) + std::log2(lanes) + row_.extra;
  const double cu = c * 0x1p-24;
  const double gamma = cu / (1 - cu);
  for (int64_t token = 0; token < c_.m; ++token) {
    for (int64_t n = 0; n < c_.n; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < c_.k; ++i) {
        const double x = x_values_[static_cast<size_t>(token * c_.k + i)];
        const auto at = static_cast<size_t>(n * c_.k + i);
        sum += x * (scaled_[at] + minima_[at]);
        magnitude += std::fabs(x) * (std::fabs(scaled_[at]) + std::fabs(minima_[at]));
      }
      // The last two: a subnormal rounding costs half of the smallest one; the loop's own double.
      const double tolerance =
          gamma * magnitude + c * 0x1p-150 + static_cast<double>(2 * c_.k) * 0x1p-53 * magnitude;
      const double got = y[static_cast<size_t>(token * c_.n + n)];
      if (std::fabs(got - sum) <= tolerance) continue;
      // From half a step above the largest float on, the nearest one is an infinity.
      const bool beyond = std::fabs(sum) + tolerance >= 0x1.ffffffp127;
      if (beyond && got == std::copysign(std::numeric_limits<double>::infinity(), sum)) continue;
      char text[320];
      std::snprintf(text, sizeof text,
                    "%s: y[%lld, %lld] = %.9g, expected %.9g, tolerance %.3g = %g roundings "
                    "(ceil(k/%d) + log2(%d) + %d) of 2^-24 on %.3g",
                    c_.Print().c_str(), static_cast<long long>(token), static_cast<long long>(n),
                    got, sum, tolerance, c, row_.lanes, row_.lanes, row_.extra, magnitude);
      return text;
    }
  }
  return "";
}

}  // namespace assay::kernels::testing
