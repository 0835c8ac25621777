// DIR/results.jsonl, the truth about a run (interfaces.md §3): first line the run, then its cells,
// last the summary. Everything else is rendered from it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/store/result.h"

namespace assay {

inline constexpr std::string_view kResultsFile = "results.jsonl";

// A run as its file tells it.
struct RunRecord {
  RunHeader header;
  std::vector<CellResult> cells;
  std::optional<Summary> summary;
  // What is wrong with a last line that was torn by a kill; empty if the file ends well.
  std::string torn;
  // What makes the run red beside its cells, a line each: requirements that they do not meet,
  // shards that do not fit. Not in the file: whoever judges the run fills it in before it is
  // rendered.
  std::vector<std::string> complaints = {};
  // A file without a summary is an unfinished run and can be resumed.
  bool finished() const { return summary.has_value(); }
  // Counted from the cells; `registered` is the summary's, or the cells' number where there is
  // none.
  Totals Count() const;
};

// Reads DIR/results.jsonl, or the file itself if the path is one. A last line without its newline
// that does not read is torn and left out. Error: no such file (environment); any other line that
// is wrong or out of place, or a summary that does not fit the cells (bad input), as "FILE:LINE:
// …".
Result<RunRecord> ReadResults(const std::string& path);

// Whether `dir` holds a results file with a whole first line, which --resume goes on from.
bool HasRecord(const std::string& dir);

// The only writer of a results file. A line is one write() to the file, without a buffer of ours,
// so that a killed run has lost no cell that was appended; fsync after the first and the last line
// and at most once a second between, so XX
class ResultsWriter {
 public:
  enum class Folder { kNewOrEmpty, kMayHoldFiles };

  // Makes the folder if need be. Error (bad input): it is not empty; (environment): it cannot be
  // written; then neither file nor folder is left. kMayHoldFiles: other files may lie there, a
  // results file that holds a record may not.
  static Result<ResultsWriter> Create(const std::string& dir, const RunHeader& header,
                                      Folder folder = Folder::kNewOrEmpty);

  // Goes on with the run recorded in `dir`, which is given back in `record`: a torn last line and a
  // summary are cut off the file, and record->summary is empty. Error: as ReadResults, or another
  // process is writing.
  static Result<ResultsWriter> Resume(const std::string& dir, RunRecord* record);

  // Error (environment): one line with file and cause; the file holds what it held before.
  Status Append(const CellResult& cell);
  Status Finish(const Totals& totals, double seconds);

  const std::string& path() const;

  ResultsWriter(ResultsWriter&&) noexcept;
  ResultsWriter& operator=(ResultsWriter&&) noexcept;
  ~ResultsWriter();

 private:
  struct State;
  explicit ResultsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace assay
