// Collectives between ranks of one process.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace assay::kernels {

// What `reduce=` names.
struct CollectiveRow {
  std::string_view order;  // "sequential"
  std::string_view wire;   // "fp32"
};
std::span<const CollectiveRow> Collectives();

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + …, in fp32, in the order given. `out` may
// not overlap a part. With no parts, zeros.
void AllReduceSequential(std::span<const float* const> parts, int64_t count, float* out);

// out [rows, columns] from parts [rows, part_columns] that lie side by side; what is beyond
// `columns` (padding) is dropped. Needs parts.size()·part_columns ≥ columns.
void GatherColumns(std::span<const float* const> parts, int64_t rows, int64_t part_columns,
                   int64_t columns, float* out);

}  // namespace assay::kernels
