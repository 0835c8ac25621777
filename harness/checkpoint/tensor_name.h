// What a tensor may be called; the reader and the writer agree. Private to this room.
#pragma once

#include <string>
#include <string_view>

namespace assay {

// Why this is no name for a tensor and what is allowed; empty if it is one.
std::string TensorNameFault(std::string_view name);

}  // namespace assay
