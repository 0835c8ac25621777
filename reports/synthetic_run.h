// A run for tests and for looking at the reports: about sixty cells of five models, with every
// verdict in it and two failures. Nothing in it was measured.
#pragma once

#include "harness/store/results.h"

namespace assay::reports {

// The failures, also on their own; FailingModel is not in the run.
CellResult FailingExpert();  // scales of rank 0 on rank 1
CellResult FailingModel();   // 30 layers, the error begins in layer 12
CellResult FailingLoad();    // packed bytes in an unpacked parameter

RunRecord SyntheticRun();

}  // namespace assay::reports
