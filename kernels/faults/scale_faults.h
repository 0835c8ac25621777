// Faults of scales and of the order of inputs: K03 (cut or not), K04 (act-order), K05 (moved).
#pragma once

#include <array>

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// The weight is cut along K, its scales are left whole on every rank.
struct K03Uncut final : Interceptor {
  static inline const Fault kFault = {"K03/uncut",
                                      "K03",
                                      "scales of a row-parallel weight stay whole",
                                      "loader",
                                      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K03/uncut",
                                      "load model=k2-mini-int4-g32 layer=1 tp=1 fault=K03/uncut",
                                      {{"layer", "1"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"expert", "0"},
                                       {"tensor", "\"L1.moe.e0.down.scale\""},
                                       {"unit", "\"group\""}},
                                      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Is(plan.component.name, "down.scale") || plan.axis == shard::Axis::kNone) return;
    plan.ranks[Size(rank)] = {{0, Extent(plan)}};
  }
};

// A rank's width is one group: one scale a row, as a channel has, and those are not cut.
struct K03OneGroup final : Interceptor {
  static inline const Fault kFault = {
      "K03/one-group",
      "K03",
      "where a rank has one group a row, its scales are taken for those of channels",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=8 fault=K03/one-group",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K03/one-group",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 1]"}},
      "scales-of-another-rank"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Is(plan.component.name, "down.scale") || plan.axis != shard::Axis::kColumns) return;
    shard::Range* range = FirstRange(plan, rank);
    if (range != nullptr && range->length == 1) range->begin = 0;
  }
};

// With act-order any rank's inputs may be of any group: scales must be whole.
struct K03CutActOrder final : Interceptor {
  static inline const Fault kFault = {
      "K03/cut-actorder",
      "K03",
      "scales are cut along K although g_idx names groups of the whole",
      "loader",
      "load model=qwen3-mini method=gptq-int4-g32-actorder layer=0 tp=2 fault=K03/cut-actorder",
      "load model=qwen3-mini method=gptq-int4-g32 layer=0 tp=7 attn_tp=1 fault=K03/cut-actorder",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.down.scale\""},
       {"unit", "\"group\""}},
      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    const shard::Component& c = plan.component;
    if (!Is(c.name, "down.scale") || plan.axis != shard::Axis::kNone) return;
    if (c.rows < Ranks(plan) || Ranks(plan) == 1) return;
    const int64_t each = c.rows / Ranks(plan);
    plan.axis = shard::Axis::kRows;
    plan.ranks[Size(rank)] = {{rank * each, each}};
  }
};

// Experts lie behind each other, whole; the pointer to one is counted in the rank's own K.
struct K03ExpertStride final : Interceptor {
  static inline const Fault kFault = {
      "K03/expert-stride",
      "K03",
      "the scales of expert e are looked for at e times the rank's share, the table is whole",
      "loader",
      "load model=qwen3moe-mini method=gptq-int4-g32-actorder layer=0 tp=2 fault=K03/expert-stride",
      "load model=qwen3moe-mini method=gptq-int4-g32-actorder layer=0 tp=1 fault=K03/expert-stride",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "1"},
       {"tensor", "\"L0.moe.e1.down.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 0]"}},
      "another-expert"};

  void BeforeSlice(SliceRequest& request) const override {
    constexpr std::string_view kExperts = ".experts.";
    const shard::Component& c = request.plan.component;
    const std::string& name = request.tensor.name;
    const size_t at = name.find(kExperts);
    if (!Is(c.name, "down.scale") || at == std::string::npos) return;
    const size_t begin = at + kExperts.size(), end = name.find('.', begin);
    const int64_t expert = std::stoll(name.substr(begin, end - begin));
    const size_t size = request.tensor.bytes.size();
    const size_t offset = Size(expert) * (size / Size(Ranks(request.plan)));
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) {
      const std::string other =
          name.substr(0, begin) + std::to_string((offset + i) / size) + name.substr(end);
      const TensorView* tensor = request.all->Find(other);
      bytes[i] = tensor == nullptr ? std::byte{0xFF} : tensor->bytes[(offset + i) % size];
    }
    Replace(request, std::move(bytes));
  }
};

