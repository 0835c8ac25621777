// Layout "i4-split16" of int4 codes in groups of 32. A group is 16 bytes: byte j holds element j of
// the group in its low nibble and element j + 16 in its high nibble, each as it is stored (value +
// 8). Two masks give 32 codes in order, where the checkpoint's words need eight shifts. Rows one
// after the other; a row's last group is filled up with code 8, whose value is 0.
#pragma once

#include "kernels/layouts/layouts.h"

namespace assay::kernels::i4_split16 {

// The row side is int32 words of eight codes, least significant nibble first.
int64_t Bytes(const StoredShape& shape);
void Pack(const StoredShape& shape, const std::byte* in, std::byte* out);
void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out);

}  // namespace assay::kernels::i4_split16
