#include "reference/golden_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "harness/abi/contract.h"

namespace assay::reference {
namespace {

constexpr int64_t kTop = 8;
constexpr int64_t kProjections = 16;
// exp, the shift before it, log, the addition after it: one ulp is two half ones.
constexpr double kFunctionRoundings = 8;

// Splitmix64 of the state v: one step, then the mix.
uint64_t Signs(uint64_t v) {
  uint64_t x = v + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::span<const double> RowOf(const Tensor& logits, int64_t t) {
  const auto columns = static_cast<size_t>(logits.columns());
  return std::span<const double>(logits.data).subspan(static_cast<size_t>(t) * columns, columns);
}

std::vector<size_t> Largest(std::span<const double> row, size_t count) {
  std::vector<size_t> order(row.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, row.size()));
  std::partial_sort(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
  });
  order.erase(end, order.end());
  return order;
}

double LogSumExp(std::span<const double> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double x : row) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

Tensor Empty(std::vector<int64_t> shape) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  return tensor;
}

}  // namespace

std::map<std::string, Tensor> Summarise(const Tensor& logits) {
  const int64_t rows = logits.rows();
  Tensor ids = Empty({rows, kTop}), top = Empty({rows, kTop});
  Tensor log_sum = Empty({rows}), projections = Empty({rows, kProjections});
  for (int64_t t = 0; t < rows; ++t) {
    const std::span<const double> row = RowOf(logits, t);
    for (const size_t id : Largest(row, kTop)) {
      ids.data.push_back(static_cast<double>(id));
      top.data.push_back(row[id]);
    }
    log_sum.data.push_back(LogSumExp(row));
    double sums[kProjections] = {};
    for (size_t v = 0; v < row.size(); ++v) {
      const uint64_t signs = Signs(v);
      for (size_t k = 0; k < kProjections; ++k) sums[k] += (signs >> k & 1) != 0 ? -row[v] : row[v];
    }
    projections.data.insert(projections.data.end(), sums, sums + kProjections);
  }
  return {{"top8_ids", std::move(ids)},
          {"top8", std::move(top)},
          {"logsumexp", std::move(log_sum)},
          {"projections", std::move(projections)}};
}

Status CheckSummary(const GoldenTensors& summary, int64_t tokens, int64_t vocabulary) {
  if (vocabulary < kTop) {
    return Error{fmt::format("a summary needs {} logits, the model has {}", kTop, vocabulary)};
  }
  for (const std::string_view name : kSummaryNames) {
    const auto found = summary.find(std::string(name));
    if (found == summary.end()) return Error{fmt::format("{} is missing beside others", name)};
    const GoldenTensor& tensor = found->second;
    const int64_t columns = name == "logsumexp" ? 1 : name == "projections" ? kProjections : kTop;
    if (tensor.value.rows() != tokens || tensor.value.columns() != columns) {
      return Error{fmt::format("{} has {} rows of {}, must be {} of {}", name, tensor.value.rows(),
                               tensor.value.columns(), tokens, columns)};
    }
    if (tensor.integer() != (name == "top8_ids")) {
      return Error{fmt::format("{} is of type {}", name, NameOf(tensor.dtype))};
    }
  }
  return Ok();
}

double SummaryRounding(const std::string& name, const Tensor& logits) {
  const double unit = UnitRoundoff(DType::kF64);
  const auto terms = static_cast<double>(logits.columns());
  double largest = 0;
  for (int64_t t = 0; t < logits.rows(); ++t) {
    double sum = 0;
    for (const double x : RowOf(logits, t)) sum += std::fabs(x);
    if (name == "projections") largest = std::max(largest, terms * sum);
    if (name == "logsumexp") {
      const double value = std::fabs(LogSumExp(RowOf(logits, t)));
      largest = std::max(largest, (terms + kFunctionRoundings) * (1 + value));
    }
  }
  return 2 * unit * largest;
}

Tensor LastRow(const Tensor& logits) {
  Tensor last = Empty({1, logits.columns()});
  const auto row = RowOf(logits, logits.rows() - 1);
  last.data.assign(row.begin(), row.end());
  return last;
}

}  // namespace assay::reference
