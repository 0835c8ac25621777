// report.html: one file without any external resource or script.
#pragma once

#include <string>

#include "harness/store/results.h"

namespace assay::reports {

// The whole page. Everything from the record is escaped, and a content security policy in the page
// forbids scripts and loads, should an escape ever be forgotten.
std::string RenderHtml(const RunRecord& record);

}  // namespace assay::reports
