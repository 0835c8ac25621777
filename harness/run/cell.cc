#include "harness/run/cell.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <chrono>
#include <csignal>
#include <cstring>
#include <set>

#include "harness/run/layouts_bridge.h"
#include "harness/run/outcome.h"
#include "harness/run/weights.h"
#include "harness/shard/executor.h"

namespace assay::run {
namespace {

using Clock = std::chrono::steady_clock;

Verdict VerdictOf(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kEnvironment:
    case ErrorKind::kUnsupported:
      return Verdict::kNotExecuted;
    case ErrorKind::kRefused:
      return Verdict::kRefused;
    case ErrorKind::kBadInput:
      break;
  }
  return Verdict::kInfra;
}

CellRun Ended(CellRun run, const Error& error) {
  run.result.verdict = VerdictOf(error.kind);
  run.result.reason = error.message;
  run.bad_input = error.kind == ErrorKind::kBadInput;
  return run;
}

// The tensors of the cell, or of the whole model where it is small enough to read at once.
std::string HashOf(const CellSpec& spec, const std::vector<shard::Component>& components) {
  std::set<std::string> names;
  if (spec.converted != nullptr) {
    // What it was made from: all that is converted, and what stayed.
    for (const std::string& name : spec.model->checkpoint->Names()) names.insert(name);
  }
  for (const shard::Component& component : components) names.insert(component.source);
  return spec.model->checkpoint->ContentHash({names.begin(), names.end()});
}

// What a collective cell needs of the model: nothing but its shape. Legality is a question to the
// headers alone; what is then loaded is checked in full.
Result<shard::PlanResult> PlanOf(const CellSpec& spec, bool headers_only) {
  if (spec.mode == Mode::kCollective) {
    shard::PlanResult empty;
    if (spec.degrees.tp % spec.degrees.attention() == 0) {
      empty.plan = shard::ModelPlan{spec.degrees, {}};
    } else {
      shard::Refusal refusal;
      refusal.tensor = refusal.axis = refusal.degree = "attn_tp";
      refusal.unit = "rank";
      refusal.extent = spec.degrees.tp;
      refusal.parts = spec.degrees.attention();
      empty.refusal = refusal;
    }
    return empty;
  }
  shard::Selection selection = spec.selection;
  selection.headers_only = headers_only;
  return shard::PlanModel(spec.config, *spec.weights, spec.degrees, selection);
}

Result<std::vector<shard::Component>> ComponentsOf(const CellSpec& spec) {
  if (spec.mode == Mode::kCollective) return std::vector<shard::Component>{};
  return shard::ListComponents(spec.config, *spec.weights, spec.selection);
}

bool HasNumber(const std::string& text, int64_t number) {
  const std::string wanted = std::to_string(number);
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    const bool begins = at == 0 || !std::isdigit(static_cast<unsigned char>(text[at - 1]));
    const bool ends = end == text.size() || !std::isdigit(static_cast<unsigned char>(text[end]));
    if (begins && ends) return true;
  }
  return false;
}

// Whether an engine refused for what the plan refuses: it names the tensor (or the key), or the
// extent and the degree that does not divide it, in the stored unit or in elements. Engines word
// this differently; one that names neither refused for another reason, or cannot say why.
bool SameReason(const shard::Refusal& refusal, const abi::Outcome& outcome) {
  const std::string tensor(outcome.error.tensor,
                           strnlen(outcome.error.tensor, sizeof(outcome.error.tensor)));
  const std::string said = outcome.message + " " + tensor;
  if (!refusal.tensor.empty() && said.find(refusal.tensor) != std::string::npos) return true;
  if (!refusal.cuts.empty() && said.find(refusal.cuts) != std::string::npos) return true;
  const bool extent = HasNumber(said, refusal.extent) ||
                      (refusal.elements > 0 && HasNumber(said, refusal.elements)) ||
                      outcome.error.got == refusal.extent ||
                      outcome.error.expected == refusal.extent;
  return extent && HasNumber(said, refusal.parts);
}

