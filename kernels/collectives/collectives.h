// Collectives between ranks of one process, exactly as harness/abi/contract.md defines them.
// Nothing here rounds to a contract's type: the engine does, once, after the sum.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/collectives/exchange.h"
#include "kernels/collectives/schedule.h"

namespace assay::kernels {

// outs[rank][count] = Σ parts[rank][count], on every rank. Needs at least one part; an out may be
// its own rank's part, and overlaps nothing else.
void AllReduce(const Reduction& reduction, std::span<const float* const> parts, int64_t count,
               std::span<float* const> outs, Executor executor);
inline void AllReduce(const Reduction& reduction, std::span<const float* const> parts,
                      int64_t count, std::span<float* const> outs) {
  AllReduce(reduction, parts, count, outs, ExecutorFor(static_cast<int>(parts.size())));
}

// outs[c] = chunk c of Σ parts, ChunkOf(count, ranks, c).length values.
void ReduceScatter(const Reduction& reduction, std::span<const float* const> parts, int64_t count,
                   std::span<float* const> outs, Executor executor);
inline void ReduceScatter(const Reduction& reduction, std::span<const float* const> parts,
                          int64_t count, std::span<float* const> outs) {
  ReduceScatter(reduction, parts, count, outs, ExecutorFor(static_cast<int>(parts.size())));
}

// out [rows, columns] from parts [rows, part_columns] that lie side by side; what is beyond
// `columns` (padding) is dropped. Needs parts.size()·part_columns ≥ columns. Bits are copied.
void GatherColumns(std::span<const float* const> parts, int64_t rows, int64_t part_columns,
                   int64_t columns, float* out);

}  // namespace assay::kernels
