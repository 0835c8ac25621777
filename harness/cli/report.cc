// report DIR …: renders runs' results again. report merge DIR … --out DIR: shards as one run.
#include <cstdio>
#include <filesystem>

#include "harness/cli/conclude.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/store/merge.h"
#include "harness/store/results.h"
#include "reports/render.h"
#include "reports/terminal.h"

namespace assay::cli {
namespace {

Status Write(const RunRecord& record, const std::string& dir) {
  auto writer = ResultsWriter::Create(dir, record.header);
  if (!writer) return writer.error();
  for (const CellResult& cell : record.cells) {
    if (auto status = writer->Append(cell); !status) return status;
  }
  return writer->Finish(record.summary->totals, record.summary->seconds);
}

int Merge(const std::vector<std::string>& dirs, const std::string& out) {
  if (dirs.empty()) return BadUsage("report merge: name the folders of all shards, and --out DIR");
  if (out.empty()) return BadUsage("report merge: --out DIR is missing, a new or an empty folder");
  auto merged = MergeShards(dirs);
  if (!merged) return BadUsage(merged.error().message);
  std::vector<Requirement> requirements;
  for (const std::string& text : merged->record.header.requirements) {
    auto requirement = ParseRequirement(text);
    if (!requirement) return BadUsage(requirement.error().message);
    requirements.push_back(std::move(*requirement));
  }
  if (auto status = Write(merged->record, out); !status) return BadUsage(status.error().message);
  return Conclude(out, requirements, merged->wrong);
}

int Render(const std::vector<std::string>& dirs) {
  const reports::Style style = reports::StyleOf(stdout);
  for (const std::string& dir : dirs) {
    auto record = ReadResults(dir);
    if (!record) return BadUsage(record.error().message);
    std::error_code ignored;
    if (!std::filesystem::is_directory(dir, ignored)) {
      return BadUsage("report " + dir + ": name the folder, where the reports are written");
    }
    for (const std::string& text : record->header.requirements) {
      auto requirement = ParseRequirement(text);
      if (!requirement) return BadUsage(requirement.error().message);
      for (std::string& line : Unmet({*requirement}, record->cells)) {
        record->complaints.push_back(std::move(line));
      }
    }
    if (auto status = reports::RenderAll(*record, dir); !status) {
      return BadUsage(status.error().message);
    }
    const double seconds = record->summary ? record->summary->seconds : 0;
    std::fputs(reports::TotalsBlock(record->Count(), seconds, style).c_str(), stdout);
    std::printf("%s/report.html\n", dir.c_str());
  }
  return 0;
}

}  // namespace

int Report(int argc, char** argv) {
  std::vector<std::string> words;
  std::string out;
  Options options("report",
                  "DIR ...: renders report.html, report.md and junit.xml of each folder's "
                  "results.jsonl again. merge DIR ... --out DIR: the shards of one run (run "
                  "--shard i/n) as one; red where one is missing, given twice, unfinished or of "
                  "another run. diff and trend are not built yet.",
                  "./assay report merge shard1 shard2 --out whole");
  options.Words("folders", &words, "folders with a results.jsonl");
  options.Value("--out", &out, "of merge: a new or empty folder");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (words.empty()) return BadUsage("report: name a folder with a results.jsonl");
  for (const char* verb : {"diff", "trend"}) {
    if (words[0] == verb) return BadUsage("report " + words[0] + " is not built yet");
  }
  if (words[0] == "merge") return Merge({words.begin() + 1, words.end()}, out);
  if (!out.empty()) return BadUsage("report --out: allowed with merge only");
  return Render(words);
}

}  // namespace assay::cli
