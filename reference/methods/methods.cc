#include <fmt/format.h>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr Method kMethods[] = {
    {"dense", MatchesPlain, OpenPlain},
    {"compressed-tensors integers", MatchesCtInt, OpenCtInt},
    {"8-bit codes", MatchesEightBit, OpenEightBit},
    {"mxfp4", MatchesMxfp4, OpenMxfp4},
    {"nvfp4", MatchesNvfp4, OpenNvfp4},
    {"gptq", MatchesGptq, OpenGptq},
    {"awq", MatchesAwq, OpenAwq},
    {"modelslim", MatchesModelSlim, OpenModelSlim},
    {"gguf blocks", MatchesGguf, OpenGguf},
};

}  // namespace

std::span<const Method> Methods() { return kMethods; }

Opened OpenDecoder(const PartFinder& parts, const QuantConfig& config, int64_t rows,
                   int64_t columns, const Decoder* whole) {
  if (rows < 1 || columns < 1) {
    return BadInput(parts, fmt::format("[{}, {}] is no matrix", rows, columns));
  }
  const Method* found = nullptr;
  for (const Method& method : kMethods) {
    if (!method.matches(parts, config)) continue;
    if (found != nullptr) {
      return BadInput(
          parts, fmt::format("tensors of two methods at once, {} and {}", found->id, method.id));
    }
    found = &method;
  }
  if (found == nullptr) {
    return BadInput(parts, "neither .weight nor .weight_packed, .qweight or blocks are there");
  }
  Opening opening{parts, config, rows, columns, {}};
  if (whole != nullptr) opening.known = ParseScheme(whole->method());
  auto decoder = found->open(opening);
  if (decoder && whole != nullptr && (*decoder)->method() != whole->method()) {
    return BadInput(parts, fmt::format("a shard of method {}, cut from one of {}",
                                       (*decoder)->method(), whole->method()));
  }
  return decoder;
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
