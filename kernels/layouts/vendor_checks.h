// The checks of vendor_test.cc, by engine.
#pragma once

#include <string>
#include <vector>

namespace assay::kernels {

struct VendorCheck {
  std::string file;  // in goldens/layouts, without the ending
  void (*run)(const std::string& file);
};

std::vector<VendorCheck> MarlinChecks();
std::vector<VendorCheck> AiterChecks();
std::vector<VendorCheck> OtherChecks();

}  // namespace assay::kernels
