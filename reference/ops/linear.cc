#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

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

// One product, and the memory of one thread's part of it.
class Product {
 public:
  Product(const Input& x, const WeightRows& weight, const std::vector<double>* bias, bool bounds);
  // Rows [begin, end) of the weight.
  void Rows(int64_t begin, int64_t end);
  double Work() const {
    return static_cast<double>(rows_) * static_cast<double>(k_) * static_cast<double>(n_);
  }
  Evaluation Take() { return std::move(e_); }

 private:
  // A row of the weight, what magnitude is made of, and what errors are multiplied with.
  struct WeightRow {
    const double* w = nullptr;
    std::vector<double> size, magnitude;
    WeightRows::Scratch scratch;
  };
  void Bounds(int64_t i, double b, WeightRow* row);
  int UnitOf(const WeightRow& row, const double* minima, int64_t floor) const;

  const Input& x_;
  const WeightRows& weight_;
  const std::vector<double>* bias_;
  const bool bounds_;
  const int64_t rows_, k_, n_;
  std::vector<double> size_x_;
  std::vector<int> unit_x_;
  Evaluation e_;
};

Product::Product(const Input& x, const WeightRows& weight, const std::vector<double>* bias,
                 bool bounds)
    : x_(x),
      weight_(weight),
      bias_(bias),
      bounds_(bounds),
      rows_(x.value->rows()),
      k_(weight.columns()),
      n_(weight.rows()) {
  e_.value = Zeros({rows_, n_});
  e_.terms = k_;
  if (!bounds) return;
  e_.magnitude = e_.value;
  if (bias != nullptr) e_.function = e_.value;
  if (x.error != nullptr) e_.propagated = e_.value;
  e_.exact.assign(e_.value.data.size(), 0);
  for (const double value : x.value->data) size_x_.push_back(std::fabs(value));
  for (int64_t t = 0; t < rows_; ++t) {
    unit_x_.push_back(UnitExponent(x.value->data.data() + t * k_, k_, kNoFloor));
  }
}

// Of the terms: where minima are terms of their own, of them and of what is left of the weight.
int Product::UnitOf(const WeightRow& row, const double* minima, int64_t floor) const {
  if (minima == nullptr) return UnitExponent(row.w, k_, floor);
  const int unit = UnitExponent(minima, k_, floor);
  if (unit == kInexact) return unit;
  std::vector<double> rest(row.w, row.w + k_);
  for (size_t k = 0; k < rest.size(); ++k) rest[k] -= minima[k];
  const int other = UnitExponent(rest.data(), k_, floor);
  return other == kInexact ? other : std::min(unit, other);
}

void Product::Bounds(int64_t i, double b, WeightRow* row) {
  const double* minima = weight_.Minima(i, &row->scratch);
  row->size.resize(static_cast<size_t>(k_));
  for (size_t k = 0; k < row->size.size(); ++k) row->size[k] = std::fabs(row->w[k]);
  const std::vector<double>* magnitude = &row->size;
  if (minima != nullptr) {
    magnitude = &row->magnitude;
    row->magnitude.resize(row->size.size());
    for (size_t k = 0; k < row->size.size(); ++k) {
      row->magnitude[k] = std::fabs(row->w[k] - minima[k]) + std::fabs(minima[k]);
    }
  }
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t t = 0; t < rows_; ++t) {
    const auto at = static_cast<size_t>(t * n_ + i);
    e_.magnitude.data[at] = Dot(size_x_.data() + t * k_, magnitude->data(), k_);
    if (bias_ != nullptr) e_.function.data[at] = std::fabs(b);
    if (x_.error != nullptr) {
      e_.propagated.data[at] = Dot(x_.error->data.data() + t * k_, row->size.data(), k_);
    }
    least = std::min(least, LeastUnit(unit_x_[static_cast<size_t>(t)], e_.magnitude.data[at], b));
  }
  const int unit_w = UnitOf(*row, minima, least);
  for (int64_t t = 0; t < rows_; ++t) {
    const auto at = static_cast<size_t>(t * n_ + i);
    const int unit = unit_x_[static_cast<size_t>(t)];
    e_.exact[at] = IsExact(unit, unit_w, e_.magnitude.data[at], b) ? 1 : 0;
  }
}

void Product::Rows(int64_t begin, int64_t end) {
  WeightRow row;
  for (int64_t i = begin; i < end; ++i) {
    row.w = weight_.Row(i, &row.scratch);
    const double b = bias_ != nullptr ? (*bias_)[static_cast<size_t>(i)] : 0.0;
    for (int64_t t = 0; t < rows_; ++t) {
      double& y = e_.value.data[static_cast<size_t>(t * n_ + i)];
      y = Dot(x_.value->data.data() + t * k_, row.w, k_);
      if (bias_ != nullptr) y += b;
    }
    if (bounds_) Bounds(i, b, &row);
  }
}

// Products of fewer multiply-adds are not worth a thread: they take a millisecond or two.
constexpr double kWorkOfThread = 4e6;

}  // namespace

Evaluation Linear(const Input& x, const WeightRows& weight, const std::vector<double>* bias,
                  bool bounds) {
  Product product(x, weight, bias, bounds);
  const int64_t n = weight.rows();
  const auto most = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const auto wanted = static_cast<int64_t>(std::min(product.Work() / kWorkOfThread, 1e6));
  const int64_t parts = std::max<int64_t>(1, std::min({most, wanted, n}));
  const auto run = [&product, parts, n](int64_t part) {
    product.Rows(part * n / parts, (part + 1) * n / parts);
  };
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    try {
      threads.emplace_back(run, part);
    } catch (const std::system_error&) {
      run(part);  // no more threads to be had here
    }
  }
  run(0);
  for (std::thread& thread : threads) thread.join();
  return product.Take();
}

}  // namespace assay::reference::ops
