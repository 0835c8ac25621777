// Which kinds of faults (faults.md) a geometry hides: where a loader that has the fault holds the
// same bytes as one that has not, no test of this checkpoint at this degree can find it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/audit/facts.h"
#include "harness/audit/report.h"
#include "harness/checkpoint/model_config.h"
#include "harness/shard/plan.h"

namespace assay::audit {

// One stored tensor of a parameter, under one degree.
struct Placed {
  const ModelConfig* config = nullptr;
  const shard::Component* component = nullptr;
  const shard::ComponentPlan* plan = nullptr;  // nullptr: refused
  int tp = 1;
  const Tally* tally = nullptr;
  const GIdx* g_idx = nullptr;                     // nullptr: it is none
  const std::vector<std::byte>* scalar = nullptr;  // nullptr: more than one value
  std::string_view suffix() const;                 // ".scale"
};

// Collects over all tensors of one degree.
class Hiding {
 public:
  explicit Hiding(int tp);
  void Add(const Placed& placed);
  // Once all were added. Rows in the order of the kinds.
  std::vector<Hidden> Rows(const ModelConfig& config) const;

 private:
  struct Count {
    int64_t applies = 0, hides = 0;
    std::string first;
  };
  int tp_;
  std::vector<Count> counts_;  // [predicates]
  // Merged parameters with a number for the whole tensor each: the numbers.
  std::map<std::string, std::vector<std::byte>> merged_;
  Count equal_;
};

// For tests and for the documentation: kind and text of every predicate.
struct PredicateText {
  std::string kind, text;
};
std::vector<PredicateText> Predicates();

}  // namespace assay::audit
