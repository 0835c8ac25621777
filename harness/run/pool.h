// Cells on several worker processes. A worker that dies costs its cell (INFRA), never the run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/cell.h"

namespace assay::run {

// Calls `on_result` in this process as cells finish: with the index into `problems`. Models that
// `models` has opened already are inherited by the workers. The caller must be single-threaded.
struct PoolOptions {
  int jobs = 1;
  CellLimits limits;
  // Asked between results; once it says so, the pool ends with an Error and what was in flight is
  // given up: it is not recorded, and runs again on resume. Empty: never.
  std::function<bool()> stop;
};
Status RunPool(const std::vector<Problem>& problems, ModelStore* models, const PoolOptions& options,
               const std::function<Status(size_t index, const CellResult& result)>& on_result);

}  // namespace assay::run
