// The problem string: a cell's identity, its test name and its repro (interfaces.md §2).
#pragma once

#include <cstdint>
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

  // The value, or the key's default. Some defaults depend on the rest: fill on the kind, tokens is
  // empty where a prompt says how many there are, attn_tp is empty and means tp.
  std::string Get(std::string_view key) const;
  bool Has(std::string_view key) const { return keys.find(key) != keys.end(); }
  int GetInt(std::string_view key) const;  // of a key that was checked as a number
};

// tokens=: `5` is a prefill of five, `33+1` a prefill of 33 and one decode, `4x1` a batch of four
// sequences that decode one token each (no prefill of its own).
struct Tokens {
  int64_t sequences = 1;
  int64_t prefill = 0;
  int64_t decodes = 0;
  int64_t total() const { return sequences * (prefill + decodes); }
  friend bool operator==(const Tokens&, const Tokens&) = default;
};
// Error: not of one of the three forms, or more tokens than kMostTokens.
Result<Tokens> ParseTokens(std::string_view text);
inline constexpr int64_t kMostTokens = int64_t{1} << 20;

// KIND key=value key=value …, in any order, percent-encoded where needed. Values that mean the same
// are brought to one spelling (reduce=ring is ring:fp32, limit=7.0 is 7, attn_tp equal to tp is
// left out), so that a cell has one canonical form.
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
