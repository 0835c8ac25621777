// What an engine says of itself: the JSON of its describe() (assay_engine.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/units/status.h"

namespace assay::abi {

struct DescribedKernel {
  std::string name, op, method, tier, layout, act, arithmetic_class;
  int lanes = 0;  // 0: not declared
  int extra = 0;
};

// A list that is not there was not said, which is not the same as an empty one.
using Said = std::optional<std::vector<std::string>>;

struct EngineFacts {
  Said methods, tiers, layouts, scopes, families, ops, acts, reduces, emulates;
  std::optional<std::vector<int>> tp;  // legal degrees
  bool reloads = false;  // it says that loading every rank again replaces what was loaded
  std::optional<Contract> contract;
  std::vector<DescribedKernel> kernels;
  std::vector<std::string> unknown_keys;  // of a newer engine, or misspelt: to be reported

  // nullptr: there is no kernel of that name.
  const DescribedKernel* FindKernel(std::string_view name) const;
};

// Whether the engine does not rule this out: true as well where nothing was said.
bool MayHave(const Said& list, std::string_view word);

// An empty text is an engine that says nothing. Error (kBadInput): no JSON object, a member of the
// wrong type, a kernel without a name, a contract that ParseContract refuses; names it.
Result<EngineFacts> ParseDescribe(std::string_view json);

}  // namespace assay::abi
