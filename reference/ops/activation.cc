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

struct Slope {
  double value = 0, slope = 0;
};

Slope Silu(double g) {
  const double sigmoid = 1 / (1 + std::exp(-g));
  return {g * sigmoid, sigmoid * (1 + g * (1 - sigmoid))};
}
// β·tanh(x/β): bounded by β, x itself where it is small.
Slope Bent(double x, double beta) {
  const double t = std::tanh(x / beta);
  return {beta * t, 1 - t * t};
}
Slope SituGate(double g, double beta) {
  const double sigmoid = 1 / (1 + std::exp(-g));
  const Slope bent = Bent(g, beta);
  return {bent.value * sigmoid, bent.slope * sigmoid + bent.value * sigmoid * (1 - sigmoid)};
}

// of_gate(min(gate, limit))·of_up(clamp(up, −limit, limit)), each with its derivative.
template <typename OfGate, typename OfUp>
Evaluation Product(const Input& gate, const Input& up, double limit, bool bounds, OfGate of_gate,
                   OfUp of_up) {
  const bool errors = bounds && (gate.error != nullptr || up.error != nullptr);
  Evaluation e;
  e.value = Zeros(gate.value->shape);
  if (bounds) e.function = e.value;
  if (errors) e.propagated = e.value;
  for (size_t i = 0; i < e.value.data.size(); ++i) {
    // Comparisons so that NaN stays NaN.
    const double raw_g = gate.value->data[i], raw_u = up.value->data[i];
    const Slope g = of_gate(raw_g > limit ? limit : raw_g);
    const Slope u = of_up(raw_u > limit ? limit : raw_u < -limit ? -limit : raw_u);
    e.value.data[i] = g.value * u.value;
    if (bounds) e.function.data[i] = std::fabs(g.value * u.value);
    if (!errors) continue;
    double dg = gate.error != nullptr ? gate.error->data[i] : 0;
    double du = up.error != nullptr ? up.error->data[i] : 0;
    if (std::isfinite(limit)) {
      dg = ClampedError(raw_g, limit, dg);
      du = ClampedError(std::fabs(raw_u), limit, du);
    }
    e.propagated.data[i] = std::fabs(g.slope * u.value) * dg + std::fabs(g.value * u.slope) * du +
                           std::fabs(g.slope * u.slope) * dg * du;
  }
  return e;
}

}  // namespace

Evaluation Activation(const Input& gate, const Input& up, double limit, bool bounds) {
  return Product(gate, up, limit, bounds, Silu, [](double u) { return Slope{u, 1}; });
}

Evaluation Situ(const Input& gate, const Input& up, const SituParameters& parameters, bool bounds) {
  const auto of_gate = [&](double g) { return SituGate(g, parameters.beta); };
  const auto of_up = [&](double u) {
    return parameters.linear_beta ? Bent(u, *parameters.linear_beta) : Slope{u, 1};
  };
  return Product(gate, up, parameters.limit, bounds, of_gate, of_up);
}

}  // namespace assay::reference::ops
