// The problem string: a cell's identity, its test name and its repro (interfaces.md §2).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/status.h"

namespace assay::run {

struct KeyInfo {
  std::string_view name;
  std::string_view fallback;  // the default's text, "" where it is resolved from the cell
  std::string_view help;
};
// All keys in canonical order.
const std::vector<KeyInfo>& Keys();
const std::vector<std::string_view>& Kinds();

struct Problem {
  std::string kind;
  std::map<std::string, std::string, std::less<>> keys;  // as given, decoded

  // The value, or the key's default.
  std::string Get(std::string_view key) const;
  bool Has(std::string_view key) const { return keys.find(key) != keys.end(); }
  int GetInt(std::string_view key) const;  // of a key that was checked as a number
};

// Error (bad input): an unknown kind, key or value, a duplicate; names it, what is allowed, and the
// nearest match.
Result<Problem> ParseProblem(std::string_view text);
// Every key that has a value or a default, canonical order, percent-encoded where needed.
std::string PrintCanonical(const Problem& problem);
// Only keys whose value is not the default.
std::string PrintMinimal(const Problem& problem);

// The nearest of `candidates` by edit distance, empty if none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace assay::run
