#include "kernels/collectives/sequential.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace assay::kernels {

std::span<const CollectiveRow> Collectives() {
  static constexpr CollectiveRow kRows[] = {{"sequential", "fp32"}};
  return kRows;
}

void AllReduceSequential(std::span<const float* const> parts, int64_t count, float* out) {
  if (parts.empty()) {
    std::fill_n(out, count, 0.0f);
    return;
  }
  if (count > 0) std::memcpy(out, parts[0], static_cast<size_t>(count) * sizeof(float));
  for (const float* part : parts.subspan(1)) {
    for (int64_t i = 0; i < count; ++i) out[i] += part[i];
  }
}

void GatherColumns(std::span<const float* const> parts, int64_t rows, int64_t part_columns,
                   int64_t columns, float* out) {
  assert(static_cast<int64_t>(parts.size()) * part_columns >= columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const int64_t begin = static_cast<int64_t>(rank) * part_columns;
      const int64_t width = std::min(part_columns, columns - begin);
      if (width <= 0) break;
      std::memcpy(out + row * columns + begin, parts[rank] + row * part_columns,
                  static_cast<size_t>(width) * sizeof(float));
    }
  }
}

}  // namespace assay::kernels
