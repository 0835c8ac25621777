#include "harness/run/outcome.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "harness/judge/judge.h"
#include "harness/locate/locate.h"
#include "harness/run/collective.h"
#include "harness/run/executed.h"
#include "harness/run/layouts_bridge.h"
#include "harness/run/measures.h"
#include "harness/run/selection.h"

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

Divergence DirtOf(const abi::Outcome& outcome) {
  Divergence divergence;
  divergence.cls = outcome.phase <= abi::Phase::kExport ? "loader" : "kernel";
  divergence.signature = {"buffer-rule-broken", outcome.message, "the rules are in harness/abi"};
  return divergence;
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
std::vector<ShardKey> Readable(const ShardReader& reader, const abi::Outcome& outcome,
                               const std::vector<ShardKey>& expected, CellResult* result) {
  std::vector<ShardKey> readable;
  for (const ShardKey& key : expected) {
    const auto found = outcome.trace.shards.find(key);
    if (found == outcome.trace.shards.end()) {
      readable.push_back(key);
      continue;
    }
    if (!reader.CanRead(key.component, found->second.layout)) continue;
    const std::string wrong = reader.WrongSize(key, found->second);
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

// Bytes of a layout beside its values that are not what the layout says: a kernel reads them too.
void AddWrongPadding(const ShardReader& reader, const abi::Outcome& outcome,
                     const std::vector<ShardKey>& readable, locate::ShardReport* shards) {
  for (const ShardKey& key : readable) {
    const auto found = outcome.trace.shards.find(key);
    if (found == outcome.trace.shards.end()) continue;
    std::string wrong = reader.WrongPadding(key, found->second);
    if (wrong.empty()) continue;
    locate::ShardFinding finding;
    finding.component = key.component;
    finding.rank = key.rank;
    finding.cls = "layout";
    finding.unit = "byte";
    finding.signature = {"padding-not-zero", "padding of the layout is not what the layout says",
                         std::move(wrong)};
    shards->findings.push_back(std::move(finding));
  }
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

// Everything that the verdict is read off.
struct Findings {
  judge::JudgeRequest request;
  std::vector<OpJudgement> judgements;
  locate::ShardReport shards;
  std::shared_ptr<const Chain> chain;
  Accumulation accumulated;
  std::vector<judge::BeyondFloor> beyond;
  reference::Tensor output;  // the last tap
};

void ReadFailure(const abi::Outcome& outcome, const Findings& found, CellResult* result) {
  result->verdict = Verdict::kFail;
  AddOpRows(found.judgements, found.chain.get(), found.accumulated.errors, result);
  locate::LocateRequest where{found.request, &found.judgements, &found.shards};
  auto divergences = locate::Locate(where);
  if (divergences) result->divergences = std::move(*divergences);
  // A broken rule comes first: what was computed from other memory is wrong in any way.
  if (outcome.ending == abi::Ending::kDirty) {
    result->divergences.insert(result->divergences.begin(), DirtOf(outcome));
  }
  result->reason = result->divergences.empty() ? "failed; no divergence could be located"
                                               : Sentence(result->divergences.front());
}

void ReadAccumulation(const Findings& found, CellResult* result) {
  const judge::BeyondFloor& first = found.beyond.front();
  result->verdict = Verdict::kFail;
  result->reason = fmt::format(
      "accumulation only: every op is right on its inputs; {} is {:.2e} from the oracle's chain, "
      "more than {} times the noise floor of {:.2e} ({} runs)",
      first.tap, first.rel_l2, judge::kFloorFactor, first.floor, found.chain->floor.runs);
  AddOpRows(found.judgements, found.chain.get(), found.accumulated.errors, result);
  result->divergences.push_back(locate::AccumulationOnly(found.beyond, found.chain->floor));
}

// A whole chain of which the engine shows too little for op by op: what its last tap accumulated
// decides, where there are enough runs of the floor. Empty if it does not decide.
std::string DecidedByFloor(const Findings& found) {
  const bool hidden = std::any_of(found.judgements.begin(), found.judgements.end(),
                                  [](const OpJudgement& j) { return j.judged && j.composite; });
  if (!hidden || found.chain == nullptr || !found.chain->floor.decides ||
      found.accumulated.errors.empty()) {
    return "";
  }
  const judge::Accumulated& last = found.accumulated.errors.back();
  const auto floor = found.chain->floor.rel_l2.find({last.tap, last.step});
  if (floor == found.chain->floor.rel_l2.end()) return "";
  // The bounds of hidden ops say nothing; that the output itself is sound is still asked.
  std::vector<OpJudgement> shown;
  for (const OpJudgement& judged : found.judgements) {
    if (!judged.judged || judged.node->tap != last.tap) continue;
    shown.push_back(judged);
    shown.back().composite = false;
    shown.back().proves_nothing = 0;
  }
  if (shown.empty() || !judge::Mistrust(shown, found.output).empty()) return "";
  return fmt::format(
      "by its accumulated error alone: {} is {:.2e} from the oracle's chain, within "
      "{} times the noise floor of {:.2e} ({} runs)",
      last.tap, last.rel_l2, judge::kFloorFactor, floor->second, found.chain->floor.runs);
}

// Tensors of a reload that look the same in both loads: what was kept of them cannot be seen.
std::string SameInBoth(const CellSpec& spec) {
  if (spec.same_in_both.empty()) return "";
  return fmt::format("{} tensors have the same values in both loads, the first {}",
                     spec.same_in_both.size(), spec.same_in_both.front());
}

// A gather that is the cell's own subject is evidence; beside ops it is none.
std::vector<OpJudgement> Evidence(const CellSpec& spec, const Findings& found) {
  std::vector<OpJudgement> evidence = found.judgements;
  if (spec.mode == Mode::kCollective) {
    for (OpJudgement& judged : evidence) judged.gather = false;
  }
  return evidence;
}

std::string Together(std::vector<std::string> parts) {
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "; "));
}

// Nothing is wrong: whether that says anything.
void ReadPass(const CellSpec& spec, const Findings& found, size_t expected, CellResult* result) {
  const auto compared = static_cast<size_t>(found.shards.compared);
  const bool load = spec.mode == Mode::kLoad;
  const int64_t judged_ops = std::count_if(found.judgements.begin(), found.judgements.end(),
                                           [](const OpJudgement& judged) { return judged.judged; });
  if (load ? compared == 0 : judged_ops == 0) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = "the engine gave back nothing that could be judged";
    return;
  }
  if (load && compared < expected) {
    result->verdict = Verdict::kNotExecuted;
    result->reason =
        fmt::format("{} of {} shards were given back, and those are right", compared, expected);
    return;
  }
  if (load && spec.layer < 0 && spec.selection.experts.empty()) {
    if (const std::string unused = UnusedTensors(spec); !unused.empty()) {
      result->verdict = Verdict::kFail;
      result->reason = unused;
      Divergence divergence;
      divergence.cls = "loader";
      divergence.signature = {"unused-tensor", unused, "names of the file against the parameters"};
      result->divergences.push_back(std::move(divergence));
      return;
    }
  }
  const std::string mistrust = load ? "" : judge::Mistrust(Evidence(spec, found), found.output);
  if (!mistrust.empty()) {
    const std::string decided = DecidedByFloor(found);
    result->verdict = decided.empty() ? Verdict::kMistrusted : Verdict::kPass;
    result->reason = decided;
    if (decided.empty()) {
      const std::string missing =
          found.chain == nullptr ? "" : ChainLeftOut(*found.chain, found.accumulated);
      result->reason = Together({mistrust, missing});
    }
    return;
  }
  result->verdict = Verdict::kPass;
  result->reason =
      Together({LeftOut(spec, found.judgements, expected, compared),
                found.chain == nullptr ? "" : ChainLeftOut(*found.chain, found.accumulated),
                SameInBoth(spec), load ? NotPlanned(spec) : ""});
}

// What ran is not what was asked for, or not what the engine lists; true if so.
bool ReadOther(const CellSpec& spec, const abi::Outcome& outcome, const std::string& emulate,
               CellResult* result) {
  if (const std::string reason = Fallback(spec, outcome, *result->executed, emulate);
      !reason.empty()) {
    result->verdict = Verdict::kNotExecuted;
    result->reason = reason;
    return true;
  }
  if (const std::string unlisted = Unlisted(spec, outcome); !unlisted.empty()) {
    ReadUnlisted(unlisted, result);
    return true;
  }
  return false;
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
                  const std::vector<ShardKey>& expected, const std::string& emulate,
                  CellResult* result) {
  result->executed = ReadExecuted(spec, outcome, emulate);
  Findings found;
  found.request = RequestOf(spec, outcome);
  auto judgements = spec.mode == Mode::kCollective ? JudgeCollectives(spec, outcome)
                                                   : judge::JudgeTrace(found.request);
  // The wrong way to read a tensor is the finding; what its bytes look like then is not.
  result->divergences = WrongSelections(spec, outcome.trace, expected);
  for (Divergence& wrong : WrongLayouts(spec, outcome.trace, expected)) {
    result->divergences.push_back(std::move(wrong));
  }
  const ShardReader reader(spec);
  std::vector<ShardKey> readable;
  if (result->divergences.empty()) readable = Readable(reader, outcome, expected, result);
  if (!result->divergences.empty()) {
    if (outcome.ending == abi::Ending::kDirty) {
      result->divergences.insert(result->divergences.begin(), DirtOf(outcome));
    }
    result->verdict = Verdict::kFail;
    result->reason = Sentence(result->divergences.front());
    return;
  }
  auto shards = locate::CompareShards(
      *spec.oracle, outcome.trace, readable, found.request.degrees,
      [&](const ShardKey& key, const std::string& tag, const ExportedShard& shard) {
        return reader.Unpack(key, tag, shard);
      },
      [&](const std::string& c) { return reader.Tags(c); }, spec.decoy_oracle.get());
  if (!judgements || !shards) {
    result->verdict = Verdict::kInfra;
    result->reason = !judgements ? judgements.error().message : shards.error().message;
    return;
  }
  found.judgements = std::move(*judgements);
  found.shards = std::move(*shards);
  AddWrongPadding(reader, outcome, readable, &found.shards);
  found.chain = ChainOf(spec, outcome, found.judgements);
  if (found.chain != nullptr) {
    found.accumulated = Accumulate(spec, outcome, *found.chain);
    found.beyond = judge::JudgeAccumulated(found.chain->floor, found.accumulated.errors);
  }
  found.output = AddCellMetrics(spec, outcome, found.judgements, found.chain.get(), result);
  const bool wrong_op = std::any_of(found.judgements.begin(), found.judgements.end(),
                                    [](const OpJudgement& judged) { return !judged.pass; });
  if (wrong_op || !found.shards.findings.empty()) {
    ReadFailure(outcome, found, result);
  } else if (outcome.ending == abi::Ending::kDirty) {
    result->verdict = Verdict::kFail;
    result->reason = outcome.message;
    result->divergences.push_back(DirtOf(outcome));
  } else if (ReadOther(spec, outcome, emulate, result)) {
    return;
  } else if (!found.beyond.empty()) {
    ReadAccumulation(found, result);
  } else {
    ReadPass(spec, found, expected.size(), result);
  }
}

}  // namespace assay::run
