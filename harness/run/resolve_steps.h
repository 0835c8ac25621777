// The steps of ResolveCell, each in the file that is named.
#pragma once

#include "harness/run/spec.h"

namespace assay::run {

// resolve_checks.cc: keys that contradict each other, the kind or what is built; sizes.
Status CheckKeys(const Problem& problem);
Status CheckSteps(CellSpec* spec);

// degrees.cc: how parameters are divided over ranks.
Status ResolveDegrees(CellSpec* spec);
// What of it an engine is told beside tp and attn_tp: "split=ceil", "ep=2" ...
std::vector<std::string> DegreeOptions(const Problem& problem);

// resolve_engine.cc: engine and tier; then, of the picked ops, method, kernel, activations; then
// the sums over ranks.
Status ResolveEngine(CellSpec* spec);
Status ResolveMethod(CellSpec* spec);
Status ResolveReduce(CellSpec* spec);

}  // namespace assay::run
