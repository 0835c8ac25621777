#include "harness/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "harness/checkpoint/decoder_names.h"
#include "harness/checkpoint/folder.h"
#include "harness/checkpoint/gguf_config.h"
#include "harness/checkpoint/hash128.h"
#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

struct Located {
  fs::path folder;                 // where config.json is
  std::vector<std::string> files;  // names in the folder, sorted
  std::optional<ShardIndex> index;
  std::string gguf;  // path of the one GGUF file; then nothing else is set
};

// A folder without safetensors under their usual names.
Result<Located> LocateGguf(const fs::path& folder) {
  const Result<std::vector<std::string>> found = FilesIn(folder, kGgufSuffix);
  if (!found.ok()) return found.error();
  const std::string where = ShownPath(folder.string());
  if (found->empty()) {
    return Error{fmt::format("{}: no checkpoint; it must have {} or {} or one {} file", where,
                             kSingleName, kIndexName, kGgufSuffix)};
  }
  if (found->size() > 1) {
    return Error{fmt::format("{}: {} {} files, such as {} and {}; name the one that is meant",
                             where, found->size(), kGgufSuffix, Quoted((*found)[0]),
                             Quoted((*found)[1]))};
  }
  return Located{folder, {}, std::nullopt, (folder / found->front()).string()};
}

Result<Located> LocateInFolder(const fs::path& folder) {
  Located located{folder, {}, std::nullopt, ""};
  const fs::path index_path = folder / kIndexName;
  const bool has_single = FileExists(folder / kSingleName);
  if (!FileExists(index_path)) {
    if (!has_single) return LocateGguf(folder);
    located.files = {kSingleName};
    return located;
  }
  Faults faults(index_path.string());
  std::optional<ShardIndex> index = ReadShardIndex(index_path, faults);
  if (const Status status = faults.first(); !status.ok()) return status.error();
  located.files = index->Files();
  if (has_single && !std::binary_search(located.files.begin(), located.files.end(), kSingleName)) {
    return Error{
        fmt::format("{}: it does not list {}, which lies beside it; engines differ in "
                    "which one they read, so only one may be there",
                    ShownPath(index_path.string()), kSingleName)};
  }
  located.index = std::move(index);
  return located;
}

Result<Located> Locate(const std::string& path) {
  if (path.empty() || path.find('\0') != path.npos) {
    return Error{"an empty path or one with a zero byte is no checkpoint"};
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return Error{
        fmt::format("{}: no such file or folder; a checkpoint is a folder with {} and {} "
                    "or {}, one .safetensors file with config.json beside it, or one .gguf file",
                    ShownPath(path), kConfigName, kSingleName, kIndexName)};
  }
  if (fs::is_directory(status)) return LocateInFolder(path);
  const fs::path file(path);
  if (file.extension() == kGgufSuffix) return Located{{}, {}, std::nullopt, path};
  if (file.extension() != kSafetensorsSuffix) {
    return Error{
        fmt::format("{}: not a folder and not a .safetensors or .gguf file", ShownPath(path))};
  }
  return Located{file.parent_path().empty() ? fs::path(".") : file.parent_path(),
                 {file.filename().string()},
                 std::nullopt,
                 ""};
}

