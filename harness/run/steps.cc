// The tokens of a cell, step by step: from a prompt, or generated.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/run/spec.h"

namespace assay::run {
namespace {

using Json = nlohmann::json;

Result<std::vector<int64_t>> StepLengths(const std::string& text) {
  auto tokens = ParseTokens(text);
  if (!tokens) return tokens.error();
  if (tokens->sequences != 1) {
    return Error{fmt::format("tokens={}: batches of several sequences are not built yet; allowed "
                             "are a count and prefill+decodes",
                             text),
                 ErrorKind::kUnsupported};
  }
  std::vector<int64_t> lengths{tokens->prefill};
  lengths.insert(lengths.end(), static_cast<size_t>(tokens->decodes), 1);
  return lengths;
}

// A prompt that the model's golden names.
std::optional<Json> GoldenPrompt(const std::string& prompt, const Model& model) {
  namespace fs = std::filesystem;
  if (prompt.find('/') != std::string::npos) return {};
  std::ifstream file(fs::path(GoldensFolder()) / "goldens" / model.golden / "golden.json");
  if (!file) return {};
  const Json parsed = Json::parse(file, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("prompts")) return {};
  const Json& prompts = parsed["prompts"];
  if (!prompts.is_object() || !prompts.contains(prompt) || !prompts[prompt].is_array()) return {};
  return prompts[prompt];
}

// Numbers of a text file. A device or a pipe would not end, and a longer file has more tokens than
// a cell may have.
Result<Json> ReadIds(const std::string& path, const Model& model) {
  namespace fs = std::filesystem;
  constexpr uintmax_t kLongestId = 12;  // with what stands between two
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return Error{fmt::format("prompt={}: neither a prompt of {}'s golden nor a file of ids", path,
                             model.name)};
  }
  if (!fs::is_regular_file(path, ignored) ||
      fs::file_size(path, ignored) > kLongestId * static_cast<uintmax_t>(kMostTokens)) {
    return Error{fmt::format("prompt={}: no regular file of at most {} ids", path, kMostTokens)};
  }
  std::ifstream file(path);
  if (!file) return Error{fmt::format("prompt={}: cannot be read", path)};
  Json list = Json::array();
  for (std::string word; file >> word;) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      return Error{fmt::format("prompt={}: token {} is not a number", path, list.size())};
    }
    list.push_back(id);
  }
  return list;
}

}  // namespace

Result<std::vector<int32_t>> ReadPrompt(const std::string& prompt, const Model& model) {
  auto list = GoldenPrompt(prompt, model);
  std::string where = list ? "golden.json of " + model.name : prompt;
  if (!list) {
    auto read = ReadIds(prompt, model);
    if (!read) return read.error();
    list = std::move(*read);
  }
  const int64_t vocab = model.checkpoint->config().vocab;
  std::vector<int32_t> ids;
  for (const Json& item : *list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() >= vocab) {
      return Error{fmt::format("{}: token {} is {}; allowed are 0 to {}", where, ids.size(),
                               item.dump(-1, ' ', false, Json::error_handler_t::replace),
                               vocab - 1)};
    }
    ids.push_back(item.get<int32_t>());
  }
  if (ids.empty()) return Error{fmt::format("prompt={}: no token ids in {}", prompt, where)};
  return ids;
}

Status MakeSteps(CellSpec* spec) {
  const auto& config = spec->config;
  const std::string prompt = spec->problem.Get("prompt");
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;
  if (!prompt.empty()) {
    auto read = ReadPrompt(prompt, *spec->model);
    if (!read) return read.error();
    ids = std::move(*read);
    lengths = {static_cast<int64_t>(ids.size())};
    if (spec->problem.Has("tokens")) {
      auto stated = StepLengths(spec->problem.Get("tokens"));
      if (!stated) return stated.error();
      int64_t total = 0;
      for (const int64_t length : *stated) total += length;
      if (total != lengths[0]) {
        return Error{fmt::format("tokens={} and prompt={}: the prompt has {} tokens",
                                 spec->problem.Get("tokens"), prompt, lengths[0])};
      }
      lengths = std::move(*stated);
    }
  } else {
    auto stated = StepLengths(spec->problem.Get("tokens"));
    if (!stated) return stated.error();
    lengths = std::move(*stated);
    int64_t total = 0;
    for (const int64_t length : lengths) total += length;
    ids = FillTokens(spec->seed, total, config.vocab);
  }
  int64_t position = 0;
  for (const int64_t length : lengths) {
    reference::Step step;
    step.first_position = position;
    step.tokens.assign(ids.begin() + position, ids.begin() + position + length);
    spec->steps.push_back(std::move(step));
    position += length;
  }
  return Ok();
}

}  // namespace assay::run
