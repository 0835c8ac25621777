// 8-bit activations in two of their three stages (numerics.md §1.2): scales against the oracle's,
// codes against x over the engine's own scales. The third, the product on the engine's codes, is an
// op like any other.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Tensor;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLargestCode = 127;

// Steps between two floats of one sign: units in the last place, across binades too.
double StepsApart(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : kInf;
  if (std::signbit(a) != std::signbit(b)) return a == b ? 0 : kInf;
  return std::abs(static_cast<double>(std::bit_cast<int32_t>(a)) -
                  static_cast<double>(std::bit_cast<int32_t>(b)));
}

double UlpOf(float value) {
  const float up = std::nextafter(std::abs(value), std::numeric_limits<float>::infinity());
  return static_cast<double>(up) - std::abs(static_cast<double>(value));
}

int64_t GroupOf(const ActQuantiser& quantiser, int64_t columns) {
  return quantiser.group > 0 ? quantiser.group : std::max<int64_t>(columns, 1);
}

// Largest value of a row's group.
double Largest(const Tensor& of, int64_t row, int64_t group, int64_t size) {
  const double* at = of.data.data() + row * of.columns() + group * size;
  double largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(at[i]));
  return largest;
}

// A code against the due one. `tie`: how far the quotient is from the middle between two codes, in
// its last place; `quotient` itself says on which side.
double RatioOfCode(double want, double got, double quotient, double tie, bool* ambiguous) {
  if (got == want) return 0;
  const bool neighbour = std::abs(got) <= kLargestCode && std::abs(got - want) == 1 &&
                         (got > want) == (quotient > want);
  // In the very middle the rule decides: to even.
  *ambiguous = neighbour && tie > 0 && tie <= kTieUlps;
  return *ambiguous ? 0 : kInf;
}

// Of an x that may be off by `error`: half a step of the scale, and that.
double RatioOfCode(double got, double quotient, double error, double scale) {
  if (std::abs(got) > kLargestCode || got != std::nearbyint(got)) return kInf;
  const double due = std::clamp(quotient, -kLargestCode, kLargestCode);
  const double bound = 0.5 + kTieUlps * UlpOf(static_cast<float>(quotient)) + error / scale;
  return std::abs(got - due) / bound;
}

void Count(double ratio, int64_t at, double want, double got, OpJudgement* j) {
  if (ratio > j->max_ratio || j->worst < 0) {
    j->max_ratio = ratio;
    j->worst = at;
    if (j->first < 0) {
      j->expected = want;
      j->got = got;
    }
  }
  if (ratio <= 1) return;
  if (j->first < 0) {
    j->first = at;
    j->expected = want;
    j->got = got;
  }
  ++j->wrong;
}

void Close(const Tensor& oracle, const Tensor& kernel, std::string_view what, OpJudgement* j) {
  j->judged = true;
  j->elements = static_cast<int64_t>(oracle.data.size());
  j->bound_ratio = j->max_ratio;
  const Metrics whole = CompareWhole(oracle, kernel);
  j->cosine = whole.cosine.value_or(1);
  j->rel_l2 = whole.rel_l2.value_or(0);
  j->max_abs = whole.max_abs.value_or(0);
  j->pass = j->wrong == 0;
  if (!j->pass) j->reason = fmt::format("{} of {} {}", j->wrong, j->elements, what);
  j->oracle = oracle;
  j->kernel = kernel;
}

}  // namespace

std::string_view LinearOf(std::string_view tap) {
  for (const std::string_view suffix : {std::string_view(".x_scale"), std::string_view(".x_q")}) {
    if (tap.size() > suffix.size() && tap.ends_with(suffix)) {
      return tap.substr(0, tap.size() - suffix.size());
    }
  }
  return {};
}

Tensor ActivationValues(const reference::Codes& codes) {
  Tensor x = *codes.codes;
  const int64_t columns = x.columns(), groups = codes.scales->columns();
  const int64_t size = codes.group > 0 ? codes.group : std::max<int64_t>(columns, 1);
  for (int64_t i = 0; i < static_cast<int64_t>(x.data.size()); ++i) {
    x.data[i] *= codes.scales->data[i / columns * groups + i % columns / size];
  }
  return x;
}

