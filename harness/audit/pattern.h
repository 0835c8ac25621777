// Tensors whose names differ only in numbers.
#pragma once

#include <string>
#include <string_view>

namespace assay::audit {

// "model.layers.#.mlp.experts.#.up_proj.weight".
inline std::string PatternOf(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      pattern += c;
    } else if (pattern.empty() || pattern.back() != '#') {
      pattern += '#';
    }
  }
  return pattern;
}

}  // namespace assay::audit
