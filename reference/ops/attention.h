// Shared by grouped query and latent attention: masking and the softmax.
#pragma once

#include "reference/ops/ops.h"

namespace assay::reference::ops {

// softmax of one row of `keys` scores into p; masked entries (-inf) become 0. Probabilities are
// rounded to `type` as they enter the next product.
void Softmax(const double* scores, int64_t keys, DType type, double* p);

// out[d] = Σ_j p[j]·v[j·stride + d]. With bounds: magnitude and function Σ p|v|; propagated, first
// order of softmax and sum: Σ_j p_j·(|v_j − out|·ds_j + dv_j).
struct Values {
  const double* v = nullptr;
  const double* dv = nullptr;  // may be null
  int64_t stride = 0, width = 0;
};
void WeightedSum(const double* p, const double* ds, int64_t keys, const Values& values, size_t at,
                 bool bounds, Evaluation* e);

// An empty evaluation of the context's shape.
Evaluation ContextShape(int64_t rows, int64_t columns, int64_t keys, bool errors, bool bounds);
// Of the scores' shape, filled as masked.
Evaluation ScoresShape(int64_t rows, int64_t heads, int64_t keys, int64_t terms, bool errors,
                       bool bounds);

}  // namespace assay::reference::ops