CellRun ReadRefused(const shard::Refusal& refusal, const abi::Outcome& outcome, CellRun run) {
  CellResult& result = run.result;
  if (SameReason(refusal, outcome)) {
    result.verdict = Verdict::kRefused;
    result.reason = refusal.Message();
    return run;
  }
  result.verdict = Verdict::kFail;
  result.reason = fmt::format("illegal, but refused for another reason: '{}'; due was: {}",
                              outcome.message, refusal.Message());
  Divergence divergence;
  divergence.cls = outcome.phase == abi::Phase::kOpen ? "selection" : "loader";
  divergence.tensor = refusal.tensor;
  divergence.unit = refusal.unit;
  divergence.signature = {"refused", "an illegal degree was refused for another reason",
                          outcome.message};
  result.divergences.push_back(divergence);
  return run;
}

// Whether the engine says that it has what the cell runs; the reason if it says that it has not.
std::string Lacks(const CellSpec& spec, const CellLimits& limits) {
  const std::string needed = spec.mode == Mode::kScope ? spec.scope
                             : spec.mode == Mode::kOps ? "op"
                                                       : "";
  if (limits.emulate == "always" && !Emulates(spec)) {
    return fmt::format("emulation was demanded, and the engine does not emulate tier {}",
                       spec.problem.Get("tier"));
  }
  if (needed.empty() || abi::MayHave(spec.facts.scopes, needed)) return "";
  return fmt::format("the engine does not offer scope {}; it has {}", needed,
                     fmt::join(*spec.facts.scopes, ", "));
}

// An illegal degree: the engine is asked all the same, and has to refuse.
CellRun RunIllegal(CellSpec* filled, const shard::Refusal& refusal, const CellLimits& limits,
                   CellRun run) {
  if (auto status = FillWeights(filled); !status) return Ended(std::move(run), status.error());
  const CellSpec& spec = *filled;
  auto components = ComponentsOf(spec);
  if (!components) return Ended(std::move(run), components.error());
  auto script = MakeScript(spec, nullptr, *components, limits);
  if (!script) return Ended(std::move(run), script.error());
  const abi::Outcome outcome = abi::RunInChild(*script);
  CellResult& result = run.result;
  result.engine_output = outcome.output;
  if (outcome.ending == abi::Ending::kRefused) {
    return ReadRefused(refusal, outcome, std::move(run));
  }
  const bool answered =
      outcome.ending == abi::Ending::kFinished || outcome.ending == abi::Ending::kDirty;
  if (answered && outcome.trace.shards.empty() && spec.mode != Mode::kCollective) {
    result.verdict = Verdict::kNotExecuted;
    result.reason = fmt::format("the engine loaded nothing without a plan, and there is none: {}",
                                refusal.Message());
    return run;
  }
  if (answered) {
    result.verdict = Verdict::kFail;
    result.reason =
        fmt::format("the engine loaded what the plan says is illegal: {}", refusal.Message());
    Divergence divergence;
    divergence.cls = "loader";
    divergence.tensor = refusal.tensor;
    divergence.unit = refusal.unit;
    divergence.signature = {"illegal-accepted", "an illegal shard was accepted", refusal.Message()};
    result.divergences.push_back(divergence);
    return run;
  }
  ReadEnding(spec, outcome, *components, &result);
  return run;
}

// The shards of all ranks lie in the engine, in the file that brings them here, and here.
constexpr int64_t kHeldAtOnce = 3;

// Says beforehand what cannot be held, instead of driving the machine out of memory.
Status CheckMemory(const shard::ModelPlan& plan, const CellLimits& limits, bool reloads) {
  int64_t bytes = 0;
  for (const shard::ComponentPlan& component : plan.components) {
    for (int rank = 0; rank < plan.degrees.tp; ++rank) {
      const shard::ShardShape shape = shard::ShapeOf(component, rank);
      bytes += shape.rows * shape.columns * SizeOf(component.component.dtype).count();
    }
  }
  if (reloads) bytes *= 2;
  if (limits.memory_bytes <= 0 || bytes <= limits.memory_bytes / kHeldAtOnce) return Ok();
  const auto gib = [](int64_t count) { return static_cast<double>(count) / (1 << 30); };
  return Error{
      fmt::format("needs {:.0f} GiB, allowed are {:.0f}: name a layer=, op= or expert= "
                  "(the ranks would load {:.1f} GiB, held {} times while compared)",
                  gib(bytes) * kHeldAtOnce, gib(limits.memory_bytes), gib(bytes), kHeldAtOnce),
      ErrorKind::kEnvironment};
}

