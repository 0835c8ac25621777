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
  std::vector<std::string> order;                        // of the keys, as they stand
  std::string Get(std::string_view key, std::string_view fallback = "") const;
};
ProblemView View(std::string_view problem);

// "moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0": what tells a cell from its neighbours.
std::string Label(const CellResult& cell);
// What the cell found: "the first wrong op is L1.moe.e5.down on rank 1: loader: scales of …"; the
// reason where nothing was located.
std::string Finding(const CellResult& cell);
// Label, and the finding or the reason if there is one; without the verdict.
std::string CellText(const CellResult& cell);
// The reason where the finding and its evidence do not say it already, else empty.
std::string FurtherReason(const CellResult& cell);
// "FAIL " + label + ": " + finding.
std::string Sentence(const CellResult& cell);
// One divergence without "the first wrong op is".
std::string Culprit(const Divergence& divergence);

// From coarse to fine: layer, op, rank, expert, then the index in its unit.
std::vector<std::pair<std::string, std::string>> Path(const Divergence& divergence);
// "of the first wrong op: c = 71, …; tolerance = …" in words, from its facts; empty: not computed.
std::string ToleranceLine(const CellResult& cell);
// Figures of one thing: "of the first wrong op", "of the end result".
struct MetricSet {
  std::string of;
  std::vector<std::pair<std::string, std::string>> values;  // never empty
};
// The metrics that were computed, each with what it is of.
std::vector<MetricSet> MetricSets(const CellResult& cell);
// A set a line: "of the end result: cosine 0.9412, rel L2 0.3517".
std::vector<std::string> MetricLines(const CellResult& cell);

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
// The same in words that belong together: "collected 81", "=", "not executed 16", "+", …
std::vector<std::vector<std::string>> TotalsWords(const Totals& totals);
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
