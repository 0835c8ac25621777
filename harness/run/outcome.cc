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
#include "harness/run/measures.h"

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

// The kernel that a cell asks for is the one of its method's weights; others of the cell (bf16
// beside int4 experts) take their own. Every op with such weights must have a record.
std::string OtherKernel(const CellSpec& spec, const abi::Outcome& outcome) {
  if (spec.mode == Mode::kLoad || spec.mode == Mode::kCollective) return "";
  const std::string wanted = spec.problem.Get("kernel");
  std::set<std::pair<std::string, int>> recorded;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    recorded.insert({record.tap, record.rank});
    if (wanted.empty() || record.layout.empty()) continue;
    const abi::DescribedKernel* kernel = spec.facts.FindKernel(record.kernel);
    const bool same_method = kernel == nullptr || kernel->method == spec.problem.Get("method");
    if (same_method && record.kernel != wanted) {
      return fmt::format("asked for kernel {}, {} ran for {}", wanted, record.kernel, record.tap);
    }
  }
  for (const auto& [key, value] : outcome.trace.taps) {
    const Node* node = spec.oracle->FindNode(key.tap);
    if (node == nullptr || node->op != reference::Op::kLinear || key.rank < 0) continue;
    if (recorded.count({key.tap, key.rank}) == 0 && recorded.count({key.tap, -1}) == 0) {
      return fmt::format("no record of what ran for {} on rank {}", key.tap, key.rank);
    }
  }
  return "";
}

// Whether what ran is what the cell asked for; the reason if not.
std::string Fallback(const CellSpec& spec, const abi::Outcome& outcome, const Executed& executed) {
  const std::string tier = spec.problem.Get("tier");
  if (!tier.empty() && executed.tier != tier) {
    return fmt::format("asked for tier {}, {} ran", tier,
                       executed.tier.empty() ? "nothing that was recorded" : executed.tier);
  }
  if (const std::string other = OtherKernel(spec, outcome); !other.empty()) return other;
  const std::string threads = spec.problem.Get("threads");
  if (!threads.empty() && spec.mode != Mode::kLoad && executed.threads != std::stoll(threads)) {
    return fmt::format("asked for {} threads, {} ran", threads, executed.threads);
  }
  const std::string layout = spec.problem.Get("layout");
  if (!layout.empty() && executed.layout != layout) {
    return fmt::format("asked for layout {}, {} ran", layout,
                       executed.layout.empty() ? "none that was recorded" : executed.layout);
  }
  const std::string act = spec.problem.Get("act");
  if (!act.empty() && executed.act != act && spec.mode != Mode::kLoad) {
    return fmt::format("asked for act {}, {} ran", act,
                       executed.act.empty() ? "none that was recorded" : executed.act);
  }
  return "";
}

Divergence DirtOf(const abi::Outcome& outcome) {
  Divergence divergence;
  divergence.cls = outcome.phase <= abi::Phase::kExport ? "loader" : "kernel";
  divergence.signature = {"buffer-rule-broken", outcome.message, "the rules are in harness/abi"};
  return divergence;
}

// What ran by the engine's own record against what it says of itself; empty if they agree.
std::string Unlisted(const CellSpec& spec, const abi::Outcome& outcome) {
  if (spec.facts.kernels.empty()) return "";
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (record.layout.empty()) continue;  // ops without a weight need not be listed
    const abi::DescribedKernel* kernel = spec.facts.FindKernel(record.kernel);
    if (kernel == nullptr) {
      return fmt::format("{} on rank {}: kernel {} ran, which describe() does not list", record.tap,
                         record.rank, record.kernel);
    }
    if (!kernel->layout.empty() && kernel->layout != record.layout) {
      return fmt::format("{} on rank {}: kernel {} ran on layout {}, describe() says {}",
                         record.tap, record.rank, record.kernel, record.layout, kernel->layout);
    }
    if (!kernel->act.empty() && !record.act.empty() && kernel->act != record.act) {
      return fmt::format("{} on rank {}: kernel {} ran on act {}, describe() says {}", record.tap,
                         record.rank, record.kernel, record.act, kernel->act);
    }
    if (!kernel->tier.empty() && kernel->tier != record.tier) {
      return fmt::format("{} on rank {}: kernel {} ran as tier {}, describe() says {}", record.tap,
                         record.rank, record.kernel, record.tier, kernel->tier);
    }
  }
  return "";
}

