// report.md: the same in GitHub's Markdown, for a pull request or a job summary.
#pragma once

#include <string>

#include "harness/store/results.h"

namespace assay::reports {

// Names from outside stand in code spans or are escaped.
std::string RenderMarkdown(const RunRecord& record);

}  // namespace assay::reports
