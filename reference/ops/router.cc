#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/ops/ops.h"

namespace assay::reference::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// What renormalisation adds to the sum (models.md).
constexpr double kRenormaliseEps = 1e-20;

// Indices of `values` by falling value, the lowest index first among equal ones.
std::vector<int64_t> Ranked(const std::vector<double>& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

// Between the last taken and the first not taken; infinite if everything is taken.
double Gap(const std::vector<double>& values, const std::vector<int64_t>& order, int64_t taken) {
  if (taken >= static_cast<int64_t>(order.size())) return kInfinity;
  return values[static_cast<size_t>(order[static_cast<size_t>(taken - 1)])] -
         values[static_cast<size_t>(order[static_cast<size_t>(taken)])];
}

// Sum of each group's two largest values (of its only one where it has one).
std::vector<double> GroupScores(const std::vector<double>& choice, int64_t groups) {
  const auto size = static_cast<std::ptrdiff_t>(choice.size()) / groups;
  std::vector<double> scores;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    scores.push_back(members[0] + (size > 1 ? members[1] : 0));
  }
  return scores;
}

}  // namespace

Evaluation RouterScores(const Input& logits, bool bounds) {
  Evaluation e;
  e.value = *logits.value;
  for (double& value : e.value.data) value = 1 / (1 + std::exp(-value));
  if (bounds) e.function = e.value;
  if (bounds && logits.error != nullptr) {
    e.propagated = *logits.error;
    for (size_t i = 0; i < e.value.data.size(); ++i) {
      e.propagated.data[i] *= e.value.data[i] * (1 - e.value.data[i]);
    }
  }
  return e;
}

Evaluation RouterIds(const Input& scores, const std::vector<double>& bias, const Routing& routing,
                     bool bounds) {
  const int64_t rows = scores.value->rows(), experts = scores.value->columns();
  const int64_t size = experts / routing.groups;
  Evaluation e;
  e.value = Zeros({rows, routing.top_k});
  e.margin = Zeros({rows, 1});
  const bool errors = bounds && scores.error != nullptr;
  if (errors) e.propagated = Zeros({rows, 1});
  for (int64_t t = 0; t < rows; ++t) {
    std::vector<double> choice(bias);
    for (int64_t i = 0; i < experts; ++i) {
      choice[static_cast<size_t>(i)] += scores.value->data[static_cast<size_t>(t * experts + i)];
    }
    double margin = kInfinity;
    if (routing.topk_group < routing.groups) {
      const std::vector<double> groups = GroupScores(choice, routing.groups);
      const std::vector<int64_t> order = Ranked(groups);
      margin = Gap(groups, order, routing.topk_group);
      for (size_t i = static_cast<size_t>(routing.topk_group); i < order.size(); ++i) {
        std::fill_n(choice.begin() + order[i] * size, size, -kInfinity);
      }
    }
    const std::vector<int64_t> order = Ranked(choice);
    margin = std::min(margin, Gap(choice, order, routing.top_k));
    std::vector<int64_t> ids(order.begin(), order.begin() + routing.top_k);
    std::sort(ids.begin(), ids.end());
    std::copy(ids.begin(), ids.end(), e.value.data.begin() + t * routing.top_k);
    e.margin.data[static_cast<size_t>(t)] = margin;
    if (!errors) continue;
    // Two scores make an experts' gap, four a groups' gap.
    const auto from = scores.error->data.begin() + t * experts;
    const double largest = *std::max_element(from, from + experts);
    e.propagated.data[static_cast<size_t>(t)] =
        largest * (routing.topk_group < routing.groups ? 4 : 2);
  }
  return e;
}

Evaluation RouterWeights(const Input& scores, const Tensor& ids, const Routing& routing,
                         bool bounds) {
  const int64_t rows = ids.rows(), k = ids.columns(), experts = scores.value->columns();
  Evaluation e;
  e.value = Zeros({rows, k});
  e.terms = routing.renormalise ? k : 0;
  const bool errors = bounds && scores.error != nullptr;
  if (errors) e.propagated = e.value;
  for (int64_t t = 0; t < rows; ++t) {
    const auto score = [&](const Tensor& of, int64_t i) {
      const auto id = static_cast<int64_t>(ids.data[static_cast<size_t>(t * k + i)]);
      return of.data[static_cast<size_t>(t * experts + id)];
    };
    double sum = routing.renormalise ? kRenormaliseEps : 0, error_sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      if (routing.renormalise) sum += score(*scores.value, i);
      if (errors) error_sum += score(*scores.error, i);
    }
    const double divisor = routing.renormalise ? sum : 1;
    for (int64_t i = 0; i < k; ++i) {
      const double share = score(*scores.value, i) / divisor;
      const auto at = static_cast<size_t>(t * k + i);
      e.value.data[at] = share * routing.scaling;
      if (!errors) continue;
      const double own = score(*scores.error, i);
      // d(s_i/S) = ds_i·(1 − s_i/S)/S − s_i/S²·Σ of the others.
      e.propagated.data[at] =
          routing.scaling / divisor *
          (routing.renormalise ? own * (1 - share) + share * (error_sum - own) : own);
    }
  }
  if (bounds) {
    e.function = e.value;
    for (double& value : e.function.data) value = std::fabs(value);
    if (routing.renormalise) e.magnitude = e.function;
  }
  return e;
}

std::vector<int64_t> RoutedRows(const Tensor& ids, int64_t expert) {
  std::vector<int64_t> rows;
  const int64_t k = ids.columns();
  for (int64_t t = 0; t < ids.rows(); ++t) {
    const auto from = ids.data.begin() + t * k;
    if (std::find(from, from + k, static_cast<double>(expert)) != from + k) rows.push_back(t);
  }
  return rows;
}

}  // namespace assay::reference::ops
