// How a recorded run ends: what is printed, the rendered files, the exit code.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/require.h"
#include "harness/store/result.h"

namespace assay::cli {

Totals TotalsOf(const std::vector<CellResult>& cells, int64_t registered);

// Reads the finished record in `dir`, prints its findings, totals and reasons, renders the reports
// beside it, prints `wrong` (what else makes the run red, one line each) and what of the
// requirements is not met. Returns the exit code: 0, 1 or 125, or 2 where the record cannot be read
// or the reports cannot be written.
int Conclude(const std::string& dir, const std::vector<Requirement>& requirements,
             const std::vector<std::string>& wrong);

}  // namespace assay::cli
