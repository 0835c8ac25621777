// Faults of where a shard begins and ends: K01 (inside a group, floor and ceil), K02 (packed
// extents taken for logical ones).
#pragma once

#include "harness/units/scheme.h"
#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// Stored values of one quantisation block of a component that is cut by columns.
inline int64_t BlockOf(const shard::Component& c) {
  const int64_t group = c.group.count(), per = c.column_elements.count();
  return group > per ? group / per * c.columns_per_unit : 1;
}

inline bool IsCutDown(const shard::ComponentPlan& plan) {
  return Of(plan.component.name, "down") && plan.axis == shard::Axis::kColumns;
}

// 9 blocks over 4 ranks are 2 each: the last one is nobody's.
struct K01Floor final : Interceptor {
  static inline const Fault kFault = {
      "K01/floor",
      "K01",
      "blocks per rank are rounded down: what is left over is on no rank",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=4 split=ceil fault=K01/floor",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K01/floor",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.weight\""},
       {"unit", "\"word\""}},
      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!IsCutDown(plan)) return;
    const int64_t block = BlockOf(plan.component);
    const int64_t each = plan.component.columns / block / Ranks(plan) * block;
    plan.ranks[Size(rank)] = {{rank * each, each}};
  }
};

// The last blocks are fewer than a shard: its start is pulled back until as many are there.
struct K01Clamped final : Interceptor {
  static inline const Fault kFault = {
      "K01/clamped",
      "K01",
      "a short last shard begins earlier instead of being padded",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=8 split=ceil fault=K01/clamped",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K01/clamped",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "4"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 128]"}},
      "misaligned-shard"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!IsCutDown(plan)) return;
    auto& ranges = plan.ranks[Size(rank)];
    if (ranges.size() != 2 || !ranges[1].is_padding()) return;
    const int64_t length = ranges[0].length + ranges[1].length;
    ranges = {{plan.component.columns - length, length}};
  }
};

// Units were shared out 4 and 3; columns are halved, through the middle of a group.
struct K01EvenSplit final : Interceptor {
  static inline const Fault kFault = {
      "K01/even-split",
      "K01",
      "an uneven split is not heard of: columns are divided by the number of ranks",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=2 split=list:5,3 fault=K01/even-split",
      "load model=k2-mini-int4-g32 layer=1 tp=2 split=list:4,4 fault=K01/even-split",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.down.weight\""},
       {"unit", "\"word\""}},
      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!IsCutDown(plan)) return;
    const int64_t each = plan.component.columns / Ranks(plan);
    plan.ranks[Size(rank)] = {{rank * each, each}};
  }
};

// A rank begins with the block in which its even share begins, which the rank before holds.
struct K01SharedBlock final : Interceptor {
  static inline const Fault kFault = {
      "K01/shared-block",
      "K01",
      "two ranks hold the block through which the even boundary goes",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K01/shared-block",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K01/shared-block",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 80]"}},
      "misaligned-shard"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!IsCutDown(plan)) return;
    const int64_t block = BlockOf(plan.component), blocks = plan.component.columns / block;
    const int64_t begin = rank * blocks / Ranks(plan) * block;
    auto& ranges = plan.ranks[Size(rank)];
    int64_t length = 0;
    for (const shard::Range& range : ranges) length += range.length;
    const int64_t real = std::min(length, plan.component.columns - begin);
    ranges = {{begin, real}};
    if (length > real) ranges.push_back({-1, length - real});
  }
};

// Scales have a row for each 32; the loader counts in blocks of 128.
struct K01BlockRows final : Interceptor {
  static inline const Fault kFault = {
      "K01/block-rows",
      "K01",
      "the start of up's block scales is counted in blocks of another size",
      "loader",
      "load model=qwen3moe-mini-fp8 layer=0 op=mlp tp=2 fault=K01/block-rows",
      "load model=qwen3moe-mini-fp8 layer=0 op=mlp tp=1 fault=K01/block-rows",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.up.scale\""},
       {"unit", "\"block\""},
       {"index", "[3, 0]"}},
      "scales-of-another-rank"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    constexpr int64_t kAssumed = 128;
    if (!Is(plan.component.name, "up.scale") || plan.axis != shard::Axis::kRows) return;
    if (shard::Range* range = FirstRange(plan, rank)) {
      range->begin = range->begin * plan.component.elements_per_row.count() / kAssumed;
    }
  }
};

