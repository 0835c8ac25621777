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

struct Degrees {
  int tp = 1;
  int attn_tp = 0;  // 0: = tp. Divides tp; rank r has attention rank r % attn_tp.
  int attention() const { return attn_tp == 0 ? tp : attn_tp; }
  friend bool operator==(const Degrees&, const Degrees&) = default;
};

enum class Axis { kNone, kRows, kColumns };  // rows: N, outputs; columns: K, inputs

// One stored tensor of a parameter: "L1.moe.e5.down.weight" or ".scale", ".bias".
// Extents are logical (elements, or groups for a scale's columns).
struct Component {
  std::string name;    // Assay's (interfaces.md §4)
  std::string source;  // the tensor's name in the checkpoint
  DType dtype = DType::kBF16;
  int64_t rows = 0;     // logical rows; a vector (norm, bias) has rows = its length, columns = 1
  int64_t columns = 1;  // stored values a row: elements, words or groups
  Packing packing;      // of columns: {1, size} unless several elements share a word
  std::string unit;     // of a column: "element", "word", "group", "block" (GGUF)
  Elements column_elements{1};  // logical elements per column: 1, 8 (int4 in int32), g (scale)
  Elements group{0};            // quantisation group along K, 0: none (dense, or one per channel)
  Elements row_elements{1};     // logical elements of a row of the layer's weight: K
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
  std::vector<std::vector<Range>> ranks;  // [tp]; one whole range where the axis is none
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
  std::string cuts;  // where `tensor` is a config key: the first tensor that it would cut
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
