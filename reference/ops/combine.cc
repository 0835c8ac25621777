#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {

Evaluation Combine(const Tensor& ids, const Input& weights, std::span<const Input> experts,
                   int64_t hidden, bool bounds) {
  const int64_t rows = ids.rows(), k = ids.columns();
  bool errors = weights.error != nullptr;
  for (const Input& expert : experts) errors = errors || expert.error != nullptr;
  errors = errors && bounds;
  Evaluation e;
  e.value = Zeros({rows, hidden});
  e.terms = k;
  if (bounds) e.magnitude = e.value;
  if (errors) e.propagated = e.value;
  std::vector<int64_t> next(experts.size(), 0);  // row of each expert's tensor, tokens ascending
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(t * k + i);
      const auto id = static_cast<size_t>(ids.data[at]);
      const double w = weights.value->data[at];
      const double dw = errors && weights.error != nullptr ? weights.error->data[at] : 0;
      const int64_t from = next[id]++ * hidden;
      const Input& expert = experts[id];
      if (expert.value == nullptr) continue;  // another rank has it
      const double* y = expert.value->data.data() + from;
      const double* dy =
          errors && expert.error != nullptr ? expert.error->data.data() + from : nullptr;
      for (int64_t h = 0; h < hidden; ++h) {
        const auto to = static_cast<size_t>(t * hidden + h);
        e.value.data[to] += w * y[h];
        if (bounds) e.magnitude.data[to] += std::fabs(w * y[h]);
        if (!errors) continue;
        const double own = dy != nullptr ? dy[h] : 0;
        e.propagated.data[to] += (std::fabs(w) + dw) * own + dw * std::fabs(y[h]);
      }
    }
  }
  return e;
}

}  // namespace assay::reference::ops
