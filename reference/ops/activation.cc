#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {

Evaluation Activation(const Input& gate, const Input& up, bool bounds) {
  const bool errors = bounds && (gate.error != nullptr || up.error != nullptr);
  Evaluation e;
  e.value = Zeros(gate.value->shape);
  if (bounds) e.function = e.value;
  if (errors) e.propagated = e.value;
  for (size_t i = 0; i < e.value.data.size(); ++i) {
    const double g = gate.value->data[i], u = up.value->data[i];
    const double sigmoid = 1 / (1 + std::exp(-g));
    const double silu = g * sigmoid;
    e.value.data[i] = silu * u;
    if (bounds) e.function.data[i] = std::fabs(silu * u);
    if (!errors) continue;
    const double slope = sigmoid * (1 + g * (1 - sigmoid));
    const double dg = gate.error != nullptr ? gate.error->data[i] : 0;
    const double du = up.error != nullptr ? up.error->data[i] : 0;
    e.propagated.data[i] =
        std::fabs(slope * u) * dg + std::fabs(silu) * du + std::fabs(slope) * dg * du;
  }
  return e;
}

}  // namespace assay::reference::ops
