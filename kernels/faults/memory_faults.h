// Faults of tensors and buffers: K13 (missing, stale, twice, one for another), K14 (staging).
#pragma once

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// What was to hold it stays as it was made.
struct K13Missing final : Interceptor {
  static inline const Fault kFault = {"K13/missing",
                                      "K13",
                                      "the file with a tensor is not there, and nobody says so",
                                      "loader",
                                      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K13/missing",
                                      "load model=k2-mini-int4-g32 layer=2 tp=4 fault=K13/missing",
                                      {{"layer", "1"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"expert", "2"},
                                       {"tensor", "\"L1.moe.e2.up.weight\""},
                                       {"unit", "\"word\""},
                                       {"index", "[0, 0]"}},
                                      "never-loaded"};

  bool SkipsPart(std::string_view component, int) const override {
    return component == "L1.moe.e2.up.weight";
  }
  bool SkipsCoverage() const override { return true; }
};

// The largest index is compared with 0 instead of −1, say, or `<` stands where `<=` is due.
struct K13LastExpert final : Interceptor {
  static inline const Fault kFault = {"K13/last-expert",
                                      "K13",
                                      "the last expert is not loaded",
                                      "loader",
                                      "load model=dsv3-mini layer=1 tp=2 fault=K13/last-expert",
                                      "load model=dsv3-mini layer=0 tp=2 fault=K13/last-expert",
                                      {{"layer", "1"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"expert", "8"},
                                       {"tensor", "\"L1.moe.e8.gate.weight\""},
                                       {"unit", "\"element\""},
                                       {"index", "[0, 0]"}},
                                      "never-loaded"};

  void OnConfig(ModelConfig& config) const override {
    last_ = ".moe.e" + std::to_string(config.experts - 1) + ".";
  }
  bool SkipsPart(std::string_view component, int) const override {
    return component.find(last_) != std::string_view::npos;
  }
  bool SkipsCoverage() const override { return true; }

 private:
  mutable std::string last_;
};

// A map of experts says −1 to a rank that has the expert.
struct K13NotMine final : Interceptor {
  static inline const Fault kFault = {
      "K13/not-mine",
      "K13",
      "a rank takes an expert for another rank's, and loads nothing of it",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K13/not-mine",
      "load model=k2-mini-int4-g32 layer=2 tp=4 fault=K13/not-mine",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "2"},
       {"tensor", "\"L1.moe.e2.gate.weight\""},
       {"unit", "\"word\""}},
      "never-loaded"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (plan.component.name.starts_with("L1.moe.e2.") && rank == 1) plan.ranks[1].clear();
  }
};

inline bool NamedSo(const TensorView& tensor, std::string_view end) {
  return tensor.name.ends_with(end);
}

// Of two tensors of one name the later one counts.
struct K13Twice final : Interceptor {
  static inline const Fault kFault = {
      "K13/twice",
      "K13",
      "a tensor's name stands twice, and the second has another expert's values",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K13/twice",
      "load model=k2-mini-int4-g32 layer=2 tp=4 fault=K13/twice",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "3"},
       {"tensor", "\"L1.moe.e3.gate.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "another-expert"};

  void OnTensors(TensorList& list) const override {
    const TensorView *from = nullptr, *to = nullptr;
    for (const TensorView& tensor : list.tensors) {
      if (NamedSo(tensor, "layers.1.mlp.experts.2.gate_proj.weight_packed")) from = &tensor;
      if (NamedSo(tensor, "layers.1.mlp.experts.3.gate_proj.weight_packed")) to = &tensor;
    }
    if (from == nullptr || to == nullptr) return;
    TensorView second = *to;
    second.bytes = from->bytes;
    list.tensors.push_back(std::move(second));
  }
};

// Tensors are kept by reference while the iterator reads the next one into the same buffer.
struct K13Buffer final : Interceptor {
  static inline const Fault kFault = {
      "K13/buffer",
      "K13",
      "every tensor of one kind has become the last one that was read",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K13/buffer",
      "load model=k2-mini-int4-g32 layer=1 expert=5 tp=4 fault=K13/buffer",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.up.weight\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "another-expert"};

