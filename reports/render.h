// All files that are rendered from a run's JSON lines.
#pragma once

#include <string>

#include "harness/store/results.h"

namespace assay::reports {

// Writes report.html, report.md and junit.xml into `dir`, which exists; each beside and then
// renamed, so that a reader never sees half a file. Error (environment): file and cause.
Status RenderAll(const RunRecord& record, const std::string& dir);

}  // namespace assay::reports
