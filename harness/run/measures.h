// The figures of a result: accumulated error, cosine and the like.
#pragma once

#include <vector>

#include "harness/abi/child.h"
#include "harness/judge/judge.h"
#include "harness/run/chain.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// Accumulated error of each op that is not an expert's own and whose values can be compared: of the
// engine's joined tap against the chain's, in data-flow order, step by step.
std::vector<judge::Accumulated> AccumulatedErrors(const CellSpec& spec, const abi::Outcome& outcome,
                                                  const Chain& chain);

// The worst rank and step of each op, with its accumulated error and floor. `chain` may be nullptr.
void AddOpRows(const std::vector<judge::OpJudgement>& judgements, const Chain* chain,
               const std::vector<judge::Accumulated>& accumulated, CellResult* result);

// Mode and metrics of the cell; returns its last tap, joined over the ranks (empty: not given).
reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<judge::OpJudgement>& judgements,
                                 const Chain* chain, CellResult* result);

}  // namespace assay::run
