#include <fmt/format.h>

#include "reference/methods/method.h"

namespace assay::reference {
namespace {

constexpr Method kMethods[] = {
    {"bf16, f16, f32", MatchesPlain, OpenPlain},
    {"ct-int4", MatchesCtInt4, OpenCtInt4},
    {"deepseek-v4-mxfp4", MatchesMxfp4, OpenMxfp4},
    {"gguf blocks", MatchesGguf, OpenGguf},
};

}  // namespace

std::span<const Method> Methods() { return kMethods; }

Result<std::unique_ptr<Decoder>> OpenDecoder(const PartFinder& parts, const QuantConfig& config,
                                             int64_t rows, int64_t columns) {
  const Method* found = nullptr;
  for (const Method& method : kMethods) {
    if (!method.matches(parts)) continue;
    if (found != nullptr) {
      return Error{fmt::format("{}: tensors of two methods at once, {} and {}", parts.Name(),
                               found->id, method.id)};
    }
    found = &method;
  }
  if (found == nullptr) {
    return Error{fmt::format("{}: neither .weight nor .weight_packed is there", parts.Name())};
  }
  return found->open(parts, config, rows, columns);
}

std::string PrintShape(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

}  // namespace assay::reference
