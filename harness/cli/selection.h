// What the words after a verb select: one problem, or cells of a matrix.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/run/matrix.h"
#include "harness/store/result.h"

namespace assay::cli {

struct Selection {
  std::vector<run::Problem> problems;  // resolved where they can be
  std::vector<run::MatrixCell> cells;  // of a matrix; empty for a single problem
  std::vector<run::MatrixRow> rows;
  std::vector<std::pair<run::Problem, std::string>> skipped;  // allow-listed, with the reason
  bool whole_matrix = false;                                  // nothing filtered away
  bool single = false;
  std::string text;  // as recorded in the run
  CellList list;     // what is run, frozen
};

// `words`: a problem string (one word with spaces, or its words one by one), or filters. `engine`
// overrides the engine of every cell, empty: as stated. `matrix`: a file, empty: the default.
Result<Selection> Select(const std::vector<std::string>& words, const std::string& matrix,
                         const std::string& engine, run::ModelStore* models);

// A path as one word of Selection::text (percent-encoded), and back.
std::string RecordedPath(const std::string& path);
std::string PathFromRecord(const std::string& text);

// Keeps the cells of a shard: "i/n", 1 ≤ i ≤ n, is every n-th cell of the list from the i-th on.
// The first shard has the skipped cells too. A shard may be empty, where n is more than there are
// cells. Error: anything else; says what is allowed.
Status KeepShard(const std::string& shard, Selection* selection);

}  // namespace assay::cli
