#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {

double Dot(const double* a, const double* b, int64_t n) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    s0 += a[k] * b[k];
    s1 += a[k + 1] * b[k + 1];
    s2 += a[k + 2] * b[k + 2];
    s3 += a[k + 3] * b[k + 3];
  }
  for (; k < n; ++k) s0 += a[k] * b[k];
  return (s0 + s1) + (s2 + s3);
}

double DotAbs(const double* a, const double* b, int64_t n) {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    s0 += std::fabs(a[k] * b[k]);
    s1 += std::fabs(a[k + 1] * b[k + 1]);
    s2 += std::fabs(a[k + 2] * b[k + 2]);
    s3 += std::fabs(a[k + 3] * b[k + 3]);
  }
  for (; k < n; ++k) s0 += std::fabs(a[k] * b[k]);
  return (s0 + s1) + (s2 + s3);
}

Tensor Zeros(std::vector<int64_t> shape) {
  Tensor tensor;
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  tensor.shape = std::move(shape);
  tensor.data.assign(static_cast<size_t>(n), 0.0);
  return tensor;
}

}  // namespace assay::reference::ops
