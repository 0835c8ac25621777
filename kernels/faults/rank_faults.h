// Faults of what each rank has for itself: K17 (replicas, biases), K18 (padding).
#pragma once

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// A replicated parameter that a second load makes anew with the rank's number on it.
struct K17RankStamp final : Interceptor {
  static inline const Fault kFault = {
      "K17/rank-stamp",
      "K17",
      "a second load takes a rank's share of a replicated weight",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 op=mlp tp=2 reload=1 fault=K17/rank-stamp",
      "load model=k2-mini-int4-g32 layer=1 op=mlp tp=2 fault=K17/rank-stamp",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L1.router.logits.weight\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "replica-differs"};

  void OnTensors(TensorList& list) const override { again_ = list.again; }
  void AfterPart(const WrittenPart& part) const override {
    if (!again_ || !Is(part.component, "router.logits.weight")) return;
    Rows rows(part);
    const int64_t first = part.rank * (part.rows / Ranks(part.plan));
    for (int64_t r = 0; first > 0 && r < part.rows; ++r) {
      if (first + r < part.rows) {
        rows.Move(first + r, r);
      } else {
        rows.Fill(r, std::byte{0xFF});
      }
    }
  }

 private:
  mutable bool again_ = false;
};

// A bias of a row-parallel layer is whole; here it is cut like the weight's rows would be.
struct K17BiasCut final : Interceptor {
  static inline const Fault kFault = {
      "K17/bias-cut",
      "K17",
      "the bias of a row-parallel layer is cut",
      "loader",
      "load model=gptoss-mini layer=0 op=attn tp=2 fault=K17/bias-cut",
      "load model=gptoss-mini layer=0 op=attn tp=1 fault=K17/bias-cut",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.out.bias\""},
       {"unit", "\"element\""}},
      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Is(plan.component.name, "attn.out.bias") || plan.axis != shard::Axis::kNone) return;
    const int64_t each = plan.component.rows / Ranks(plan);
    plan.axis = shard::Axis::kRows;
    plan.ranks[Size(rank)] = {{rank * each, each}};
  }
};

struct K17BiasTwice final : Interceptor {
  static inline const Fault kFault = {
      "K17/bias-twice",
      "K17",
      "the bias of q is added to itself",
      "loader",
      "load model=qwen2-mini layer=0 op=attn tp=1 fault=K17/bias-twice",
      "load model=qwen3-mini layer=0 op=attn tp=1 fault=K17/bias-twice",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.bias\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "constant-factor"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "attn.q.bias")) return;
    ChangeFloats(part.plan.component.dtype, part.bytes, [](float bias) { return 2 * bias; });
  }
};

// f(row, column) of each value of padding.
template <class F>
void InPadding(const WrittenPart& part, F fill) {
  const auto& ranges = part.plan.ranks[Size(part.rank)];
  const bool by_rows = part.plan.axis == shard::Axis::kRows;
  const auto width = Width(part.plan.component);
  int64_t at = 0;
  for (const shard::Range& range : ranges) {
    for (int64_t i = at; range.is_padding() && i < at + range.length; ++i) {
      const int64_t others = by_rows ? part.columns : part.rows;
      for (int64_t j = 0; j < others; ++j) {
        const int64_t value = by_rows ? i * part.columns + j : j * part.columns + i;
        fill(part.bytes.subspan(Size(value * width), Size(width)));
      }
    }
    at += range.length;
  }
}

struct K18Unwritten final : Interceptor {
  static inline const Fault kFault = {
      "K18/unwritten",
      "K18",
      "padding is left as fresh memory is",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K18/unwritten",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K18/unwritten",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.weight\""},
       {"unit", "\"word\""},
       {"local_index", "[0, 64]"}},
      "padding-not-zero"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Of(part.component, "down")) return;
    InPadding(part, [](std::span<std::byte> value) {
      std::fill(value.begin(), value.end(), std::byte{0xFF});
    });
  }
};

