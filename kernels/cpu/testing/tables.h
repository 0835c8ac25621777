// The elementwise tables that this host can run, as test parameters.
#pragma once

#include <ostream>
#include <vector>

#include "kernels/registry.h"

namespace assay::kernels {

inline void PrintTo(const ElementwiseKernels& table, std::ostream* out) {
  *out << NameOf(table.tier);
}

namespace testing {

inline std::vector<ElementwiseKernels> RunnableTables() {
  std::vector<ElementwiseKernels> tables;
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2}) {
    if (HostHas(tier)) tables.push_back(*Elementwise(tier));
  }
  return tables;
}

}  // namespace testing
}  // namespace assay::kernels
