// The weights of a cell, beside FillWeights.
#pragma once

#include <string>
#include <vector>

#include "harness/run/spec.h"

namespace assay::run {

// Which experts a large layer's tokens are routed to: only they are loaded, and made where they are
// generated. Needs the cell's inputs.
Status PickExperts(CellSpec* spec);

// reload=1: other values for these tensors of the checkpoint, and the oracle over them.
Status MakeDecoys(CellSpec* spec, const std::vector<std::string>& tensors);

}  // namespace assay::run