void ReadUnlisted(const std::string& text, CellResult* result) {
  result->verdict = Verdict::kFail;
  result->reason = text;
  Divergence divergence;
  divergence.cls = "selection";
  divergence.signature = {"unlisted-kernel", text, "executed records against describe()"};
  result->divergences.push_back(std::move(divergence));
}

// Shards that can be compared. One under a tag that nobody here knows is not read back; one whose
// size is not its own layout's is a finding.
std::vector<ShardKey> Readable(const abi::Outcome& outcome, const std::vector<ShardKey>& expected,
                               CellResult* result) {
  std::vector<ShardKey> readable;
  for (const ShardKey& key : expected) {
    const auto found = outcome.trace.shards.find(key);
    if (found == outcome.trace.shards.end()) {
      readable.push_back(key);
      continue;
    }
    if (!CanRead(key.component, found->second.layout)) continue;
    const std::string wrong = WrongSize(key.component, found->second);
    if (wrong.empty()) {
      readable.push_back(key);
      continue;
    }
    Divergence divergence;
    divergence.cls = "layout";
    divergence.tensor = key.component;
    divergence.rank = key.rank;
    divergence.signature = {"wrong-shape", "the shard's size is not its layout's", wrong};
    result->divergences.push_back(std::move(divergence));
  }
  return readable;
}

// What the engine was asked for and did not give back: said beside a pass, which speaks of the
// rest. Not of what it was given (forced routing), nor of experts: no token may have gone to them.
std::string LeftOut(const CellSpec& spec, const std::vector<OpJudgement>& judgements, size_t shards,
                    size_t compared) {
  std::set<std::string> taps;
  for (const OpJudgement& judged : judgements) {
    const Node& node = *judged.node;
    if (judged.judged || node.expert >= 0) continue;
    if (spec.given.count({judged.step, node.tap, -1}) == 0) taps.insert(node.tap);
  }
  std::vector<std::string> parts;
  if (!taps.empty()) {
    parts.push_back(fmt::format("{} ops, the first {}", taps.size(), *taps.begin()));
  }
  if (compared < shards) parts.push_back(fmt::format("{} of {} shards", shards - compared, shards));
  return parts.empty() ? "" : fmt::format("not given back: {}", fmt::join(parts, "; "));
}

std::string Sentence(const Divergence& divergence) {
  if (divergence.tap.empty() && divergence.tensor.empty()) {
    return fmt::format("{}: {}", divergence.cls, divergence.signature.text);
  }
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
  const std::vector<ShardKey> readable = Readable(outcome, expected, result);
  if (!result->divergences.empty()) {
    result->verdict = Verdict::kFail;
    result->reason = Sentence(result->divergences.front());
    return;
  }
  auto shards = locate::CompareShards(*spec.oracle, outcome.trace, readable, request.degrees,
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
    // A broken rule comes first: what was computed from other memory is wrong in any way.
    if (outcome.ending == abi::Ending::kDirty) {
      result->divergences.insert(result->divergences.begin(), DirtOf(outcome));
    }
    result->reason = result->divergences.empty() ? "failed; no divergence could be located"
                                                 : Sentence(result->divergences.front());
    return;
  }
  if (outcome.ending == abi::Ending::kDirty) {
    result->verdict = Verdict::kFail;
    result->reason = outcome.message;
    result->divergences.push_back(DirtOf(outcome));
    return;
  }
  if (const std::string reason = Fallback(spec, outcome, *result->executed); !reason.empty()) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = reason;
    return;
  }
  if (const std::string unlisted = Unlisted(spec, outcome); !unlisted.empty()) {
    ReadUnlisted(unlisted, result);
    return;
  }
  if (spec.mode == Mode::kLoad ? shards->compared == 0 : judged_ops == 0) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = "the engine gave back nothing that could be judged";
    return;
  }
  if (spec.mode == Mode::kLoad && static_cast<size_t>(shards->compared) < expected.size()) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = fmt::format("{} of {} shards were given back, and those are right",
                                 shards->compared, expected.size());
    return;
  }
  const std::string mistrust = spec.mode == Mode::kLoad ? "" : judge::Mistrust(*judgements, output);
  result->verdict = mistrust.empty() ? Verdict::kPass : Verdict::kMistrusted;
  result->reason = !mistrust.empty() ? mistrust
                                     : LeftOut(spec, *judgements, expected.size(),
                                               static_cast<size_t>(shards->compared));
}

}  // namespace assay::run
