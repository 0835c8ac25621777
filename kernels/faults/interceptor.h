// Where the production code lets a fault in. The engine calls these hooks at the places where
// inference engines have gone wrong; without an interceptor it skips them. A hook changes what it
// is given and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/plan.h"
#include "kernels/registry.h"

namespace assay::kernels {

// A parameter's part as the engine makes it, before a tensor is put into it. Extents are the whole
// tensor's, in stored values; how many elements share one says `packing`.
struct ParameterSpec {
  std::string component;  // "L1.moe.e5.gate.weight"
  std::string source;     // the tensor's name in the checkpoint
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 1;
  bool vector = false;  // stored with one extent
  Packing packing;      // of columns
  std::string unit;     // "element", "word", "group"
};

// A component about to be cut for one rank.
struct SliceRequest {
  int rank = 0;
  shard::ComponentPlan plan;
  TensorView tensor;                  // whole, as stored
  const TensorSource* all = nullptr;  // the load's other tensors
};

// A linear kernel about to run.
struct LinearCall {
  int rank = 0;
  std::span<const std::string> taps;  // what it computes; several of a merged parameter
  const LinearKernel* kernel = nullptr;
  WeightView weight;
  const uint16_t* x = nullptr;  // bf16 [m, k]
  int64_t m = 0;
  std::vector<uint16_t> replaced;  // for a hook that puts another x in its place
};

// Partial sums about to be added, in this order.
struct ReduceCall {
  std::string tap;  // "L1.moe.out"
  std::vector<const float*> parts;
  int64_t count = 0;  // values in each
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;
  virtual void OnParameter(ParameterSpec&) const {}
  virtual void BeforeSlice(SliceRequest&) const {}
  virtual void BeforeLinear(LinearCall&) const {}
  virtual void BeforeReduce(ReduceCall&) const {}
};

}  // namespace assay::kernels
