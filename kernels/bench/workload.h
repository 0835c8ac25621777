// What a row is timed on: weights in its layout, as many copies as no cache holds, and activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/bench/rows.h"
#include "kernels/registry.h"

namespace assay::kernels::bench {

// More than any last-level cache that a core of these machines sees: every pass comes from memory.
inline constexpr int64_t kWorkingSet = int64_t{256} << 20;

class Workload {
 public:
  Workload(const LinearKernel& row, Shape shape, int64_t m);
  int64_t bytes() const { return codes_ + scales_; }  // of one copy
  // One call over all rows, split over `threads` as the dispatcher does, on the next copy.
  void Pass(class Pool& pool, int threads);

 private:
  void FillWeights();
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
};

}  // namespace assay::kernels::bench