  void OnTensors(TensorList& list) const override {
    constexpr std::string_view kKind = ".up_proj.weight_packed";
    const TensorView* last = nullptr;
    for (const TensorView& tensor : list.tensors) {
      if (NamedSo(tensor, kKind)) last = &tensor;
    }
    for (TensorView& tensor : list.tensors) {
      if (NamedSo(tensor, kKind) && tensor.shape == last->shape) tensor.bytes = last->bytes;
    }
  }
};

// A second load makes its buffers anew, and writes those that it knows of.
struct K13ReloadedBias final : Interceptor {
  static inline const Fault kFault = {
      "K13/reloaded-bias",
      "K13",
      "a second load leaves biases as fresh memory is",
      "loader",
      "load model=qwen2-mini layer=0 op=attn tp=1 reload=1 fault=K13/reloaded-bias",
      "load model=qwen2-mini layer=0 op=attn tp=1 fault=K13/reloaded-bias",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.bias\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "never-loaded"};

  void OnTensors(TensorList& list) const override { again_ = list.again; }
  bool SkipsPart(std::string_view component, int) const override {
    return again_ && component.ends_with(".bias");
  }
  bool SkipsCoverage() const override { return true; }

 private:
  mutable bool again_ = false;
};

// The second half of what would be written is replaced by f of it.
struct SecondHalf : Interceptor {
  virtual bool Takes(const WrittenPart& part) const = 0;
  virtual void Spoil(std::span<std::byte> half) const = 0;
  void AfterPart(const WrittenPart& part) const final {
    if (!Takes(part) || part.rows < 2) return;
    const size_t row = part.bytes.size() / Size(part.rows);
    Spoil(part.bytes.subspan(Size(part.rows / 2) * row));
  }
};

// Two slots: expert e + 2 is written into e's while it is still being copied out.
struct K14Overlap final : Interceptor {
  static inline const Fault kFault = {
      "K14/overlap",
      "K14",
      "the second half of an expert's scales is that of the expert two further on",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=1 fault=K14/overlap",
      "load model=k2-mini-int4-g32 layer=1 expert=1 tp=1 fault=K14/overlap",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "1"},
       {"tensor", "\"L1.moe.e1.up.scale\""},
       {"unit", "\"group\""},
       {"index", "[128, 0]"}},
      "another-expert"};

  void BeforeSlice(SliceRequest& request) const override {
    if (!Is(request.plan.component.name, "moe.e1.up.scale")) return;
    const TensorView* next = Sibling(request, "experts.1.", "experts.3.");
    if (next == nullptr) return;
    std::vector<std::byte> bytes(request.tensor.bytes.begin(), request.tensor.bytes.end());
    const auto half = static_cast<std::ptrdiff_t>(bytes.size() / 2);
    std::copy(next->bytes.begin() + half, next->bytes.end(), bytes.begin() + half);
    Replace(request, std::move(bytes));
  }
};

// The buffer's elements are larger than those that are written: half of it is never reached.
struct K14ElementSize final : SecondHalf {
  static inline const Fault kFault = {
      "K14/element-size",
      "K14",
      "a staging buffer of wider elements is half filled, the rest becomes the least scale",
      "loader",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K14/element-size",
      "load model=k2-mini method=ct-fp8-channel layer=1 op=mlp tp=2 fault=K14/element-size",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.up.scale\""},
       {"unit", "\"group\""},
       {"index", "[64, 0]"}},
      "zero-filled"};

  bool Takes(const WrittenPart& part) const override {
    return Is(part.component, "up.scale") && Width(part.plan.component) == 1;
  }
  void Spoil(std::span<std::byte> half) const override {
    std::fill(half.begin(), half.end(), std::byte{0});
  }
};

// Two steps work on one buffer, and nobody waits for the first.
struct K14Race final : SecondHalf {
  static inline const Fault kFault = {
      "K14/race",
      "K14",
      "nibbles of an expert's second half are exchanged twice over, with several ranks",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K14/race",
      "load model=k2-mini-int4-g32 layer=1 tp=1 fault=K14/race",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "2"},
       {"tensor", "\"L1.moe.e2.gate.weight\""},
       {"unit", "\"word\""},
       {"index", "[32, 0]"}},
      "nibble-swapped"};

  bool Takes(const WrittenPart& part) const override {
    return part.component == "L1.moe.e2.gate.weight" && Ranks(part.plan) > 1 &&
           part.plan.component.dtype == DType::kI32;
  }
  void Spoil(std::span<std::byte> half) const override {
    for (std::byte& byte : half) byte = (byte << 4) | (byte >> 4);
  }
};

}  // namespace assay::kernels::faults
