// run: the matrix, a selection of it, or one problem string.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "harness/cli/machine.h"
#include "harness/cli/options.h"
#include "harness/cli/require.h"
#include "harness/cli/selection.h"
#include "harness/cli/verbs.h"
#include "harness/run/engines.h"
#include "harness/run/pool.h"
#include "harness/store/results.h"
#include "reports/render.h"
#include "reports/terminal.h"
#include "reports/view.h"

namespace assay::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInterrupted = 130;  // as shells say of SIGINT

struct RunOptions {
  std::vector<std::string> words, require;
  std::string matrix, out, shard, engine, emulate = "auto", resume, require_text;
  int64_t jobs = 0, time_limit_s = 60;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string RunId() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &utc);
  return fmt::format("{}-{}", text, getpid());
}

std::string Environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

RunHeader HeaderOf(const Selection& selection, const std::string& id) {
  RunHeader header;
  header.run_id = id;
  header.revision = Environment("ASSAY_REVISION", "unknown");
  header.dirty = Environment("ASSAY_DIRTY", "0") == "1";
  header.selection = selection.text;
  header.machine_json = MachineJson(ReadMachine(), run::NativeTiers());
  std::set<std::string> engines;
  for (const run::Problem& problem : selection.problems) engines.insert(problem.Get("engine"));
  header.engines_json = fmt::format("[\"{}\"]", fmt::join(engines, "\",\""));
  return header;
}

// Cells of the record are not run again: resumed runs go on where they were.
void LeaveOut(const std::vector<CellResult>& done, Selection* selection) {
  std::set<std::string> known;
  for (const CellResult& cell : done) known.insert(cell.problem);
  std::vector<run::Problem> left;
  for (const run::Problem& problem : selection->problems) {
    if (!known.count(run::PrintCanonical(problem))) left.push_back(problem);
  }
  selection->problems = std::move(left);
}

// Before a run of more than a few cells: what it will take. A cell of a small model takes some 50
// ms and each worker holds one model's weights about four times (file, engine, two passes).
void PrintEstimate(const Selection& selection, int64_t jobs, int64_t model_bytes) {
  if (selection.problems.size() < 20) return;
  const double seconds =
      0.05 * static_cast<double>(selection.problems.size()) / static_cast<double>(jobs);
  std::fprintf(stderr, "%zu cells, about %.0f s on %lld workers, about %.1f GiB\n",
               selection.problems.size(), std::max(1.0, seconds), static_cast<long long>(jobs),
               0.1 + 4.0 * static_cast<double>(jobs * model_bytes) / double(1 << 30));
}

int64_t LargestModel(const Selection& selection, run::ModelStore* models) {
  std::set<std::string> names;
  for (const run::Problem& problem : selection.problems) names.insert(problem.Get("model"));
  int64_t most = 0;
  for (const std::string& name : names) {
    auto model = models->Get(name);
    if (!model) continue;
    int64_t bytes = 0;
    for (const std::string& tensor : (*model)->checkpoint->Names()) {
      bytes += static_cast<int64_t>((*model)->checkpoint->Find(tensor)->bytes.size());
    }
    most = std::max(most, bytes);
  }
  return most;
}

// The selection of a recorded run, as Select() and KeepShard() wrote it.
void TakeRecorded(const std::string& selection, RunOptions* options) {
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

// The allow-listed cells that the record does not have yet.
std::vector<CellResult> SkippedCells(const Selection& selection,
                                     const std::vector<CellResult>& done) {
  std::vector<CellResult> cells;
  for (const auto& [problem, reason] : selection.skipped) {
    CellResult cell;
    cell.problem = run::PrintCanonical(problem);
    cell.repro = fmt::format("./assay run '{}'", run::PrintMinimal(problem));
    cell.verdict = Verdict::kSkipped;
    cell.reason = reason;
    const bool known = std::any_of(done.begin(), done.end(), [&](const CellResult& other) {
      return other.problem == cell.problem;
    });
    if (!known) cells.push_back(std::move(cell));
  }
  return cells;
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
}

// .assay/runs/latest is the newest run of this clone. Nothing depends on it.
void LinkLatest(const std::string& dir) {
  const std::filesystem::path link = std::filesystem::path(dir).parent_path() / "latest";
  std::error_code ignored;
  if (std::filesystem::is_symlink(link, ignored)) std::filesystem::remove(link, ignored);
  std::filesystem::create_directory_symlink(std::filesystem::path(dir).filename(), link, ignored);
}

struct Opened {
  ResultsWriter writer;
  std::vector<CellResult> cells;  // of a resumed run
  std::string dir;
};

Result<Opened> OpenResults(const RunOptions& options, Selection* selection) {
  const std::string id = RunId();
  if (!options.resume.empty() && HasRecord(options.resume)) {
    RunRecord record;
    auto writer = ResultsWriter::Resume(options.resume, &record);
    if (!writer) return writer.error();
    if (record.header.selection != selection->text) {
      return Error{fmt::format("--resume {}: that run's selection is '{}', not '{}'",
                               options.resume, record.header.selection, selection->text)};
    }
    LeaveOut(record.cells, selection);
    return Opened{std::move(*writer), std::move(record.cells), options.resume};
  }
  std::string dir = !options.resume.empty() ? options.resume : options.out;
  const bool own = dir.empty();
  if (own) dir = Environment("ASSAY_ROOT", ".") + "/.assay/runs/" + id;
  if (own) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(dir).parent_path(), ignored);
  }
  auto writer =
      ResultsWriter::Create(dir, HeaderOf(*selection, id),
                            options.resume.empty() ? ResultsWriter::Folder::kNewOrEmpty
                                                   : ResultsWriter::Folder::kMayHoldFiles);
  if (!writer) return writer.error();
  if (own) LinkLatest(dir);
  return Opened{std::move(*writer), {}, dir};
}

