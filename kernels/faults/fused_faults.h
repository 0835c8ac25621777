// Faults of matrices that belong together: K08 (gate and up), K09 (heads of q, k, v), K10 (their
// norms).
#pragma once

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// [gate; up] of a layer whose file has them apart, row major; empty where it has not.
inline std::vector<std::byte> GateOverUp(const SliceRequest& request) {
  const shard::Component& c = request.plan.component;
  if (c.row_step != 0) return {};
  const TensorView* gate = &request.tensor;
  const TensorView* up = &request.tensor;
  if (Of(c.name, "gate")) up = Sibling(request, "gate", "up");
  if (Of(c.name, "up")) gate = Sibling(request, "up", "gate");
  if (gate == up || gate == nullptr || up == nullptr) return {};
  std::vector<std::byte> both(gate->bytes.begin(), gate->bytes.end());
  both.insert(both.end(), up->bytes.begin(), up->bytes.end());
  return both;
}

// Rank 0 has all of gate and rank 1 all of up, each taken for a gate with its up.
struct K08Slab final : Interceptor {
  static inline const Fault kFault = {"K08/slab",
                                      "K08",
                                      "gate above up is cut as one matrix",
                                      "loader",
                                      "load model=qwen3moe-mini layer=0 tp=2 fault=K08/slab",
                                      "load model=qwen3moe-mini layer=0 tp=1 fault=K08/slab",
                                      {{"layer", "0"},
                                       {"class", "\"loader\""},
                                       {"rank", "1"},
                                       {"expert", "0"},
                                       {"tensor", "\"L0.moe.e0.gate.weight\""},
                                       {"unit", "\"element\""},
                                       {"index", "[96, 0]"}},
                                      "fused-order"};

  void BeforeSlice(SliceRequest& request) const override {
    const shard::Range* range = FirstRange(request.plan, request.rank);
    if (range == nullptr || request.plan.axis != shard::Axis::kRows) return;
    const std::vector<std::byte> both = GateOverUp(request);
    if (both.empty()) return;
    const auto row = Size(request.plan.component.columns * Width(request.plan.component));
    const size_t length = Size(range->length) * row;
    const size_t begin =
        2 * Size(request.rank) * length + (Of(request.plan.component.name, "up") ? length : 0);
    std::vector<std::byte> own = Whole(request.plan.component, request.tensor);
    std::copy_n(both.begin() + static_cast<std::ptrdiff_t>(begin), length,
                own.begin() + static_cast<std::ptrdiff_t>(Size(range->begin) * row));
    Replace(request, std::move(own));
  }
};

// Row 2i is gate's and row 2i + 1 up's: of a file that has them one above the other.
struct K08Interleaved final : Interceptor {
  static inline const Fault kFault = {
      "K08/interleaved",
      "K08",
      "gate above up is read as if their rows alternated",
      "loader",
      "load model=qwen3moe-mini layer=0 tp=2 fault=K08/interleaved",
      "load model=qwen3moe-mini layer=0 op=attn tp=2 fault=K08/interleaved",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"element\""},
       {"index", "[1, 0]"}},
      "fused-order"};

  void BeforeSlice(SliceRequest& request) const override {
    const std::vector<std::byte> both = GateOverUp(request);
    if (both.empty()) return;
    const shard::Component& c = request.plan.component;
    const auto row = c.columns * Width(c);
    const int64_t first = Of(c.name, "up") ? 1 : 0;
    std::vector<std::byte> own(both.size() / 2);
    for (int64_t r = 0; r < c.rows; ++r) {
      std::copy_n(both.begin() + (2 * r + first) * row, row, own.begin() + r * row);
    }
    Replace(request, std::move(own));
  }
};

// The other way round: gpt-oss's rows alternate, and are read as halves.
struct K08Halves final : Interceptor {
  static inline const Fault kFault = {
      "K08/halves",
      "K08",
      "alternating rows of gate and up are read as gate above up",
      "loader",
      "load model=gptoss-mini-mxfp4 layer=0 tp=2 split=ceil fault=K08/halves",
      "load model=qwen3moe-mini layer=0 tp=2 fault=K08/halves",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"word\""},
       {"index", "[1, 0]"}},
      "fused-order"};

  void BeforeSlice(SliceRequest& request) const override {
    shard::Component& c = request.plan.component;
    const bool up = Of(c.name, "up");
    if ((!up && !Of(c.name, "gate")) || c.row_step != 2 * c.columns) return;
    c.row_step = c.columns;
    if (up) c.first += (c.rows - 1) * c.columns;
  }
};

