// report DIR …: renders a run's results again.
#include <cstdio>

#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/store/results.h"
#include "reports/render.h"
#include "reports/terminal.h"

namespace assay::cli {

int Report(int argc, char** argv) {
  std::vector<std::string> words;
  Options options("report",
                  "DIR ...: renders report.html, report.md and junit.xml of each folder's "
                  "results.jsonl again. merge, diff and trend are not built yet.",
                  "./assay report results/nightly");
  options.Words("folders", &words, "folders with a results.jsonl");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (words.empty()) return BadUsage("report: name a folder with a results.jsonl");
  for (const char* verb : {"merge", "diff", "trend"}) {
    if (words[0] == verb) return BadUsage("report " + words[0] + " is not built yet");
  }
  const reports::Style style = reports::StyleOf(stdout);
  for (const std::string& dir : words) {
    auto record = ReadResults(dir);
    if (!record) return BadUsage(record.error().message);
    if (auto status = reports::RenderAll(*record, dir); !status) {
      return BadUsage(status.error().message);
    }
    const Totals totals = record->Count();
    const double seconds = record->summary ? record->summary->seconds : 0;
    std::fputs(reports::TotalsBlock(totals, seconds, style).c_str(), stdout);
    std::printf("%s/report.html\n", dir.c_str());
  }
  return 0;
}

}  // namespace assay::cli
