// What is wrong with a problem string before anything of it is run.
#include <fmt/format.h>

#include <algorithm>

#include "harness/run/resolve_steps.h"

namespace assay::run {
namespace {

using reference::Node;
using reference::Op;

// More ranks or threads than any engine here takes; a cell has data for each of them.
constexpr int kMostParts = 1024;

Status CheckParts(const Problem& problem) {
  for (const char* key : {"tp", "attn_tp", "dp", "ep", "threads"}) {
    if (problem.Get(key).empty() || problem.GetInt(key) <= kMostParts) continue;
    return Error{fmt::format("{}={}: allowed are 1 to {}", key, problem.Get(key), kMostParts)};
  }
  return Ok();
}

// Keys that change what is computed and that nothing here computes: passing over them would pass a
// cell that was never run.
Status CheckBuilt(const Problem& problem) {
  for (const char* key : {"beta", "linear_beta", "chunk", "prefix", "prefill_threshold"}) {
    if (!problem.Has(key)) continue;
    return Error{fmt::format("{}={}: not built yet", key, problem.Get(key)),
                 ErrorKind::kUnsupported};
  }
  // How parameters are divided is the loader's; nothing is computed on such shards yet.
  const bool loads = problem.kind == "load";
  for (const auto& [key, only] :
       {std::pair<const char*, const char*>{"pools", "1"}, {"graph", "eager"}}) {
    if (problem.Get(key) == only) continue;
    return Error{fmt::format("{}={}: only {} is built so far", key, problem.Get(key), only),
                 ErrorKind::kUnsupported};
  }
  for (const auto& [key, only] : {std::pair<const char*, const char*>{"ep", "1"},
                                  {"dp", "1"},
                                  {"split", "even"},
                                  {"placement", "cpu"},
                                  {"lm_head", "tp"},
                                  {"experts", ""}}) {
    if (loads || problem.Get(key) == only) continue;
    return Error{fmt::format("{} {}={}: built so far for kind load alone", problem.kind, key,
                             problem.Get(key)),
                 ErrorKind::kUnsupported};
  }
  if (problem.kind == "collective" && problem.Get("fill") == "real") {
    return Error{
        "collective fill=real: not built yet; allowed are exact, normal, lognormal, extreme",
        ErrorKind::kUnsupported};
  }
  if (problem.kind == "lora") return Error{"kind lora is not built yet", ErrorKind::kUnsupported};
  return Ok();
}

bool IsOneOf(const std::string& kind, std::initializer_list<const char*> kinds) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

// A key that the kind has no use for is a mistake in the string, not something to pass over.
Status CheckUse(const Problem& problem) {
  const std::string& kind = problem.kind;
  const bool one_op = IsOneOf(kind, {"linear", "norm", "act"});
  const auto given = [&](const char* key) { return problem.Get(key) != "all"; };
  if (kind == "load" && given("op") && !IsOneOf(problem.Get("op"), {"attn", "mlp"})) {
    return Error{fmt::format("load op={}: what is loaded alone is attn or mlp, each with its norm",
                             problem.Get("op"))};
  }
  if (given("op") && !one_op && kind != "collective" && kind != "load") {
    return Error{fmt::format("{} op={}: op is for load, linear, norm, act and collective", kind,
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
  if (problem.Has("collective") && kind != "collective") {
    return Error{fmt::format("{} collective={}: that key is for kind collective", kind,
                             problem.Get("collective"))};
  }
  if (problem.Has("limit") && !IsOneOf(kind, {"act", "moe", "layer", "model"})) {
    return Error{fmt::format("{} limit={}: limit is for act, moe, layer and model", kind,
                             problem.Get("limit"))};
  }
  if (problem.Get("reload") == "1" && kind == "collective") {
    return Error{"collective reload=1: a collective loads nothing"};
  }
  if (problem.Has("reduce") && problem.Get("reduce") != "sequential:fp32" &&
      !IsOneOf(kind, {"collective", "attn", "moe", "layer", "model"})) {
    return Error{fmt::format("{} reduce={}: reduce is for collective, attn, moe, layer and model",
                             kind, problem.Get("reduce"))};
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
    const double share = routed ? static_cast<double>(spec.config.top_k) /
                                      static_cast<double>(std::max<int64_t>(spec.config.experts, 1))
                                : 1.0;
    values += rows * found->second * share;
  }
  return spec.mode == Mode::kCollective ? values * spec.degrees.tp : values;
}

}  // namespace

Status CheckKeys(const Problem& problem) {
  for (auto check : {CheckParts, CheckUse, CheckBuilt}) {
    if (auto status = check(problem); !status) return status;
  }
  return Ok();
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
  const int64_t positions = spec->config.max_position;
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

}  // namespace assay::run
