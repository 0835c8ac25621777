// A model as data: its ops in data-flow order, and its parameters with the axes along which tensor
// parallelism cuts them. One builder per family fills both at the same time; of some families the
// parameters alone are known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/status.h"
#include "reference/oracle.h"

namespace assay::reference {

// Into what an axis falls apart under tensor parallelism.
enum class Cut {
  kWhole,       // every rank has all of it
  kHeads,       // heads, by the attention degree: extent / block of them
  kKvHeads,     // key/value heads, by the attention degree, replicated beyond their number
  kDense,       // a dense MLP's or shared experts' intermediate: by tp, beside data-parallel
                // attention by the attention degree
  kExpert,      // a routed expert's intermediate: by the ranks that share the expert
  kVocabulary,  // padded to a multiple of lcm(64, tp), then equal parts; whole beside data-parallel
                // attention
  kOutput,      // the output matrix's vocabulary: likewise, by tp or by the attention degree
};
struct Axis {
  Cut cut = Cut::kWhole;
  int64_t extent = 0;  // logical elements of the whole
  int64_t block = 1;   // elements of one head
  // kExpert: whose it is, and of how many. kDense: how many experts the model has beside it.
  int64_t expert = -1, experts = 0;
};

// Where a parameter lies in tensors that hold all experts, [E, ...]. The tensor of a suffix is
// `stem` itself for "weight" if there is one, else `stem`_suffix or `stem`.suffix.
struct Fused {
  std::string stem;  // "model.layers.1.mlp.experts.gate_up_proj"; empty: a tensor of its own
  int64_t expert = 0, experts = 0;
  // Which of two halves along the rows: 0, 1; -1: all rows.
  int half = -1;
  bool interleaved = false;  // rows of the halves alternate, instead of one after the other
  bool transposed = false;   // `stem` itself is [E, K, N]
};

struct Parameter {
  std::string name;  // "L1.moe.e5.down"
  std::string
      source;  // in the checkpoint, without suffix: "model.layers.1.mlp.experts.5.down_proj"
  int64_t layer = -1;
  Axis rows, columns;      // of the logical [N, K]; a vector has one column
  bool vector = false;     // stored with one dimension
  bool has_weight = true;  // false: the router's correction bias is a bias alone
  bool has_bias = false;
  std::string bias_source;  // full name
  // The full name of the one tensor that is the weight, plain values of any shape with as many of
  // them: sinks, convolutions, tables. No method is looked for.
  std::string exact;
  bool longer = false;  // of `exact`: values beyond the logical ones are ignored
  bool flat = false;    // stored with more extents, all but the last of which are the rows
  int64_t expert = -1;  // whose it is; -1: no routed expert's
  std::string mlp;      // gate, up and down of one MLP have this in common: "L1.moe.e5"
  Fused fused;
};

struct NodeFacts {
  Axis columns;            // of the tap; scores: its heads
  int64_t parameter = -1;  // index, -1: none
  double eps = 0;          // norms
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<NodeFacts> facts;  // parallel to nodes
  std::vector<Parameter> parameters;
  std::unordered_map<std::string, size_t> node_index, parameter_index;
  bool runs = true;  // false: there are parameters, and no nodes
};

// Error kUnsupported: a family or an option that the oracle does not know; says which.
// `source`: which of the names that a family's files may have is in this one.
Result<Graph> BuildGraph(const ModelConfig& config, const TensorSource& source);

// By family. The checks common to all are BuildGraph's.
Result<Graph> BuildLlama(const ModelConfig& config);
Result<Graph> BuildDeepseekV3(const ModelConfig& config);
// Parameters alone.
Result<Graph> ListQwen3Moe(const ModelConfig& config, const TensorSource& source);
Result<Graph> ListGptOss(const ModelConfig& config, const TensorSource& source);
Result<Graph> ListMinimaxM3(const ModelConfig& config, const TensorSource& source);
Result<Graph> ListDeepseekV4(const ModelConfig& config, const TensorSource& source);
Result<Graph> ListKimi(const ModelConfig& config, const TensorSource& source);

// Whether a tensor belongs to what the family's planners leave out so far: DeepSeek-V4's attention,
// MiniMax-M3's index.
bool IsUnplanned(const ModelConfig& config, std::string_view tensor);

}  // namespace assay::reference
