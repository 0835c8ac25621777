// Storage types of tensors, by the names that safetensors uses.
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
};

// Bytes of one value.
Bytes SizeOf(DType dtype);
// "BF16", "I32", ...: safetensors' spelling.
std::string_view NameOf(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

}  // namespace assay
