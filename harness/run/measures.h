// The figures of a result that do not decide: accumulated error, cosine and the like.
#pragma once

#include <vector>

#include "harness/abi/child.h"
#include "harness/judge/judge.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// The oracle's own chain under the contract, for accumulated error. Empty where the scope has no
// chain of its own: single ops, and blocks whose inputs come in several steps.
reference::Trace ChainOf(const CellSpec& spec);

// The worst rank and step of each op, and its accumulated error against the oracle's own chain.
void AddOpRows(const CellSpec& spec, const abi::Outcome& outcome,
               const std::vector<judge::OpJudgement>& judgements, const reference::Trace& chain,
               CellResult* result);

// Mode and metrics of the cell; returns its last tap, joined over the ranks (empty: not given).
reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<judge::OpJudgement>& judgements,
                                 const reference::Trace& chain, CellResult* result);

}  // namespace assay::run
