// What every degree does with every tensor.
#pragma once

#include "harness/audit/facts.h"
#include "harness/audit/listing.h"
#include "harness/audit/report.h"

namespace assay::audit {

// Fills degrees, placements, methods that only the planner knows, bytes a rank, legal degrees, what
// is hidden, findings of parameters that cannot be listed, notes of tensors that nothing takes.
// `report` has its tensors, one for each entry of the listing, in its order, and its degrees.
void JudgeDegrees(const Listing& listing, const Facts& facts, Report* report);

}  // namespace assay::audit
