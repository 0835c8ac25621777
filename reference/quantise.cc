// 8-bit activations as engines make them, in fp32's arithmetic: every operation in double and then
// rounded to fp32, which is the same for one operation on fp32 values (53 bits are more than twice
// 24 and two).
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "reference/methods/method.h"
#include "reference/oracle.h"

namespace assay::reference {
namespace {

constexpr double kLargestCode = 127;
// Beyond the last k + ½ between two codes, codes are clamped: there is no neighbour.
constexpr double kLastTie = kLargestCode - 0.5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Fp32(double value) { return RoundTo(value, DType::kF32); }

// Distance of two neighbouring fp32 numbers at a value; below the normal range the smallest
// subnormal's.
double UlpAt(double value) {
  const int exponent = value == 0 ? -126 : std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

// What is multiplied with, or divided into, every value of a group.
struct Step {
  CodeRule rule;
  double scale = 0, factor = 0;
  Step(CodeRule code_rule, double s, double amax) : rule(code_rule), scale(s) {
    if (rule == CodeRule::kTimesReciprocal) factor = Fp32(1 / s);
    if (rule == CodeRule::kTimesInverse) factor = Fp32(kLargestCode / amax);
  }
  double Of(double x) const { return Fp32(rule == CodeRule::kDivide ? x / scale : x * factor); }
};

class Group {
 public:
  Group(const double* x, int64_t n) : x_(x), n_(n) {
    for (int64_t i = 0; i < n; ++i) {
      const double size = std::fabs(Fp32(x[i]));
      finite_ = finite_ && std::isfinite(size);
      amax_ = std::max(amax_, size);
    }
  }
  double Scale() const {
    return finite_ ? Fp32(amax_ / kLargestCode) : std::numeric_limits<double>::quiet_NaN();
  }
  void Code(double scale, CodeRule rule, double* codes, double* ties) const {
    for (int64_t i = 0; i < n_; ++i) codes[i] = 0, ties[i] = kInfinity;
    if (!finite_ || !std::isfinite(scale) || scale == 0) return;
    const Step step(rule, scale, amax_);
    for (int64_t i = 0; i < n_; ++i) {
      const double t = step.Of(Fp32(x_[i]));
      if (std::isnan(t)) continue;  // 0 · ∞, where the reciprocal of a subnormal overflowed
      // nearbyint would follow the host's mode; codes do not.
      const double below = std::floor(t), rest = t - below;
      const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
      const double code = std::isfinite(t) ? below + (up ? 1 : 0) : t;
      codes[i] = std::fmin(std::fmax(code, -kLargestCode), kLargestCode);
      const double ulp = std::isfinite(t) ? UlpAt(t) : 1;
      if (std::fabs(t) <= kLastTie + 0.5) ties[i] = std::fabs(rest - 0.5) / ulp;
    }
  }

 private:
  const double* x_;
  int64_t n_;
  bool finite_ = true;
  double amax_ = 0;
};

}  // namespace

Result<QuantisedActivation> Quantise(const Tensor& x, const ActQuantiser& quantiser,
                                     const Tensor* scales) {
  const int64_t rows = x.rows(), k = x.columns();
  const int64_t group = quantiser.group > 0 ? quantiser.group : k;
  if (group <= 0 || k % group != 0) {
    return Error{
        fmt::format("activations of {} elements are no whole number of groups of {}", k, group)};
  }
  const int64_t groups = k / group;
  if (scales != nullptr && (scales->rows() != rows || scales->columns() != groups ||
                            static_cast<int64_t>(scales->data.size()) != rows * groups)) {
    return Error{fmt::format("scales of activations are {}, must be [{}, {}]",
                             PrintShape(scales->shape), rows, groups)};
  }
  QuantisedActivation out;
  out.group = quantiser.group;
  out.codes.shape = out.tie_ulps.shape = {rows, k};
  out.scales.shape = {rows, groups};
  out.codes.data.resize(x.data.size());
  out.tie_ulps.data.resize(x.data.size());
  for (int64_t i = 0; i < rows * groups; ++i) {
    const auto at = static_cast<size_t>(i * group);
    const Group values(x.data.data() + at, group);
    const double scale = scales != nullptr ? scales->data[static_cast<size_t>(i)] : values.Scale();
    out.scales.data.push_back(scale);
    values.Code(scale, quantiser.codes, out.codes.data.data() + at, out.tie_ulps.data.data() + at);
  }
  return out;
}

}  // namespace assay::reference