int Conclude(const Opened& opened, const std::vector<CellResult>& cells, int64_t registered,
             double seconds, const std::vector<Requirement>& requirements, ResultsWriter* writer) {
  Totals totals;
  for (const CellResult& cell : cells) totals.Add(cell.verdict);
  totals.registered = registered;
  const reports::Style style = reports::StyleOf(stdout);
  if (auto status = writer->Finish(totals, seconds); !status) {
    return BadUsage(status.error().message);
  }
  auto record = ReadResults(opened.dir);
  if (!record) return BadUsage(record.error().message);
  std::fputs(reports::FindingsBlock(*record, style).c_str(), stdout);
  if (cells.size() == 1 && !reports::IsRed(cells[0].verdict)) {
    std::fputs(reports::CellLine(cells[0], style).c_str(), stdout);
  }
  std::fputs(("\n" + reports::TotalsBlock(totals, seconds, style)).c_str(), stdout);
  if (cells.size() > 1) std::fputs(reports::ReasonsBlock(*record, style).c_str(), stdout);
  if (auto status = reports::RenderAll(*record, opened.dir); !status) {
    return BadUsage(status.error().message);
  }
  std::printf("%s/report.html\n", opened.dir.c_str());
  const std::vector<std::string> unmet = Unmet(requirements, cells);
  for (const std::string& line : unmet) std::puts(line.c_str());
  return ExitCode(totals, !unmet.empty());
}

int Execute(const RunOptions& options, Selection selection, run::ModelStore* models,
            const std::vector<Requirement>& requirements) {
  const auto start = Clock::now();
  const auto registered =
      static_cast<int64_t>(selection.problems.size() + selection.skipped.size());
  auto opened = OpenResults(options, &selection);
  if (!opened) return BadUsage(opened.error().message);
  run::PoolOptions pool;
  pool.jobs = static_cast<int>(
      options.jobs > 0 ? options.jobs : std::max(1u, std::thread::hardware_concurrency()));
  pool.limits.time_ms = options.time_limit_s * 1000;
  PrintEstimate(selection, pool.jobs, LargestModel(selection, models));
  reports::Progress progress(stderr, reports::StyleOf(stderr), registered);
  std::vector<CellResult> cells = opened->cells;
  for (const CellResult& cell : cells) progress.Cell(cell, 0);
  const auto on_result = [&](size_t, const CellResult& cell) -> Status {
    if (auto status = opened->writer.Append(cell); !status) return status;
    if (registered > 1) progress.Cell(cell, SecondsSince(start));
    cells.push_back(cell);
    return Ok();
  };
  for (const CellResult& cell : SkippedCells(selection, opened->cells)) {
    if (auto status = on_result(0, cell); !status) return BadUsage(status.error().message);
  }
  CatchSignals();
  pool.stop = [] { return interrupted != 0; };
  const Status ran = run::RunPool(selection.problems, models, pool, on_result);
  progress.End();
  if (!ran && interrupted != 0) {
    std::fprintf(stderr, "%s; ./assay run --resume %s goes on\n", ran.error().message.c_str(),
                 opened->dir.c_str());
    return kInterrupted;
  }
  if (!ran) return BadUsage(ran.error().message);
  return Conclude(*opened, cells, registered, SecondsSince(start), requirements, &opened->writer);
}

}  // namespace

int Run(int argc, char** argv) {
  RunOptions given;
  Options options("run",
                  "Runs the default matrix, the cells of it that pass all filters, or one problem "
                  "string; writes results.jsonl, report.html, report.md and junit.xml.",
                  "./assay run 'model model=k2-mini-int4-g32 tp=4'");
  options.Words("problem-or-filters", &given.words, "a problem string, or key=value[,value] ...");
  options.Value("--matrix", &given.matrix, "a matrix file instead of matrix/default.json");
  options.Value("--out", &given.out, "a new or empty folder (default: .assay/runs/ID)");
  options.Value("--resume", &given.resume, "go on with the run recorded in this folder");
  options.Value("--shard", &given.shard, "i/n: every n-th cell from the i-th on");
  options.Value("--engine", &given.engine, "native, or the path of an engine's library");
  options.Value("--require", &given.require_text, "K=V[,K=V]: red unless executed so");
  options.Value("--emulate", &given.emulate, "never, auto (no emulator is built yet)");
  options.Number("--jobs", &given.jobs, 0, 1024, "cells at a time; 0: one a core");
  options.Number("--time-limit", &given.time_limit_s, 1, 86400, "seconds that one cell may take");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (given.emulate == "always") {
    return BadUsage("--emulate always: no emulator is built yet; allowed are never and auto");
  }
  if (given.emulate != "never" && given.emulate != "auto") {
    return BadUsage(fmt::format("--emulate {}: allowed are never, auto, always", given.emulate));
  }
  std::vector<Requirement> requirements;
  if (!given.require_text.empty()) {
    auto requirement = ParseRequirement(given.require_text);
    if (!requirement) return BadUsage(requirement.error().message);
    requirements.push_back(std::move(*requirement));
  }
  if (!given.resume.empty() && HasRecord(given.resume)) {
    auto record = ReadResults(given.resume);
    if (!record) return BadUsage(record.error().message);
    if (!given.words.empty()) {
      return BadUsage(fmt::format("--resume {}: the selection is recorded there ('{}'); give none",
                                  given.resume, record->header.selection));
    }
    TakeRecorded(record->header.selection, &given);
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
  return Execute(given, std::move(*selection), &models, requirements);
}

}  // namespace assay::cli
