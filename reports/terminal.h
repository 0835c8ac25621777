// What a run says on a terminal or into a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "harness/store/results.h"

namespace assay::reports {

struct Style {
  bool live = false;    // a terminal: one progress line that is written over
  bool colour = false;  // never with NO_COLOR
  bool utf8 = false;    // arrows and ellipses beyond ASCII
  int columns = 80;     // no line is wider
};

using Environment = std::function<const char*(const char* name)>;
// From what the stream is and the environment: NO_COLOR and TERM, LC_ALL, LC_CTYPE and LANG.
Style StyleFrom(bool is_terminal, int columns, const Environment& environment);
Style StyleOf(std::FILE* stream);

// All of these return lines that end in a newline, none wider than style.columns.
// A cell's verdict, label and whole reason, and how long it took.
std::string CellLine(const CellResult& cell, const Style& style);
// The sentence, the path, the values, the signature, what was cleared and propagated, the repro.
std::string FailureBlock(const CellResult& cell, const Style& style);
// As many findings are told in full; the others are in the report.
inline constexpr size_t kFindingsInFull = 5;
// The first findings, an empty line and a block each, and in which other cells they are.
std::string FindingsBlock(const RunRecord& record, const Style& style);
// "8 NOT_EXECUTED: the engine has no kernel of tier avx512": why cells are INFRA, NOT_EXECUTED or
// SKIPPED, at most five reasons each. INFRA cells that FindingsBlock tells of are left out. Empty
// where there is nothing to tell.
std::string ReasonsBlock(const RunRecord& record, const Style& style);
// The equations of the totals, each printed, and the time.
std::string TotalsBlock(const Totals& totals, double seconds, const Style& style);
// Where the run stands, without a newline.
std::string ProgressLine(const Totals& so_far, double seconds, const Style& style);

// A command in lines that a shell reads as the same words.
std::string CommandLines(const std::string& command, int columns);

// Writes progress to a stream: on a terminal one line that is written over, elsewhere a plain line
// each tenth of the run or each ten seconds. A red cell's line appears at once.
class Progress {
 public:
  // `registered`: how many cells there will be. The stream must outlive this.
  Progress(std::FILE* stream, const Style& style, int64_t registered);
  // `seconds`: since the run began.
  void Cell(const CellResult& cell, double seconds);
  // Takes the progress line away.
  void End();
  const Totals& totals() const { return totals_; }

 private:
  void Print(const std::string& text);
  std::FILE* stream_;
  Style style_;
  Totals totals_;
  double last_print_ = 0;
  int64_t last_tenth_ = 0;
  bool line_shown_ = false;
};

}  // namespace assay::reports