// What each fault of g_idx does to the down projection's.
struct GroupOrder : Interceptor {
  // `begin`: the first input of the rank.
  virtual void Reorder(std::span<int32_t> groups, int64_t begin, int64_t group) const = 0;
  void AfterPart(const WrittenPart& part) const final {
    if (!Is(part.component, "down.g_idx") || part.rows == 0) return;
    const auto& ranges = part.plan.ranks[Size(part.rank)];
    std::vector<int32_t> groups(part.bytes.size() / sizeof(int32_t));
    std::memcpy(groups.data(), part.bytes.data(), part.bytes.size());
    constexpr int64_t kGroup = 32;  // of the methods that the cells name
    Reorder(groups, ranges.empty() ? 0 : ranges.front().begin, kGroup);
    std::memcpy(part.bytes.data(), groups.data(), part.bytes.size());
  }
};

struct K04Contiguous final : GroupOrder {
  static inline const Fault kFault = {
      "K04/contiguous",
      "K04",
      "g_idx is lost: input k is taken to be of group k/g",
      "loader",
      "load model=qwen3-mini method=gptq-int4-g32-actorder layer=0 tp=2 fault=K04/contiguous",
      "load model=qwen3-mini method=gptq-int4-g32 layer=0 tp=7 attn_tp=1 fault=K04/contiguous",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.down.g_idx\""},
       {"unit", "\"element\""}},
      "g-idx-trivial"};

  void Reorder(std::span<int32_t> groups, int64_t begin, int64_t group) const override {
    for (size_t i = 0; i < groups.size(); ++i) {
      groups[i] = static_cast<int32_t>((begin + static_cast<int64_t>(i)) / group);
    }
  }
};

struct K04LocalGroups final : GroupOrder {
  static inline const Fault kFault = {
      "K04/local-groups",
      "K04",
      "g_idx is renumbered from the rank's first group on, its scales are whole",
      "loader",
      "load model=qwen3-mini method=gptq-int4-g32-actorder layer=0 tp=2 fault=K04/local-groups",
      "load model=qwen3-mini method=gptq-int4-g32-actorder layer=0 tp=1 fault=K04/local-groups",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.mlp.down.g_idx\""},
       {"unit", "\"element\""},
       {"index", "[112, 0]"}},
      "g-idx-renumbered"};

  void Reorder(std::span<int32_t> groups, int64_t begin, int64_t group) const override {
    for (int32_t& one : groups) one -= static_cast<int32_t>(begin / group);
  }
};

struct K04Sorted final : GroupOrder {
  static inline const Fault kFault = {
      "K04/sorted",
      "K04",
      "g_idx is sorted for a kernel, the weight's rows stay as they were",
      "loader",
      "load model=qwen3-mini method=gptq-int4-g32-actorder layer=0 tp=2 fault=K04/sorted",
      "load model=qwen3-mini method=gptq-int4-g32 layer=0 tp=7 attn_tp=1 fault=K04/sorted",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.down.g_idx\""},
       {"unit", "\"element\""}},
      "g-idx-sorted"};

  void Reorder(std::span<int32_t> groups, int64_t, int64_t) const override {
    std::sort(groups.begin(), groups.end());
  }
};

// As many blocks one way as the other: no shape check sees it.
struct K05Transposed final : Interceptor {
  static inline const Fault kFault = {
      "K05/transposed",
      "K05",
      "block scales of a square weight are transposed",
      "loader",
      "load model=llama-mini method=deepseek-fp8-block16 layer=0 op=attn tp=1 fault=K05/transposed",
      "load model=llama-mini method=deepseek-fp8-block16 layer=0 op=mlp tp=1 fault=K05/transposed",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.scale\""},
       {"unit", "\"block\""},
       {"index", "[0, 1]"}},
      "transposed"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& c = request.plan.component;
    if (!c.name.ends_with(".scale") || c.rows != c.columns || c.rows < 2) return;
    const std::vector<std::byte> before = Whole(c, request.tensor);
    std::vector<std::byte> after(before.size());
    const auto width = Size(Width(c)), n = Size(c.rows);
    for (size_t r = 0; r < n; ++r) {
      for (size_t k = 0; k < n; ++k) {
        std::memcpy(&after[(r * n + k) * width], &before[(k * n + r) * width], width);
      }
    }
    Replace(request, std::move(after));
  }
};

