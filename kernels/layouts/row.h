// Layout "row": a component in the checkpoint's own order, rows one after the other without
// padding; of every method and part, whatever a value's type is.
#pragma once

#include "kernels/layouts/layouts.h"

namespace assay::kernels::row {

int64_t Bytes(const StoredShape& shape);
void Copy(const StoredShape& shape, const std::byte* in, std::byte* out);

}  // namespace assay::kernels::row
