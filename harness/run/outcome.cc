#include "harness/run/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "harness/judge/judge.h"
#include "harness/locate/locate.h"
#include "harness/run/layouts_bridge.h"

namespace assay::run {
namespace {

using judge::OpJudgement;
using reference::Node;

std::string Text(const char* chars, size_t size) {
  return std::string(chars, strnlen(chars, size));
}

// The engine refused a configuration that the plan says is legal.
void ReadRefusal(const CellSpec& spec, const abi::Outcome& outcome,
                 const std::vector<shard::Component>& components, CellResult* result) {
  result->verdict = Verdict::kFail;
  result->reason = fmt::format("the engine refused a legal configuration: {}", outcome.message);
  locate::ShapeError error;
  error.message = outcome.message;
  error.tensor = Text(outcome.error.tensor, sizeof(outcome.error.tensor));
  error.axis = Text(outcome.error.axis, sizeof(outcome.error.axis));
  error.got_unit = Text(outcome.error.got_unit, sizeof(outcome.error.got_unit));
  error.expected_unit = Text(outcome.error.expected_unit, sizeof(outcome.error.expected_unit));
  error.got = outcome.error.got;
  error.expected = outcome.error.expected;
  std::vector<std::string> names;
  for (const shard::Component& component : components) names.push_back(component.name);
  auto explained = locate::ExplainRefusal(*spec.oracle, error, names);
  if (explained) {
    result->divergences.push_back(std::move(*explained));
    return;
  }
  Divergence divergence;
  divergence.cls = outcome.phase == abi::Phase::kOpen ? "selection" : "loader";
  divergence.signature = {"refused", "a legal configuration was refused", outcome.message};
  result->divergences.push_back(divergence);
}

void ReadCrash(const abi::Outcome& outcome, CellResult* result) {
  result->verdict = Verdict::kFail;
  const bool loading = outcome.phase <= abi::Phase::kExport;
  result->reason =
      fmt::format("the engine died while {}: {}", abi::NameOf(outcome.phase), outcome.message);
  Divergence divergence;
  divergence.cls = loading ? "loader" : "kernel";
  divergence.signature = {
      "crash",
      outcome.signal != 0
          ? fmt::format("died of signal {} ({})", outcome.signal, strsignal(outcome.signal))
          : "ended the process",
      outcome.message};
  result->divergences.push_back(divergence);
}

// Columns of the executed record that several ops can differ in.
std::string Distinct(const std::set<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

Executed ReadExecuted(const CellSpec& spec, const abi::Outcome& outcome) {
  Executed executed;
  std::set<std::string> kernels, tiers, layouts, acts;
  std::map<int, std::set<std::string>> by_rank;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (!record.layout.empty()) {
      kernels.insert(record.kernel);
      layouts.insert(record.layout);
      acts.insert(record.act);
    }
    tiers.insert(record.tier);
    executed.threads = std::max<int64_t>(executed.threads, record.threads);
    by_rank[record.rank].insert(record.tap + " " + record.kernel + " " + record.tier);
  }
  if (kernels.empty()) {
    for (const ExecutedRecord& record : outcome.trace.executed) kernels.insert(record.kernel);
  }
  if (spec.mode == Mode::kLoad) {
    kernels.insert("loader");
    tiers.insert(spec.problem.Get("tier"));
    for (const auto& [key, shard] : outcome.trace.shards) layouts.insert(shard.layout);
  }
  executed.kernel = Distinct(kernels);
  executed.tier = Distinct(tiers);
  executed.layout = Distinct(layouts);
  executed.act = Distinct(acts);
  executed.how = "hardware";
  executed.engine = outcome.engine_name + "@" + outcome.engine_revision;
  executed.tp = spec.degrees.tp;
  const auto first = by_rank.find(0);
  for (const auto& [rank, ran] : by_rank) {
    if (rank > 0 && first != by_rank.end() && ran != first->second) {
      executed.ranks_differ.push_back(rank);
    }
  }
  return executed;
}

judge::JudgeRequest RequestOf(const CellSpec& spec, const abi::Outcome& outcome) {
  judge::JudgeRequest request;
  request.oracle = spec.oracle;
  request.trace = &outcome.trace;
  request.contract = *spec.facts.contract;
  for (const abi::DescribedKernel& entry : spec.facts.kernels) {
    request.kernels.push_back({entry.name, entry.op, entry.method, entry.tier, entry.layout,
                               entry.act, entry.arithmetic_class, entry.lanes, entry.extra});
  }
  request.degrees = spec.parallel();
  request.steps = spec.steps;
  request.nodes = spec.nodes;
  request.given = spec.given;
  request.routing_forced = spec.problem.Get("routing") == "forced";
  return request;
}

// The layer's residual input, all steps' rows one after the other.
reference::Tensor ResidualInput(const CellSpec& spec) {
  reference::Tensor input;
  for (const auto& [key, value] : spec.given) {
    if (key.tap.ends_with("router.ids") || key.tap.ends_with("router.weights")) continue;
    const reference::Tensor part = judge::ToTensor(value);
    if (input.shape.empty()) {
      input = part;
    } else {
      input.shape[0] += part.shape[0];
      input.data.insert(input.data.end(), part.data.begin(), part.data.end());
    }
  }
  return input;
}

// The oracle's own chain under the contract, for accumulated error. Empty where the scope has no
// chain of its own: single ops, and blocks whose inputs come in several steps.
reference::Trace ChainOf(const CellSpec& spec) {
  const bool layer = spec.scope == "layer", model = spec.scope == "model";
  if (spec.mode != Mode::kScope || (!layer && !model && spec.steps.size() > 1)) return {};
  reference::RunRequest request;
  request.steps = spec.steps;
  request.mla_absorbed = spec.facts.contract->mla_absorbed;
  reference::Tensor input;
  if (layer) {
    input = ResidualInput(spec);
    request.input = &input;
    request.first_layer = spec.layer;
  }
  if (spec.layer >= 0) request.last_layer = spec.layer;
  for (const auto& [key, value] : spec.given) {
    const bool routing = key.tap.ends_with("router.ids") || key.tap.ends_with("router.weights");
    if (key.step == 0 && (routing ? spec.steps.size() == 1 : !layer)) {
      request.given[key.tap] = judge::ToTensor(value);
    }
  }
  for (const Node* node : spec.nodes) {
    // Experts' own taps have no fixed rows: routing may differ.
    if (node->expert < 0) request.wanted.push_back(node->tap);
  }
  auto traced = spec.oracle->Run(request, *spec.facts.contract);
  return traced ? std::move(*traced) : reference::Trace{};
}

// The worst rank and step of each op, and its accumulated error against the oracle's own chain.
void AddOpRows(const CellSpec& spec, const abi::Outcome& outcome,
               const std::vector<OpJudgement>& judgements, const reference::Trace& chain,
               CellResult* result) {
  std::map<std::string, OpRow> rows;
  std::vector<std::string> order;
  for (const OpJudgement& judged : judgements) {
    if (!judged.judged) continue;
    auto [at, added] = rows.try_emplace(judged.node->tap);
    if (added) order.push_back(judged.node->tap);
    OpRow& row = at->second;
    if (!added && row.local.value_or(0) >= judged.max_ratio) continue;
    row.tap =
        judged.rank > 0 ? fmt::format("{}@r{}", judged.node->tap, judged.rank) : judged.node->tap;
    row.step = judged.step;
    row.local = judged.max_ratio;
    row.cosine = judged.cosine;
    row.rel_l2 = judged.rel_l2;
  }
  for (const std::string& tap : order) {
    OpRow& row = rows[tap];
    const Node* node = spec.oracle->FindNode(tap);
    if (!chain.empty() && node != nullptr) {
      const auto& step = chain[static_cast<size_t>(row.step)];
      const auto found = step.find(tap);
      auto joined = judge::JoinRanks(*spec.oracle, *node, outcome.trace, spec.parallel(), row.step);
      if (found != step.end() && joined && joined->data.size() == found->second.data.size()) {
        row.accumulated = judge::CompareWhole(found->second, *joined).rel_l2;
      }
    }
    result->ops.push_back(row);
  }
}

// What other harnesses gate on: shown beside ours, never decisive.
void AddUsualGates(const reference::Tensor& oracle, const reference::Tensor& kernel,
                   Metrics* metrics) {
  constexpr double kAllclose = 1e-2;  // theirs, absolute and relative
  double difference = 0, value = 0, squared_difference = 0, squared_value = 0, excess = 0;
  for (size_t i = 0; i < oracle.data.size(); ++i) {
    const double d = std::abs(kernel.data[i] - oracle.data[i]);
    const double y = std::abs(oracle.data[i]);
    difference += d;
    value += y;
    squared_difference += d * d;
    squared_value += y * y;
    excess = std::max(excess, d / (kAllclose + kAllclose * y));
  }
  if (value > 0) {
    metrics->mean_ratio = difference / value;
    metrics->nmse = squared_difference / squared_value;
  }
  metrics->allclose_excess = excess;
}

reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<OpJudgement>& judgements,
                                 const reference::Trace& chain, CellResult* result) {
  Metrics& metrics = result->metrics;
  const OpJudgement* worst = nullptr;
  int64_t ambiguous = 0;
  bool exact = !judgements.empty(), bitwise = !judgements.empty();
  for (const OpJudgement& judged : judgements) {
    if (!judged.judged) continue;
    ambiguous += judged.ambiguous;
    exact &= judged.mode == "exact" || judged.mode == "discrete";
    bitwise &= judged.mode != "bounded";
    if (worst == nullptr || judged.max_ratio > worst->max_ratio) worst = &judged;
  }
  result->mode = exact ? "exact" : bitwise ? "bitwise" : "bounded";
  metrics.ambiguous = ambiguous;
  if (worst == nullptr) {
    result->mode = spec.mode == Mode::kLoad ? "bitwise" : "";
    return {};
  }
  metrics.max_ratio = worst->max_ratio;
  metrics.tolerance = worst->tolerance.Facts();
  metrics.condition = worst->condition;
  metrics.three_way = worst->three_way;
  metrics.cosine = worst->cosine;
  metrics.rel_l2 = worst->rel_l2;
  metrics.max_abs = worst->max_abs;
  const Node* last = spec.nodes.back();
  const int step = static_cast<int>(spec.steps.size()) - 1;
  auto joined = judge::JoinRanks(*spec.oracle, *last, outcome.trace, spec.parallel(), step);
  if (!joined) return {};
  if (!chain.empty()) {
    const auto found = chain[static_cast<size_t>(step)].find(last->tap);
    if (found != chain[static_cast<size_t>(step)].end() &&
        found->second.data.size() == joined->data.size()) {
      const Metrics whole = judge::CompareWhole(found->second, *joined);
      metrics.cosine = whole.cosine;
      metrics.rel_l2 = whole.rel_l2;
      metrics.max_abs = whole.max_abs;
      AddUsualGates(found->second, *joined, &metrics);
      if (last->tap == "logits") judge::AddLogitMetrics(found->second, *joined, &metrics);
    }
  }
  return std::move(*joined);
}

// Whether what ran is what the cell asked for; the reason if not.
std::string Fallback(const CellSpec& spec, const Executed& executed) {
  const std::string tier = spec.problem.Get("tier");
  if (!tier.empty() && executed.tier != tier) {
    return fmt::format("asked for tier {}, {} ran", tier,
                       executed.tier.empty() ? "nothing that was recorded" : executed.tier);
  }
  const std::string kernel = spec.problem.Get("kernel");
  if (!kernel.empty() && executed.kernel != kernel && spec.mode != Mode::kLoad) {
    return fmt::format("asked for kernel {}, {} ran", kernel, executed.kernel);
  }
  return "";
}

void ReadDirt(const abi::Outcome& outcome, CellResult* result) {
  result->verdict = Verdict::kFail;
  result->reason = outcome.message;
  Divergence divergence;
  divergence.cls = outcome.phase <= abi::Phase::kExport ? "loader" : "kernel";
  divergence.signature = {"buffer-rule-broken", "a rule about buffers was broken", outcome.message};
  result->divergences.push_back(divergence);
}

std::string Sentence(const Divergence& divergence) {
  std::string where = divergence.tap.empty() ? divergence.tensor : divergence.tap;
  if (divergence.rank) where += fmt::format(" on rank {}", *divergence.rank);
  return fmt::format("{}: {}: {}", where, divergence.cls, divergence.signature.text);
}

}  // namespace

