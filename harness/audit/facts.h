// What the pass over the bytes said of each tensor, beside its tally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "harness/audit/module.h"
#include "harness/audit/values.h"

namespace assay::audit {

// [index] of a Listing's entries.
struct Facts {
  std::vector<Lens> lenses;
  // In the order in which they were read; `read_as` is their place there.
  std::vector<Tally> tallies;
  std::vector<uint32_t> read_as;
  const Tally& TallyOf(size_t index) const { return tallies[read_as[index]]; }
  std::map<size_t, GIdx> g_idx;                      // of tensors that are one
  std::map<size_t, std::vector<std::byte>> scalars;  // bytes of tensors of one value
};

}  // namespace assay::audit
