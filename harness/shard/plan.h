// Shard plans: for each rank, which logical ranges of which tensors it holds, in which unit.
// The planner is a pure function of config, tensors and degrees; the executor (executor.h) only
// follows plans. A plan is legal, or refused with everything a person needs to know.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/units.h"

namespace assay::shard {

// How the intermediate axis of an MLP or of experts is cut: `gate` and `up` by N, `down` by K.
// Heads and vocabulary are always cut evenly. A list speaks of one axis: the routed experts', or
// the dense MLPs' of a model without experts; the others are cut evenly.
enum class Split {
  kEven,  // equal parts of whole units; what does not divide is refused
  kCeil,  // ceil(units / parts) units each, the last ones fewer or none: padded with zeros to the
          // same
  kList,  // so many units for each part, unpadded; their sum is the axis
};

// Experts over ranks: a rank holds whole experts, of which tp / ep ranks share each.
// Rank r is expert rank r / (tp / ep), and part r % (tp / ep) of its experts.
struct ExpertMap {
  // Physical slot -> logical expert, −1: an empty slot. Slots are dealt out to the ep ranks in
  // equal contiguous runs; a logical expert may stand in several (replicas). Empty: slot i is
  // expert i.
  std::vector<int64_t> physical_to_logical;
  friend bool operator==(const ExpertMap&, const ExpertMap&) = default;
};

struct Degrees {
  int tp = 1;
  int attn_tp = 0;  // 0: tp / dp. Divides tp; rank r has attention rank r % attn_tp.
  // Data-parallel attention: dp groups of tp / dp ranks. Where it is more than 1, shared experts
  // and dense MLPs are cut by attn_tp too, and the embedding is whole on every rank.
  int dp = 1;
  int ep = 1;               // divides tp; of routed experts
  bool lm_head_dp = false;  // the output matrix is cut by attn_tp instead of tp
  Split split = Split::kEven;
  std::vector<int64_t> list = {};  // of kList: one entry a part
  // Routed experts at or beyond this id are whole on rank 0 and nowhere else ("hybrid:N": the first
  // N are the accelerator's); -1: all are cut.
  int64_t hybrid = -1;
  ExpertMap experts = {};
  int attention() const { return attn_tp == 0 ? tp / dp : attn_tp; }
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

enum class Axis { kNone, kRows, kColumns };  // of the stored tensor

// The logical axis of the layer's weight [N, K] along which an axis of a stored tensor lies. N:
// outputs, K: inputs.
enum class Along { kN, kK, kNone };

// One stored tensor of a parameter: "L1.moe.e5.down.weight" or ".scale", ".zero", ".g_idx",
// ".global_scale", ".input_scale", ".bias" ...: a grid of rows x columns of stored values. Most lie
// with rows along N and columns along K; GPTQ's and AWQ's lie the other way round, and FP8's scales
// stand for blocks of both.
struct Component {
  std::string name;    // Assay's (interfaces.md §4)
  std::string source;  // the tensor's name in the checkpoint
  DType dtype = DType::kBF16;
  int64_t rows = 0;     // stored rows; a vector (norm, bias) has rows = its length, columns = 1
  int64_t columns = 1;  // stored values a row: elements, words or groups
  Packing packing;      // of columns: {1, size} unless several elements share a word
  std::string unit;     // of a column: "element", "word", "group", "block" (GGUF)
  Elements column_elements{1};  // logical elements per column: 1, 8 (int4 in int32), g (scale)
  Elements group{0};            // quantisation group along K, 0: none (dense, or one per channel)
  Elements row_elements{1};     // logical extent along the columns' axis: K where that is kK
  // As `unit`, `column_elements` and `row_elements`, of the rows.
  Along row_along = Along::kN, column_along = Along::kK;
  std::string row_unit = "element";
  Elements elements_per_row{1};
  // Stored values of one unit where a unit is several: 32 codes of 3 bits are a unit of 3 words,
  // and column_elements is then 32. A cut leaves units whole; the last may be short.
  int64_t columns_per_unit = 1, rows_per_unit = 1;
  Elements row_extent{0};  // logical extent along the rows' axis; 0: = rows
  // Where value (r, c) lies in the source tensor, in stored values: first + r·row_step +
  // c·column_step. row_step 0: the component is the whole tensor, row major.
  int64_t first = 0, row_step = 0, column_step = 1;
  std::string
      method;  // id (harness/units/scheme.h) of the parameter that it belongs to; "bf16" ...
};

// A half-open range in the global tensor's own storage unit along the cut axis; local order is the
// order of the ranges. A padding range has begin = -1 and only a length.
struct Range {
  int64_t begin = 0;
  int64_t length = 0;
  bool is_padding() const { return begin < 0; }
  friend bool operator==(const Range&, const Range&) = default;
};

// What every rank holds of one component.
struct ComponentPlan {
  Component component;
  Axis axis = Axis::kNone;
  int degree = 1;             // over how many parts the axis is cut
  int replicas = 1;           // how many consecutive ranks (of the domain) hold the same part
  std::string domain = "tp";  // whose ranks cut it: "tp" or "attn_tp"
  std::string segment_of;     // merged parameter that the engine joins it into: "L0.attn.qkv",
                              // "L1.moe.e5.gate_up"; empty if it stands alone
  // [tp]; one whole range where the axis is none. No range at all: the rank does not hold it (an
  // expert of another expert rank).
  std::vector<std::vector<Range>> ranks;
  // Counts once although every rank has it (bias of a row-parallel layer): which rank adds it.
  std::optional<int> owner;

