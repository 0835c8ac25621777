// The record of a run as `run` opens it: a new one, or one that it goes on with.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/selection.h"
#include "harness/store/results.h"

namespace assay::cli {

// What of the command line decides which cells run and how; all of it is recorded.
struct RecordOptions {
  std::string out, resume;   // folders; both empty: a new one below .assay/runs
  std::string emulate;       // never, auto, always
  std::string requirements;  // of --require; empty: none
};

struct OpenRecord {
  ResultsWriter writer;
  std::vector<CellResult> cells;  // of a resumed run
  std::string dir;
};

// Whether every cell of the record's frozen list has its result and the summary says so.
bool IsComplete(const RunRecord& record);

// Makes the folder and the record's first line, or goes on with the one in options.resume; then the
// cells that are there are taken out of selection->problems. Error: as ResultsWriter, or what is
// recorded is not this run: another selection, revision, list of cells, option; a cell twice or
// one that is not of the list.
Result<OpenRecord> OpenResults(const RecordOptions& options, Selection* selection);

// What keeps a recorded run from being gone on with as `header` describes; empty: nothing.
std::string WhyNotThatRun(const RunRecord& record, const RunHeader& header,
                          const Selection& selection);

// The cells that the matrix file skips and `done` does not have yet, each with its reason.
std::vector<CellResult> SkippedCells(const Selection& selection,
                                     const std::vector<CellResult>& done);

}  // namespace assay::cli
