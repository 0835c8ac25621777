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

// Degrees that fit each other, and a rank within tp. A rank of -1 is always good.
Status CheckWhere(const Where& where);

// What a rank has of a routed expert.
enum class Held { kAbsent, kPart, kWhole };
// Error kRefused: the slots of experts cannot be dealt out evenly; `what` is for the message.
Result<Held> HeldOf(int64_t expert, int64_t experts, const Where& where, const std::string& what);

// Logical indices along an axis that the rank has, in its own order; -1: padding (vocabulary, a
// split by ceil). For rank -1 all of them, without padding. `unit`: what one unit of a split by
// ceil or list is, the coarsest unit that the layer is stored in. An absent expert has none.
// Error kRefused: the degree is illegal; `what` names the tensor and axis for the message.
Result<std::vector<int64_t>> AxisIndices(const Axis& axis, int64_t unit, const Where& where,
                                         const std::string& what);

// How an axis of stored values stands for logical elements: `elements` of them lie in `values`
// stored ones, which are one unit.
struct Grain {
  int64_t elements = 1, values = 1;
  std::string unit = "element";
};
// Turns logical indices into stored ones, of which the axis has `stored`. Error kRefused: a unit is
// only partly there. A unit that ends beyond the tensor's extent is whole if all that exists is.
Result<std::vector<int64_t>> StoredIndices(const std::vector<int64_t>& elements, int64_t extent,
                                           const Grain& grain, int64_t stored,
                                           const std::string& what);

// Vocabulary rows after padding to a multiple of lcm(64, tp).
int64_t PaddedVocabulary(int64_t vocabulary, int tp);

}  // namespace assay::reference
