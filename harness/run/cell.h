// One cell from problem string to result: resolve, plan, run in a child, judge, locate.
#pragma once

#include <string>

#include "harness/abi/child.h"
#include "harness/judge/judge.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

struct CellLimits {
  int64_t time_ms = 60000;  // of the engine; a large cell gets more, by its multiply-adds
  int64_t memory_bytes = int64_t{16} << 30;
  // May a tier that the host lacks be emulated, or must it be: "never", "auto", "always".
  std::string emulate = "auto";
};

// Never fails: what goes wrong is a verdict. `bad_input` is set where the problem itself is wrong
// (unknown model on the command line is not: NOT_EXECUTED).
struct CellRun {
  CellResult result;
  bool bad_input = false;
};
CellRun ExecuteCell(const Problem& problem, ModelStore* models, const CellLimits& limits);

// The problem with every key resolved (tier, method, fill), and whether the plan says that it is
// legal; no engine is started.
struct ResolvedCell {
  Problem problem;
  bool legal = true;
};
Result<ResolvedCell> ResolveAndPlan(const Problem& problem, ModelStore* models);

// Whether the plan says that the cell is legal; no engine is started.
Result<bool> IsLegal(const Problem& problem, ModelStore* models);

// The problem with every key resolved (tier, method, fill), for list and identity.
Result<Problem> ResolveProblem(const Problem& problem, ModelStore* models);

// What a cell takes, by a model that knows nothing of the machine: multiply-adds of one evaluation
// of everything that it computes, and the bytes of its weights.
struct CellCost {
  double multiply_adds = 0;
  int64_t weight_bytes = 0;
};
Result<CellCost> CostOf(const Problem& problem, ModelStore* models);
double MultiplyAdds(const CellSpec& spec);
// The engine's time: limits.time_ms, and what so many multiply-adds take where they are slow.
int64_t TimeLimitMs(double multiply_adds, const CellLimits& limits);

Result<abi::Script> MakeScript(const CellSpec& spec, const shard::ModelPlan* plan,
                               const std::vector<shard::Component>& components,
                               const CellLimits& limits);

}  // namespace assay::run
