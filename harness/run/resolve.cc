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
  selection.routed_experts = std::any_of(spec->nodes.begin(), spec->nodes.end(),
                                         [](const Node* node) { return node->expert >= 0; });
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

// group= states the checkpoint's own, as method= does; it does not choose.
Status CheckGroup(const CellSpec& spec, const std::string& method) {
  const std::string group = spec.problem.Get("group");
  if (group.empty()) return Ok();
  const size_t at = method.rfind("-g");
  const std::string own = at == std::string::npos ? "" : method.substr(at + 2);
  if (group == own) return Ok();
  return Error{fmt::format("group={}: the weights of this cell are stored as {}{}", group, method,
                           own.empty() ? ", without groups" : "")};
}

// The one kernel that the engine lists for this cell's method and tier; empty where the cell has no
// linear op, or the engine lists none or several: then it is the engine's own choice.
std::string OwnKernel(const CellSpec& spec) {
  const bool linear = std::any_of(spec.nodes.begin(), spec.nodes.end(),
                                  [](const Node* node) { return node->op == Op::kLinear; });
  std::string name;
  for (const abi::DescribedKernel& kernel : spec.facts.kernels) {
    if (!linear || kernel.op != "linear" || kernel.method != spec.problem.Get("method") ||
        kernel.tier != spec.problem.Get("tier")) {
      continue;
    }
    if (!name.empty()) return "";
    name = kernel.name;
  }
  return name;
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
  const std::string kernel = OwnKernel(*spec);
  if (!problem.Has("kernel") && !kernel.empty()) problem.keys["kernel"] = kernel;
  return CheckGroup(*spec, method);
}

// More ranks or threads than any engine here takes; a cell has data for each of them.
constexpr int kMostParts = 1024;

Status CheckParts(const Problem& problem) {
  for (const char* key : {"tp", "attn_tp", "threads"}) {
    if (problem.Get(key).empty() || problem.GetInt(key) <= kMostParts) continue;
    return Error{fmt::format("{}={}: allowed are 1 to {}", key, problem.Get(key), kMostParts)};
  }
  return Ok();
}

// Keys that change what is computed and that nothing here computes: passing over them would pass a
// cell that was never run.
Status CheckBuilt(const Problem& problem) {
  for (const char* key : {"limit", "beta", "linear_beta", "chunk", "prefix", "prefill_threshold"}) {
    if (!problem.Has(key)) continue;
    return Error{fmt::format("{}={}: not built yet", key, problem.Get(key)),
                 ErrorKind::kUnsupported};
  }
  if (problem.kind == "collective" && problem.Get("fill") == "real") {
    return Error{
        "collective fill=real: not built yet; allowed are exact, normal, lognormal, extreme",
        ErrorKind::kUnsupported};
  }
  return Ok();
}

// A key that the kind has no use for is a mistake in the string, not something to pass over.
Status CheckUse(const Problem& problem) {
  const std::string& kind = problem.kind;
  const bool one_op = ModeOf(kind) == Mode::kOps;
  const auto given = [&](const char* key) { return problem.Get(key) != "all"; };
  if (given("op") && !one_op && kind != "collective") {
    return Error{fmt::format("{} op={}: op is for linear, norm, act and collective", kind,
                             problem.Get("op"))};
  }
  if (given("expert") && !one_op && kind != "load") {
    return Error{fmt::format("{} expert={}: expert is for load, linear, norm and act", kind,
                             problem.Get("expert"))};
  }
  if (kind == "model" && given("layer")) {
    return Error{fmt::format("model layer={}: a model cell has all layers; kind layer has one",
                             problem.Get("layer"))};
  }
  return Ok();
}

Status ResolveDegrees(CellSpec* spec) {
  for (auto check : {CheckParts, CheckUse, CheckBuilt}) {
    if (auto status = check(spec->problem); !status) return status;
  }
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

// Values that a cell's taps hold at most: some 64 bytes each, of both passes, the oracle's doubles
// and its bounds together.
constexpr double kMostValues = 1 << 27;

// Columns of a tap's whole value; of scores, heads times keys.
Result<double> ColumnsOf(const CellSpec& spec, const Node& node, double keys) {
  auto columns = spec.oracle->TapColumns(node, {});
  if (!columns) return columns.error();
  return static_cast<double>(columns->size()) * (node.op == Op::kScores ? keys : 1);
}

Result<double> ValuesOf(const CellSpec& spec, double rows) {
  const auto& config = spec.model->checkpoint->config();
  // Experts of a layer are alike, and many.
  std::map<std::pair<int64_t, std::string>, double> known;
  double values = 0;
  for (const Node* node : spec.nodes) {
    const auto key = std::make_pair(node->layer, node->path);
    auto found = known.find(key);
    if (found == known.end()) {
      auto columns = ColumnsOf(spec, *node, rows);
      if (!columns) return columns.error();
      double all = *columns;
      for (const std::string& tap : node->inputs) {
        const Node* input = spec.mode == Mode::kOps ? spec.oracle->FindNode(tap) : nullptr;
        if (input == nullptr) continue;
        auto more = ColumnsOf(spec, *input, rows);
        if (!more) return more.error();
        all += *more;
      }
      found = known.emplace(key, all).first;
    }
    // In a scope each token goes to top_k experts; a single op of an expert has all of them.
    const bool routed = node->expert >= 0 && spec.mode == Mode::kScope;
    const double share = routed ? static_cast<double>(config.top_k) /
                                      static_cast<double>(std::max<int64_t>(config.experts, 1))
                                : 1.0;
    values += rows * found->second * share;
  }
  return spec.mode == Mode::kCollective ? values * spec.degrees.tp : values;
}

// Whether so many tokens can be run: positions that the model has, memory for the values.
Status CheckSteps(CellSpec* spec) {
  const Problem& problem = spec->problem;
  const std::string words =
      problem.Has("prompt") ? "prompt=" + problem.Get("prompt") : "tokens=" + problem.Get("tokens");
  if (spec->mode != Mode::kScope && spec->steps.size() > 1) {
    return Error{
        fmt::format("{}: a decode needs a scope with keys and values (attn, layer, model)", words)};
  }
  int64_t total = 0;
  for (const reference::Step& step : spec->steps) total += static_cast<int64_t>(step.tokens.size());
  const int64_t positions = spec->model->checkpoint->config().max_position;
  const bool attends = std::any_of(spec->nodes.begin(), spec->nodes.end(), [](const Node* node) {
    return node->op == Op::kScores || node->op == Op::kRope;
  });
  if (attends && positions > 0 && total > positions) {
    return Error{fmt::format("{}: {} tokens; the model has {} positions", words, total, positions)};
  }
  auto values = ValuesOf(*spec, static_cast<double>(total));
  if (!values) return values.error();
  if (*values > kMostValues) {
    return Error{
        fmt::format("{}: the taps of this cell would hold {:.1e} values; allowed are {:.1e}: "
                    "fewer tokens, or one layer or op",
                    words, *values, kMostValues)};
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
  for (auto step : {MakeSteps, CheckSteps}) {
    if (auto status = step(spec.get()); !status) return status.error();
  }
  return spec;
}

}  // namespace assay::run
