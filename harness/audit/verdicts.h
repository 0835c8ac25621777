// What was seen of the values, as findings and notes.
#pragma once

#include "harness/audit/facts.h"
#include "harness/audit/listing.h"
#include "harness/audit/report.h"

namespace assay::audit {

void JudgeValues(const Listing& listing, const Facts& facts, Report* report);

// Tensors whose names differ only in numbers are stored alike: one that has another type of the
// same size was labelled wrongly.
void JudgePeers(const Listing& listing, Report* report);

// At most so many lines of a kind; the rest is counted in the last one.
inline constexpr size_t kMaxOfAKind = 40;
void Cap(std::vector<Finding>* findings);

}  // namespace assay::audit
