#include <bit>
#include <cmath>
#include <limits>

#include "reference/ops/ops.h"

namespace assay::reference::ops {
namespace {

// Exponent of the largest power of two that divides all values of a row; kNone if all are zero.
constexpr int kNone = std::numeric_limits<int>::max();
constexpr int kInexact = std::numeric_limits<int>::min();
constexpr int64_t kNoFloor = kInexact;

int LowestBit(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const int biased = static_cast<int>(bits >> 52 & 0x7ff);
  if (biased == 0x7ff || biased == 0) return kInexact;
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  return biased - 1075 + std::countr_zero(significand);
}

// kInexact also where a value is not in fp32's normal range: a flushing kernel would lose it; and
// where the exponent is below `floor`, which most rows show in their first values.
int UnitExponent(const double* row, int64_t n, int64_t floor) {
  int unit = kNone;
  for (int64_t k = 0; k < n; ++k) {
    if (row[k] == 0) continue;
    const double size = std::fabs(row[k]);
    if (!(size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max())) {
      return kInexact;
    }
    unit = std::min(unit, LowestBit(row[k]));
    if (unit < floor) return kInexact;
  }
  return unit;
}

// numerics.md §1.1: Σ|x||w| (+ |b|) <= 2^24·unit_x·unit_w. Products stay in fp32's normal range if
// the product of the units does. `extra`: the bias, a term that must lie on the same grid.
bool IsExact(int unit_x, int unit_w, double magnitude, double extra) {
  if (unit_x == kInexact || unit_w == kInexact) return false;
  if (unit_x == kNone || unit_w == kNone) {
    return extra == 0 || UnitExponent(&extra, 1, kNoFloor) != kInexact;
  }
  const int unit = unit_x + unit_w;
  if (unit < std::numeric_limits<float>::min_exponent - 1) return false;
  if (extra != 0) {
    const int lowest = UnitExponent(&extra, 1, kNoFloor);
    if (lowest == kInexact || lowest < unit) return false;
  }
  const double total = magnitude + std::fabs(extra);
  return total <= std::ldexp(1.0, 24 + unit) && total <= std::numeric_limits<float>::max();
}

// The least unit_w with which IsExact can hold: that total is at most 2^(24 + unit_x + unit_w).
int64_t LeastUnit(int unit_x, double magnitude, double extra) {
  if (unit_x == kInexact) return std::numeric_limits<int64_t>::max();
  const double total = magnitude + std::fabs(extra);
  if (unit_x == kNone || total == 0) return kNoFloor;
  return int64_t{std::ilogb(total)} - 24 - unit_x;
}

}  // namespace

Evaluation Linear(const Input& x, WeightRows* weight, const std::vector<double>* bias,
                  bool bounds) {
  const int64_t rows = x.value->rows(), k = weight->columns(), n = weight->rows();
  Evaluation e;
  e.value = Zeros({rows, n});
  e.terms = k;
  std::vector<int> unit_x;
  if (bounds) {
    e.magnitude = Zeros({rows, n});
    if (bias != nullptr) e.function = Zeros({rows, n});
    if (x.error != nullptr) e.propagated = Zeros({rows, n});
    e.exact.assign(static_cast<size_t>(rows * n), 0);
    for (int64_t t = 0; t < rows; ++t) {
      unit_x.push_back(UnitExponent(x.value->data.data() + t * k, k, kNoFloor));
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    const double* w = weight->Row(i);
    const double b = bias != nullptr ? (*bias)[static_cast<size_t>(i)] : 0.0;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t t = 0; t < rows; ++t) {
      const double* row = x.value->data.data() + t * k;
      const auto at = static_cast<size_t>(t * n + i);
      e.value.data[at] = Dot(row, w, k);
      if (bias != nullptr) e.value.data[at] += b;
      if (!bounds) continue;
      e.magnitude.data[at] = DotAbs(row, w, k);
      if (bias != nullptr) e.function.data[at] = std::fabs(b);
      if (x.error != nullptr) e.propagated.data[at] = DotAbs(x.error->data.data() + t * k, w, k);
      least = std::min(least, LeastUnit(unit_x[static_cast<size_t>(t)], e.magnitude.data[at], b));
    }
    if (!bounds) continue;
    const int unit_w = UnitExponent(w, k, least);
    for (int64_t t = 0; t < rows; ++t) {
      const auto at = static_cast<size_t>(t * n + i);
      const int unit = unit_x[static_cast<size_t>(t)];
      e.exact[at] = IsExact(unit, unit_w, e.magnitude.data[at], b) ? 1 : 0;
    }
  }
  return e;
}

}  // namespace assay::reference::ops
