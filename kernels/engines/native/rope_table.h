// Rotary tables: angles and factors in double, cos and sin kept in fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/checkpoint/model_config.h"

namespace assay::kernels::native {

class RopeTable {
 public:
  // Of `dim` rotated elements of a head. Throws EngineError (unsupported) for a type that is not
  // default, linear, llama3 or yarn.
  RopeTable(const ModelConfig& config, int64_t dim);
  // cos, sin [dim/2] of a position; valid until the next call with a larger position.
  const float* Cos(int64_t position);
  const float* Sin(int64_t position);
  int64_t dim() const { return 2 * static_cast<int64_t>(frequencies_.size()); }
  const std::vector<double>& frequencies() const { return frequencies_; }
  double factor() const { return factor_; }

 private:
  void Grow(int64_t position);
  std::vector<double> frequencies_;  // [dim/2]
  double factor_ = 1;                // on cos and sin
  std::vector<float> cos_, sin_;     // [positions, dim/2]
};

// d^-0.5, and for MLA with YaRN times m(mscale_all_dim)² (models.md, common parts).
double SoftmaxScale(const ModelConfig& config);

}  // namespace assay::kernels::native
