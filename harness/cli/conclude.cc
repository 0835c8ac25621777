#include "harness/cli/conclude.h"

#include <cstdio>

#include "harness/cli/options.h"
#include "harness/store/files.h"
#include "harness/store/results.h"
#include "reports/render.h"
#include "reports/terminal.h"
#include "reports/view.h"

namespace assay::cli {

Totals TotalsOf(const std::vector<CellResult>& cells, int64_t registered) {
  Totals totals;
  for (const CellResult& cell : cells) totals.Add(cell.verdict);
  totals.registered = registered;
  return totals;
}

int Conclude(const std::string& dir, const std::vector<Requirement>& requirements,
             const std::vector<std::string>& wrong) {
  auto record = ReadResults(dir);
  if (!record) return BadUsage(record.error().message);
  const std::vector<CellResult>& cells = record->cells;
  record->complaints = wrong;
  for (std::string& line : Unmet(requirements, record->cells)) {
    record->complaints.push_back(std::move(line));
  }
  const Totals totals = record->Count();
  const double seconds = record->summary ? record->summary->seconds : 0;
  const reports::Style style = reports::StyleOf(stdout);
  std::fputs(reports::FindingsBlock(*record, style).c_str(), stdout);
  if (cells.size() == 1 && !reports::IsRed(cells[0].verdict)) {
    std::fputs(reports::CellLine(cells[0], style).c_str(), stdout);
  }
  std::fputs(("\n" + reports::TotalsBlock(totals, seconds, style)).c_str(), stdout);
  if (cells.size() > 1) std::fputs(reports::ReasonsBlock(*record, style).c_str(), stdout);
  for (const char* file : {"report.html", "report.md", "junit.xml"}) {
    RemoveLeftovers(dir + "/" + file);
  }
  if (auto status = reports::RenderAll(*record, dir); !status) {
    return BadUsage(status.error().message);
  }
  std::printf("%s/report.html\n", dir.c_str());
  for (const std::string& line : record->complaints) std::puts(line.c_str());
  return ExitCode(totals, !record->complaints.empty());
}

}  // namespace assay::cli
