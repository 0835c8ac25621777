// Latent attention with kv_b absorbed into the query and the output. Written apart from mla.cc: the
// two must give the same numbers.
#include "reference/ops/attention.h"

namespace assay::reference::ops {

Tensor MlaAbsorbedScores(const Tensor& q, const Tensor& k_rot, const Tensor& latent,
                         WeightRows* kv_b, const Mla& shape) {
  const int64_t rows = q.rows(), keys = latent.rows(), qk = shape.nope + shape.rope;
  Tensor scores = ScoresShape(rows, shape.heads, keys, 0, false, false).value;
  for (int64_t h = 0; h < shape.heads; ++h) {
    // q_latent[t] = Σ_i q_nope[t, i]·W_kc[i], W_kc the first `nope` rows of the head.
    Tensor q_latent = Zeros({rows, shape.lora});
    for (int64_t i = 0; i < shape.nope; ++i) {
      const double* w = kv_b->Row(h * (shape.nope + shape.v) + i);
      for (int64_t t = 0; t < rows; ++t) {
        const double x = q.data[static_cast<size_t>((t * shape.heads + h) * qk + i)];
        double* to = q_latent.data.data() + t * shape.lora;
        for (int64_t c = 0; c < shape.lora; ++c) to[c] += x * w[c];
      }
    }
    for (int64_t t = 0; t < rows; ++t) {
      const double* q_rope = q.data.data() + (t * shape.heads + h) * qk + shape.nope;
      for (int64_t j = 0; j < keys && j <= shape.first_position + t; ++j) {
        const double content = Dot(q_latent.data.data() + t * shape.lora,
                                   latent.data.data() + j * shape.lora, shape.lora);
        const double position = Dot(q_rope, k_rot.data.data() + j * shape.rope, shape.rope);
        scores.data[static_cast<size_t>((t * shape.heads + h) * keys + j)] =
            shape.scale * (content + position);
      }
    }
  }
  return scores;
}

Tensor MlaAbsorbedContext(const Tensor& scores, const Tensor& latent, WeightRows* kv_b,
                          const Mla& shape, DType probs) {
  const int64_t rows = scores.rows(), keys = latent.rows();
  Tensor context = Zeros({rows, shape.heads * shape.v});
  std::vector<double> p(static_cast<size_t>(keys));
  for (int64_t h = 0; h < shape.heads; ++h) {
    Tensor mixed = Zeros({rows, shape.lora});
    for (int64_t t = 0; t < rows; ++t) {
      Softmax(scores.data.data() + (t * shape.heads + h) * keys, keys, probs, p.data());
      double* to = mixed.data.data() + t * shape.lora;
      for (int64_t j = 0; j < keys; ++j) {
        const double* c = latent.data.data() + j * shape.lora;
        for (int64_t i = 0; i < shape.lora; ++i) to[i] += p[static_cast<size_t>(j)] * c[i];
      }
    }
    for (int64_t i = 0; i < shape.v; ++i) {
      const double* w = kv_b->Row(h * (shape.nope + shape.v) + shape.nope + i);
      for (int64_t t = 0; t < rows; ++t) {
        context.data[static_cast<size_t>((t * shape.heads + h) * shape.v + i)] =
            Dot(mixed.data.data() + t * shape.lora, w, shape.lora);
      }
    }
  }
  return context;
}

}  // namespace assay::reference::ops
