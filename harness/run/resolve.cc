// Problem -> CellSpec without data: model, engine, tier, nodes and selection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "harness/run/resolve_steps.h"

namespace assay::run {
namespace {

using reference::Node;
using reference::Op;

Result<int64_t> ParseIndex(const Problem& problem, std::string_view key, int64_t limit) {
  const std::string text = problem.Get(key);
  if (text.empty() || text == "all") return static_cast<int64_t>(-1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= limit) {
    return Error{fmt::format("{}={}: allowed are all and 0 to {}", key, text, limit - 1)};
  }
  return value;
}

bool OpMatches(const Node& node, const std::string& op) {
  return op == "all" || op.empty() || node.path == op ||
         (node.path.size() > op.size() && node.path.ends_with("." + op));
}

bool KindTakes(const Problem& problem, const Node& node) {
  const std::string& kind = problem.kind;
  if (kind == "collective") {
    return problem.Get("collective") == "gather" ? node.path == "logits" : node.op == Op::kReduce;
  }
  if (kind == "linear") return node.op == Op::kLinear;
  if (kind == "norm") return node.op == Op::kRmsNorm || node.op == Op::kHeadNorm;
  if (kind == "act") return node.op == Op::kActivation;
  if (kind == "attn") return node.path.starts_with("attn.");
  if (kind == "route") return node.path.starts_with("router.");
  if (kind == "moe") {
    return node.path.starts_with("router.") || node.path.starts_with("moe.") ||
           node.path.starts_with("shared.") || node.path == "mlp.out";
  }
  return kind == "layer" || kind == "model";
}

Mode ModeOf(const std::string& kind) {
  if (kind == "load") return Mode::kLoad;
  if (kind == "linear" || kind == "norm" || kind == "act") return Mode::kOps;
  if (kind == "collective") return Mode::kCollective;
  return Mode::kScope;
}

bool NeedsLayer(const std::string& kind) {
  return kind == "moe" || kind == "route" || kind == "attn" || kind == "layer";
}

Status PickNodes(CellSpec* spec, int64_t expert) {
  const Problem& problem = spec->problem;
  const std::string op = problem.Get("op");
  if (spec->mode == Mode::kLoad) return Ok();
  std::set<std::string> possible;
  for (const Node& node : spec->oracle->graph()) {
    if (!KindTakes(problem, node)) continue;
    if (problem.kind != "model" && spec->layer >= 0 && node.layer != spec->layer) continue;
    possible.insert(node.path);
    if (spec->mode == Mode::kOps || spec->mode == Mode::kCollective) {
      if (!OpMatches(node, op) || (expert >= 0 && node.expert != expert)) continue;
    }
    spec->nodes.push_back(&node);
  }
  if (spec->nodes.empty()) {
    return Error{fmt::format("{} op={} layer={}: the model has no such op there; it has {}",
                             problem.kind, op, problem.Get("layer"), fmt::join(possible, ", "))};
  }
  return Ok();
}

bool IsAttention(const Node& node) {
  return node.path.starts_with("attn.") || node.path == "input_norm" ||
         node.path == "residual_attn";
}

void PickSelection(CellSpec* spec, int64_t expert) {
  shard::Selection& selection = spec->selection;
  selection.layer = spec->layer;
  if (expert >= 0) selection.experts = {expert};
  if (spec->mode == Mode::kLoad) {
    const std::string op = spec->problem.Get("op");
    if (op == "attn") selection.mlp = false;
    if (op == "mlp") selection.attention = false;
  }
  if (spec->problem.kind == "layer" || spec->layer < 0 || spec->mode == Mode::kLoad) return;
  selection.attention = selection.mlp = false;
  for (const Node* node : spec->nodes) {
    (IsAttention(*node) ? selection.attention : selection.mlp) = true;
  }
  selection.routed_experts = std::any_of(spec->nodes.begin(), spec->nodes.end(),
                                         [](const Node* node) { return node->expert >= 0; });
}

Status CheckFamilies(const CellSpec& spec) {
  if ((spec.problem.kind == "moe" || spec.problem.kind == "route") &&
      !spec.config.is_moe(spec.layer)) {
    return Error{fmt::format("{} layer={}: that layer of {} has no experts", spec.problem.kind,
                             spec.layer, spec.model->name)};
  }
  return Ok();
}

// A load cell of another method than the checkpoint's: the whole model in that method.
Status ResolveConversion(CellSpec* spec, ModelStore* models) {
  const std::string method = spec->problem.Get("method");
  if (spec->mode != Mode::kLoad || method.empty() || method == spec->model->method) return Ok();
  auto converted = models->Convert(*spec->model, method);
  if (!converted) return converted.error();
  spec->converted = *converted;
  spec->config = spec->converted->config;
  spec->config_json = spec->converted->config_json;
  spec->weights = spec->converted->source.get();
  spec->oracle = nullptr;  // FillWeights completes it; to plan a load needs none
  spec->made_method_of = spec->converted->method_of;
  return Ok();
}

// The model's config with the problem's limit.
ModelConfig ConfigOf(const Problem& problem, const Model& model) {
  ModelConfig config = model.checkpoint->config();
  const std::string limit = problem.Get("limit");
  if (limit.empty()) return config;
  config.act_limit = std::numeric_limits<double>::infinity();
  if (limit != "inf") std::from_chars(limit.data(), limit.data() + limit.size(), config.act_limit);
  return config;
}

}  // namespace

Result<std::unique_ptr<CellSpec>> ResolveCell(const Problem& problem, ModelStore* models) {
  auto spec = std::make_unique<CellSpec>();
  spec->problem = problem;
  auto model = models->Get(problem.Get("model"));
  if (!model) return model.error();
  spec->model = *model;
  spec->oracle = spec->model->oracle.get();
  spec->weights = spec->model->checkpoint.get();
  spec->mode = ModeOf(problem.kind);
  spec->scope = problem.kind;
  spec->config = ConfigOf(problem, **model);
  spec->config_json = spec->model->checkpoint->config_json();
  if (spec->mode != Mode::kLoad && !spec->oracle->runs()) {
    return Error{fmt::format("{} model={}: of {} the oracle knows the parameters and not the ops; "
                             "kind load is for it",
                             problem.kind, spec->model->name, spec->config.architecture),
                 ErrorKind::kUnsupported};
  }
  if (auto status = ResolveConversion(spec.get(), models); !status) return status.error();
  const auto& config = spec->config;
  auto layer = ParseIndex(problem, "layer", config.layers);
  if (!layer) return layer.error();
  auto expert = ParseIndex(problem, "expert", std::max<int64_t>(config.experts, 1));
  if (!expert) return expert.error();
  spec->layer = problem.kind == "model" ? -1 : *layer;
  if (NeedsLayer(problem.kind) && spec->layer < 0) {
    if (config.layers != 1 && !problem.Has("layer")) {
      return Error{fmt::format("{} needs layer=, 0 to {}", problem.kind, config.layers - 1)};
    }
    return Error{
        fmt::format("{} layer=all: name one layer, 0 to {}", problem.kind, config.layers - 1)};
  }
  auto fill = ParseFill(problem.Get("fill"));
  if (!fill) return fill.error();
  spec->fill = *fill;
  spec->seed = problem.GetInt("seed");
  if (auto status = CheckKeys(problem); !status) return status.error();
  if (auto status = ResolveDegrees(spec.get()); !status) return status.error();
  if (auto status = ResolveEngine(spec.get()); !status) return status.error();
  if (auto status = CheckFamilies(*spec); !status) return status.error();
  if (auto status = PickNodes(spec.get(), *expert); !status) return status.error();
  for (auto step : {ResolveMethod, ResolveReduce}) {
    if (auto status = step(spec.get()); !status) return status.error();
  }
  PickSelection(spec.get(), *expert);
  for (auto step : {MakeSteps, CheckSteps}) {
    if (auto status = step(spec.get()); !status) return status.error();
  }
  return spec;
}

}  // namespace assay::run
