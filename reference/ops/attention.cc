#include "reference/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace assay::reference::ops {

void Softmax(const double* scores, int64_t keys, DType type, double* p) {
  const double largest = *std::max_element(scores, scores + keys);
  double sum = 0;
  for (int64_t j = 0; j < keys; ++j) {
    p[j] = std::exp(scores[j] - largest);
    sum += p[j];
  }
  for (int64_t j = 0; j < keys; ++j) {
    p[j] /= sum;
    if (type != DType::kF64) p[j] = RoundTo(p[j], type);
  }
}

void WeightedSum(const double* p, const double* ds, int64_t keys, const Values& values, size_t at,
                 bool bounds, Evaluation* e) {
  double* out = e->value.data.data() + at;
  for (int64_t j = 0; j < keys; ++j) {
    const double* v = values.v + j * values.stride;
    if (p[j] == 0) continue;
    for (int64_t d = 0; d < values.width; ++d) out[d] += p[j] * v[d];
  }
  if (!bounds) return;
  for (int64_t j = 0; j < keys; ++j) {
    if (p[j] == 0) continue;
    const double* v = values.v + j * values.stride;
    for (int64_t d = 0; d < values.width; ++d) {
      const auto i = at + static_cast<size_t>(d);
      e->magnitude.data[i] += p[j] * std::fabs(v[d]);
      if (e->propagated.data.empty()) continue;
      if (ds != nullptr) e->propagated.data[i] += p[j] * std::fabs(v[d] - out[d]) * ds[j];
      if (values.dv != nullptr) e->propagated.data[i] += p[j] * values.dv[j * values.stride + d];
    }
  }
  for (int64_t d = 0; d < values.width; ++d) {
    const auto i = at + static_cast<size_t>(d);
    e->function.data[i] = e->magnitude.data[i];
  }
}

Evaluation ContextShape(int64_t rows, int64_t columns, int64_t keys, bool errors, bool bounds) {
  Evaluation e;
  e.value = Zeros({rows, columns});
  e.terms = keys;
  if (bounds) e.magnitude = e.function = e.value;
  if (bounds && errors) e.propagated = e.value;
  return e;
}

Evaluation ScoresShape(int64_t rows, int64_t heads, int64_t keys, int64_t terms, bool errors,
                       bool bounds) {
  Evaluation e;
  e.value = Zeros({rows, heads, keys});
  e.terms = terms;
  if (bounds) e.magnitude = e.value;
  if (bounds && errors) e.propagated = e.value;
  std::fill(e.value.data.begin(), e.value.data.end(), -std::numeric_limits<double>::infinity());
  return e;
}

}  // namespace assay::reference::ops
