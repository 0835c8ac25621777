// junit.xml: one test case for each cell, for CI systems.
#pragma once

#include <string>

#include "harness/store/results.h"

namespace assay::reports {

// FAIL and MISTRUSTED are failures, INFRA is an error, SKIPPED and NOT_EXECUTED are skipped, PASS
// and REFUSED pass. Well-formed XML 1.0 whatever the texts hold.
std::string RenderJUnit(const RunRecord& record);

}  // namespace assay::reports