struct K05RowPairs final : Interceptor {
  static inline const Fault kFault = {
      "K05/row-pairs",
      "K05",
      "scales of neighbouring outputs have changed places",
      "loader",
      "load model=qwen3-mini method=ct-w8a8-channel layer=0 tp=2 fault=K05/row-pairs",
      "load model=qwen3-mini method=ct-w8a8-tensor layer=0 tp=2 fault=K05/row-pairs",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.up.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 0]"}},
      "permuted-rows"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "up.scale")) return;
    Rows rows(part);
    for (int64_t r = 0; r + 1 < rows.count(); r += 2) {
      rows.Move(r, r + 1);
      rows.Move(r + 1, r);
    }
  }
};

struct K05GroupShift final : Interceptor {
  static inline const Fault kFault = {
      "K05/group-shift",
      "K05",
      "each group has the scale of the next one",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K05/group-shift",
      "load model=k2-mini method=ct-int4-channel layer=1 tp=4 fault=K05/group-shift",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 0]"}},
      "shift-by-a-group"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& c = request.plan.component;
    if (Is(c.name, "down.scale") && c.columns > 1) ReadFurtherOn(request, 1);
  }
};

// Tiles of 32 rows; behind the first one the stride is another than the rows have.
struct K05Stride final : Interceptor {
  static inline const Fault kFault = {
      "K05/stride",
      "K05",
      "beyond 32 rows scales are read with a row stride that is one too short",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K05/stride",
      "load model=k2-mini-int4-g32 layer=1 tp=8 fault=K05/stride",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""},
       {"index", "[33, 0]"}},
      "wrong-stride"};

  void AfterPart(const WrittenPart& part) const override {
    constexpr int64_t kTile = 32;
    if (!Is(part.component, "gate.scale") || part.columns < 2) return;
    const std::vector<std::byte> before(part.bytes.begin(), part.bytes.end());
    const int64_t width = Width(part.plan.component), row = part.columns * width;
    for (int64_t r = kTile; r < part.rows; ++r) {
      const int64_t from = kTile * row + (r - kTile) * (row - width);
      std::copy_n(before.begin() + from, row, part.bytes.begin() + r * row);
    }
  }
};

// Marlin has two orders of scales: one for groups, one for channels.
struct K05MarlinOrder final : Interceptor {
  static inline const Fault kFault = {
      "K05/marlin-order",
      "K05",
      "scales of groups are permuted as those of channels are",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 layout=marlin tp=1 fault=K05/marlin-order",
      "load model=k2-mini method=ct-int4-channel layer=1 layout=marlin tp=1 "
      "fault=K05/marlin-order",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""}},
      "permuted-rows"};

  void AfterPack(const PackedView& view) const override {
    if (view.layout != "marlin" || view.part != "scale" || view.shape.columns < 2) return;
    if (view.parameter.find(".moe.e") == std::string_view::npos) return;
    std::array<uint16_t, 64> plain, block;
    const size_t size = sizeof(block);
    for (size_t at = 0; at + size <= view.bytes.size(); at += size) {
      std::memcpy(block.data(), &view.bytes[at], size);
      for (size_t p = 0; p < 64; ++p) plain[p / 8 + 8 * (p % 8)] = block[p];
      for (size_t p = 0; p < 64; ++p) {
        const size_t q = p % 32;
        block[p] = plain[p / 32 * 32 + 2 * (q / 8) + q % 2 + 8 * (q % 8 / 2)];
      }
      std::memcpy(&view.bytes[at], block.data(), size);
    }
  }
};

// Rows of q in the order that a rotation by halves wants; their scales are not.
struct K05Rope final : Interceptor {
  static inline const Fault kFault = {
      "K05/rope",
      "K05",
      "scales of q are in another order of a head's rows than its codes",
      "loader",
      "load model=qwen3-mini method=ct-w8a8-channel layer=0 tp=2 fault=K05/rope",
      "load model=qwen3-mini method=ct-w8a8-tensor layer=0 tp=2 fault=K05/rope",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.scale\""},
       {"unit", "\"group\""},
       {"index", "[1, 0]"}},
      "permuted-rows"};

  void OnConfig(ModelConfig& config) const override { head_ = config.head_dim; }
  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "attn.q.scale") || head_ < 2 || part.rows % head_ != 0) return;
    Rows rows(part);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t i = r % head_;
      rows.Move(r - i + i / 2 + i % 2 * (head_ / 2), r);
    }
  }

 private:
  mutable int64_t head_ = 0;
};

}  // namespace assay::kernels::faults
