// --require K=V[,K=V]: what must really have been executed, or the run is red.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/store/result.h"
#include "harness/units/status.h"

namespace assay::cli {

// One --require: all of it must hold of one executed cell, and every cell that asks for it must
// have been executed. `tier` wants hardware unless `how` is named; with how=emulated either will
// do.
using Requirement = std::map<std::string, std::string, std::less<>>;

// Error: not K=V, or a K that is neither `how` nor a key of the problem string.
Result<Requirement> ParseRequirement(std::string_view text);

// One line for each requirement that the cells do not meet.
std::vector<std::string> Unmet(const std::vector<Requirement>& requirements,
                               const std::vector<CellResult>& cells);

}  // namespace assay::cli
