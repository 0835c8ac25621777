#include "harness/checkpoint/decoder_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

struct Place {
  std::string_view prefix;
  std::string_view head;  // where its output matrix usually is
};
constexpr std::array<Place, 4> kPlaces = {{
    {"model.", "lm_head.weight"},
    {"language_model.model.", "language_model.lm_head.weight"},
    {"model.language_model.", "lm_head.weight"},
    {"", "lm_head.weight"},
}};

bool AnyStartsWith(const std::vector<std::string>& sorted, const std::string& start) {
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), start);
  return first != sorted.end() && first->starts_with(start);
}

std::string EmbeddingName(const TensorSource& source, const std::string& prefix) {
  const std::string deepseek_v4 = prefix + "embed.weight";
  return source.Find(deepseek_v4) != nullptr ? deepseek_v4 : prefix + "embed_tokens.weight";
}

Result<Place> FindPlace(const TensorSource& source, std::string_view where) {
  const std::vector<std::string> names = source.Names();
  std::vector<Place> found;
  for (const Place& place : kPlaces) {
    const std::string prefix(place.prefix);
    // A part of a checkpoint may have layers without the embedding, or the other way round.
    if (source.Find(EmbeddingName(source, prefix)) != nullptr ||
        AnyStartsWith(names, prefix + "layers.")) {
      found.push_back(place);
    }
  }
  if (found.size() > 1) {
    return Error{fmt::format("{}: decoders under {} and under {}; there must be one", where,
                             Quoted(found[0].prefix), Quoted(found[1].prefix))};
  }
  return found.empty() ? kPlaces[0] : found[0];
}

Result<std::string> FindHead(const TensorSource& source, std::string_view where,
                             const Place& place) {
  const std::string prefix(place.prefix);
  std::vector<std::string> candidates = {std::string(place.head),         "lm_head.weight",
                                         "language_model.lm_head.weight", "model.lm_head.weight",
                                         prefix + "lm_head.weight",       prefix + "head.weight"};
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  std::string head;
  for (const std::string& candidate : candidates) {
    if (source.Find(candidate) == nullptr) continue;
    if (!head.empty()) {
      return Error{fmt::format("{}: tensors {} and {} are both output matrices; there must be one",
                               where, Quoted(head), Quoted(candidate))};
    }
    head = candidate;
  }
  return head.empty() ? std::string(place.head) : head;
}

}  // namespace

Status FindDecoderNames(const TensorSource& source, std::string_view where, ModelConfig& config) {
  const Result<Place> place = FindPlace(source, where);
  if (!place.ok()) return place.error();
  config.prefix = place->prefix;
  if (config.tied) {
    config.lm_head = EmbeddingName(source, config.prefix);
    return Ok();
  }
  Result<std::string> head = FindHead(source, where, *place);
  if (!head.ok()) return head.error();
  config.lm_head = std::move(*head);
  return Ok();
}

}  // namespace assay
