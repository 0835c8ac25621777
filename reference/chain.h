// The chain's own state, shared by run.cc (requests, steps, whole ops) and run_ranks.cc
// (row-parallel ops rank by rank).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "reference/model.h"

namespace assay::reference {

class Chain {
 public:
  Chain(const Model& model, const RunRequest& request, const Contract& contract)
      : model_(model),
        request_(request),
        contract_(contract),
        absorbed_(request.mla_absorbed && model.config.is_mla()),
        bounds_(request.observe && request.observe_bounds) {}

  Result<Trace> Run();

 private:
  using Values = std::map<std::string, Tensor>;

  Status CheckRequest();
  Status CheckGiven() const;
  Status Plan();
  // Taps that a node reads in this run: the absorbed form reads the latent instead of kv_b.
  std::vector<std::string> Reads(const Node& node) const;
  bool InRange(const Node& node) const;
  Status RunStep(size_t index, Values* values);
  Result<bool> Take(const Node& node, Values* values);
  Status Compute(const Node& node, size_t index, Values* values);
  Result<Tensor> Absorbed(const Node& node, const Evaluator& evaluator, Values* values);
  Result<const Tensor*> Lookup(const Node& node, const std::string& tap, Values* values);
  // Whether an expert's op has nothing to do: no token was routed to it.
  bool Idle(const Node& node, const std::vector<Input>& inputs) const;
  // Shows an evaluation to the observer, rounds it and keeps it.
  Tensor Finish(const Node& node, size_t index, Evaluation* e);
  void Round(const Node& node, Tensor* value) const;
  void Remember(const std::string& tap, const Tensor& value);
  bool Wanted(const std::string& tap) const {
    return request_.wanted.empty() || wanted_.contains(tap);
  }

  // run_ranks.cc. A summand of each rank, and their sum over ranks.
  bool ByRanks(const Node& node) const;
  Result<bool> Holds(const Node& node, const Where& where) const;
  Status ComputeParts(const Node& node, size_t index, Values* values);
  Status ComputeReduce(const Node& node, size_t index, Values* values);
  Result<std::vector<Input>> RankInputs(const Node& node, const Where& where, Values* values,
                                        std::vector<Tensor>* memory);

  const Model& model_;
  const RunRequest& request_;
  const Contract& contract_;
  const bool absorbed_, bounds_;
  Values given_;                           // whole run's rows
  std::set<std::string> wanted_, cached_;  // cached: taps whose earlier rows are needed
  std::vector<const Node*> plan_;
  Values cache_;
  // Of this layer's partial sums: one a rank.
  std::map<std::string, std::vector<Tensor>> parts_;
  const Step* step_ = nullptr;
  int64_t done_ = 0;  // tokens of earlier steps
  int64_t total_ = 0;
};

}  // namespace assay::reference