// A4W4 wants gate and up apart, A16W4 and A8W4 woven together; a tag says which it is.
struct K08Aiter final : Interceptor {
  static inline const Fault kFault = {
      "K08/aiter",
      "K08",
      "weights for A4W4 are shuffled as for A16W4, gate and up interleaved",
      "layout",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp layout=aiter-separated tp=2 "
      "fault=K08/aiter",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp layout=aiter-interleaved tp=2 "
      "fault=K08/aiter",
      {{"layer", "1"},
       {"class", "\"layout\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "wrong-layout"};

  void AfterPack(const PackedView& view) const override {
    if (view.layout != "aiter-separated" || view.part != "weight") return;
    if (!view.parameter.ends_with("gate_up")) return;
    const Layout* is = FindLayout(view.layout, view.choice.method, view.part);
    const Layout* other = FindLayout("aiter-interleaved", view.choice.method, view.part);
    const auto bytes = static_cast<int64_t>(view.bytes.size());
    if (is == nullptr || other == nullptr || other->bytes(view.shape) != bytes) return;
    std::vector<std::byte> rows(
        Size(view.shape.rows * view.shape.columns * SizeOf(view.shape.dtype).count()));
    is->unpack(view.shape, view.bytes.data(), rows.data());
    other->pack(view.shape, rows.data(), view.bytes.data());
  }
};

// Ranks share a head of k and v: q is cut by the number of that head, not by the rank's own.
struct K09QueryByKey final : Interceptor {
  static inline const Fault kFault = {
      "K09/query-by-key",
      "K09",
      "q is cut by the number of the rank's key head",
      "loader",
      "load model=qwen3moe-mini layer=0 op=attn tp=4 fault=K09/query-by-key",
      "load model=qwen3moe-mini layer=0 op=attn tp=2 fault=K09/query-by-key",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.attn.q.weight\""},
       {"unit", "\"element\""},
       {"index", "[24, 0]"}},
      "shard-of-another-rank"};

  void OnConfig(ModelConfig& config) const override { heads_ = config.kv_heads; }
  void BeforeSlice(SliceRequest& request) const override {
    const int64_t ranks = Ranks(request.plan);
    if (!Is(request.plan.component.name, "attn.q.weight") || heads_ < 1 || ranks <= heads_) return;
    request.rank = static_cast<int>(request.rank / (ranks / heads_));
  }

 private:
  mutable int64_t heads_ = 0;
};

// Key heads are dealt out one after the other, where neighbours should share one.
struct K09KeyModulo final : Interceptor {
  static inline const Fault kFault = {
      "K09/key-modulo",
      "K09",
      "rank r has key head r modulo the heads, where r over the replicas is due",
      "loader",
      "load model=qwen3moe-mini layer=0 op=attn tp=4 fault=K09/key-modulo",
      "load model=qwen3moe-mini layer=0 op=attn tp=2 fault=K09/key-modulo",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.attn.k.weight\""},
       {"unit", "\"element\""},
       {"index", "[0, 0]"}},
      "shard-of-another-rank"};

  void BeforeSlice(SliceRequest& request) const override {
    const int replicas = request.plan.replicas;
    if (!Of(request.plan.component.name, "attn.k") || replicas < 2) return;
    request.rank = request.rank % (Ranks(request.plan) / replicas) * replicas;
  }
};

// q, k and v lie one above the other; the loader looks for the heads of each group together.
struct K09Grouped final : Interceptor {
  static inline const Fault kFault = {
      "K09/grouped",
      "K09",
      "q above k above v is read as groups of query heads with their key and value",
      "loader",
      "load model=qwen3moe-mini layer=0 op=attn tp=2 fault=K09/grouped",
      "load model=qwen2-mini layer=0 op=attn tp=1 fault=K09/grouped",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.attn.q.weight\""},
       {"unit", "\"element\""},
       {"index", "[48, 0]"}},
      "fused-order"};

  void OnConfig(ModelConfig& config) const override {
    head_ = config.head_dim;
    keys_ = config.kv_heads;
    queries_ = keys_ > 0 ? config.heads / keys_ : 0;
  }
  void BeforeSlice(SliceRequest& request) const override {
    const shard::Component& c = request.plan.component;
    if (!Is(c.name, "attn.q.weight") || head_ == 0 || queries_ == 0) return;
    std::vector<std::byte> fused(request.tensor.bytes.begin(), request.tensor.bytes.end());
    for (const char* other : {"k_proj", "v_proj"}) {
      const TensorView* tensor = Sibling(request, "q_proj", other);
      if (tensor == nullptr) return;
      fused.insert(fused.end(), tensor->bytes.begin(), tensor->bytes.end());
    }
    const int64_t row = c.columns * Width(c), group = queries_ * head_;
    std::vector<std::byte> own(request.tensor.bytes.size());
    for (int64_t r = 0; r < c.rows; ++r) {
      const int64_t from = r / group * (group + 2 * head_) + r % group;
      std::copy_n(fused.begin() + from * row, row, own.begin() + r * row);
    }
    Replace(request, std::move(own));
  }

 private:
  mutable int64_t head_ = 0, keys_ = 0, queries_ = 0;
};

