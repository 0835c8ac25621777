// What really ran, by the engine's own record.
#pragma once

#include <string>

#include "harness/abi/child.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// `emulate` here and below: as in CellLimits.
Executed ReadExecuted(const CellSpec& spec, const abi::Outcome& outcome,
                      const std::string& emulate);

// Whether what ran is what the cell asked for; the reason if not.
std::string Fallback(const CellSpec& spec, const abi::Outcome& outcome, const Executed& executed,
                     const std::string& emulate);

// What ran against what the engine says of itself in describe(); empty if they agree.
std::string Unlisted(const CellSpec& spec, const abi::Outcome& outcome);

}  // namespace assay::run