// A word has 32/3 codes, the loader says, and rounds down.
struct K02ThreeBits final : Interceptor {
  static inline const Fault kFault = {
      "K02/three-bits",
      "K02",
      "the start of a row-parallel slice is divided by the codes of a word, rounded down",
      "loader",
      "load model=llama-mini method=ct-int3-g32 layer=0 tp=3 fault=K02/three-bits",
      "load model=llama-mini method=ct-int4-g32 layer=0 tp=3 fault=K02/three-bits",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "2"},
       {"tensor", "\"L0.mlp.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 24]"}},
      "misaligned-shard"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& c = request.plan.component;
    const auto scheme = ParseScheme(c.method);
    if (!Is(c.name, "down.weight") || !scheme || scheme->bits == 0) return;
    const shard::Range* range = FirstRange(request.plan, request.rank);
    if (range == nullptr || request.plan.axis != shard::Axis::kColumns) return;
    const int64_t element = range->begin / c.columns_per_unit * c.column_elements.count();
    const int64_t further = element / (32 / scheme->bits) - range->begin;
    if (further != 0) ReadFurtherOn(request, further);
  }
};

// Two codes a byte, and the start is counted in codes.
struct K02Elements final : Interceptor {
  static inline const Fault kFault = {
      "K02/elements",
      "K02",
      "the start of a row-parallel slice of bytes is counted in elements",
      "loader",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K02/elements",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=1 fault=K02/elements",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 64]"}},
      "misaligned-shard"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& c = request.plan.component;
    if (!Is(c.name, "down.weight") || c.dtype != DType::kU8) return;
    const shard::Range* range = FirstRange(request.plan, request.rank);
    if (range != nullptr && range->begin > 0) ReadFurtherOn(request, range->begin);
  }
};

// Codes of 8 bits packed along K: four a word, and the start is divided by eight.
struct K02EightBits final : Interceptor {
  static inline const Fault kFault = {
      "K02/eight-bits",
      "K02",
      "words along K are taken for words of eight codes, whatever the bits",
      "loader",
      "load model=llama-mini method=gptq-int8-g32 layer=0 tp=3 fault=K02/eight-bits",
      "load model=llama-mini method=gptq-int4-g32 layer=0 tp=3 fault=K02/eight-bits",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.mlp.down.weight\""},
       {"unit", "\"word\""},
       {"index", "[32, 0]"}},
      "misaligned-shard"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    constexpr int64_t kAssumed = 8;
    const shard::Component& c = plan.component;
    if (!Is(c.name, "down.weight") || plan.axis != shard::Axis::kRows) return;
    if (shard::Range* range = FirstRange(plan, rank)) {
      range->begin = range->begin * c.elements_per_row.count() / kAssumed;
    }
  }
};

// Zero points are packed along the outputs; the start of a rank's words is taken for bytes.
struct K02ZeroRows final : Interceptor {
  static inline const Fault kFault = {
      "K02/zero-rows",
      "K02",
      "the start of packed zero points is taken for bytes",
      "loader",
      "load model=k2-mini method=ct-int4-g32-asym layer=1 op=mlp tp=2 fault=K02/zero-rows",
      "load model=k2-mini method=ct-int4-g32-asym layer=1 op=mlp tp=1 fault=K02/zero-rows",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""},
       {"index", "[16, 0]"}},
      "misaligned-shard"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Is(plan.component.name, "gate.zero") || plan.axis != shard::Axis::kRows) return;
    if (shard::Range* range = FirstRange(plan, rank)) range->begin /= Width(plan.component);
  }
};

}  // namespace assay::kernels::faults
