// Asks the planner which ranges of what is named this session's ranks hold. The planner wants whole
// blocks; what a load leaves out is given to it as a shape and dropped again from its answer.
#include <fmt/format.h>

#include <array>
#include <deque>
#include <map>
#include <span>

#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/load_job.h"

namespace assay::kernels {
namespace {

// A tensor that is not there. The planner is asked for headers only, so these bytes are counted and
// never looked at; what lies in the data (weight_shape, exponents) check.cc has looked at.
TensorView ShapeOnly(const ParameterSpec& spec) {
  static constexpr std::byte kNowhere{};
  TensorView view;
  view.name = spec.source;
  view.dtype = spec.dtype;
  view.shape =
      spec.vector ? std::vector<int64_t>{spec.rows} : std::vector<int64_t>{spec.rows, spec.columns};
  view.bytes = {&kNowhere,
                static_cast<size_t>(CheckedProduct(CheckedProduct(spec.rows, spec.columns),
                                                   SizeOf(spec.dtype).count()))};
  view.file = "memory";
  return view;
}

bool IsPacked(const Storage& storage) { return storage.kind == Storage::Kind::kCtPacked; }

// "L1.moe.e5." of "L1.moe.e5.gate": linears that are joined to one matrix, and so must be stored
// the same way. A row-parallel one is not joined, and what it is stored as must not make a load
// illegal that does not name it.
std::string_view Siblings(const ExpectedHere& here) {
  const std::string_view op = here.expected.op;
  if (op.ends_with(".down") || op.ends_with(".out")) return op;
  return op.substr(0, op.rfind('.') + 1);
}

[[noreturn]] void Refuse(const shard::Refusal& refusal) {
  EngineError error(ASSAY_REFUSED, refusal.Message());
  error.tensor = refusal.tensor;
  error.axis = refusal.axis;
  error.got = refusal.extent;
  error.got_unit = refusal.unit;
  error.expected = refusal.parts;
  error.expected_unit = "part";
  throw error;
}

bool Has(const std::vector<ExpectedHere>& list, int64_t layer, Block block) {
  for (const ExpectedHere& here : list) {
    if (here.expected.layer == layer && here.expected.block == block) return true;
  }
  return false;
}

// The planner's selection for the named part of one layer.
shard::Selection SelectionOf(const std::vector<ExpectedHere>& present, int64_t layer) {
  shard::Selection selection;
  selection.layer = layer;
  selection.attention = Has(present, layer, Block::kAttention);
  selection.mlp = Has(present, layer, Block::kMlp);
  for (const ExpectedHere& here : present) {
    const int64_t expert = here.expected.expert;
    if (here.expected.layer != layer || expert < 0) continue;
    if (selection.experts.empty() || selection.experts.back() != expert) {
      selection.experts.push_back(expert);
    }
  }
  selection.routed_experts = !selection.experts.empty();
  return selection;
}

}  // namespace

shard::ModelPlan Loader::PlanOne(const Job& job, const shard::Selection& selection) const {
  ViewSource source;
  std::map<std::string_view, Storage> quantised;  // by Siblings, of what is named
  // (N, K) of packed weights: given as weight_shape, or as the config says.
  std::deque<std::array<int64_t, 2>> stated;
  const auto put_stated_shape = [&](const Expected& expected) {
    TensorView shape;
    shape.name = expected.source + ".weight_shape";
    shape.dtype = DType::kI64;
    shape.shape = {2};
    shape.bytes = std::as_bytes(std::span(stated.emplace_back(std::array{expected.n, expected.k})));
    shape.file = "memory";
    source.Put(std::move(shape));
  };
  for (const ExpectedHere& here : job.present) {
    for (const ParameterSpec& spec : here.specs) source.Put(*job.tensors.Find(spec.source));
    if (here.storage.kind != Storage::Kind::kDense) quantised[Siblings(here)] = here.storage;
    if (IsPacked(here.storage)) put_stated_shape(here.expected);
  }
  for (const ExpectedHere& here : job.absent) {
    if (here.expected.optional) continue;
    const auto sibling = quantised.find(Siblings(here));
    const bool as_sibling =
        here.expected.kind == Expected::Kind::kLinear && sibling != quantised.end();
    const auto specs = as_sibling
                           ? LinearSpecs(here.expected, sibling->second, job.tensors, config_.quant)
                           : here.specs;
    for (const ParameterSpec& spec : specs) source.Put(ShapeOnly(spec));
    if (as_sibling && IsPacked(sibling->second)) put_stated_shape(here.expected);
  }
  shard::Selection headers = selection;
  headers.headers_only = true;
  auto result = ValueOrThrow(shard::PlanModel(job.config, source, degrees_, headers));
  if (result.refusal) Refuse(*result.refusal);
  return std::move(*result.plan);
}

const std::vector<shard::ComponentPlan>& Loader::Plan(const Job& job) {
  std::string key;
  std::set<std::string, std::less<>> wanted;
  std::set<int64_t> layers;
  bool top = false;
  for (const ExpectedHere& here : job.present) {
    for (const ParameterSpec& spec : here.specs) {
      wanted.insert(spec.component);
      key += spec.component + " " + spec.source + "\n";
    }
    here.expected.layer < 0 ? void(top = true) : void(layers.insert(here.expected.layer));
  }
  if (key == planned_for_ && !key.empty()) return plan_;

  std::vector<shard::ModelPlan> plans;
  if (job.whole) {
    plans.push_back(PlanOne(job, shard::Selection{}));
  } else {
    for (int64_t layer : layers) plans.push_back(PlanOne(job, SelectionOf(job.present, layer)));
    // The embedding and the head without the layers between them.
    if (top) plans.push_back(PlanOne(job, shard::Selection{-1, false, false, {}}));
  }
  plan_.clear();
  for (shard::ModelPlan& plan : plans) {
    for (shard::ComponentPlan& component : plan.components) {
      if (wanted.count(component.component.name) != 0) plan_.push_back(std::move(component));
    }
  }
  if (plan_.size() != wanted.size()) {
    throw EngineError(ASSAY_FAILED, fmt::format("the plan has {} of the {} components named",
                                                plan_.size(), wanted.size()));
  }
  planned_for_ = std::move(key);
  return plan_;
}

}  // namespace assay::kernels
