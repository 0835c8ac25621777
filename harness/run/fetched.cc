// Models that are too large to ship, as the goldens list them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/run/model.h"

namespace assay::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The file that a golden.json names; a name with a folder in it is none.
std::optional<std::string> FileOf(const fs::path& path) {
  std::ifstream in(path);
  if (!in) return {};
  const Json json = Json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("gguf")) return {};
  const Json& gguf = json["gguf"];
  if (!gguf.is_object() || !gguf.contains("file") || !gguf["file"].is_string()) return {};
  std::string file = gguf["file"].get<std::string>();
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos) return {};
  return file;
}

std::optional<FetchedModel> FindFetched(const std::string& name) {
  for (FetchedModel& model : ListFetchedModels()) {
    if (model.name == name) return std::move(model);
  }
  return {};
}

}  // namespace

std::string ShortName(const std::string& golden) { return golden.substr(0, golden.find('-')); }

std::vector<FetchedModel> ListFetchedModels() {
  std::vector<FetchedModel> models;
  std::error_code failed;
  for (fs::directory_iterator entry(fs::path(GoldensFolder()) / "goldens", failed), end;
       !failed && entry != end; entry.increment(failed)) {
    const std::string golden = entry->path().filename().string();
    if (auto file = FileOf(entry->path() / "golden.json")) {
      models.push_back({ShortName(golden), std::move(*file), golden});
    }
  }
  std::sort(models.begin(), models.end(),
            [](const FetchedModel& a, const FetchedModel& b) { return a.golden < b.golden; });
  return models;
}

std::vector<std::string> FetchedModels() {
  std::vector<std::string> names;
  for (FetchedModel& model : ListFetchedModels()) names.push_back(std::move(model.name));
  return names;
}

std::string FetchedFolder() {
  if (const char* folder = std::getenv("ASSAY_MODELS")) return folder;
  return (fs::path(GoldensFolder()) / "fetched").string();
}

std::string FetchedPath(const std::string& name) {
  const auto model = FindFetched(name);
  return model ? (fs::path(FetchedFolder()) / model->file).string() : "";
}

std::string GoldenOf(const std::string& name) {
  const auto model = FindFetched(name);
  return model ? model->golden : name;
}

}  // namespace assay::run
