#include <cmath>

#include "reference/ops/attention.h"

namespace assay::reference::ops {

Evaluation GqaScores(const Input& q, const Input& k, const Gqa& shape, bool bounds) {
  const int64_t rows = q.value->rows(), keys = k.value->rows(), d = shape.dim;
  const auto heads = static_cast<int64_t>(shape.kv_of.size());
  const int64_t k_stride = k.value->columns();
  const bool errors = bounds && (q.error != nullptr || k.error != nullptr);
  Evaluation e = ScoresShape(rows, heads, keys, d, errors, bounds);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t q_at = (t * heads + h) * d;
      const double* query = q.value->data.data() + q_at;
      for (int64_t j = 0; j < keys && j <= shape.first_position + t; ++j) {
        const int64_t k_at = j * k_stride + shape.kv_of[static_cast<size_t>(h)] * d;
        const double* key = k.value->data.data() + k_at;
        const auto at = static_cast<size_t>((t * heads + h) * keys + j);
        e.value.data[at] = shape.scale * Dot(query, key, d);
        if (!bounds) continue;
        e.magnitude.data[at] = shape.scale * DotAbs(query, key, d);
        if (!errors) continue;
        const double* dq = q.error != nullptr ? q.error->data.data() + q_at : nullptr;
        const double* dk = k.error != nullptr ? k.error->data.data() + k_at : nullptr;
        double sum = 0;
        if (dq != nullptr) sum += DotAbs(dq, key, d);
        if (dk != nullptr) sum += DotAbs(query, dk, d);
        if (dq != nullptr && dk != nullptr) sum += DotAbs(dq, dk, d);
        e.propagated.data[at] = shape.scale * sum;
      }
    }
  }
  return e;
}

Evaluation GqaContext(const Input& scores, const Input& v, const Gqa& shape, DType probs,
                      bool bounds) {
  const int64_t rows = scores.value->rows(), keys = v.value->rows(), d = shape.dim;
  const auto heads = static_cast<int64_t>(shape.kv_of.size());
  const bool errors = scores.error != nullptr || v.error != nullptr;
  Evaluation e = ContextShape(rows, heads * d, keys, errors, bounds);
  std::vector<double> p(static_cast<size_t>(keys));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t from = (t * heads + h) * keys;
      const int64_t column = shape.kv_of[static_cast<size_t>(h)] * d;
      Softmax(scores.value->data.data() + from, keys, probs, p.data());
      const Values values = {v.value->data.data() + column,
                             v.error != nullptr ? v.error->data.data() + column : nullptr,
                             v.value->columns(), d};
      WeightedSum(p.data(), scores.error != nullptr ? scores.error->data.data() + from : nullptr,
                  keys, values, static_cast<size_t>((t * heads + h) * d), bounds, &e);
    }
  }
  return e;
}

}  // namespace assay::reference::ops
