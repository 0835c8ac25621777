#include <cmath>

#include "reference/ops/attention.h"

namespace assay::reference::ops {
namespace {

// Propagated errors of one score: both products, each input's error where it has one.
double ScoreError(const double* q, const double* dq, const double* k, const double* dk, int64_t n) {
  double sum = 0;
  if (dq != nullptr) sum += DotAbs(dq, k, n);
  if (dk != nullptr) sum += DotAbs(q, dk, n);
  if (dq != nullptr && dk != nullptr) sum += DotAbs(dq, dk, n);
  return sum;
}

const double* At(const Tensor* tensor, int64_t at) {
  return tensor != nullptr ? tensor->data.data() + at : nullptr;
}

}  // namespace

Evaluation MlaScores(const Input& q, const Input& k_rot, const Input& kv_b, const Mla& shape,
                     bool bounds) {
  const int64_t rows = q.value->rows(), keys = k_rot.value->rows();
  const int64_t qk = shape.nope + shape.rope, kv = shape.nope + shape.v;
  const bool errors =
      bounds && (q.error != nullptr || k_rot.error != nullptr || kv_b.error != nullptr);
  Evaluation e = ScoresShape(rows, shape.heads, keys, qk, errors, bounds);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t q_at = (t * shape.heads + h) * qk;
      const double* q_nope = q.value->data.data() + q_at;
      const double* q_rope = q_nope + shape.nope;
      for (int64_t j = 0; j < keys && j <= shape.first_position + t; ++j) {
        const int64_t nope_at = (j * shape.heads + h) * kv, rope_at = j * shape.rope;
        const double* k_nope = kv_b.value->data.data() + nope_at;
        const double* k_rope = k_rot.value->data.data() + rope_at;
        const auto at = static_cast<size_t>((t * shape.heads + h) * keys + j);
        e.value.data[at] =
            shape.scale * (Dot(q_nope, k_nope, shape.nope) + Dot(q_rope, k_rope, shape.rope));
        if (!bounds) continue;
        e.magnitude.data[at] =
            shape.scale * (DotAbs(q_nope, k_nope, shape.nope) + DotAbs(q_rope, k_rope, shape.rope));
        if (!errors) continue;
        e.propagated.data[at] =
            shape.scale *
            (ScoreError(q_nope, At(q.error, q_at), k_nope, At(kv_b.error, nope_at), shape.nope) +
             ScoreError(q_rope, At(q.error, q_at + shape.nope), k_rope, At(k_rot.error, rope_at),
                        shape.rope));
      }
    }
  }
  return e;
}

Evaluation MlaContext(const Input& scores, const Input& kv_b, const Mla& shape, DType probs,
                      bool bounds) {
  const int64_t rows = scores.value->rows(), keys = kv_b.value->rows();
  const int64_t kv = shape.nope + shape.v;
  const bool errors = scores.error != nullptr || kv_b.error != nullptr;
  Evaluation e = ContextShape(rows, shape.heads * shape.v, keys, errors, bounds);
  std::vector<double> p(static_cast<size_t>(keys));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      const int64_t from = (t * shape.heads + h) * keys;
      const int64_t column = h * kv + shape.nope;
      Softmax(scores.value->data.data() + from, keys, probs, p.data());
      const Values values = {kv_b.value->data.data() + column, At(kv_b.error, column),
                             shape.heads * kv, shape.v};
      WeightedSum(p.data(), At(scores.error, from), keys, values,
                  static_cast<size_t>((t * shape.heads + h) * shape.v), bounds, &e);
    }
  }
  return e;
}

}  // namespace assay::reference::ops
