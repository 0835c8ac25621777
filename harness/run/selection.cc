#include "harness/run/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "harness/locate/locate.h"
#include "harness/units/scheme.h"
#include "kernels/layouts/layouts.h"

namespace assay::run {

std::vector<Divergence> WrongSelections(const CellSpec& spec, const EngineTrace& trace,
                                        const std::vector<ShardKey>& expected) {
  std::vector<Divergence> wrong;
  std::set<std::string> seen;
  for (const ShardKey& key : expected) {
    const auto found = trace.shards.find(key);
    if (found == trace.shards.end() || found->second.method.empty()) continue;
    const std::string parameter = ParameterOf(key.component);
    const auto due = spec.oracle->MethodOf(key.component);
    if (!due || *due == found->second.method || !seen.insert(parameter).second) continue;
    Divergence divergence;
    divergence.cls = "selection";
    divergence.tensor = key.component;
    divergence.rank = key.rank;
    divergence.signature = {"wrong-method",
                            fmt::format("read as {}, stored as {}", found->second.method, *due),
                            "the engine's own record against what is in the file and its config"};
    locate::SetPlace(key.component, &divergence);
    wrong.push_back(std::move(divergence));
  }
  return wrong;
}

std::vector<Divergence> WrongLayouts(const CellSpec& spec, const EngineTrace& trace,
                                     const std::vector<ShardKey>& expected) {
  const std::string asked = spec.problem.Get("layout"), method = spec.problem.Get("method");
  const auto scheme = ParseScheme(method);
  // Tags of one module or of pairs leave the others as they are.
  if (asked.empty() || asked == "row" || asked == "mla-absorb" || asked == "gate-up-rows" ||
      !scheme || scheme->family == MethodFamily::kDense) {
    return {};
  }
  std::vector<Divergence> wrong;
  std::set<std::string> seen;
  for (const ShardKey& key : expected) {
    const auto found = trace.shards.find(key);
    const std::string parameter = ParameterOf(key.component);
    if (found == trace.shards.end() || found->second.rows == 0 || found->second.method != method ||
        parameter.ends_with(".attn.k_b") || parameter.ends_with(".attn.v_b") ||
        !key.component.ends_with(".weight")) {
      continue;
    }
    const kernels::Layout* layout = kernels::FindLayout(asked, method, "weight");
    if (layout == nullptr || found->second.layout != "row" || !seen.insert(parameter).second) {
      continue;
    }
    Divergence divergence;
    divergence.cls = "selection";
    divergence.tensor = key.component;
    divergence.rank = key.rank;
    divergence.signature = {"layout-replaced",
                            fmt::format("layout {} was asked for, it lies in row", asked),
                            "the engine's own tag against the cell's"};
    locate::SetPlace(key.component, &divergence);
    wrong.push_back(std::move(divergence));
  }
  return wrong;
}

std::string UnusedTensors(const CellSpec& spec) {
  std::vector<std::string> names;
  for (const reference::UnusedTensor& unused : spec.oracle->Unused()) {
    if (unused.reason.empty()) names.push_back(unused.tensor);
  }
  if (names.empty()) return "";
  return fmt::format("{} tensors of the checkpoint are used by nothing, the first {}", names.size(),
                     names.front());
}

std::string NotPlanned(const CellSpec& spec) {
  std::vector<std::string> names;
  for (const reference::UnusedTensor& unused : spec.oracle->Unused()) {
    if (unused.reason == reference::kNotPlanned) names.push_back(unused.tensor);
  }
  if (names.empty()) return "";
  return fmt::format("{} tensors are not yet planned, the first {}", names.size(), names.front());
}

}  // namespace assay::run
