// Layout "rows16": sixteen rows side by side, so that a vector of 32-bit lanes holds a row in each
// lane and no kernel ever adds across lanes. A tile is 16 rows; rows beyond the last are filled up
// with zeros of the method.
//
// Codes of a tile: group after group of 32 elements. 4-bit codes of a group are 4 × 64 bytes: of
// its part v = 0…3 row r has the four bytes from 4r on, and byte j of those holds element 8v + j in
// its low nibble, element 8v + 4 + j in its high one. 8-bit codes are 8 × 64 bytes: of its part v =
// 0…7 row r has elements 4v … 4v + 3. Codes are stored as the checkpoint has them (int4: value +
// 8).
// Scales of a tile: group after group, 16 of them.
//
// Where the checkpoint keeps codes and scales apart (ct-int4, MXFP4) so does this layout: two
// components, tile after tile each. A GGUF block is one component: a tile is all its codes, then
// all its scales; of Q4_1 a group's are 16 d, then 16 m. fp16 and E8M0 scales keep their bits.
#pragma once

#include "kernels/layouts/layouts.h"

namespace assay::kernels::rows16 {

// int32 words of eight codes, least significant nibble first.
int64_t BytesI32(const StoredShape& shape);
void PackI32(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackI32(const StoredShape& shape, const std::byte* in, std::byte* out);
// bf16 scales, one a group or one a row.
int64_t BytesBf16(const StoredShape& shape);
void PackBf16(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackBf16(const StoredShape& shape, const std::byte* in, std::byte* out);
// Bytes of two E2M1 codes (I8 or U8), the even element in the low nibble.
int64_t BytesI8(const StoredShape& shape);
void PackI8(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackI8(const StoredShape& shape, const std::byte* in, std::byte* out);
// E8M0 scales, stored as such or as U8.
int64_t BytesE8m0(const StoredShape& shape);
void PackE8m0(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackE8m0(const StoredShape& shape, const std::byte* in, std::byte* out);
// Blocks.
int64_t BytesQ41(const StoredShape& shape);
void PackQ41(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackQ41(const StoredShape& shape, const std::byte* in, std::byte* out);
int64_t BytesQ80(const StoredShape& shape);
void PackQ80(const StoredShape& shape, const std::byte* in, std::byte* out);
void UnpackQ80(const StoredShape& shape, const std::byte* in, std::byte* out);

}  // namespace assay::kernels::rows16
