// run: the matrix, a selection of it, or one problem string.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <thread>

#include "harness/cli/conclude.h"
#include "harness/cli/estimate.h"
#include "harness/cli/options.h"
#include "harness/cli/record.h"
#include "harness/cli/require.h"
#include "harness/cli/selection.h"
#include "harness/cli/verbs.h"
#include "harness/run/engines.h"
#include "harness/run/pool.h"
#include "harness/store/results.h"
#include "reports/terminal.h"

namespace assay::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;  // as shells say of SIGINT
constexpr const char* kEmulateByDefault = "auto";

struct RunOptions {
  std::vector<std::string> words;
  std::string matrix, shard, engine;
  RecordOptions record;
  int64_t jobs = 0, time_limit_s = 60;
  bool selects() const {
    return !words.empty() || !matrix.empty() || !shard.empty() || !engine.empty();
  }
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The selection of a recorded run, as Select() and KeepShard() wrote it.
void TakeSelection(const std::string& selection, RunOptions* options) {
  std::istringstream words(selection);
  for (std::string word; words >> word;) {
    std::string* value = word == "--matrix"   ? &options->matrix
                         : word == "--engine" ? &options->engine
                         : word == "--shard"  ? &options->shard
                                              : nullptr;
    if (value != nullptr) {
      words >> word;
      *value = PathFromRecord(word);
    } else {
      options->words.push_back(word);
    }
  }
}

// What the command line leaves open is as the record has it.
void TakeRecorded(const RunHeader& header, RunOptions* options) {
  if (!options->selects()) TakeSelection(header.selection, options);
  if (options->record.emulate.empty()) options->record.emulate = header.emulate;
  if (options->record.requirements.empty() && !header.requirements.empty()) {
    options->record.requirements = header.requirements[0];
  }
}

// An engine that cannot be used is found before the first cell. Its path becomes absolute, so that
// a resumed run finds it from anywhere.
Status ResolveEngine(std::string* engine) {
  if (engine->empty()) return Ok();
  auto found = run::FindEngine(*engine, "");
  if (!found) return found.error();
  if (!found->library.empty()) *engine = found->library;
  auto facts = run::Describe(*found);
  if (!facts) return facts.error();
  return Ok();
}

volatile std::sig_atomic_t interrupted = 0;

void OnSignal(int) { interrupted = 1; }

void CatchSignals() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A file that may not grow further is an error of write(), not the end of the process.
  action.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &action, nullptr);
}

run::PoolOptions PoolOf(const RunOptions& options) {
  run::PoolOptions pool;
  pool.jobs = static_cast<int>(
      options.jobs > 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency()));
  pool.limits.time_ms = options.time_limit_s * 1000;
  pool.limits.emulate = options.record.emulate;
  pool.stop = [] { return interrupted != 0; };
  return pool;
}

// A record that cannot be written ends the run; what was recorded stays.
int Lost(const Error& error, const std::string& dir) {
  return BadUsage(fmt::format("{}; ./assay run --resume {} goes on", error.message, dir));
}

int Execute(const RunOptions& options, Selection selection, run::ModelStore* models,
            const std::vector<Requirement>& requirements) {
  const auto start = Clock::now();
  const auto registered =
      static_cast<int64_t>(selection.problems.size() + selection.skipped.size());
  CatchSignals();
  const std::string& resume = options.record.resume;
  const bool afresh = !resume.empty() && !HasRecord(resume);
  auto opened = OpenResults(options.record, &selection);
  if (!opened) return BadUsage(opened.error().message);
  if (afresh) {
    std::fprintf(stderr, "%s holds no recorded run: the run starts afresh\n", resume.c_str());
  }
  const run::PoolOptions pool = PoolOf(options);
  const std::string estimate = EstimateLine(selection.problems, pool.jobs, models);
  if (!estimate.empty()) std::fprintf(stderr, "%s\n", estimate.c_str());
  reports::Progress progress(stderr, reports::StyleOf(stderr), registered);
  std::vector<CellResult> cells = opened->cells;
  for (const CellResult& cell : cells) progress.Cell(cell, 0);
  const auto record = [&](const CellResult& cell) -> Status {
    if (auto status = opened->writer.Append(cell); !status) return status;
    if (registered > 1) progress.Cell(cell, SecondsSince(start));
    cells.push_back(cell);
    return Ok();
  };
  for (const CellResult& cell : SkippedCells(selection, opened->cells)) {
    if (auto status = record(cell); !status) return Lost(status.error(), opened->dir);
  }
  const auto on_result = [&](size_t index, const CellResult& cell) -> Status {
    const std::string asked = run::PrintCanonical(selection.problems[index]);
    if (cell.problem == asked) return record(cell);
    CellResult strange = cell;
    strange.problem = asked;
    strange.verdict = Verdict::kInfra;
    strange.reason = fmt::format("the cell came back as another: {}", cell.problem);
    return record(strange);
  };
  const Status ran = run::RunPool(selection.problems, models, pool, on_result);
  progress.End();
  if (!ran && interrupted != 0) {
    std::fprintf(stderr, "%s; ./assay run --resume %s goes on\n", ran.error().message.c_str(),
                 opened->dir.c_str());
    return kInterrupted;
  }
  if (!ran) return Lost(ran.error(), opened->dir);
  const double seconds = SecondsSince(start);
  if (auto status = opened->writer.Finish(TotalsOf(cells, registered), seconds); !status) {
    return Lost(status.error(), opened->dir);
  }
  return Conclude(opened->dir, requirements, {});
}