void ReadEnding(const CellSpec& spec, const abi::Outcome& outcome,
                const std::vector<shard::Component>& components, CellResult* result) {
  switch (outcome.ending) {
    case abi::Ending::kUnsupported:
      result->verdict = Verdict::kNotExecuted;
      result->reason = outcome.message;
      return;
    case abi::Ending::kRefused:
      ReadRefusal(spec, outcome, components, result);
      return;
    case abi::Ending::kCrashed:
      ReadCrash(outcome, result);
      return;
    case abi::Ending::kFailed: {
      result->verdict = Verdict::kFail;
      result->reason = fmt::format("the engine failed: {}", outcome.message);
      Divergence divergence;
      divergence.cls = outcome.phase <= abi::Phase::kExport ? "loader" : "kernel";
      divergence.tensor = Text(outcome.error.tensor, sizeof(outcome.error.tensor));
      divergence.signature = {"engine-error", "the engine reported an error", outcome.message};
      result->divergences.push_back(divergence);
      return;
    }
    default:
      result->verdict = Verdict::kInfra;
      result->reason = outcome.message;
  }
}

void JudgeOutcome(const CellSpec& spec, const abi::Outcome& outcome,
                  const std::vector<ShardKey>& expected, CellResult* result) {
  result->executed = ReadExecuted(spec, outcome);
  const judge::JudgeRequest request = RequestOf(spec, outcome);
  auto judgements = judge::JudgeTrace(request);
  const auto tags = [&spec](const std::string& component) {
    const auto found = spec.model->method_of.find(ParameterOf(component));
    return TagsFor(component, found == spec.model->method_of.end() ? "bf16" : found->second);
  };
  auto shards = locate::CompareShards(*spec.oracle, outcome.trace, expected, request.degrees,
                                      UnpackShard, tags);
  if (!judgements || !shards) {
    result->verdict = Verdict::kInfra;
    result->reason = !judgements ? judgements.error().message : shards.error().message;
    return;
  }
  const reference::Trace chain = ChainOf(spec);
  const reference::Tensor output = AddCellMetrics(spec, outcome, *judgements, chain, result);
  const bool wrong_op = std::any_of(judgements->begin(), judgements->end(),
                                    [](const OpJudgement& judged) { return !judged.pass; });
  const int64_t judged_ops = std::count_if(judgements->begin(), judgements->end(),
                                           [](const OpJudgement& judged) { return judged.judged; });
  if (wrong_op || !shards->findings.empty()) {
    result->verdict = Verdict::kFail;
    AddOpRows(spec, outcome, *judgements, chain, result);
    locate::LocateRequest where{request, &*judgements, &*shards};
    auto divergences = locate::Locate(where);
    if (divergences) result->divergences = std::move(*divergences);
    result->reason = result->divergences.empty() ? "failed; no divergence could be located"
                                                 : Sentence(result->divergences.front());
    return;
  }
  if (outcome.ending == abi::Ending::kDirty) {
    ReadDirt(outcome, result);
    return;
  }
  if (const std::string reason = Fallback(spec, *result->executed); !reason.empty()) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = reason;
    return;
  }
  if (spec.mode == Mode::kLoad ? shards->compared == 0 : judged_ops == 0) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = "the engine gave back nothing that could be judged";
    return;
  }
  const std::string mistrust = spec.mode == Mode::kLoad ? "" : judge::Mistrust(*judgements, output);
  result->verdict = mistrust.empty() ? Verdict::kPass : Verdict::kMistrusted;
  result->reason = mistrust;
}

}  // namespace assay::run
