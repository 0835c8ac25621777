// A cell with every key resolved: what is loaded, what is computed on which inputs, what is judged.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/abi/describe.h"
#include "harness/run/codes.h"
#include "harness/run/engines.h"
#include "harness/run/fill.h"
#include "harness/run/model.h"
#include "harness/run/problem.h"
#include "harness/shard/plan.h"
#include "harness/store/trace.h"
#include "reference/oracle.h"

namespace assay::run {

enum class Mode {
  kLoad,        // shards only
  kOps,         // single ops on generated or real inputs
  kScope,       // a block, a layer or the model, with taps
  kCollective,  // reductions of generated partial sums
};

struct CellSpec {
  Problem problem;  // resolved: tier, method, layer … written out
  const Model* model = nullptr;
  ModelConfig config;       // the model's, with what the problem says instead (limit)
  std::string config_json;  // as engines get it
  EngineRef engine;
  abi::EngineFacts facts;  // its contract as this cell has it: act, order and wire of sums
  Mode mode = Mode::kScope;
  std::string scope;  // of kScope
  int64_t layer = -1;
  Fill fill = Fill::kReal;
  int64_t seed = 1;
  shard::Degrees degrees;
  shard::Selection selection;
  std::vector<const reference::Node*> nodes;  // judged, in data-flow order
  std::vector<reference::Step> steps;
  std::map<TapKey, TapValue> given;  // inputs of the scope, or of its ops

  // Weights of another method than the checkpoint's (nullptr: its own), over the checkpoint; then
  // generated weights where the fill asks for them, over these. The oracle is the model's unless it
  // reads other weights or another config.
  ConvertedModel* converted = nullptr;  // of a load cell: the whole model in another method
  std::unique_ptr<MadeSource> made;
  std::map<std::string, std::string> made_method_of;  // beside Model::method_of
  std::unique_ptr<SyntheticSource> generated;
  std::unique_ptr<reference::Oracle> own_oracle;
  const TensorSource* weights = nullptr;
  const reference::Oracle* oracle = nullptr;
  // reload=1: what is loaded first, and the oracle over it.
  std::unique_ptr<MemorySource> decoys;
  std::unique_ptr<reference::Oracle> decoy_oracle;
  std::vector<std::string> same_in_both;  // tensors that have no other values to be told by

  reference::Parallel parallel() const;  // degrees, in the oracle's words
  reference::Where where(int rank) const { return {parallel(), rank}; }
  // How a linear parameter ("L1.moe.e5.down") is stored: a method id, "bf16" where it is none.
  std::string MethodOf(const std::string& parameter) const;
  bool eight_bit() const;  // activations of quantised weights enter as 8-bit codes
};

// First half, cheap: model, engine, tier, method, nodes,
// selection. No data is made.
Result<std::unique_ptr<CellSpec>> ResolveCell(const Problem& problem, ModelStore* models);

// Token ids and positions of each step; part of the first half.
Status MakeSteps(CellSpec* spec);

// Second half: inputs, generated weights, decoys.
Status FillCell(CellSpec* spec);
// The weights alone, and the oracle over them.
Status FillWeights(CellSpec* spec);

// Ids of a prompt: "t5" of the model's golden, or a file of ids.
Result<std::vector<int32_t>> ReadPrompt(const std::string& prompt, const Model& model);

// Whether the engine says that it can run the cell's tier where the host lacks it.
bool Emulates(const CellSpec& spec);

// How many rows of router ids name an expert.
int64_t TokensOf(const TapValue& ids, int64_t expert);

// Shape of a tap's whole value in this cell: rows for these tokens, columns of the whole tensor.
Result<int64_t> WholeColumns(const CellSpec& spec, const std::string& tap);

}  // namespace assay::run