CellRun RunLegal(CellSpec* spec, const CellLimits& limits, CellRun run) {
  if (auto status = FillCell(spec); !status) return Ended(std::move(run), status.error());
  auto planned = PlanOf(*spec, false);
  if (!planned) return Ended(std::move(run), planned.error());
  if (auto status = CheckMemory(*planned->plan, limits, spec->problem.Get("reload") == "1");
      !status) {
    return Ended(std::move(run), status.error());
  }
  auto components = ComponentsOf(*spec);
  if (!components) return Ended(std::move(run), components.error());
  if (spec->problem.Get("reload") == "1") {
    std::vector<std::string> loaded;
    for (const shard::Component& component : *components) loaded.push_back(component.source);
    if (auto status = MakeDecoys(spec, loaded); !status)
      return Ended(std::move(run), status.error());
  }
  auto script = MakeScript(*spec, &*planned->plan, *components, limits);
  if (!script) return Ended(std::move(run), script.error());
  const abi::Outcome outcome = abi::RunInChild(*script);
  CellResult& result = run.result;
  result.problem = PrintCanonical(spec->problem);
  result.model_hash = HashOf(*spec, *components);
  result.engine_output = outcome.output;
  if (outcome.ending != abi::Ending::kFinished && outcome.ending != abi::Ending::kDirty) {
    ReadEnding(*spec, outcome, *components, &result);
    return run;
  }
  JudgeOutcome(*spec, outcome, script->exports, limits.emulate, &result);
  return run;
}

// What is needed to run the cell again: not what it resolves to by itself.
std::string ReproOf(const Problem& problem, ModelStore* models) {
  Problem shorter = problem;
  shorter.keys.erase("method");
  shorter.keys.erase("kernel");
  shorter.keys.erase("act");
  auto again = ResolveProblem(shorter, models);
  const bool same = again && PrintCanonical(*again) == PrintCanonical(problem);
  return fmt::format("./assay run '{}'", PrintMinimal(same ? shorter : problem));
}

}  // namespace

CellRun ExecuteCell(const Problem& problem, ModelStore* models, const CellLimits& limits) {
  const auto start = Clock::now();
  CellRun run;
  run.result.problem = PrintCanonical(problem);
  run.result.repro = fmt::format("./assay run '{}'", PrintMinimal(problem));
  auto spec = ResolveCell(problem, models);
  if (!spec) {
    run = Ended(std::move(run), spec.error());
  } else {
    run.result.problem = PrintCanonical((*spec)->problem);
    run.result.repro = ReproOf((*spec)->problem, models);
    auto planned = PlanOf(**spec, true);
    if (!planned) {
      run = Ended(std::move(run), planned.error());
    } else if (const std::string lacks = Lacks(**spec, limits); !lacks.empty()) {
      run = Ended(std::move(run), Error{lacks, ErrorKind::kUnsupported});
    } else if (planned->refusal) {
      run = RunIllegal(spec->get(), *planned->refusal, limits, std::move(run));
    } else {
      run = RunLegal(spec->get(), limits, std::move(run));
    }
  }
  run.result.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return run;
}

Result<ResolvedCell> ResolveAndPlan(const Problem& problem, ModelStore* models) {
  auto spec = ResolveCell(problem, models);
  if (!spec) return spec.error();
  auto planned = PlanOf(**spec, true);
  if (!planned) return planned.error();
  return ResolvedCell{std::move((*spec)->problem), planned->plan.has_value()};
}

Result<bool> IsLegal(const Problem& problem, ModelStore* models) {
  auto cell = ResolveAndPlan(problem, models);
  if (!cell) return cell.error();
  return cell->legal;
}

Result<Problem> ResolveProblem(const Problem& problem, ModelStore* models) {
  auto spec = ResolveCell(problem, models);
  if (!spec) return spec.error();
  return (*spec)->problem;
}

}  // namespace assay::run
