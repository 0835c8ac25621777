#include "kernels/loaders/names.h"

#include <charconv>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {
namespace {

constexpr std::string_view kGgufEmbedding = "token_embd.weight";
constexpr std::string_view kGgufNorm = "output_norm.weight";
constexpr std::string_view kGgufHead = "output.weight";

bool IsGguf(const ModelConfig& config) { return config.container == Container::kGguf; }
bool IsV4(const ModelConfig& config) { return config.family == Family::kDeepseekV4; }

void FindGguf(const Names& names, ModelConfig* config) {
  config->prefix.clear();
  config->lm_head = config->tied ? kGgufEmbedding : kGgufHead;
  for (const std::string& name : names) {
    if (name.starts_with("blk.") || name.starts_with("output") || name == kGgufEmbedding) return;
  }
  throw EngineError(ASSAY_REFUSED,
                    "none of the tensors is of a decoder: no name is blk.N, token_embd, "
                    "output_norm or output");
}

// Where the mark stands in the name as a whole part of it; npos: nowhere, or in another tower.
size_t PlaceOf(std::string_view name, std::string_view mark) {
  const size_t at = name.find(mark);
  if (at == std::string_view::npos || (at != 0 && name[at - 1] != '.')) return name.npos;
  return name.find("vision") == std::string_view::npos ? at : name.npos;
}

bool IsHead(const ModelConfig& config, std::string_view name) {
  return name.ends_with("lm_head.weight") || (IsV4(config) && name.ends_with("head.weight"));
}

std::string HeadUnder(const ModelConfig& config, const std::string& prefix) {
  if (IsV4(config)) return prefix + "head.weight";
  return prefix.starts_with("language_model.") ? "language_model.lm_head.weight" : "lm_head.weight";
}

}  // namespace

void FindPrefix(const Names& names, ModelConfig* config) {
  if (IsGguf(*config)) return FindGguf(names, config);
  const std::string_view embedding = IsV4(*config) ? "embed.weight" : "embed_tokens.weight";
  std::string prefix, head;
  bool found = false;
  for (const std::string& name : names) {
    if (IsHead(*config, name)) head = name;
    for (const std::string_view mark :
         {std::string_view("layers."), embedding, std::string_view("norm.weight")}) {
      const size_t at = PlaceOf(name, mark);
      if (found || at == std::string::npos) continue;
      prefix = name.substr(0, at);
      found = true;
    }
  }
  if (!found && head.empty()) {
    throw EngineError(ASSAY_REFUSED,
                      "none of the tensors is of a decoder: no name has layers.N, "
                      "embed_tokens, norm or lm_head");
  }
  if (!found) {
    prefix = IsV4(*config)                         ? ""
             : head.starts_with("language_model.") ? "language_model.model."
                                                   : "model.";
  }
  config->prefix = prefix;
  if (head.empty()) head = HeadUnder(*config, prefix);
  config->lm_head = config->tied ? prefix + std::string(embedding) : head;
}

int64_t LayerOf(const ModelConfig& config, std::string_view name) {
  const std::string start = IsGguf(config) ? "blk." : config.prefix + "layers.";
  if (!name.starts_with(start)) return -1;
  const char* first = name.data() + start.size();
  const char* last = name.data() + name.size();
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(first, last, layer);
  return error == std::errc() && end != last && *end == '.' && layer >= 0 ? layer : -1;
}

std::pair<std::string_view, std::string_view> SplitComponent(std::string_view component) {
  const size_t dot = component.rfind('.');
  if (dot == std::string_view::npos) return {component, {}};
  return {component.substr(0, dot), component.substr(dot + 1)};
}

int64_t ExpertOf(std::string_view op) {
  constexpr std::string_view kMark = ".moe.e";
  const size_t at = op.find(kMark);
  if (at == std::string_view::npos) return -1;
  op.remove_prefix(at + kMark.size());
  int64_t expert = -1;
  const auto [end, error] = std::from_chars(op.data(), op.data() + op.size(), expert);
  return error == std::errc() && end != op.data() + op.size() && *end == '.' ? expert : -1;
}

}  // namespace assay::kernels
