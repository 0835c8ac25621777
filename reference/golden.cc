// Which goldens there are, and where their models lie.
#include "reference/golden.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/checkpoint/checkpoint.h"

namespace assay::reference {
namespace {

std::vector<GoldenRow> AllRows(const std::string& name, const GoldenInfo& info,
                               GoldenVerdict verdict, const std::string& reason) {
  std::vector<GoldenRow> rows;
  for (const auto& [prompt, tokens] : info.prompts) {
    GoldenRow row;
    row.name = name;
    row.prompt = prompt;
    row.verdict = verdict;
    row.reason = reason;
    rows.push_back(std::move(row));
  }
  return rows;
}

// Where a golden's model is, or why it is not there.
struct Place {
  std::string path, why_not;
};

Result<Place> FindCheckpoint(const std::string& root, const std::string& model) {
  for (const char* kind : {"checkpoints", "quantised"}) {
    const std::string candidate = fmt::format("{}/{}/{}", root, kind, model);
    if (FolderExists(candidate)) return Place{candidate, ""};
  }
  return Place{"", fmt::format("model {} is neither in {}/checkpoints nor in {}/quantised", model,
                               root, root)};
}

// How `golden fetch` calls a model: the golden's name up to its first dash.
std::string ShortName(const std::string& golden) { return golden.substr(0, golden.find('-')); }

Result<Place> FindFetched(const std::string& models, const std::string& golden,
                          const FetchedFile& file) {
  const std::string path = models + "/" + file.file;
  if (!FileExists(path)) {
    return Place{
        "", fmt::format("{} is not there: run ./assay golden fetch {}", path, ShortName(golden))};
  }
  if (const Status same = CheckFetched(path, file); !same) return same.error();
  return Place{path, ""};
}

}  // namespace

std::string_view NameOf(GoldenVerdict verdict) {
  switch (verdict) {
    case GoldenVerdict::kPass:
      return "PASS";
    case GoldenVerdict::kFail:
      return "FAIL";
    case GoldenVerdict::kNotExecuted:
      break;
  }
  return "NOT_EXECUTED";
}

std::vector<GoldenRow> VerifyGolden(const std::string& root, const std::string& name,
                                    const std::string& models) {
  const std::string folder = root + "/goldens/" + name;
  const auto info = ReadGoldenInfo(folder);
  if (!info) {
    GoldenRow row;
    row.name = name;
    row.reason = info.error().message;
    return {row};
  }
  const auto place =
      info->gguf ? FindFetched(models.empty() ? root + "/fetched" : models, name, *info->gguf)
                 : FindCheckpoint(root, info->model);
  if (!place) return AllRows(name, *info, GoldenVerdict::kFail, place.error().message);
  if (place->path.empty()) {
    return AllRows(name, *info, GoldenVerdict::kNotExecuted, place->why_not);
  }
  const auto checkpoint = Checkpoint::Open(place->path);
  if (!checkpoint) {
    return AllRows(name, *info, GoldenVerdict::kFail, checkpoint.error().message);
  }
  const ModelConfig& config = (*checkpoint)->config();
  const auto oracle = Oracle::Create(config, **checkpoint);
  if (!oracle) {
    return AllRows(name, *info,
                   oracle.error().kind == ErrorKind::kUnsupported ? GoldenVerdict::kNotExecuted
                                                                  : GoldenVerdict::kFail,
                   oracle.error().message);
  }
  if (!(*oracle)->runs()) {
    return AllRows(name, *info, GoldenVerdict::kNotExecuted,
                   config.architecture + ": the oracle slices its parameters, but does not run it");
  }
  std::vector<GoldenRow> rows;
  for (const auto& [prompt, tokens] : info->prompts) {
    rows.push_back(VerifyPrompt(**oracle, config, *info, {folder, name, prompt, nullptr}));
  }
  return rows;
}

Result<std::vector<GoldenRow>> VerifyGoldens(const std::string& root, const std::string& models) {
  const std::string folder = root + "/goldens";
  std::error_code failed;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->is_directory()) names.push_back(entry->path().filename().string());
  }
  if (failed) return Error{fmt::format("{}: cannot be read: {}", folder, failed.message())};
  if (names.empty()) return Error{folder + ": no golden there"};
  std::sort(names.begin(), names.end());
  std::vector<GoldenRow> rows;
  for (const std::string& name : names) {
    auto some = VerifyGolden(root, name, models);
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

}  // namespace assay::reference
