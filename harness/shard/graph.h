// What tensors a config implies, in data-flow order, before anything is looked up in a file.
// Internal to the room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/shard/plan.h"

namespace assay::shard {

// How a parameter is divided over ranks. A bias or scale follows its weight.
enum class Cut {
  kWhole,        // every rank has all of it
  kOnce,         // likewise, but it counts once: bias of a row-parallel layer
  kVocab,        // rows, padded
  kRows,         // rows over tp
  kColumns,      // columns over tp
  kQueryHeads,   // rows over attn_tp, whole query heads
  kKvHeads,      // rows over attn_tp, whole KV heads, replicated where there are too few
  kHeadColumns,  // columns over attn_tp, whole query heads
  // Shared experts and dense MLPs: over tp, or over attn_tp where attention is data parallel.
  kSharedRows,
  kSharedColumns,
  // Routed experts (Listed::expert): over the ranks that share an expert.
  kExpertRows,
  kExpertColumns,
  // KDA: rows and columns over attn_tp, whole KDA heads.
  kKdaHeads,
  kKdaColumns,
};

enum class Storage {
  kVector,  // [n], dense, `source` is the tensor's name
  kDense,   // [n, k], dense, `source` is the tensor's name
  kTable,   // [n, k], dense or in blocks, `source` is the tensor's name: the embedding
  kLinear,  // [n, k] by any method, `source` is the module's name
};

struct Spec {
  std::string name;    // "L1.moe.e5.down" for a linear, else with its suffix
  std::string source;  // see Storage
  Storage storage = Storage::kLinear;
  int64_t n = 0, k = 1;
  Cut cut = Cut::kWhole;
  std::string segment;
  bool bias = false;      // the config implies one
  bool optional = false;  // may be absent
};

// The config's extents and their products, checked: positive, not absurd, without overflow.
struct Widths {
  int64_t q = 0, kv = 0;                // GQA rows; with MLA q is heads·(nope + rope)
  int64_t kv_a = 0, kv_b = 0, out = 0;  // MLA rows; columns of o_proj
  int64_t shared = 0;                   // rows of the shared experts' gate
};
// Errors: bad input (names the key, its value and what is allowed); an architecture that the
// planner does not know, in this container, is unsupported.
Result<Widths> CheckWidths(const ModelConfig& config);
Status CheckSelection(const ModelConfig& config, const Selection& selection);

Spec EmbedSpec(const ModelConfig& config);
// Attention block and MLP block of a layer, as far as selected. The specs of one layer are made
// at a time, so that an absurd number of layers costs no memory before the first missing tensor.
std::vector<Spec> LayerSpecs(const ModelConfig& config, const Widths& widths, int64_t layer,
                             const Selection& selection);
std::vector<Spec> HeadSpecs(const ModelConfig& config);  // final_norm, logits

}  // namespace assay::shard
