#include <algorithm>
#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {
namespace {

// How far an input that is wrong by `error` can still move once it is clamped: beyond the limit by
// more than that it stands still; nearer, only as far as it reaches below.
double ClampedError(double value, double limit, double error) {
  return std::clamp(limit - value + error, 0.0, error);
}

}  // namespace

Evaluation Activation(const Input& gate, const Input& up, double limit, bool bounds) {
  const bool errors = bounds && (gate.error != nullptr || up.error != nullptr);
  Evaluation e;
  e.value = Zeros(gate.value->shape);
  if (bounds) e.function = e.value;
  if (errors) e.propagated = e.value;
  for (size_t i = 0; i < e.value.data.size(); ++i) {
    // Comparisons so that NaN stays NaN.
    const double raw_g = gate.value->data[i], raw_u = up.value->data[i];
    const double g = raw_g > limit ? limit : raw_g;
    const double u = raw_u > limit ? limit : raw_u < -limit ? -limit : raw_u;
    const double sigmoid = 1 / (1 + std::exp(-g));
    const double silu = g * sigmoid;
    e.value.data[i] = silu * u;
    if (bounds) e.function.data[i] = std::fabs(silu * u);
    if (!errors) continue;
    const double slope = sigmoid * (1 + g * (1 - sigmoid));
    double dg = gate.error != nullptr ? gate.error->data[i] : 0;
    double du = up.error != nullptr ? up.error->data[i] : 0;
    if (std::isfinite(limit)) {
      dg = ClampedError(raw_g, limit, dg);
      du = ClampedError(std::fabs(raw_u), limit, du);
    }
    e.propagated.data[i] =
        std::fabs(slope * u) * dg + std::fabs(silu) * du + std::fabs(slope) * dg * du;
  }
  return e;
}

}  // namespace assay::reference::ops
