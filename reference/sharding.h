// Which rows and columns a rank has, as explicit lists: the slicing rules of formats.md §9, applied
// element by element. Nothing here is clever, so that it can be read against the rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/units/status.h"
#include "reference/graph/graph.h"
#include "reference/oracle.h"

namespace assay::reference {

// tp >= 1, attn_tp >= 1 divides tp, rank within tp. A rank of -1 is always good.
Status CheckWhere(const Where& where);

// Logical indices along an axis that the rank has, in its own order; -1: vocabulary padding. For
// rank -1 all of them (the vocabulary without padding). `heads`, `kv_heads`: of the whole model.
// Error kRefused: the degree is illegal; `what` names the tensor and axis for the message.
Result<std::vector<int64_t>> AxisIndices(const Axis& axis, int64_t heads, int64_t kv_heads,
                                         const Where& where, const std::string& what);

// Turns logical column indices into stored columns that hold `per_column` elements each. Error
// kRefused: a stored column is only partly there.
Result<std::vector<int64_t>> StoredColumns(const std::vector<int64_t>& elements, int64_t extent,
                                           int64_t per_column, const std::string& unit,
                                           const std::string& what);

// Vocabulary rows after padding to a multiple of lcm(64, tp).
int64_t PaddedVocabulary(int64_t vocabulary, int tp);

}  // namespace assay::reference
