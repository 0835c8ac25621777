// The scales inside GGUF's blocks. Private to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "harness/audit/values.h"

namespace assay::audit {

// Bytes of a block; 1 where the type (a DType) is none.
size_t GgufBlockBytes(uint32_t type);
// `first` is the index of the first block.
void LookGguf(uint32_t type, std::span<const std::byte> bytes, uint64_t first, Tally* tally);

}  // namespace assay::audit
