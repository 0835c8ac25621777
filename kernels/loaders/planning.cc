// Asks the planner what is named, how it is stored, and which ranges of it this session's ranks
// hold; then whether anything is named that it does not know, or due and not named.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "harness/shard/unplanned.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/load_job.h"
#include "kernels/loaders/plan_error.h"

namespace assay::kernels {
namespace {

using shard::Selection;

// Embedding and head without the layers between them.
Selection Ends() {
  Selection selection;
  selection.attention = selection.mlp = false;
  selection.present_only = true;
  return selection;
}

std::vector<shard::Component> Listed(const ModelConfig& config, const TensorSource& source,
                                     const Selection& selection) {
  auto listed = shard::ListComponents(config, source, selection);
  if (!listed) throw ErrorOf(listed.error());
  return std::move(*listed);
}

std::set<int64_t> LayersOf(const ModelConfig& config, const Names& names) {
  std::set<int64_t> layers;
  for (const std::string& name : names) {
    const int64_t layer = LayerOf(config, name);
    if (layer >= 0 && layer < config.layers) layers.insert(layer);
  }
  return layers;
}

bool IsListed(const std::vector<shard::Component>& list, std::string_view component) {
  return std::any_of(list.begin(), list.end(),
                     [&](const shard::Component& c) { return c.name == component; });
}

// What a plan depends on: headers, and of the data the order of inputs.
std::string KeyOf(const ViewSource& tensors) {
  std::string key;
  for (const std::string& name : tensors.Names()) {
    const TensorView& view = *tensors.Find(name);
    key += fmt::format("{} {} {}", name, NameOf(view.dtype), fmt::join(view.shape, ","));
    if (name.ends_with("g_idx")) {
      const std::string_view bytes(reinterpret_cast<const char*>(view.bytes.data()),
                                   view.bytes.size());
      key += fmt::format(" {:x}", std::hash<std::string_view>{}(bytes));
    }
    key += '\n';
  }
  return key;
}

[[noreturn]] void Missing(std::string_view tensor, std::string_view component) {
  EngineError error(ASSAY_REFUSED, fmt::format("{}: missing; {} needs it", tensor, component));
  error.tensor = std::string(tensor);
  throw error;
}

// An uneven split counts in the coarsest unit of gate, up and down: it cannot be known from some of
// them.
void CheckUneven(const std::vector<shard::ComponentPlan>& plan) {
  std::map<std::string_view, std::set<std::string_view>> mlps;
  for (const shard::ComponentPlan& component : plan) {
    const auto [op, part] = SplitComponent(component.component.name);
    const auto [mlp, which] = SplitComponent(op);
    if (part == "weight" && (which == "gate" || which == "up" || which == "down")) {
      if (mlp.find(".attn") == std::string_view::npos) mlps[mlp].insert(which);
    }
  }
  for (const auto& [mlp, there] : mlps) {
    for (const std::string_view which : {"gate", "up", "down"}) {
      if (there.count(which) > 0) continue;
      throw EngineError(ASSAY_REFUSED,
                        fmt::format("{}.{}: not named; an uneven split is counted in the coarsest "
                                    "unit of gate, up and down",
                                    mlp, which));
    }
  }
}

}  // namespace

// Whether anything of any layer's attention, or of any layer's MLP, is named.
bool Loader::HasBlock(const Job& job, const std::set<int64_t>& layers, bool attention) const {
  return std::any_of(layers.begin(), layers.end(), [&](int64_t layer) {
    Selection selection;
    selection.layer = layer;
    selection.attention = attention;
    selection.mlp = !attention;
    selection.headers_only = selection.present_only = true;
    return !Listed(job.config, job.tensors, selection).empty();
  });
}

void Loader::Plan(Job* job) {
  const std::set<int64_t> layers = LayersOf(job->config, job->names);
  const auto ends = Listed(job->config, job->tensors, Ends());
  // A whole model is one where layers hang between an embedding and a final norm. Attention or MLPs
  // may be loaded alone, but then of every layer.
  job->whole = job->whole && !layers.empty() && IsListed(ends, "embed.weight") &&
               IsListed(ends, "final_norm.weight") && HasBlock(*job, layers, true) &&
               HasBlock(*job, layers, false);
  std::vector<Selection> selections;
  if (job->whole) {
    selections.emplace_back();
  } else {
    for (const int64_t layer : layers) {
      Selection selection;
      selection.layer = layer;
      selection.present_only = true;
      selections.push_back(selection);
    }
    if (!ends.empty()) selections.push_back(Ends());
  }
  std::string key = KeyOf(job->tensors);
  job->plan = &plan_;
  if (key == planned_for_) {
    // The plan is known; what lies in the data is not.
    for (const Selection& selection : selections) Listed(job->config, job->tensors, selection);
    return;
  }
  planned_for_.clear();
  plan_.clear();
  for (const Selection& selection : selections) {
    auto result = shard::PlanModel(job->config, job->tensors, degrees_, selection);
    if (!result) throw ErrorOf(result.error());
    if (result->refusal) throw ErrorOf(*result->refusal);
    for (shard::ComponentPlan& component : result->plan->components) {
      plan_.push_back(std::move(component));
    }
  }
  if (degrees_.split != shard::Split::kEven && !job->whole) CheckUneven(plan_);
  planned_for_ = std::move(key);
}

void Loader::CheckUnused(const Job& job) const {
  std::set<std::string_view> taken;
  for (const shard::ComponentPlan& component : plan_) taken.insert(component.component.source);
  for (const std::string& name : job.names) {
    if (taken.count(name) > 0 || !shard::WhyPassed(job.config, name).empty()) continue;
    // GPTQ's tools write a bias of zeros where the model has none; the planner looked.
    const auto [module, part] = SplitComponent(name);
    if (part == "bias" && taken.count(std::string(module) + ".qweight") > 0) continue;
    EngineError error(ASSAY_REFUSED, fmt::format("{}: no parameter of this model takes it", name));
    error.tensor = name;
    throw error;
  }
}

void Loader::CheckComplete(const assay_load& request, const Job& job) const {
  std::set<std::string_view> planned;
  for (const shard::ComponentPlan& component : *job.plan) planned.insert(component.component.name);
  // The harness's plan names a component at the beginning of each line.
  std::string_view rest = request.plan == nullptr ? "" : request.plan;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::string_view component = line.substr(0, line.find(' '));
    const size_t arrow = line.find("<- ");
    if (component.empty() || arrow == std::string_view::npos) continue;
    if (planned.count(component) == 0) Missing(line.substr(arrow + 3), component);
  }
}

}  // namespace assay::kernels
