// GGUF's codes: of tensors (ggml's types) and of metadata values. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "harness/units/dtype.h"

namespace assay {

struct GgmlType {
  uint32_t code = 0;
  std::string_view name;
  std::optional<DType> dtype;  // none: ggml has or had it, and it is not read here
};

// nullptr: ggml has no type of this number that is known here.
const GgmlType* FindGgmlType(uint32_t code);
std::optional<uint32_t> GgmlCodeOf(DType dtype);
// "F32 (0), F16 (1), ...": what is read here, for messages.
std::string ReadableGgmlTypes();

}  // namespace assay
