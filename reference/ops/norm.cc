#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {
namespace {

// One row. First order of the input's errors: with r = rsqrt(mean(x²) + eps),
// |dy_i| <= |w_i|·r·(|dx_i| + |x_i|·r²·Σ|x_j||dx_j| / n).
void Row(const double* x, const double* dx, const std::vector<double>& weight, double eps,
         double* y, double* dy) {
  const auto n = static_cast<int64_t>(weight.size());
  const double r = 1.0 / std::sqrt(Dot(x, x, n) / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * weight[static_cast<size_t>(i)];
  if (dx == nullptr) return;
  const double common = r * r * DotAbs(x, dx, n) / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    dy[i] = std::fabs(weight[static_cast<size_t>(i)]) * r *
            (std::fabs(dx[i]) + std::fabs(x[i]) * common);
  }
}

Evaluation Blocks(const Input& x, const std::vector<double>& weight, double eps, int64_t blocks,
                  bool bounds) {
  const auto n = static_cast<int64_t>(weight.size());
  const int64_t rows = x.value->rows(), stride = x.value->columns();
  const bool errors = bounds && x.error != nullptr;
  Evaluation e;
  e.value = Zeros({rows, n * blocks});
  e.terms = n;
  if (errors) e.propagated = Zeros({rows, n * blocks});
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t from = t * stride + b * n, to = (t * blocks + b) * n;
      Row(x.value->data.data() + from, errors ? x.error->data.data() + from : nullptr, weight, eps,
          e.value.data.data() + to, errors ? e.propagated.data.data() + to : nullptr);
    }
  }
  if (bounds) {
    e.function = e.value;
    for (double& value : e.function.data) value = std::fabs(value);
  }
  return e;
}

}  // namespace

Evaluation RmsNorm(const Input& x, const std::vector<double>& weight, double eps, bool bounds) {
  return Blocks(x, weight, eps, 1, bounds);
}

Evaluation HeadNorm(const Input& x, const std::vector<double>& weight, double eps, bool bounds) {
  return Blocks(x, weight, eps, x.value->columns() / static_cast<int64_t>(weight.size()), bounds);
}

}  // namespace assay::reference::ops
