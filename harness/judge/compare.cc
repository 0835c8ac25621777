// One op's output against what is demanded of it, element by element.
#include <fmt/format.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Range {
  DType out, accumulator;
  double out_largest, accumulator_largest;
};

// |error| over bound; non-finite values by the contract's own range (numerics.md §1.3): ±inf if and
// only if that range is exceeded.
double RatioOf(double y, double k, double bound, double magnitude, const Range& range) {
  if (y == k) return 0;
  if (std::isinf(bound) && !std::isinf(y)) return 0;
  if (std::isnan(y)) return std::isnan(k) ? 0 : kInf;
  if (std::isinf(y)) return kInf;  // a masked score is −inf and nothing else
  if (!std::isfinite(k)) {
    if (magnitude > range.accumulator_largest) return 0;  // a partial sum may have overflowed
    const bool same_sign = !std::isnan(k) && (k > 0) == (y > 0);
    return same_sign && std::isinf(RoundTo(std::abs(y) + bound, range.out)) ? 0 : kInf;
  }
  if (std::abs(y) - bound > range.out_largest &&
      std::isinf(RoundTo(std::abs(y) - bound, range.out))) {
    return kInf;
  }
  const double error = std::abs(k - y);
  return bound > 0 ? error / bound : kInf;
}

struct Sums {
  double yy = 0, kk = 0, yk = 0, dd = 0, max_abs = 0;
  int64_t finite = 0, left_out = 0;
  // Equal NaN throughout are not a perfect match: there is nothing to compute from.
  bool known() const { return finite > 0 || left_out == 0; }
  void Add(double y, double k) {
    const bool both = std::isfinite(y) && std::isfinite(k);
    ++(both ? finite : left_out);
    if (!both) {
      if (y != k && !(std::isnan(y) && std::isnan(k))) max_abs = kInf;
      return;
    }
    yy += y * y;
    kk += k * k;
    yk += y * k;
    dd += (y - k) * (y - k);
    max_abs = std::max(max_abs, std::abs(y - k));
  }
  double cosine() const {
    if (!known()) return NAN;
    if (yy == 0 && kk == 0) return 1;
    return yy == 0 || kk == 0 ? 0 : yk / std::sqrt(yy) / std::sqrt(kk);
  }
  double rel_l2() const {
    if (!known()) return NAN;
    return yy > 0 ? std::sqrt(dd / yy) : (dd > 0 ? kInf : 0);
  }
};

// Masked scores are −inf by right.
bool Masked(const OpJudgement& j, double y) {
  return j.node != nullptr && j.node->op == reference::Op::kScores && std::isinf(y) && y < 0;
}

}  // namespace

double SmallestNormal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return DBL_MIN;
    case DType::kF16:
      return std::ldexp(1.0, -14);
    default:
      return FLT_MIN;  // bf16 has fp32's exponents
  }
}

double LargestFinite(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return DBL_MAX;
    case DType::kF16:
      return std::ldexp(2 - std::ldexp(1.0, -10), 15);
    case DType::kBF16:
      return std::ldexp(2 - std::ldexp(1.0, -7), 127);
    default:
      return FLT_MAX;
  }
}

void Fail(OpJudgement* j, std::string reason) {
  j->judged = true;
  j->pass = false;
  j->mode = "bounded";
  j->max_ratio = kInf;
  j->reason = std::move(reason);
}

void Compare(const Demand& demand, const reference::Tensor& kernel, OpJudgement* judgement) {
  OpJudgement& j = *judgement;
  const std::vector<double>& oracle = demand.evaluation->value.data;
  const std::vector<double>& magnitude = demand.evaluation->magnitude.data;
  const Range range{demand.out, demand.accumulator, LargestFinite(demand.out),
                    LargestFinite(demand.accumulator)};
  j.judged = true;
  j.elements = static_cast<int64_t>(oracle.size());
  double worst = -1;
  int64_t strict = 0, non_finite = 0;
  Sums sums;
  for (size_t i = 0; i < oracle.size(); ++i) {
    const double y = oracle[i], k = kernel.data[i], bound = demand.tolerance.bound[i];
    double ratio = RatioOf(y, k, bound, magnitude.empty() ? 0 : magnitude[i], range);
    j.bound_ratio = std::max(j.bound_ratio, ratio);
    if (!demand.strict.empty() && demand.strict[i] != 0) {
      ++strict;
      const double want = demand.want[i];
      ratio = k == want || (std::isnan(k) && std::isnan(want)) ? 0 : kInf;
    } else if (std::isfinite(y) && bound > std::abs(y)) {
      ++j.proves_nothing;
    }
    sums.Add(y, k);
    if ((!std::isfinite(y) && !Masked(j, y)) || (std::isfinite(y) && !std::isfinite(k))) {
      ++j.not_finite;
    }
    if (ratio > worst) {
      worst = ratio;
      j.worst = static_cast<int64_t>(i);
    }
    if (ratio > 1) {
      if (j.first < 0) j.first = static_cast<int64_t>(i);
      ++j.wrong;
      if (std::isfinite(y) && !std::isfinite(k)) ++non_finite;
    }
  }
  j.max_ratio = std::max(worst, 0.0);
  j.cosine = sums.cosine();
  j.rel_l2 = sums.rel_l2();
  j.max_abs = sums.max_abs;
  const int64_t at = j.first >= 0 ? j.first : j.worst;
  if (at >= 0) {
    j.expected = oracle[at];
    j.got = kernel.data[at];
  }
  if (j.worst >= 0 && !magnitude.empty() && magnitude[j.worst] > 0) {
    j.condition = magnitude[j.worst] / std::abs(oracle[j.worst]);
  }
  j.mode = strict > 0 && strict == j.elements ? demand.strict_mode : "bounded";
  j.pass = j.wrong == 0;
  if (!j.pass) {
    j.reason = fmt::format(
        "{} of {} elements {}", j.wrong, j.elements,
        j.mode == "bounded" ? "beyond their bound" : "differ where only one result is right");
    if (j.mode != "bounded" && j.bound_ratio <= 1) {
      j.reason += fmt::format(", by {:.2g} of their bound at most", j.bound_ratio);
    }
    if (non_finite > 0) j.reason += fmt::format(", {} of them not finite", non_finite);
  }
}

Metrics CompareWhole(const reference::Tensor& oracle, const reference::Tensor& kernel) {
  Metrics metrics;
  if (oracle.data.size() != kernel.data.size()) return metrics;
  Sums sums;
  for (size_t i = 0; i < oracle.data.size(); ++i) sums.Add(oracle.data[i], kernel.data[i]);
  if (!sums.known()) return metrics;
  metrics.cosine = sums.cosine();
  metrics.rel_l2 = sums.rel_l2();
  metrics.max_abs = sums.max_abs;
  return metrics;
}

}  // namespace assay::judge
