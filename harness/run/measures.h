// The figures of a result: accumulated error, cosine and the like.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/abi/child.h"
#include "harness/judge/judge.h"
#include "harness/run/chain.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// How far the engine's values are from the chain's.
struct Accumulation {
  std::vector<judge::Accumulated> errors;  // in data-flow order, step by step
  // Taps that the engine gave back, at least in part, and that could not be compared, with the
  // reason: no floor decides about them. In data-flow order, each once.
  std::vector<std::pair<std::string, std::string>> not_compared;
};
// Of each op that is not an expert's own and whose values can be compared: the engine's joined tap
// against the chain's.
Accumulation Accumulate(const CellSpec& spec, const abi::Outcome& outcome, const Chain& chain);

// What a pass does not say because the chain or the comparison with it is missing; empty: nothing.
std::string ChainLeftOut(const Chain& chain, const Accumulation& accumulated);

// The worst rank and step of each op, with its accumulated error and floor. `chain` may be nullptr.
void AddOpRows(const std::vector<judge::OpJudgement>& judgements, const Chain* chain,
               const std::vector<judge::Accumulated>& accumulated, CellResult* result);

// Mode and metrics of the cell; returns its last tap, joined over the ranks (empty: not given).
reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<judge::OpJudgement>& judgements,
                                 const Chain* chain, CellResult* result);

}  // namespace assay::run
