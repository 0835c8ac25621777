#include "harness/run/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <utility>

#include "harness/run/problem_keys.h"

namespace assay::run {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

std::vector<std::string_view> SplitWords(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while (begin < text.size()) {
    if (IsSpace(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && !IsSpace(text[end])) ++end;
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::string Encode(std::string_view value) {
  std::string text;
  for (char c : value) {
    if (c == ' ' || c == '\'' || c == '%' || IsControl(c)) {
      text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

// Control characters encoded: a value may hold a newline, a message may not.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) line += IsControl(c) ? Encode({&c, 1}) : std::string(1, c);
  return line;
}

// Error: a % that is not followed by two hexadecimal digits, or a byte 0.
Result<std::string> Decode(std::string_view word, std::string_view text) {
  std::string value;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      value += text[i];
      continue;
    }
    unsigned byte = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2 || byte == 0) {
      return Error{fmt::format("{}: '%{}' is no encoded byte; allowed: %01 to %FF, and %25 for %",
                               word, digits)};
    }
    value += static_cast<char>(byte);
    i += 2;
  }
  return value;
}

std::vector<std::string> Strings(const std::vector<std::string_view>& words) {
  return {words.begin(), words.end()};
}

std::vector<std::string> KeyNames() {
  std::vector<std::string> names;
  for (const KeyRule& rule : KeyRules()) names.emplace_back(rule.info.name);
  return names;
}

Status ReadKey(std::string_view word, Problem* problem) {
  const size_t equals = word.find('=');
  const std::string key(word.substr(0, equals));
  if (FindRule(key) == nullptr) {
    return Error{fmt::format("unknown key {}{}; allowed: {}", key, Suggestion(key, KeyNames()),
                             fmt::join(KeyNames(), ", "))};
  }
  if (equals == std::string_view::npos) {
    return Error{fmt::format("{}: a value is missing; write {}=…", key, key)};
  }
  auto value = Decode(word, word.substr(equals + 1));
  if (!value) return value.error();
  const auto [it, inserted] = problem->keys.emplace(key, std::move(*value));
  if (!inserted) {
    return Error{fmt::format("{} is given twice, as {} and {}", key, Encode(it->second),
                             word.substr(equals + 1))};
  }
  return Ok();
}

// Attention's own degree where none is given: tp / dp. A dp that does not divide tp is refused
// later, as a degree.
std::string AttentionDefault(const Problem& problem) {
  const int tp = problem.GetInt("tp"), dp = problem.GetInt("dp");
  return dp > 1 && tp % dp == 0 ? std::to_string(tp / dp) : problem.Get("tp");
}

// What canonical form writes where the key was not given; "" is left out.
std::string WrittenDefault(const Problem& problem, std::string_view key) {
  return key == "attn_tp" ? AttentionDefault(problem) : problem.Get(key);
}

std::string DefaultOf(const Problem& problem, const KeyInfo& info) {
  if (info.name == "fill") {
    return problem.kind == "model" || problem.kind == "layer" ? "real" : "lognormal";
  }
  if (info.name == "tokens" && problem.Has("prompt")) return "";
  if (info.name == "collective") return problem.kind == "collective" ? "all_reduce" : "";
  return std::string(info.fallback);
}

}  // namespace

const std::vector<KeyInfo>& Keys() {
  static const std::vector<KeyInfo> kKeys = [] {
    std::vector<KeyInfo> keys;
    for (const KeyRule& rule : KeyRules()) keys.push_back(rule.info);
    return keys;
  }();
  return kKeys;
}

const std::vector<std::string_view>& Kinds() {
  static const std::vector<std::string_view> kKinds = {"load",  "linear", "moe",  "route",
                                                       "act",   "norm",   "attn", "collective",
                                                       "layer", "model",  "lora"};
  return kKinds;
}

std::string Problem::Get(std::string_view key) const {
  if (const auto found = keys.find(key); found != keys.end()) return found->second;
  const KeyRule* rule = FindRule(key);
  assert(rule != nullptr && "no such key");
  return DefaultOf(*this, rule->info);
}

int Problem::GetInt(std::string_view key) const {
  const std::string text = Get(key);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  assert(error == std::errc() && end == text.data() + text.size() && "not a number");
  return value;
}

Result<Problem> ParseProblem(std::string_view text) {
  if (const auto control = std::find_if(text.begin(), text.end(),
                                        [](char c) { return IsControl(c) && !IsSpace(c); });
      control != text.end()) {
    return Error{
        fmt::format("a problem string with a control character (byte {:#04x}); write it "
                    "percent-encoded",
                    static_cast<unsigned char>(*control))};
  }
  const auto words = SplitWords(text);
  if (words.empty()) {
    return Error{fmt::format("an empty problem string; write KIND key=value …, KIND one of: {}",
                             fmt::join(Kinds(), ", "))};
  }
  Problem problem;
  problem.kind = words[0];
  const auto& kinds = Kinds();
  if (std::find(kinds.begin(), kinds.end(), problem.kind) == kinds.end()) {
    return Error{fmt::format("unknown kind {}{}; allowed: {}", problem.kind,
                             Suggestion(problem.kind, Strings(kinds)), fmt::join(kinds, ", "))};
  }
  for (size_t i = 1; i < words.size(); ++i) {
    if (Status s = ReadKey(words[i], &problem); !s) return s.error();
  }
  const bool native = problem.Get("engine") == "native";
  for (auto& [key, value] : problem.keys) {
    auto checked = CheckValue(*FindRule(key), value, native);
    if (!checked) return Error{OneLine(checked.error().message), checked.error().kind};
    value = std::move(*checked);
  }
  if (!problem.Has("model")) {
    return Error{fmt::format("{}: model= is missing: a shipped name, or the path of a checkpoint",
                             problem.kind)};
  }
  if (problem.Has("attn_tp") && problem.Get("attn_tp") == AttentionDefault(problem)) {
    problem.keys.erase(problem.keys.find("attn_tp"));
  }
  return problem;
}

std::string PrintCanonical(const Problem& problem) {
  std::string text = problem.kind;
  for (const KeyInfo& info : Keys()) {
    const std::string value =
        problem.Has(info.name) ? problem.Get(info.name) : WrittenDefault(problem, info.name);
    if (!value.empty()) text += fmt::format(" {}={}", info.name, Encode(value));
  }
  return text;
}

std::string PrintMinimal(const Problem& problem) {
  std::string text = problem.kind;
  for (const KeyInfo& info : Keys()) {
    if (!problem.Has(info.name)) continue;
    const std::string value = problem.Get(info.name);
    const bool is_default = value == DefaultOf(problem, info) ||
                            (info.name == "attn_tp" && value == AttentionDefault(problem));
    if (!is_default) text += fmt::format(" {}={}", info.name, Encode(value));
  }
  return text;
}

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // a longer word is no slip of a name
  std::string nearest;
  if (word.empty() || word.size() > kLongest) return nearest;
  size_t best = word.size() / 3 + 2;  // a distance below this is near
  for (const std::string& candidate : candidates) {
    // Edit distance where swapping two neighbours is one edit; rows of the table i-2, i-1 and i.
    std::vector<size_t> before, above, row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      before = std::exchange(above, row);
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const bool same = word[i - 1] == candidate[j - 1];
        row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
        if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1]) {
          row[j] = std::min(row[j], before[j - 2] + 1);
        }
      }
    }
    // Nothing of the word may be left over: as many edits as letters is another word.
    if (row.back() < best && row.back() < std::max(word.size(), candidate.size())) {
      best = row.back();
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace assay::run
