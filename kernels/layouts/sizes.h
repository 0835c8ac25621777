// Sizes of a layout, checked: shapes come from files.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace assay::kernels {

// Product of extents; -1 if one of them is negative or the product overflows.
int64_t Product(std::initializer_list<int64_t> extents);

}  // namespace assay::kernels
