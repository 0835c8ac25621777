// golden verify: the oracle against recorded logits and taps.
#include "reference/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/model.h"

namespace assay::cli {
namespace {

using reference::GoldenRow;
using reference::GoldenVerdict;

nlohmann::ordered_json Number(const std::optional<double>& value) {
  if (!value) return nullptr;
  return *value;
}

std::string Short(const std::optional<double>& value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}

// Rows that did not run, by golden: one line each.
void PrintNotExecuted(const std::vector<GoldenRow>& rows) {
  std::string last;
  for (const GoldenRow& row : rows) {
    if (row.verdict != GoldenVerdict::kNotExecuted || row.name == last) continue;
    if (last.empty()) std::puts("\nNOT_EXECUTED, all prompts:");
    last = row.name;
    std::puts(fmt::format("  {}\n    {}", row.name, row.reason).c_str());
  }
}

void PrintTable(const std::vector<GoldenRow>& rows) {
  std::puts("golden               prompt  verdict  logits    taps      decode");
  int64_t passed = 0, failed = 0;
  for (const GoldenRow& row : rows) {
    if (row.verdict == GoldenVerdict::kNotExecuted) continue;
    (row.verdict == GoldenVerdict::kPass ? passed : failed) += 1;
    std::puts(fmt::format("{:<20} {:<7} {:<8} {:<9} {:<9} {}", row.name, row.prompt,
                          NameOf(row.verdict), Short(row.logits_max_rel), Short(row.taps_max_rel),
                          Short(row.decode_max_rel))
                  .c_str());
    if (!row.reason.empty()) std::puts(fmt::format("    {}", row.reason).c_str());
  }
  PrintNotExecuted(rows);
  std::puts(
      "\nFigures are the largest difference over the largest value. The taps of t33 are\n"
      "stored in float32, whose rounding is 6e-8.");
  std::puts(fmt::format("{} PASS, {} FAIL, {} NOT_EXECUTED", passed, failed,
                        static_cast<int64_t>(rows.size()) - passed - failed)
                .c_str());
}

}  // namespace

int Golden(int argc, char** argv) {
  std::vector<std::string> words;
  bool json = false;
  Options options("golden",
                  "verify [DIR]: the oracle against the logits and taps in DIR/goldens, models in "
                  "DIR/checkpoints and DIR/quantised (default: goldens/). record, diff and fetch "
                  "are not built yet.",
                  "./assay golden verify --json");
  options.Words("what", &words, "verify [DIR]");
  options.Flag("--json", &json, "print JSON");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (words.empty() || words[0] != "verify") {
    const std::string word = words.empty() ? "(nothing)" : words[0];
    if (word == "record" || word == "diff" || word == "fetch") {
      return BadUsage(fmt::format("golden {} is not built yet", word));
    }
    return BadUsage(fmt::format("golden {}: allowed is verify [DIR]", word));
  }
  if (words.size() > 2) return BadUsage("golden verify: one folder at most");
  auto rows = reference::VerifyGoldens(words.size() == 2 ? words[1] : run::GoldensFolder());
  if (!rows) return BadUsage(rows.error().message);
  if (json) {
    nlohmann::ordered_json out;
    out["rows"] = nlohmann::ordered_json::array();
    for (const GoldenRow& row : *rows) {
      out["rows"].push_back({{"name", row.name},
                             {"prompt", row.prompt},
                             {"verdict", NameOf(row.verdict)},
                             {"reason", row.reason},
                             {"logits_max_rel", Number(row.logits_max_rel)},
                             {"taps_max_rel", Number(row.taps_max_rel)},
                             {"worst_tap", row.worst_tap},
                             {"decode_max_rel", Number(row.decode_max_rel)}});
    }
    std::puts(out.dump(1).c_str());
  } else {
    PrintTable(*rows);
  }
  const bool failed = std::any_of(rows->begin(), rows->end(), [](const GoldenRow& row) {
    return row.verdict == GoldenVerdict::kFail;
  });
  return failed ? 1 : 0;
}

}  // namespace assay::cli
