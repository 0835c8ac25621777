// Faults of loaders. One struct a fault: what it is called, where it shows, and what it changes.
#pragma once

#include <string>
#include <string_view>

#include "kernels/faults/faults.h"
#include "kernels/faults/interceptor.h"
#include "kernels/faults/where.h"

namespace assay::kernels::faults {

// The start of a rank's slice is counted in words and applied to bytes: rank 1 begins at byte 8
// where it should begin at word 8. Rank 0 begins at 0 in any unit, and is right.
struct K02Bytes final : Interceptor {
  static inline const Fault kFault = {
      "K02/bytes",
      "K02",
      "the start of a row-parallel slice of packed words is taken for bytes",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K02/bytes",
      "moe model=k2-mini-int4-g32 layer=1 tp=1 tier=avx2 tokens=5 fault=K02/bytes",
      {{"layer", "1"},
       {"op", "\"down\""},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 8]"}},
      "misaligned-shard"};

  void BeforeSlice(SliceRequest& request) const override {
    shard::ComponentPlan& plan = request.plan;
    if (!IsExpert(plan.component.name, ".down.weight")) return;
    if (plan.component.packing.elements.count() == 1) return;
    const int64_t bytes = plan.component.packing.bytes.count();
    plan.component.dtype = request.tensor.dtype = DType::kU8;
    plan.component.columns *= bytes;
    request.tensor.shape.back() *= bytes;
    for (shard::Range& range : plan.ranks[static_cast<size_t>(request.rank)]) {
      range.length *= bytes;  // as many bytes as it should, from the wrong place
    }
  }
};

// The parameter is made for unpacked weights, [N, K] elements; the file has K/2 packed bytes a row.
// The axis is never cut, so every TP degree runs into it.
struct K02Representation final : Interceptor {
  static inline const Fault kFault = {
      "K02/representation",
      "K02",
      "gate's parameter is made unpacked, its tensor is packed",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K02/representation",
      "moe model=k2-mini layer=1 tp=4 tier=avx2 tokens=5 fault=K02/representation",
      {{"layer", "1"},
       {"op", "\"gate\""},
       {"class", "\"loader\""},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "packed-against-unpacked"};

  void OnParameter(ParameterSpec& spec) const override {
    if (!IsExpert(spec.component, ".gate.weight") || spec.packing.elements.count() == 1) return;
    spec.columns *= spec.packing.elements.count();
    spec.packing = {Elements(1), Bytes(1)};
    spec.unit = "element";
  }
};

// Every rank takes rank 0's groups of scales for its own.
struct K03Rank0 final : Interceptor {
  static inline const Fault kFault = {
      "K03/rank0",
      "K03",
      "every rank has rank 0's scales of down",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K03/rank0",
      "moe model=k2-mini-int4-g32 layer=1 tp=1 tier=avx2 tokens=5 fault=K03/rank0",
      {{"layer", "1"},
       {"op", "\"down\""},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 2]"}},
      "scales-of-another-rank"};

  void BeforeSlice(SliceRequest& request) const override {
    if (IsExpert(request.plan.component.name, ".down.scale")) request.rank = 0;
  }
};

// The two 4-bit codes of each byte change places, in every word of an expert's weight: element 2i
// is taken for 2i + 1. Unpacked weights have no nibbles.
struct K07Swap final : Interceptor {
  static inline const Fault kFault = {
      "K07/swap",
      "K07",
      "the nibbles of each byte of the experts' packed weights are swapped",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K07/swap",
      "moe model=k2-mini layer=1 tp=4 tier=avx2 tokens=5 fault=K07/swap",
      {{"layer", "1"},
       {"op", "\"gate\""},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "nibble-swapped"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& component = request.plan.component;
    if (!IsMlp(component.name, ".weight") || component.packing.elements.count() == 1) return;
    // A Q4_1 block begins with its scale and minimum; blocks of 8-bit codes have no nibbles.
    const bool block = IsBlock(component.dtype);
    if (block && component.dtype != DType::kQ4_1) return;
    const auto stride = static_cast<size_t>(SizeOf(component.dtype).count());
    const size_t head = block ? 4 : 0;
    request.replaced.assign(request.tensor.bytes.begin(), request.tensor.bytes.end());
    for (size_t at = 0; at < request.replaced.size(); ++at) {
      std::byte& byte = request.replaced[at];
      if (at % stride >= head) byte = (byte << 4) | (byte >> 4);
    }
    request.tensor.bytes = request.replaced;
  }
};

// Rank 1 puts up's rows where gate's belong, and the other way round.
struct K08Rank1 final : Interceptor {
  static inline const Fault kFault = {
      "K08/rank1",
      "K08",
      "gate and up are swapped on rank 1",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K08/rank1",
      "moe model=k2-mini-int4-g32 layer=1 tp=1 tier=avx2 tokens=5 fault=K08/rank1",
      {{"layer", "1"},
       {"op", "\"gate\""},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""},
       {"unit", "\"word\""},
       {"index", "[64, 0]"}},
      "gate-up-swapped"};

  void BeforeSlice(SliceRequest& request) const override {
    const std::string& component = request.plan.component.name;
    if (request.rank != 1 || !IsMlp(component, "")) return;
    const bool gate = component.find(".gate.") != std::string::npos;
    if (!gate && component.find(".up.") == std::string::npos) return;
    std::string other = request.tensor.name;
    const std::string_view ours = gate ? "gate" : "up";  // gate_proj, or ffn_gate of a GGUF
    const size_t at = other.rfind(ours);
    if (at == std::string::npos) return;
    other.replace(at, ours.size(), gate ? "up" : "gate");
    if (const TensorView* tensor = request.all->Find(other)) request.tensor = *tensor;
  }
};

// A second load leaves one tensor on rank 1 as the first one had it.
struct K13Stale final : Interceptor {
  static inline const Fault kFault = {
      "K13/stale",
      "K13",
      "a second load leaves an expert's up on rank 1 as it was",
      "loader",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 reload=1 fault=K13/stale",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K13/stale",
      {{"layer", "1"},
       {"op", "\"up\""},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "2"},
       {"tensor", "\"L1.moe.e2.up.weight\""}},
      "stale"};

  bool KeepsOld(std::string_view component, int rank) const override {
    return rank == 1 && component == "L1.moe.e2.up.weight";
  }
};

}  // namespace assay::kernels::faults
