#include "harness/cli/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>

#include "harness/cli/machine.h"
#include "harness/run/engines.h"

namespace assay::cli {
namespace {

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

RunHeader HeaderOf(const Selection& selection, const RecordOptions& options) {
  RunHeader header;
  header.run_id = RunId();
  header.revision = Environment("ASSAY_REVISION", "unknown");
  header.dirty = Environment("ASSAY_DIRTY", "0") == "1";
  header.selection = selection.text;
  header.machine_json = MachineJson(ReadMachine(), run::NativeTiers());
  std::set<std::string> engines;
  for (const run::Problem& problem : selection.problems) engines.insert(problem.Get("engine"));
  header.engines_json = fmt::format("[\"{}\"]", fmt::join(engines, "\",\""));
  header.cells = selection.list;
  header.emulate = options.emulate;
  if (!options.requirements.empty()) header.requirements = {options.requirements};
  return header;
}

std::string Revision(const RunHeader& header) {
  return header.revision + (header.dirty ? " with changes" : "");
}

// Cells of the record are not run again.
void LeaveOut(const std::vector<CellResult>& done, Selection* selection) {
  std::set<std::string> known;
  for (const CellResult& cell : done) known.insert(cell.problem);
  std::vector<run::Problem> left;
  for (const run::Problem& problem : selection->problems) {
    if (!known.count(run::PrintCanonical(problem))) left.push_back(problem);
  }
  selection->problems = std::move(left);
}

std::string WrongCell(const std::vector<CellResult>& cells, const Selection& selection) {
  std::set<std::string> listed, seen;
  for (const run::Problem& problem : selection.problems) {
    listed.insert(run::PrintCanonical(problem));
  }
  for (const auto& [problem, reason] : selection.skipped) {
    listed.insert(run::PrintCanonical(problem));
  }
  for (const CellResult& cell : cells) {
    if (!seen.insert(cell.problem).second) return "holds a cell twice: " + cell.problem;
    if (!listed.count(cell.problem)) return "holds a cell that is not of its list: " + cell.problem;
  }
  return "";
}

// .assay/runs/latest is the newest run of this clone. Nothing depends on it.
void LinkLatest(const std::string& dir) {
  const std::filesystem::path link = std::filesystem::path(dir).parent_path() / "latest";
  std::error_code ignored;
  if (std::filesystem::is_symlink(link, ignored)) std::filesystem::remove(link, ignored);
  std::filesystem::create_directory_symlink(std::filesystem::path(dir).filename(), link, ignored);
}

Result<OpenRecord> Resume(const std::string& dir, const RunHeader& header, Selection* selection) {
  // Before anything is cut off: another run's record is left as it is.
  auto recorded = ReadResults(dir);
  if (!recorded) return recorded.error();
  if (const std::string why = WhyNotThatRun(*recorded, header, *selection); !why.empty()) {
    return Error{fmt::format("--resume {}: {}", dir, why)};
  }
  RunRecord record;
  auto writer = ResultsWriter::Resume(dir, &record);
  if (!writer) return writer.error();
  // What was added before we had the lock.
  if (const std::string wrong = WrongCell(record.cells, *selection); !wrong.empty()) {
    return Error{fmt::format("--resume {}: it {}", dir, wrong)};
  }
  LeaveOut(record.cells, selection);
  return OpenRecord{std::move(*writer), std::move(record.cells), dir};
}

}  // namespace

bool IsComplete(const RunRecord& record) {
  if (!record.finished() || !record.summary->totals.all_collected()) return false;
  return !record.header.cells ||
         record.header.cells->own_count == static_cast<int64_t>(record.cells.size());
}

std::string WhyNotThatRun(const RunRecord& record, const RunHeader& header,
                          const Selection& selection) {
  const RunHeader& recorded = record.header;
  const auto differs = [](std::string_view what, std::string_view there, std::string_view here) {
    return fmt::format("the recorded {} is '{}', not '{}'", what, there, here);
  };
  if (recorded.selection != header.selection) {
    return differs("selection", recorded.selection, header.selection);
  }
  if (Revision(recorded) != Revision(header)) {
    return differs("revision", Revision(recorded), Revision(header)) +
           "; one record is of one revision";
  }
  if (!recorded.emulate.empty() && recorded.emulate != header.emulate) {
    return differs("--emulate", recorded.emulate, header.emulate);
  }
  if (recorded.requirements != header.requirements) {
    return differs("--require", fmt::format("{}", fmt::join(recorded.requirements, " ")),
                   fmt::format("{}", fmt::join(header.requirements, " ")));
  }
  if (recorded.cells && !(*recorded.cells == *header.cells)) {
    return fmt::format(
        "its selection gave {} cells (hash {}) and now gives {} ({}): the matrix, the engine or "
        "the machine is another",
        recorded.cells->own_count, recorded.cells->own_hash, header.cells->own_count,
        header.cells->own_hash);
  }
  const std::string wrong = WrongCell(record.cells, selection);
  return wrong.empty() ? "" : "it " + wrong;
}

Result<OpenRecord> OpenResults(const RecordOptions& options, Selection* selection) {
  const RunHeader header = HeaderOf(*selection, options);
  if (!options.resume.empty() && HasRecord(options.resume)) {
    return Resume(options.resume, header, selection);
  }
  std::string dir = !options.resume.empty() ? options.resume : options.out;
  const bool own = dir.empty();
  if (own) {
    dir = Environment("ASSAY_ROOT", ".") + "/.assay/runs/" + header.run_id;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(dir).parent_path(), ignored);
  }
  auto writer =
      ResultsWriter::Create(dir, header,
                            options.resume.empty() ? ResultsWriter::Folder::kNewOrEmpty
                                                   : ResultsWriter::Folder::kMayHoldFiles);
  if (!writer) return writer.error();
  if (own) LinkLatest(dir);
  return OpenRecord{std::move(*writer), {}, dir};
}

std::vector<CellResult> SkippedCells(const Selection& selection,
                                     const std::vector<CellResult>& done) {
  std::set<std::string> known;
  for (const CellResult& cell : done) known.insert(cell.problem);
  std::vector<CellResult> cells;
  for (const auto& [problem, reason] : selection.skipped) {
    CellResult cell;
    cell.problem = run::PrintCanonical(problem);
    cell.repro = fmt::format("./assay run '{}'", run::PrintMinimal(problem));
    cell.verdict = Verdict::kSkipped;
    cell.reason = reason;
    if (!known.count(cell.problem)) cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace assay::cli
