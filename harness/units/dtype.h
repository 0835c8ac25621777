// Storage types of tensors: safetensors' plain values, and GGUF's blocks, of which one storage
// value holds several logical elements with their scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "harness/units/units.h"

namespace assay {

enum class DType : uint32_t {
  kF64 = 0,
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kF8E4M3 = 4,
  kF8E5M2 = 5,
  kF8E8M0 = 6,
  kI64 = 7,
  kI32 = 8,
  kI16 = 9,
  kI8 = 10,
  kU8 = 11,
  kBool = 12,
  kU16 = 13,
  kU32 = 14,
  kU64 = 15,
  // Blocks (formats.md §7). `Q4_1`: 32 elements in 20 bytes.
  kQ4_0 = 16,
  kQ4_1 = 17,
  kQ5_0 = 18,
  kQ5_1 = 19,
  kQ8_0 = 20,
  kQ2K = 21,
  kQ3K = 22,
  kQ4K = 23,
  kQ5K = 24,
  kQ6K = 25,
  kMxfp4Block = 26,
  kNvfp4Block = 27,
};

// Bytes of one value; of a block, all its bytes.
Bytes SizeOf(DType dtype);
// Logical elements of one value: 1, or those of a block.
Elements ElementsOf(DType dtype);
inline bool IsBlock(DType dtype) { return dtype >= DType::kQ4_0; }
// "BF16", "I32", ...: safetensors' spelling; blocks by ggml's: "Q4_1", "Q4_K", "MXFP4".
std::string_view NameOf(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

}  // namespace assay