struct K09Heads final : Interceptor {
  static inline const Fault kFault = {"K09/heads",
                                      "K09",
                                      "the first two heads of q have changed places on every rank",
                                      "loader",
                                      "load model=llama-mini layer=0 op=attn tp=3 fault=K09/heads",
                                      "load model=llama-mini layer=0 op=attn tp=9 fault=K09/heads",
                                      {{"layer", "0"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"tensor", "\"L0.attn.q.weight\""},
                                       {"unit", "\"element\""},
                                       {"index", "[0, 0]"}},
                                      "permuted-rows"};

  void OnConfig(ModelConfig& config) const override { head_ = config.head_dim; }
  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "attn.q.weight") || head_ == 0 || part.rows < 2 * head_) return;
    Rows rows(part);
    for (int64_t r = 0; r < 2 * head_; ++r) rows.Move(r, (r + head_) % (2 * head_));
  }

 private:
  mutable int64_t head_ = 0;
};

// Keys and values of a head lie together; the loader looks for all keys first.
struct K09LatentHeads final : Interceptor {
  static inline const Fault kFault = {
      "K09/latent-heads",
      "K09",
      "kv_b is put together as all keys above all values",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 op=attn tp=4 fault=K09/latent-heads",
      "load model=k2-mini-int4-g32 layer=1 op=attn tp=8 fault=K09/latent-heads",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.attn.kv_b.weight\""},
       {"unit", "\"element\""},
       {"index", "[16, 0]"}},
      "permuted-rows"};

  void OnConfig(ModelConfig& config) const override {
    keys_ = config.qk_nope;
    values_ = config.v_dim;
  }
  void AfterPart(const WrittenPart& part) const override {
    const int64_t head = keys_ + values_;
    if (!Is(part.component, "attn.kv_b.weight") || head == 0 || part.rows % head != 0) return;
    Rows rows(part);
    const int64_t heads = part.rows / head;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < keys_; ++i) rows.Move(h * head + i, h * keys_ + i);
      for (int64_t i = 0; i < values_; ++i) {
        rows.Move(h * head + keys_ + i, heads * keys_ + h * values_ + i);
      }
    }
  }

 private:
  mutable int64_t keys_ = 0, values_ = 0;
};

// The file has more values than the model has heads; what lies behind those is nobody's.
struct K09Decays final : Interceptor {
  static inline const Fault kFault = {
      "K09/decays",
      "K09",
      "decays of heads are cut by what the file has of them, not by the heads",
      "loader",
      "load model=k3-mini layer=0 op=attn tp=2 fault=K09/decays",
      "load model=k3-mini layer=0 op=attn tp=1 fault=K09/decays",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"tensor", "\"L0.attn.a_log.weight\""},
       {"unit", "\"element\""},
       {"index", "[3, 0]"}},
      "misaligned-shard"};

  void BeforeSlice(SliceRequest& request) const override {
    shard::Component& c = request.plan.component;
    if (!Is(c.name, "attn.a_log.weight") || c.row_step == 0) return;
    const int64_t ranks = Ranks(request.plan);
    const auto stored = static_cast<int64_t>(request.tensor.bytes.size()) / Width(c);
    c.first += request.rank * (stored / ranks - c.rows / ranks) * c.row_step;
  }
};

// One weight for every head, and each rank takes its share of it.
struct K10Cut final : Interceptor {
  static inline const Fault kFault = {"K10/cut",
                                      "K10",
                                      "the norm weight of a head is cut by the number of ranks",
                                      "loader",
                                      "load model=qwen3-mini layer=0 op=attn tp=2 fault=K10/cut",
                                      "load model=qwen3-mini layer=0 op=attn tp=1 fault=K10/cut",
                                      {{"layer", "0"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"tensor", "\"L0.attn.q_norm.weight\""},
                                       {"unit", "\"element\""}},
                                      "wrong-shape"};

  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (!Is(plan.component.name, "attn.q_norm.weight")) return;
    const int64_t each = plan.component.rows / Ranks(plan);
    plan.axis = shard::Axis::kRows;
    plan.ranks[Size(rank)] = {{rank * each, each}};
  }
};

// The parameter is whole, the loader writes a rank's share to its beginning.
struct K10PartWritten final : Interceptor {
  static inline const Fault kFault = {
      "K10/part-written",
      "K10",
      "of the key norm's weight only the first share is written",
      "loader",
      "load model=qwen3moe-mini layer=0 op=attn tp=4 fault=K10/part-written",
      "load model=qwen3moe-mini layer=0 op=attn tp=1 fault=K10/part-written",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.k_norm.weight\""},
       {"unit", "\"element\""},
       {"index", "[6, 0]"}},
      "never-loaded"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "attn.k_norm.weight")) return;
    Rows rows(part);
    for (int64_t r = part.rows / Ranks(part.plan); r < part.rows; ++r)
      rows.Fill(r, std::byte{0xFF});
  }
};

}  // namespace assay::kernels::faults