Status JudgeScales(const ActivationCase& given, const Tensor& scales, OpJudgement* j) {
  auto due = reference::Quantise(*given.x, given.quantiser);
  if (!due.ok()) return due.error();
  const int64_t size = GroupOf(given.quantiser, given.x->columns());
  const int64_t groups = due->scales.columns();
  j->mode = "bounded";
  j->tolerance.u_acc = UnitRoundoff(DType::kF32);
  j->tolerance.bound.assign(due->scales.data.size(), 0.0);
  for (int64_t i = 0; i < static_cast<int64_t>(due->scales.data.size()); ++i) {
    const auto want = static_cast<float>(due->scales.data[i]);
    const auto got = static_cast<float>(scales.data[i]);
    const double step = UlpOf(want) * kScaleUlps;
    double error = 0;
    if (given.error != nullptr) {
      error = Largest(*given.error, i / groups, i % groups, size) / kLargestCode;
    }
    // A scale of no group at all is exactly 0.
    const bool zero =
        want == 0 && error == 0 && Largest(*given.x, i / groups, i % groups, size) == 0;
    j->tolerance.bound[i] = zero ? 0 : step + error;
    double ratio = StepsApart(want, got) / kScaleUlps;
    if (zero) ratio = got == 0 ? 0 : kInf;
    if (ratio > 1 && std::isfinite(got) && std::isfinite(want) && !zero) {
      ratio = std::abs(static_cast<double>(got) - want) / j->tolerance.bound[i];
    }
    Count(ratio, i, due->scales.data[i], scales.data[i], j);
  }
  j->tolerance.terms = {
      {"x_scale",
       fmt::format("{} ulp of fl(amax / 127) over {} elements{}; a group of zeros: 0", kScaleUlps,
                   size, given.error != nullptr ? ", and the largest error of x over 127" : "")}};
  Close(due->scales, scales, "scales beyond an ulp of fl(amax / 127)", j);
  return Ok();
}

Status JudgeCodes(const ActivationCase& given, const Tensor& codes, const Tensor& scales,
                  OpJudgement* j) {
  auto due = reference::Quantise(*given.x, given.quantiser, &scales);
  if (!due.ok()) return due.error();
  const int64_t columns = given.x->columns(), groups = scales.columns();
  const int64_t size = GroupOf(given.quantiser, columns);
  j->mode = given.error == nullptr ? "discrete" : "bounded";
  for (int64_t i = 0; i < static_cast<int64_t>(codes.data.size()); ++i) {
    const double scale = scales.data[i / columns * groups + i % columns / size];
    const double want = due->codes.data[i], got = codes.data[i];
    // No scale, no code: a group of zeros, or one that is not finite.
    const bool none = scale == 0 || !std::isfinite(scale);
    const double quotient = none ? 0 : given.x->data[i] / scale;
    bool ambiguous = false;
    double ratio = 0;
    if (given.error == nullptr || none) {
      ratio = RatioOfCode(want, got, quotient, due->tie_ulps.data[i], &ambiguous);
    } else {
      ratio = RatioOfCode(got, quotient, given.error->data[i], std::abs(scale));
    }
    j->ambiguous += ambiguous;
    Count(ratio, i, want, got, j);
  }
  j->tolerance.u_acc = UnitRoundoff(DType::kF32);
  j->tolerance.bound.assign(codes.data.size(), 0.5);
  j->tolerance.terms = {
      {"x_q",
       fmt::format("the nearest integer to x over the engine's scale; its neighbour where "
                   "that is within {} ulp of the middle, but not in it{}",
                   kTieUlps, given.error != nullptr ? ", or within what x may be off" : "")}};
  Close(due->codes, codes, "codes are not the nearest to x over the engine's scale", j);
  return Ok();
}

}  // namespace assay::judge
