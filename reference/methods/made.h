// For tests: a layer of every storage method, made here from codes, scales and zero points, and its
// weights computed from these. The packers write bit by bit and share no line with the decoders.
#pragma once

#include <string>
#include <vector>

#include "reference/methods/methods_test_support.h"

namespace assay::reference::testing_support {

struct Made {
  Parts parts;
  QuantConfig config;
  int64_t rows = 0, columns = 0;
  std::vector<double> expected;  // [rows, columns]
};

// Values by (id, index) alone. Not of dense methods and GGUF's blocks.
Made MakeLayer(const std::string& id);
// Every id that MakeLayer knows, of KnownSchemes().
std::vector<std::string> MadeIds();

}  // namespace assay::reference::testing_support
