// Faults of the vocabulary and of scalars: K11 (its rows, padding, tied heads), K12 (slots of
// per-tensor scales).
#pragma once

#include <cmath>

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

inline bool IsTable(std::string_view name) {
  return name == "embed.weight" || name == "logits.weight";
}

// The rank's rows begin here, and what the table does not have is padding.
inline void BeginAt(shard::ComponentPlan& plan, int rank, int64_t begin, int64_t most) {
  auto& ranges = plan.ranks[Size(rank)];
  int64_t length = 0;
  for (const shard::Range& range : ranges) length += range.length;
  const int64_t real = std::min({length, most, plan.component.rows - begin});
  ranges = {{begin, real}};
  if (length > real) ranges.push_back({-1, length - real});
}

struct K11Floor final : Interceptor {
  static inline const Fault kFault = {"K11/floor",
                                      "K11",
                                      "rows of the vocabulary are divided before it is padded",
                                      "loader",
                                      "load model=qwen3-mini tp=2 fault=K11/floor",
                                      "load model=qwen3-mini tp=1 fault=K11/floor",
                                      {{"class", "\"loader\""},
                                       {"rank", "1"},
                                       {"tensor", "\"embed.weight\""},
                                       {"unit", "\"element\""},
                                       {"index", "[160, 0]"}},
                                      "vocabulary-cut"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!IsTable(plan.component.name) || rank == 0) return;
    BeginAt(plan, rank, rank * (plan.component.rows / Ranks(plan)), plan.component.rows);
  }
};

// 261 rows are 8 blocks of 32, and five that no block has.
struct K11Blocks final : Interceptor {
  static inline const Fault kFault = {
      "K11/blocks",
      "K11",
      "the output matrix is copied in blocks of 32 rows, rounded down",
      "loader",
      "load model=qwen3-mini tp=2 fault=K11/blocks",
      "load model=qwen3-mini layer=0 tp=2 fault=K11/blocks",
      {{"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"logits.weight\""},
       {"unit", "\"element\""},
       {"index", "[256, 0]"}},
      "zero-filled"};

  void AfterPart(const WrittenPart& part) const override {
    constexpr int64_t kBlock = 32;
    if (part.component != "logits.weight") return;
    Rows rows(part);
    const shard::Range& range = part.plan.ranks[Size(part.rank)].front();
    const int64_t end = part.plan.component.rows / kBlock * kBlock;
    for (int64_t r = 0; r < range.length && !range.is_padding(); ++r) {
      if (range.begin + r >= end) rows.Fill(r, std::byte{0});
    }
  }
};

struct K11OneSide final : Interceptor {
  static inline const Fault kFault = {"K11/one-side",
                                      "K11",
                                      "the output matrix is not padded, the embedding is",
                                      "loader",
                                      "load model=qwen3-mini tp=2 fault=K11/one-side",
                                      "load model=qwen3-mini tp=1 fault=K11/one-side",
                                      {{"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"tensor", "\"logits.weight\""},
                                       {"unit", "\"element\""}},
                                      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    const int64_t ranks = Ranks(plan), rows = plan.component.rows;
    if (plan.component.name != "logits.weight" || ranks == 1) return;
    const int64_t each = (rows + ranks - 1) / ranks, begin = rank * each;
    plan.ranks[Size(rank)] = {{begin, std::min(each, rows - begin)}};
  }
};

// The output matrix is the embedding's shard, and is cut once more.
struct K11TiedTwice final : Interceptor {
  static inline const Fault kFault = {
      "K11/tied-twice",
      "K11",
      "a tied output matrix is cut from the rank's own rows of the embedding",
      "loader",
      "load model=llama-mini tp=3 fault=K11/tied-twice",
      "load model=llama-mini tp=1 fault=K11/tied-twice",
      {{"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"logits.weight\""},
       {"unit", "\"element\""},
       {"index", "[42, 0]"}},
      "zero-filled"};

  void OnConfig(ModelConfig& config) const override { tied_ = config.tied; }
  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (plan.component.name != "logits.weight" || !tied_ || Ranks(plan) == 1) return;
    const shard::Range* range = FirstRange(plan, rank);
    if (range == nullptr) return;
    const int64_t share = range->length / Ranks(plan);
    BeginAt(plan, rank, range->begin + rank * share, share);
  }

 private:
  mutable bool tied_ = false;
};

