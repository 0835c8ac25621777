#include "harness/checkpoint/tensor_name.h"

#include <fmt/format.h>

namespace assay {

std::string TensorNameFault(std::string_view name) {
  constexpr size_t kMaxBytes = 1024;
  if (name.empty()) return "the name is empty; every tensor needs one";
  if (name == "__metadata__") return "not a name that a tensor can have: it is the metadata's";
  if (name.size() > kMaxBytes) {
    return fmt::format("the name has {} bytes; at most {} are allowed", name.size(), kMaxBytes);
  }
  // Engines get names as C strings, and people see them on terminals.
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return "the name has control characters; none are allowed";
    }
  }
  return "";
}

}  // namespace assay
