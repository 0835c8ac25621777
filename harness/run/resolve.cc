// Problem -> CellSpec without data: model, engine, tier, nodes and selection.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "harness/run/spec.h"

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

bool KindTakes(const std::string& kind, const Node& node) {
  if (kind == "linear") return node.op == Op::kLinear;
  if (kind == "norm") return node.op == Op::kRmsNorm || node.op == Op::kHeadNorm;
  if (kind == "act") return node.op == Op::kActivation;
  if (kind == "collective") return node.op == Op::kReduce;
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
    if (!KindTakes(problem.kind, node)) continue;
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
  if (spec->problem.kind == "layer" || spec->layer < 0 || spec->mode == Mode::kLoad) return;
  selection.attention = selection.mlp = false;
  for (const Node* node : spec->nodes) {
    (IsAttention(*node) ? selection.attention : selection.mlp) = true;
  }
}

// Methods of the weights that the cell's linear ops take.
std::string MethodOf(const CellSpec& spec) {
  std::string method = "bf16";
  for (const Node* node : spec.nodes) {
    const auto found = spec.model->method_of.find(node->weight);
    if (found != spec.model->method_of.end() && found->second != "bf16") method = found->second;
  }
  return spec.mode == Mode::kLoad ? spec.model->method : method;
}

Status ResolveEngine(CellSpec* spec) {
  Problem& problem = spec->problem;
  auto engine = FindEngine(problem.Get("engine"), problem.Get("fault"));
  if (!engine) return engine.error();
  spec->engine = std::move(*engine);
  auto facts = Describe(spec->engine);
  if (!facts) return facts.error();
  spec->facts = std::move(*facts);
  if (problem.Get("tier").empty()) {
    std::string best = "scalar";
    for (const std::string& tier : NativeTiers()) {
      if (!abi::MayHave(spec->facts.tiers, tier)) continue;
      best = tier;
      break;
    }
    problem.keys["tier"] = best;
  }
  return Ok();
}

Status ResolveMethod(CellSpec* spec) {
  const std::string method = MethodOf(*spec);
  Problem& problem = spec->problem;
  if (problem.Has("method") && problem.Get("method") != method) {
    return Error{
        fmt::format("method={}: the weights of this cell are stored as {}; a checkpoint of "
                    "another method is named by model=",
                    problem.Get("method"), method)};
  }
  problem.keys["method"] = method;
  return Ok();
}

Status ResolveDegrees(CellSpec* spec) {
  spec->degrees.tp = spec->problem.GetInt("tp");
  spec->degrees.attn_tp =
      spec->problem.Get("attn_tp").empty() ? 0 : spec->problem.GetInt("attn_tp");
  for (const char* key : {"ep", "dp", "pools"}) {
    if (spec->problem.GetInt(key) != 1) {
      return Error{fmt::format("{}={}: only 1 is built so far", key, spec->problem.Get(key)),
                   ErrorKind::kUnsupported};
    }
  }
  for (const auto& [key, only] : {std::pair<const char*, const char*>{"split", "even"},
                                  {"placement", "cpu"},
                                  {"reduce", "sequential:fp32"},
                                  {"graph", "eager"},
                                  {"lm_head", "tp"}}) {
    const std::string value = spec->problem.Get(key);
    if (!value.empty() && value != only &&
        !(std::string_view(key) == "reduce" && value == "sequential")) {
      return Error{fmt::format("{}={}: only {} is built so far", key, value, only),
                   ErrorKind::kUnsupported};
    }
  }
  return Ok();
}

Status CheckFamilies(const CellSpec& spec) {
  if (spec.problem.kind == "lora") {
    return Error{"kind lora is not built yet", ErrorKind::kUnsupported};
  }
  const auto& config = spec.model->checkpoint->config();
  if ((spec.problem.kind == "moe" || spec.problem.kind == "route") && !config.is_moe(spec.layer)) {
    return Error{fmt::format("{} layer={}: that layer of {} has no experts", spec.problem.kind,
                             spec.layer, spec.model->name)};
  }
  return Ok();
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
  const auto& config = spec->model->checkpoint->config();
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
  for (auto step : {ResolveDegrees, ResolveEngine}) {
    if (auto status = step(spec.get()); !status) return status.error();
  }
  if (auto status = CheckFamilies(*spec); !status) return status.error();
  if (auto status = PickNodes(spec.get(), *expert); !status) return status.error();
  if (auto status = ResolveMethod(spec.get()); !status) return status.error();
  PickSelection(spec.get(), *expert);
  return spec;
}

}  // namespace assay::run