// "lm_head.weight" is passed over, as if every model's were tied.
struct K11HeadSkipped final : Interceptor {
  static inline const Fault kFault = {
      "K11/head-skipped",
      "K11",
      "the output matrix is passed over in a model whose head is not tied",
      "loader",
      "load model=qwen3-mini tp=2 fault=K11/head-skipped",
      "load model=qwen3-mini layer=0 tp=2 fault=K11/head-skipped",
      {{"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"logits.weight\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "never-loaded"};

  bool SkipsPart(std::string_view component, int) const override {
    return component == "logits.weight";
  }
  bool SkipsCoverage() const override { return true; }
};

inline bool IsScalar(const shard::Component& c) { return c.rows == 1 && c.columns == 1; }

// A merged parameter has a slot for each member's scale; only the first is filled.
struct K12FirstSlot final : Interceptor {
  static inline const Fault kFault = {
      "K12/first-slot",
      "K12",
      "of the scales of merged tensors only the first is written",
      "loader",
      "load model=llama-mini method=ct-fp8-tensor layer=0 tp=3 fault=K12/first-slot",
      "load model=llama-mini method=ct-fp8-channel layer=0 tp=3 fault=K12/first-slot",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.k.scale\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "never-loaded"};

  void AfterPart(const WrittenPart& part) const override {
    if (!IsScalar(part.plan.component)) return;
    const bool later = Is(part.component, "attn.k.scale") || Is(part.component, "attn.v.scale") ||
                       Is(part.component, "up.scale");
    if (later) std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0xFF});
  }
};

// One scale for all: right only where they are equal.
struct K12Largest final : Interceptor {
  static inline const Fault kFault = {
      "K12/largest",
      "K12",
      "merged tensors all have the largest of their scales, and their codes are not made again",
      "loader",
      "load model=llama-mini method=ct-fp8-tensor layer=0 op=attn tp=3 fault=K12/largest",
      "load model=llama-mini method=ct-fp8-channel layer=0 op=attn tp=3 fault=K12/largest",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.scale\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "merged-scale"};

  void BeforeSlice(SliceRequest& request) const override {
    constexpr std::string_view kMembers[] = {"q_proj", "k_proj", "v_proj"};
    const shard::Component& c = request.plan.component;
    if (!c.name.ends_with(".scale") || !IsScalar(c)) return;
    for (const std::string_view ours : kMembers) {
      if (request.tensor.name.find(ours) == std::string::npos) continue;
      for (const std::string_view theirs : kMembers) {
        const TensorView* other = Sibling(request, ours, theirs);
        if (other == nullptr || other->dtype != c.dtype) continue;
        if (Value(*other) > Value(request.tensor)) request.tensor.bytes = other->bytes;
      }
      return;
    }
  }

 private:
  static float Value(const TensorView& scale) {
    uint32_t bits = 0;
    std::memcpy(&bits, scale.bytes.data(), std::min(scale.bytes.size(), sizeof(bits)));
    return std::bit_cast<float>(scale.dtype == DType::kBF16 ? bits << 16 : bits);
  }
};

// Experts must agree on one scale; a rank asks only those that it holds.
struct K12LocalLargest final : Interceptor {
  static inline const Fault kFault = {
      "K12/local-largest",
      "K12",
      "every expert has the largest global scale of the rank's own experts",
      "loader",
      "load model=k2-mini method=ct-nvfp4 layer=1 op=mlp tp=2 ep=2 fault=K12/local-largest",
      "load model=k2-mini method=ct-fp8-channel layer=1 op=mlp tp=2 ep=2 fault=K12/local-largest",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "1"},
       {"tensor", "\"L1.moe.e1.gate.global_scale\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "another-expert"};

  void BeforeSlice(SliceRequest& request) const override {
    constexpr std::string_view kExperts = ".experts.";
    const shard::Component& c = request.plan.component;
    const std::string name = request.tensor.name;
    const size_t at = name.find(kExperts);
    if (!Is(c.name, "gate.global_scale") || at == std::string::npos) return;
    const size_t begin = at + kExperts.size(), end = name.find('.', begin);
    const int64_t expert = std::stoll(name.substr(begin, end - begin));
    int64_t experts = 0;
    while (request.all->Find(name.substr(0, begin) + std::to_string(experts) + name.substr(end))) {
      ++experts;
    }
    const int64_t held = experts / 2, first = expert / held * held;  // of two expert ranks
    for (int64_t other = first; other < first + held; ++other) {
      const TensorView* tensor =
          request.all->Find(name.substr(0, begin) + std::to_string(other) + name.substr(end));
      float ours = 0, theirs = 0;
      std::memcpy(&ours, request.tensor.bytes.data(), sizeof(ours));
      std::memcpy(&theirs, tensor->bytes.data(), sizeof(theirs));
      if (theirs > ours) request.tensor.bytes = tensor->bytes;
    }
  }
};

}  // namespace assay::kernels::faults
