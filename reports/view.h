// What every report says about a run, before it becomes a terminal's lines, HTML or Markdown. All
// texts are plain: the renderer escapes them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/store/results.h"

namespace assay::reports {

// A problem string taken apart for showing; what does not parse is left out.
struct ProblemView {
  std::string kind;
  std::map<std::string, std::string, std::less<>> keys;  // decoded
  std::string Get(std::string_view key, std::string_view fallback = "") const;
};
ProblemView View(std::string_view problem);

// "moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0": what tells a cell from its neighbours.
std::string Label(const CellResult& cell);
// What the cell found: "the first wrong op is L1.moe.e5.down on rank 1: loader: scales of …"; the
// reason where nothing was located.
std::string Finding(const CellResult& cell);
// "FAIL " + label + ": " + finding.
std::string Sentence(const CellResult& cell);
// One divergence without "the first wrong op is".
std::string Culprit(const Divergence& divergence);

// From coarse to fine: layer, op, rank, expert, then the index in its unit.
std::vector<std::pair<std::string, std::string>> Path(const Divergence& divergence);
// "tolerance = …" in words, from its facts.
std::string ToleranceText(const ToleranceFacts& facts);
// The metrics that were computed, by name.
std::vector<std::pair<std::string, std::string>> MetricTexts(const Metrics& metrics);

bool IsRed(Verdict verdict);    // FAIL, MISTRUSTED, INFRA
int Severity(Verdict verdict);  // larger is worse
// All verdicts, worst first.
const std::vector<Verdict>& WorstFirst();
int64_t CountOf(const Totals& totals, Verdict verdict);
// What the verdict means, in a sentence.
std::string Meaning(Verdict verdict);

// The run in one line: "2 of 60 cells failed", "PASS: …", "nothing was executed".
std::string Headline(const RunRecord& record);
// The equations of the totals, one a line; where one does not hold, it says so.
std::vector<std::string> TotalsLines(const Totals& totals);
// Revision, machine, engines … for the heading: (name, value).
std::vector<std::pair<std::string, std::string>> RunFacts(const RunRecord& record);

// Red cells whose first divergence is the same but for the rank: one mistake seen many times.
struct Group {
  std::vector<const CellResult*> cells;  // never empty
};
// Worst verdict first, then in the run's order.
std::vector<Group> GroupFindings(const RunRecord& record);

// Cells of one verdict by their reason, the most frequent first.
struct Reason {
  std::string text;
  std::vector<const CellResult*> cells;
};
std::vector<Reason> GroupByReason(const RunRecord& record, Verdict verdict);

}  // namespace assay::reports
