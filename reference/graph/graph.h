// A model as data: its ops in data-flow order, and its parameters with the axes along which tensor
// parallelism cuts them. One builder per family fills both at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/units/status.h"
#include "reference/oracle.h"

namespace assay::reference {

// Into what an axis falls apart under tensor parallelism.
enum class Cut {
  kWhole,       // every rank has all of it
  kHeads,       // query heads, by the attention degree
  kKvHeads,     // key/value heads, by the attention degree, replicated beyond their number
  kEven,        // equal contiguous parts, by tp
  kVocabulary,  // padded to a multiple of lcm(64, tp), then equal parts
};
struct Axis {
  Cut cut = Cut::kWhole;
  int64_t extent = 0;  // logical elements of the whole
  int64_t block = 1;   // elements of one head
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
};

// Error kUnsupported: a family or an option that the oracle does not know; says which.
Result<Graph> BuildGraph(const ModelConfig& config);

// By family. The checks common to all are BuildGraph's.
Result<Graph> BuildLlama(const ModelConfig& config);
Result<Graph> BuildDeepseekV3(const ModelConfig& config);

}  // namespace assay::reference
