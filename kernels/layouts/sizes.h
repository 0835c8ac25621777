// Sizes of a layout, checked: shapes come from files.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/layouts/layouts.h"

namespace assay::kernels {

// Product of extents; -1 if one of them is negative or the product overflows.
int64_t Product(std::initializer_list<int64_t> extents);

// The parts of `a`, the last one filled up: no overflow for a ≥ 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Bytes of a row of a plain dtype or of blocks; -1 as Product. Extents negative: -1.
int64_t RowBytes(const StoredShape& shape);

}  // namespace assay::kernels