// Nothing is left to do of a finished run but to say how it ended, and to render what a kill may
// have kept from being rendered.
int SayFinished(const std::string& dir, const RunRecord& record,
                const std::vector<Requirement>& requirements) {
  std::fprintf(stderr, "%s: this run is finished, all of its %zu cells are recorded\n", dir.c_str(),
               record.cells.size());
  return Conclude(dir, requirements, {});
}

void Declare(Options* options, RunOptions* given) {
  options->Words("problem-or-filters", &given->words, "a problem string, or key=value[,value] ...");
  options->Value("--matrix", &given->matrix, "a matrix file instead of matrix/default.json");
  options->Value("--out", &given->record.out, "a new or empty folder (default: .assay/runs/ID)");
  options->Value("--resume", &given->record.resume,
                 "go on with the run recorded in this folder; its selection and options are "
                 "recorded there");
  options->Value("--shard", &given->shard,
                 "i/n, from 1/n to n/n: every n-th cell from the i-th on; ./assay report merge "
                 "joins them");
  options->Value("--engine", &given->engine, "native, or the path of an engine's library");
  options->Value("--require", &given->record.requirements,
                 "K=V[,K=V]: red unless executed so; tier=T wants hardware, tier=T,how=emulated "
                 "takes either");
  options->Value("--emulate", &given->record.emulate,
                 "never, auto (where the hardware is not there) or always (default: auto)");
  options->Number("--jobs", &given->jobs, 0, 1024, "cells at a time; 0: one a core");
  options->Number("--time-limit", &given->time_limit_s, 1, 86400, "seconds that one cell may take");
}

}  // namespace

int Run(int argc, char** argv) {
  RunOptions given;
  Options options("run",
                  "Runs the default matrix, the cells of it that pass all filters, or one problem "
                  "string; writes results.jsonl, report.html, report.md and junit.xml.",
                  "./assay run 'model model=k2-mini-int4-g32 tp=4'");
  Declare(&options, &given);
  if (auto code = options.Parse(argc, argv)) return *code;
  RecordOptions& record_options = given.record;
  if (!record_options.out.empty() && !record_options.resume.empty()) {
    return BadUsage("--out and --resume both name a folder; give one of them");
  }
  const std::string& emulate = record_options.emulate;
  if (!emulate.empty() && emulate != "never" && emulate != "auto" && emulate != "always") {
    return BadUsage(fmt::format("--emulate {}: allowed are never, auto, always", emulate));
  }
  const bool resumes = !record_options.resume.empty() && HasRecord(record_options.resume);
  const bool selects = given.selects();
  RunRecord recorded;
  if (resumes) {
    auto record = ReadResults(record_options.resume);
    if (!record) return BadUsage(record.error().message);
    recorded = std::move(*record);
    TakeRecorded(recorded.header, &given);
  }
  if (record_options.emulate.empty()) record_options.emulate = kEmulateByDefault;
  std::vector<Requirement> requirements;
  if (!record_options.requirements.empty()) {
    auto requirement = ParseRequirement(record_options.requirements);
    if (!requirement) return BadUsage(requirement.error().message);
    requirements.push_back(std::move(*requirement));
  }
  if (resumes && !selects && IsComplete(recorded)) {
    return SayFinished(record_options.resume, recorded, requirements);
  }
  if (auto status = ResolveEngine(&given.engine); !status) {
    return BadUsage(status.error().message);
  }
  run::ModelStore models;
  auto selection = Select(given.words, given.matrix, given.engine, &models);
  if (!selection) return BadUsage(selection.error().message);
  if (!given.shard.empty()) {
    if (auto status = KeepShard(given.shard, &*selection); !status) {
      return BadUsage(status.error().message);
    }
  }
  if (resumes && IsComplete(recorded)) {
    if (recorded.header.selection == selection->text) {
      return SayFinished(record_options.resume, recorded, requirements);
    }
  }
  return Execute(given, std::move(*selection), &models, requirements);
}

}  // namespace assay::cli
