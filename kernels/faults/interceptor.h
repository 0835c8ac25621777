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
#include "kernels/collectives/schedule.h"
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
  std::vector<std::byte> replaced;    // for a hook that puts other bytes in the tensor's place
};

// A linear kernel about to run.
struct LinearCall {
  int rank = 0;
  std::span<const std::string> taps;  // what it computes; several of a merged parameter
  const LinearKernel* kernel = nullptr;
  WeightView weight;
  Activations x;  // [m, k]
  int64_t m = 0;
  // Copies of what x points to, for a hook to change.
  std::vector<uint16_t> bf16;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  // Makes the copies that x has members for, and points x at them.
  void OwnActivations();
};

// Partial sums about to be added, in this order.
struct ReduceCall {
  std::string tap;  // "L1.moe.out"
  std::vector<const float*> parts;
  int64_t count = 0;  // values in each
  Reduction reduction;
  std::vector<float> replaced;  // for a hook that puts another part in a rank's place
};

// An op's output about to be rounded to its contract's type.
struct RoundCall {
  std::string_view tap;
  int rank = 0;
  DType type = DType::kF32;
  std::span<float> values;
  bool done = false;  // a hook rounded them itself
};

// An activation about to run.
struct ActCall {
  std::string_view tap;
  int rank = 0;
  float limit = 0;  // +inf: none
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;
  virtual void OnParameter(ParameterSpec&) const {}
  virtual void BeforeSlice(SliceRequest&) const {}
  virtual void BeforeLinear(LinearCall&) const {}
  virtual void BeforeReduce(ReduceCall&) const {}
  virtual void BeforeRound(RoundCall&) const {}
  virtual void BeforeAct(ActCall&) const {}
  // true: a load that replaces the component leaves its old values in place.
  virtual bool KeepsOld(std::string_view /*component*/, int /*rank*/) const { return false; }
};

inline void LinearCall::OwnActivations() {
  const int64_t values = m * weight.k, groups = m * (weight.k / 32);
  const auto own = [](auto* copy, auto** pointer, int64_t count) {
    if (*pointer == nullptr) return;
    copy->assign(*pointer, *pointer + count);
    *pointer = copy->data();
  };
  own(&bf16, &x.bf16, values);
  own(&codes, &x.codes, values);
  own(&scales, &x.scales, groups);
  own(&sums, &x.sums, groups);
}

}  // namespace assay::kernels
