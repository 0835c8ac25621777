// What the pass over the bytes said of each tensor, beside its tally.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "harness/audit/module.h"
#include "harness/audit/values.h"

namespace assay::audit {

// [index] of a Listing's entries.
struct Facts {
  std::vector<Role> roles;
  std::vector<Lens> lenses;
  std::vector<Tally> tallies;
  std::map<size_t, GIdx> g_idx;                      // of tensors that are one
  std::map<size_t, std::vector<std::byte>> scalars;  // bytes of tensors of one value
};

}  // namespace assay::audit
