// A run for tests and for looking at the reports: about sixty cells of five models, with every
// verdict in it and two failures. Nothing in it was measured.
#pragma once

#include "harness/store/results.h"

namespace assay::reports {

// The two failures, also on their own.
CellResult FailingExpert();  // scales of rank 0 on rank 1
CellResult FailingLoad();    // packed bytes in an unpacked parameter

RunRecord SyntheticRun();

}  // namespace assay::reports
