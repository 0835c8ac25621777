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
  kDense,   // [n, k], dense, `source` is the tensor's name; axes of 1 in between do not count
  kTable,   // [n, k], dense or in blocks, `source` is the tensor's name: the embedding
  kIds,     // [n, k], integers, `source` is the tensor's name: experts by token
  kLinear,  // [n, k] by any method, `source` is the module's name
};

// Matrices of all experts in one tensor, as a producer writes them (formats.md §4, §6 to §8).
enum class Fusion {
  kNone,       // each expert has tensors of its own
  kStacked,    // gate_up_proj [E, 2I, H], the gate's rows first; down_proj [E, H, I]
  kGptOss,     // gate and up alternate; blocks, or dense and transposed
  kModelSlim,  // w13_weight, w2_weight
  kGguf,       // a tensor [E, N, K] for each of gate, up and down
};
enum class Member { kNone, kGate, kUp, kDown };

struct Spec {
  std::string name;    // "L1.moe.e5.down" for a linear, else with its suffix
  std::string source;  // see Storage; with a fusion the module of all experts
  Storage storage = Storage::kLinear;
  int64_t n = 0, k = 1;
  Cut cut = Cut::kWhole;
  std::string segment;
  bool bias = false;      // the config implies one
  bool optional = false;  // may be absent
  int64_t expert = -1;    // of a routed expert
  Fusion fusion = Fusion::kNone;
  Member member = Member::kNone;
  int64_t experts = 0;         // of a fusion: how many the tensor holds
  std::string described = "";  // the module as a description of the methods calls it; "": `source`
  bool longer = false;         // of a vector: the file's may be longer, the first n are meant
  int64_t lead = 0;            // of a table: its rows are stored as [lead, n / lead]
  bool shift = false;          // of a norm: ModelSlim may have put a bias beside it
};

// DeepSeek-V4: residual streams of a hyper-connection (models.md).
constexpr int64_t kStreams = 4;

// The config's extents and their products, checked: positive, not absurd, without overflow.
struct Widths {
  int64_t q = 0, kv = 0;                // GQA rows; with MLA q is heads·(nope + rope)
  int64_t kv_a = 0, kv_b = 0, out = 0;  // MLA rows; columns of o_proj
  int64_t k_b = 0, v_b = 0;             // kv_b split, as GGUF stores it: heads·lora, heads·v
  int64_t kda = 0;                      // KDA: heads·head_dim
  int64_t streams = 0;                  // DeepSeek-V4: columns of a hyper-connection's matrix
  int64_t shared = 0;                   // rows of the shared experts' gate
};
// Errors: bad input (names the key, its value and what is allowed); an architecture that the
// planner does not know, in this container, is unsupported.
Result<Widths> CheckWidths(const ModelConfig& config);
Status CheckSelection(const ModelConfig& config, const Selection& selection);

Spec EmbedSpec(const ModelConfig& config);
// Attention block and MLP block of a layer, as far as selected. The specs of one layer are made
// at a time, so that an absurd number of layers costs no memory before the first missing tensor.
// `source` says which producer's form the experts have.
std::vector<Spec> LayerSpecs(const ModelConfig& config, const Widths& widths, int64_t layer,
                             const Selection& selection, const TensorSource& source);
// What comes after the layers: final_norm, logits, and what the family has before them.
std::vector<Spec> HeadSpecs(const ModelConfig& config);

}  // namespace assay::shard
