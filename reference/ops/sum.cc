#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {

Evaluation Sum(std::span<const Input> terms, bool bounds) {
  Evaluation e;
  e.value = *terms[0].value;
  for (const Input& term : terms.subspan(1)) {
    for (size_t i = 0; i < e.value.data.size(); ++i) e.value.data[i] += term.value->data[i];
  }
  if (!bounds) return e;
  if (terms.size() > 1) {
    e.terms = static_cast<int64_t>(terms.size());
    e.magnitude = Zeros(e.value.shape);
  }
  for (const Input& term : terms) {
    for (size_t i = 0; i < e.magnitude.data.size(); ++i) {
      e.magnitude.data[i] += std::fabs(term.value->data[i]);
    }
    if (term.error == nullptr) continue;
    if (e.propagated.data.empty()) e.propagated = Zeros(e.value.shape);
    for (size_t i = 0; i < e.propagated.data.size(); ++i) {
      e.propagated.data[i] += term.error->data[i];
    }
  }
  return e;
}

}  // namespace assay::reference::ops