// What the index says against what the files hold.
Status CheckIndex(const fs::path& index_path, const ShardIndex& index,
                  const std::map<std::string, const TensorView*, std::less<>>& tensors) {
  const std::string where = ShownPath(index_path.string());
  for (const auto& [name, file] : index.weight_map) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      return Error{fmt::format("{}: tensor {}: listed in {}, but no file has it", where,
                               Quoted(name), Quoted(file))};
    }
    const std::string actual = fs::path(found->second->file).filename().string();
    if (actual != file) {
      return Error{fmt::format("{}: tensor {}: listed in {}, but it lies in {}", where,
                               Quoted(name), Quoted(file), Quoted(actual))};
    }
  }
  for (const auto& [name, view] : tensors) {
    if (index.weight_map.contains(name)) continue;
    return Error{fmt::format("{}: tensor {}: not in {}; the index must list every tensor",
                             ShownPath(view->file), Quoted(name), kIndexName)};
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::OpenGguf(const std::string& path,
                                                         const std::string& file) {
  auto gguf = GgufFile::Open(file);
  if (!gguf.ok()) return gguf.error();
  Result<std::string> config_json = DeriveGgufConfig(**gguf);
  if (!config_json.ok()) return config_json.error();
  Result<ModelConfig> config =
      ParseModelConfig(*config_json, ShownPath(file) + ": metadata as a config");
  if (!config.ok()) return config.error();
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = path;
  checkpoint->gguf_ = std::move(*gguf);
  checkpoint->config_json_ = std::move(*config_json);
  checkpoint->config_ = std::move(*config);
  if (checkpoint->config_.family != Family::kUnknown) {
    const Status used = CheckGgufTensors(*checkpoint->gguf_, checkpoint->config_);
    if (!used.ok()) return used.error();
  }
  for (const auto& [name, view] : checkpoint->gguf_->tensors()) {
    checkpoint->tensors_.emplace_hint(checkpoint->tensors_.end(), name, &view);
  }
  Hash128 structure;
  structure.AddText(checkpoint->config_json_);
  structure.AddBytes(checkpoint->gguf_->header());
  structure.AddNumber(checkpoint->gguf_->file_bytes());
  checkpoint->structure_hash_ = structure.Hex();
  return checkpoint;
}

Result<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& path) {
  const Result<Located> located = Locate(path);
  if (!located.ok()) return located.error();
  if (!located->gguf.empty()) return OpenGguf(path, located->gguf);
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->path_ = path;

  Result<std::string> config_json = ReadConfigText(located->folder);
  if (!config_json.ok()) return config_json.error();
  Result<ModelConfig> config =
      ParseModelConfig(*config_json, ShownPath((located->folder / kConfigName).string()));
  if (!config.ok()) return config.error();
  checkpoint->config_json_ = std::move(*config_json);
  checkpoint->config_ = std::move(*config);

  Hash128 structure;
  structure.AddText(checkpoint->config_json_);
  for (const std::string& name : located->files) {
    auto file = SafetensorsFile::Open((located->folder / name).string());
    if (!file.ok() && located->index) {
      return Error{fmt::format("{}; {} lists it", file.error().message, kIndexName),
                   file.error().kind};
    }
    if (!file.ok()) return file.error();
    structure.AddText((*file)->header());
    structure.AddNumber((*file)->file_bytes());
    for (const auto& [tensor, view] : (*file)->tensors()) {
      const auto [there, is_new] = checkpoint->tensors_.emplace(tensor, &view);
      if (is_new) continue;
      return Error{fmt::format("{}: tensor {}: is also in {}; a name may appear once",
                               ShownPath((*file)->path()), Quoted(tensor),
                               ShownPath(there->second->file))};
    }
    checkpoint->files_.push_back(std::move(*file));
  }
  if (located->index) {
    const Status status =
        CheckIndex(located->folder / kIndexName, *located->index, checkpoint->tensors_);
    if (!status.ok()) return status.error();
  }
  checkpoint->structure_hash_ = structure.Hex();
  const Status named = FindDecoderNames(*checkpoint, ShownPath(path), checkpoint->config_);
  if (!named.ok()) return named.error();
  return checkpoint;
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::string Checkpoint::ContentHash(const std::vector<std::string>& names) const {
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  Hash128 hash;
  for (const std::string& name : sorted) {
    hash.AddText(name);
    const TensorView* view = Find(name);
    hash.AddNumber(view != nullptr);
    if (view == nullptr) continue;
    hash.AddText(NameOf(view->dtype));
    hash.AddNumber(view->shape.size());
    for (const int64_t extent : view->shape) hash.AddNumber(static_cast<uint64_t>(extent));
    hash.AddBytes(view->bytes);
  }
  return hash.Hex();
}

}  // namespace assay
