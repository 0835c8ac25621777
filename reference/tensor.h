// Dense double-precision tensors of the oracle.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::reference {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;  // row major

  int64_t rows() const { return shape.empty() ? 0 : shape[0]; }
  int64_t columns() const {  // of the tensor seen as [rows, everything else]
    int64_t n = 1;
    for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
    return n;
  }
};

}  // namespace assay::reference
