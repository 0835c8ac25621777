// What kernels of every tier call. Declarations only: the code is compiled once, for every host, so
// that no tier's flags reach it. (For the same reason a tier's .cc uses no standard containers.)
#pragma once

#include <cstdint>

#include "kernels/registry.h"

namespace assay::kernels {

// Workspace of this thread, 64-byte aligned, for at least `floats` values; valid until the next
// call on this thread. Grows only. Aborts when memory is out: a kernel cannot report.
float* Scratch(int64_t floats);

// A kernel's precondition: the weight lies in `layout`, its rows [n_begin, n_end) exist, k is a
// multiple of `group` (0: no groups) and n_begin of `row_tile`. A wrong layout computes plausible
// garbage, so this stays on in every build: it aborts with one line that names both layouts.
void CheckLinear(const WeightView& w, const char* layout, int64_t group, int64_t row_tile,
                 int64_t n_begin, int64_t n_end);
// Of a matrix with gate above up: a kernel that tells them apart wants as many rows of each.
void CheckGateUp(const WeightView& w);
// As CheckLinear where the scales lie among the codes and the view's `group` says nothing: k is a
// multiple of the elements of a block.
void CheckBlocks(const WeightView& w, const char* layout, int64_t block, int64_t row_tile,
                 int64_t n_begin, int64_t n_end);

}  // namespace assay::kernels
