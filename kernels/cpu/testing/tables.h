// The elementwise tables that this host can run, as test parameters.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/registry.h"

namespace assay::kernels {

// Portable rows run anywhere.
inline bool CanRun(Tier tier, How how) { return how == How::kPortable || HostHas(tier); }

// "avx2", "avx512_portable": the name of a test.
inline std::string TestName(std::string_view name, How how) {
  return std::string(name) + (how == How::kPortable ? "_portable" : "");
}

inline void PrintTo(const ElementwiseKernels& table, std::ostream* out) {
  *out << TestName(NameOf(table.tier), table.how);
}

namespace testing {

using kernels::CanRun;
using kernels::TestName;

inline std::vector<ElementwiseKernels> RunnableTables() {
  std::vector<ElementwiseKernels> tables;
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    for (const How how : {How::kHardware, How::kPortable}) {
      const ElementwiseKernels* table = Elementwise(tier, how);
      if (table != nullptr && CanRun(tier, how)) tables.push_back(*table);
    }
  }
  return tables;
}

}  // namespace testing
}  // namespace assay::kernels
