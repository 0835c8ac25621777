// Where the production code lets a fault in. The engine calls these hooks at the places where
// inference engines have gone wrong; without an interceptor it skips them. A hook changes what it
// is given and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/plan.h"
#include "kernels/collectives/schedule.h"
#include "kernels/layouts/layouts.h"
#include "kernels/loaders/select.h"
#include "kernels/registry.h"

namespace assay::kernels {

// The named tensors of one load, before anything looks at them. A hook may drop, add, rename or
// repeat them (of two of one name the later one counts), or give them other bytes.
struct TensorList {
  int rank = 0;
  bool again = false;  // the rank was loaded before: this load replaces
  std::vector<TensorView> tensors;
  std::list<std::vector<std::byte>> owned;  // for bytes that a hook makes
};

// A component's rows and columns on one rank, as they lie in row-major order, after they were
// copied: before anything is repacked.
struct WrittenPart {
  std::string_view component;
  int rank = 0;
  const shard::ComponentPlan& plan;  // as it was followed
  int64_t rows = 0, columns = 0;     // stored values
  std::span<std::byte> bytes;
};

// A part of a whole parameter (of all members that are joined in it) in the layout that it is
// kept in.
struct PackedView {
  std::string_view parameter, part;  // "L1.moe.e5.gate_up", "scale"
  int rank = 0;
  std::string_view layout;  // tag of this part
  const Choice& choice;     // of the parameter
  const StoredShape& shape;
  std::span<std::byte> bytes;
};

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
  // --- In the order of a session. At open: what the engine makes of config.json.
  virtual void OnConfig(ModelConfig&) const {}
  // --- At load, for each rank.
  virtual void OnTensors(TensorList&) const {}
  // Each component of the planner's list, data-flow order, before it is looked at further. The
  // plan is this rank's own copy: another rank's ranges are what they were.
  virtual void OnPlan(shard::ComponentPlan&, int /*rank*/) const {}
  // The part that is made for it; it is checked against the tensor afterwards.
  virtual void OnParameter(ParameterSpec&) const {}
  // What the selector decided for a parameter; obeyed as it is left.
  virtual void OnSelect(Choice&) const {}
  // For each component. The bytes to write are as many as OnPlan left: here is only decided which.
  virtual void BeforeSlice(SliceRequest&) const {}
  // true: nothing is written, the part stays as fresh memory is (poison).
  virtual bool SkipsPart(std::string_view /*component*/, int /*rank*/) const { return false; }
  virtual void AfterPart(const WrittenPart&) const {}
  virtual void AfterPack(const PackedView&) const {}
  // true: a whole load does not check that every part was written.
  virtual bool SkipsCoverage() const { return false; }
  // --- When it runs.
  virtual void BeforeLinear(LinearCall&) const {}
  virtual void BeforeReduce(ReduceCall&) const {}
  virtual void BeforeRound(RoundCall&) const {}
  virtual void BeforeAct(ActCall&) const {}
  // --- At a load that replaces.
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