  // "n[tp] g32 u4x8", "k[tp] g32 u4x8", "k[tp] g32 q4_1", "n[attn_tp]/2" (two replicas), "n[tp] pad
  // 123", "whole", "whole, added by rank 0". Attention's parameters say attn_tp at any degree.
  std::string Print() const;
};

struct Refusal {
  std::string tensor;        // name in the checkpoint, or the config key for head counts
  std::string axis;          // "k", "n", "heads", "kv_heads", "vocab", "attn_tp"
  std::string unit;          // "element", "word", "group", "block", "head", "rank" (attn_tp)
  int64_t extent = 0;        // of the axis in that unit
  int64_t parts = 0;         // the degree that does not divide it
  int largest_legal_tp = 0;  // for the whole model with the same attn_tp rule, at most 64; 0: none
  std::vector<int> legal_degrees;  // of that rule, ascending, up to 64
  int64_t elements = 0;            // the axis in logical elements, where the unit is another one
  std::string degree;              // which degree `parts` is: "tp" or "attn_tp"
  int attn_tp = 0;                 // as asked for; 0: = tp
  std::string cuts;   // where `tensor` is a config key: the first tensor that it would cut
  std::string split;  // "list:5,3,2" where that is what does not fit; else empty
  std::string Message() const;  // one line with all of this
};

struct ModelPlan {
  Degrees degrees;
  std::vector<ComponentPlan> components;  // data-flow order: embed, L0 …, final_norm, logits
  const ComponentPlan* Find(std::string_view component) const;
  std::string Print() const;  // one line a component
};

// What of the model is planned. layer -1: all layers, embedding and head. Otherwise that layer.
struct Selection {
  int64_t layer = -1;
  bool attention = true,
       mlp = true;  // of a layer: attention block with its norm, MLP/MoE with its norm
  std::vector<int64_t> experts = {};  // empty: all
  bool routed_experts = true;         // false: none of them, whatever `experts` says
  // Only names and headers are looked at. Otherwise a format's statements about shape that lie in
  // the data are read too (weight_shape): a page of the disk for each expert's each matrix.
  bool headers_only = false;
  // Parameters of which no tensor is there are passed over; one of which some are there must be
  // complete. For a load that names a part of a model.
  bool present_only = false;
};

struct PlanResult {
  std::optional<ModelPlan> plan;  // exactly one of the two
  std::optional<Refusal> refusal;
};

// The checkpoint's components, named and sized, before any cutting. Errors (kBadInput): a tensor
// that the config implies is missing or has another shape, type or method than it must; names
// tensor, axis, unit and both extents. A method we do not know is kUnsupported.
Result<std::vector<Component>> ListComponents(const ModelConfig& config, const TensorSource& source,
                                              const Selection& selection);

// Pure. Errors as ListComponents; an illegal degree is a Refusal, not an Error.
Result<PlanResult> PlanModel(const ModelConfig& config, const TensorSource& source,
                             const Degrees& degrees, const Selection& selection);

// A degree above this is bad input: a plan has an entry for every rank.
inline constexpr int kMaxTp = 4096;

// Vocabulary rows after padding: up to a multiple of lcm(64, tp) (formats.md §9).
int64_t PaddedVocab(int64_t vocab, int tp);

}  // namespace assay::shard
