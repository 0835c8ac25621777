#include "kernels/collectives/collectives.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

namespace assay::kernels {
namespace {

void CopyValues(const float* from, int64_t count, float* to) {
  if (count > 0) std::memmove(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

void AllReduce(const Reduction& reduction, std::span<const float* const> parts, int64_t count,
               std::span<float* const> outs, Executor executor) {
  assert(!parts.empty() && parts.size() == outs.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) CopyValues(parts[rank], count, outs[rank]);
  const Schedule schedule =
      AllReduceSchedule(reduction.order, static_cast<int>(parts.size()), count);
  Exchange(schedule, reduction.wire, outs, executor);
}

void ReduceScatter(const Reduction& reduction, std::span<const float* const> parts, int64_t count,
                   std::span<float* const> outs, Executor executor) {
  assert(!parts.empty() && parts.size() == outs.size());
  const int ranks = static_cast<int>(parts.size());
  // A rank works on all chunks, and keeps one.
  std::vector<std::vector<float>> working;
  std::vector<float*> values;
  for (const float* part : parts) {
    working.emplace_back(part, part + count);
    values.push_back(working.back().data());
  }
  Exchange(ReduceScatterSchedule(reduction.order, ranks, count), reduction.wire, values, executor);
  for (int c = 0; c < ranks; ++c) {
    const Chunk chunk = ChunkOf(count, ranks, c);
    CopyValues(values[static_cast<size_t>(c)] + chunk.begin, chunk.length,
               outs[static_cast<size_t>(c)]);
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
      CopyValues(parts[rank] + row * part_columns, width, out + row * columns + begin);
    }
  }
}

}  // namespace assay::kernels
