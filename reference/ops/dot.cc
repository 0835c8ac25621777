#include <cmath>

#include "reference/ops/ops.h"

namespace assay::reference::ops {

namespace {

// Sums side by side: what one step of the loop adds to. Written so that compilers use whatever
// registers the target has; the order of additions is the same on every one.
constexpr int64_t kSums = 8;

double Join(const double* s) {
  return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

}  // namespace

double Dot(const double* a, const double* b, int64_t n) {
  double s[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= n; k += kSums) {
    for (int64_t i = 0; i < kSums; ++i) s[i] += a[k + i] * b[k + i];
  }
  for (; k < n; ++k) s[k % kSums] += a[k] * b[k];
  return Join(s);
}

double DotAbs(const double* a, const double* b, int64_t n) {
  double s[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= n; k += kSums) {
    for (int64_t i = 0; i < kSums; ++i) s[i] += std::fabs(a[k + i] * b[k + i]);
  }
  for (; k < n; ++k) s[k % kSums] += std::fabs(a[k] * b[k]);
  return Join(s);
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
