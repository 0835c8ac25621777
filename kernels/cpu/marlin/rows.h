// A row over Marlin's tiles, for experts that are placed as an accelerator would have them: what
// runs is this code, in the layout that is held.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::marlin_scalar {

void LinearCtInt4(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                  int64_t n_end, float* y, int64_t y_stride);

// The arithmetic is the class's, as kernels/cpu/scalar/rows.h states it.
inline constexpr LinearKernel kLinear[] = {
    {.name = "linear_ct_int4_g32_marlin_scalar",
     .method = "ct-int4-g32",
     .tier = Tier::kScalar,
     .layout = "marlin",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "int4-g32-quad4",
     .row_tile = 1,
     .run = LinearCtInt4},
};

}  // namespace assay::kernels::marlin_scalar
