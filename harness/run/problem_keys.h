// The keys of problem strings with the values that each allows (interfaces.md §2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/run/problem.h"

namespace assay::run {

// How a key's value is checked.
enum class Values {
  kText,       // anything that is not empty
  kChoice,     // one of `allowed`
  kCount,      // 1, 2, …
  kSize,       // 0, 1, …
  kIndex,      // `all` or 0, 1, …
  kNumber,     // positive, or inf
  kGroup,      // a count or `channel`
  kMethod,     // a method id
  kSplit,      // even, ceil, list:5,3,2
  kPlacement,  // cpu, gpu, hybrid:N
  kExperts,    // 0,1,-1,0
  kReduce,     // sequential, ring, tree with a wire type
  kTier,       // a tier of the engine
  kTokens,     // 5, 33+1, 4x1
  kFault,      // none or K03/rank0
};

struct KeyRule {
  KeyInfo info;
  Values values = Values::kText;
  std::vector<std::string_view> allowed = {};
};

// In canonical order.
const std::vector<KeyRule>& KeyRules();
// nullptr if there is none.
const KeyRule* FindRule(std::string_view key);

// The value in its one spelling, or an error that names it, what is allowed and the nearest match.
// Whether a tier exists is the engine's to say where the engine is not ours.
Result<std::string> CheckValue(const KeyRule& rule, const std::string& value, bool native_engine);

// "; did you mean X?" or nothing.
std::string Suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace assay::run
