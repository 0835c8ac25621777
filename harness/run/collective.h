// Collectives alone: what the engine made of generated partial values.
#pragma once

#include <vector>

#include "harness/abi/child.h"
#include "harness/judge/judge.h"
#include "harness/run/spec.h"

namespace assay::run {

// Of a cell of Mode::kCollective: each of its nodes, in the cell's order. The cell's parts are in
// `spec.given`, what came of them in the outcome's trace.
Result<std::vector<judge::OpJudgement>> JudgeCollectives(const CellSpec& spec,
                                                         const abi::Outcome& outcome);

}  // namespace assay::run