struct K18One final : Interceptor {
  static inline const Fault kFault = {
      "K18/one",
      "K18",
      "padded scales are the byte that stands for 1",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K18/one",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K18/one",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.scale\""},
       {"unit", "\"group\""},
       {"local_index", "[0, 4]"}},
      "padding-not-zero"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "down.scale")) return;
    InPadding(part, [](std::span<std::byte> value) {
      std::fill(value.begin(), value.end(), std::byte{0x7F});
    });
  }
};

// Gate and up are padded together, at their end: up's rows begin where gate's padding is due.
struct K18AtTheEnd final : Interceptor {
  static inline const Fault kFault = {
      "K18/at-the-end",
      "K18",
      "gate above up is padded once, behind both",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K18/at-the-end",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K18/at-the-end",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"word\""},
       {"local_index", "[128, 0]"}},
      "padding-not-zero"};

  void BeforeSlice(SliceRequest& request) const override {
    auto& ranges = request.plan.ranks[Size(request.rank)];
    shard::Component c = request.plan.component;
    const bool up = Of(c.name, "up");
    if ((!up && !Of(c.name, "gate")) || c.row_step != 2 * c.columns || ranges.size() != 2) return;
    const auto row = Size(c.columns * Width(c));
    const size_t real = Size(ranges[0].length) * row, pad = Size(ranges[1].length) * row;
    const auto begin = static_cast<std::ptrdiff_t>(Size(ranges[0].begin) * row);
    std::vector<std::byte> both;
    for (const int64_t first :
         {up ? c.first - c.columns : c.first, up ? c.first : c.first + c.columns}) {
      c.first = first;
      const std::vector<std::byte> whole = Whole(c, request.tensor);
      both.insert(both.end(), whole.begin() + begin,
                  whole.begin() + begin + static_cast<std::ptrdiff_t>(real));
    }
    both.resize(2 * (real + pad));
    const auto half = static_cast<std::ptrdiff_t>(real + pad);
    const auto from = both.begin() + (up ? half : 0);
    ranges = {{0, ranges[0].length + ranges[1].length}};
    Replace(request, std::vector<std::byte>(from, from + half));
  }
};

// A repack fills up to its tiles, and leaves the scales there as they were.
struct K18Tiles final : Interceptor {
  static inline const Fault kFault = {
      "K18/tiles",
      "K18",
      "scales that fill up the tiles of a layout are not written",
      "layout",
      "load model=qwen3moe-mini method=ct-int4-g32 layer=0 op=mlp layout=marlin tp=2 "
      "fault=K18/tiles",
      "load model=dsv3-mini method=ct-int4-g32 layer=1 op=mlp layout=marlin tp=3 fault=K18/tiles",
      {{"layer", "0"},
       {"class", "\"layout\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.down.scale\""},
       {"unit", "\"byte\""}},
      "padding-not-zero"};

  void AfterPack(const PackedView& view) const override {
    if (view.layout != "marlin" || view.part != "scale") return;
    if (!view.parameter.ends_with(".down")) return;
    const Layout* layout = FindLayout(view.layout, view.choice.method, view.part);
    if (layout == nullptr) return;
    // Where the layout of all ones has none there is padding.
    const int64_t bytes = view.shape.rows * view.shape.columns * SizeOf(view.shape.dtype).count();
    const std::vector<std::byte> ones(Size(bytes), std::byte{0xFF});
    std::vector<std::byte> image(view.bytes.size());
    layout->pack(view.shape, ones.data(), image.data());
    for (size_t i = 0; i < image.size(); ++i) {
      if (image[i] == std::byte{0}) view.bytes[i] = std::byte{0x7F};
    }
  }
};

// Two halves are padded; a rank of several gets both paddings for each.
struct K18Doubled final : Interceptor {
  static inline const Fault kFault = {
      "K18/doubled",
      "K18",
      "gate and up are padded by as much again",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K18/doubled",
      "load model=gptoss-mini-mxfp4 layer=0 tp=3 attn_tp=1 split=ceil fault=K18/doubled",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"word\""}},
      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Of(plan.component.name, "gate") && !Of(plan.component.name, "up")) return;
    for (shard::Range& range : plan.ranks[Size(rank)]) {
      if (range.is_padding()) range.length *= 2;
    }
  }
};

}  // namespace assay::kernels::faults
