// What a row is timed on: weights in its layout, as many copies as no cache holds, and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/bench/rows.h"
#include "kernels/registry.h"

namespace assay::kernels::bench {

class Workload {
 public:
  // As many copies of the weights as `working_set` bytes hold, at least one.
  Workload(const LinearKernel& row, Shape shape, int64_t m, int64_t working_set);
  int64_t bytes() const { return codes_ + scales_; }  // of one copy
  // One call over all rows, split over `threads` as the dispatcher does, on the next copy.
  void Pass(class Pool& pool, int threads);

 private:
  void FillWeights(int64_t working_set);
  void FillActivations();
  WeightView View() const;

  const LinearKernel& row_;
  Shape shape_;
  int64_t m_, pass_ = 0;
  int64_t group_ = 0, codes_ = 0, scales_ = 0, stride_ = 0, copies_ = 0;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_;
  std::vector<uint16_t> bf16_;
  std::vector<int8_t> x_codes_;
  std::vector<float> x_scales_, y_;
  std::vector<int32_t> x_sums_;
  std::vector<uint8_t> x_bytes_;  // E8M0
};

}  // namespace assay::kernels::bench
