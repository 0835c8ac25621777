// Layout "row": the checkpoint's own order, rows one after the other without padding. For bf16
// weights, for int32 words of int4 codes, and for bf16 scales.
#pragma once

#include "kernels/layouts/layouts.h"

namespace assay::kernels::row {

int64_t BytesBf16(const StoredShape& shape);
int64_t BytesI32(const StoredShape& shape);
void Copy(const StoredShape& shape, const std::byte* in, std::byte* out);

}  // namespace assay::kernels::row
