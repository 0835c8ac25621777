// A cell with every key resolved: what is loaded, what is computed on which inputs, what is judged.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/abi/describe.h"
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
  EngineRef engine;
  abi::EngineFacts facts;
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

  // Generated weights where the fill asks for them, and the oracle over them; else the model's.
  std::unique_ptr<SyntheticSource> generated;
  std::unique_ptr<reference::Oracle> generated_oracle;
  const TensorSource* weights = nullptr;
  const reference::Oracle* oracle = nullptr;

  reference::Parallel parallel() const { return {degrees.tp, degrees.attention()}; }
  reference::Where where(int rank) const { return {parallel(), rank}; }
};

// First half, cheap: model, engine, tier, method, nodes, selection. No data is made.
Result<std::unique_ptr<CellSpec>> ResolveCell(const Problem& problem, ModelStore* models);

// Token ids and positions of each step; part of the first half.
Status MakeSteps(CellSpec* spec);

// Second half: inputs, generated weights.
Status FillCell(CellSpec* spec);

// Ids of a prompt: "t5" of the model's golden, or a file of ids.
Result<std::vector<int32_t>> ReadPrompt(const std::string& prompt, const Model& model);

// How many rows of router ids name an expert.
int64_t TokensOf(const TapValue& ids, int64_t expert);

// Shape of a tap's whole value in this cell: rows for these tokens, columns of the whole tensor.
Result<int64_t> WholeColumns(const CellSpec& spec, const std::string& tap);

}  // namespace assay::run
