// Layout "row": the checkpoint's own order, rows one after the other without padding: bf16 weights
// and scales, int32 words of int4 codes, bytes of two E2M1 codes, E8M0 scales, GGUF blocks.
#pragma once

#include "kernels/layouts/layouts.h"

namespace assay::kernels::row {

int64_t BytesBf16(const StoredShape& shape);
int64_t BytesI32(const StoredShape& shape);
int64_t BytesI8(const StoredShape& shape);
int64_t BytesE8m0(const StoredShape& shape);
int64_t BytesQ41(const StoredShape& shape);
int64_t BytesQ80(const StoredShape& shape);
void Copy(const StoredShape& shape, const std::byte* in, std::byte* out);

}  // namespace assay::kernels::row
