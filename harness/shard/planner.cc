// Cuts the listed components over ranks, or says why that is illegal. Pure.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "harness/shard/cut.h"

namespace assay::shard {
namespace {

constexpr int kLargestTried = 64;

std::optional<Refusal> FirstRefusal(const ModelConfig& config, const std::vector<Listed>& listed,
                                    const Degrees& degrees) {
  if (auto refusal = RefuseDegrees(config, degrees)) return refusal;
  const Cutter cutter(config, degrees, listed);
  for (const Listed& entry : listed) {
    if (auto refusal = cutter.Check(entry)) return refusal;
  }
  return std::nullopt;
}

// Under the same rules but for tp, ascending.
std::vector<int> LegalDegrees(const ModelConfig& config, const std::vector<Listed>& listed,
                              Degrees degrees) {
  std::vector<int> legal;
  if (degrees.split == Split::kList) return legal;  // a list is for one degree
  for (int tp = 1; tp <= kLargestTried; ++tp) {
    degrees.tp = tp;
    if (!FirstRefusal(config, listed, degrees)) legal.push_back(tp);
  }
  return legal;
}

// Whether some rank's rows end inside one of the component's units: nothing can follow them in a
// merged parameter (a block of FP8 scales would have to span two members).
bool EndsInsideAUnit(const ComponentPlan& plan) {
  const Component& c = plan.component;
  const int64_t unit = c.row_along == Along::kN      ? c.elements_per_row.count()
                       : c.column_along == Along::kN ? c.column_elements.count()
                                                     : 1;
  if (unit == 1) return false;
  const bool rows = c.row_along == Along::kN;
  const int64_t extent = rows ? c.row_extent.count() : c.row_elements.count();
  const int64_t stored = rows ? c.rows : c.columns;
  if (extent % unit == 0) return false;
  const bool cut = plan.axis == (rows ? Axis::kRows : Axis::kColumns);
  for (const auto& ranges : plan.ranks) {
    if (!cut && !ranges.empty()) return true;
    for (const Range& range : ranges) {
      if (!range.is_padding() && range.begin + range.length == stored) return true;
    }
  }
  return false;
}

// Members that a rank cannot join stand alone, all parts of them.
void SeparateMembers(ModelPlan* plan) {
  std::set<std::string, std::less<>> apart;
  for (const ComponentPlan& component : plan->components) {
    if (!component.segment_of.empty() && EndsInsideAUnit(component)) {
      apart.insert(component.segment_of);
    }
  }
  if (apart.empty()) return;
  for (ComponentPlan& component : plan->components) {
    if (apart.count(component.segment_of) > 0) component.segment_of.clear();
  }
}

}  // namespace

int64_t PaddedVocab(int64_t vocab, int tp) {
  const int64_t multiple = std::lcm(int64_t{64}, int64_t{tp});
  return (vocab + multiple - 1) / multiple * multiple;
}

Result<PlanResult> PlanModel(const ModelConfig& config, const TensorSource& source,
                             const Degrees& degrees, const Selection& selection) {
  if (Status good = CheckDegrees(config, degrees); !good) return good.error();
  auto listed = ListAll(config, source, selection);
  if (!listed) return listed.error();
  PlanResult result;
  result.refusal = FirstRefusal(config, *listed, degrees);
  if (result.refusal) {
    // The whole model where it can be listed; a part of a checkpoint speaks for itself.
    Selection everything;
    everything.headers_only = true;
    const auto whole = ListAll(config, source, everything);
    result.refusal->attn_tp = degrees.attn_tp;
    result.refusal->legal_degrees = LegalDegrees(config, whole ? *whole : *listed, degrees);
    const std::vector<int>& legal = result.refusal->legal_degrees;
    result.refusal->largest_legal_tp = legal.empty() ? 0 : legal.back();
    return result;
  }
  const Cutter cutter(config, degrees, *listed);
  ModelPlan& plan = result.plan.emplace();
  plan.degrees = degrees;
  plan.components.reserve(listed->size());
  for (Listed& entry : *listed) plan.components.push_back(cutter.Plan(std::move(entry)));
  SeparateMembers(&plan);
  return result;
}

}  // namespace assay::shard
