#include "harness/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "harness/checkpoint/decoder_names.h"
#include "harness/checkpoint/gguf_config.h"
#include "harness/checkpoint/hash128.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"

namespace assay {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr JsonLimits kIndexLimits{.max_depth = 8, .max_values = 4'000'000};
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kModelSlimName = "quant_model_description.json";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kGgufSuffix = ".gguf";

// tensor -> file, both as in the index.
using WeightMap = std::map<std::string, std::string>;

struct Located {
  fs::path folder;                 // where config.json is
  std::vector<std::string> files;  // names in the folder, sorted
  std::optional<WeightMap> index;
  std::string gguf;  // path of the one GGUF file; then nothing else is set
};

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A shard lies beside its index: a path in its name could reach any file of the machine.
Status CheckShardName(std::string_view where, std::string_view tensor, std::string_view file) {
  const bool has_control = std::any_of(file.begin(), file.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  const bool plain = file.find_first_of("/\\") == file.npos && !has_control;
  if (plain && file.size() > kSuffix.size() && file.ends_with(kSuffix)) return Ok();
  return Error{
      fmt::format("{}: tensor {}: its file is {}; it must be the plain name of a "
                  ".safetensors file in the same folder",
                  where, Quoted(tensor), Quoted(file))};
}

Result<WeightMap> ReadIndex(const fs::path& path) {
  const Result<std::string> text = ReadTextFile(path.string(), kMaxIndexBytes);
  if (!text.ok()) return text.error();
  const std::string where = ShownPath(path.string());
  const Result<json> index = ParseStrictJson(*text, where, kIndexLimits);
  if (!index.ok()) return index.error();
  const auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object() || map->empty()) {
    return Error{
        fmt::format("{}: weight_map is {}; it must be an object that names each tensor's "
                    "file",
                    where, map == index->end() ? "missing" : ShownValue(*map))};
  }
  // metadata.total_size is not compared: real converters leave a stale one behind.
  WeightMap weight_map;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      return Error{fmt::format("{}: tensor {}: its file is {}; it must be a string", where,
                               Quoted(tensor), ShownValue(file))};
    }
    std::string name = file.get<std::string>();
    if (Status status = CheckShardName(where, tensor, name); !status.ok()) return status.error();
    weight_map.emplace_hint(weight_map.end(), tensor, std::move(name));
  }
  return weight_map;
}

// ModelSlim says in a file of its own how each tensor is stored. Engines and planners get one text:
// config.json with that file under quantization_config.
Result<std::string> WithDescription(const std::string& config_json, const std::string& where,
                                    const std::string& path) {
  const Result<std::string> text = ReadTextFile(path, kMaxIndexBytes);
  if (!text.ok()) return text.error();
  const Result<json> description = ParseStrictJson(*text, ShownPath(path), kIndexLimits);
  if (!description.ok()) return description.error();
  Result<json> config = ParseStrictJson(config_json, where, JsonLimits());
  if (!config.ok()) return config.error();
  if (!config->is_object() || !description->is_object()) {
    return Error{
        fmt::format("{}: must be a JSON object", config->is_object() ? ShownPath(path) : where)};
  }
  json& quant = (*config)["quantization_config"];
  if (quant.is_null()) quant = json::object();
  const bool ours = quant.is_object() &&
                    (!quant.contains("quant_method") || quant["quant_method"] == json("ascend"));
  if (!ours) {
    return Error{fmt::format("{}: its quantization_config is another producer's than {} beside it",
                             where, kModelSlimName)};
  }
  quant["quant_method"] = "ascend";
  quant["quant_description"] = *description;
  return config->dump();
}

// A folder without safetensors under their usual names.
Result<Located> LocateGguf(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kGgufSuffix) found.push_back(it->path().filename().string());
  }
  const std::string where = ShownPath(folder.string());
  if (error) return Error{fmt::format("{}: cannot be listed: {}", where, error.message())};
  if (found.empty()) {
    return Error{fmt::format("{}: no checkpoint; it must have {} or {} or one {} file", where,
                             kSingleName, kIndexName, kGgufSuffix)};
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1) {
    return Error{fmt::format("{}: {} {} files, such as {} and {}; name the one that is meant",
                             where, found.size(), kGgufSuffix, Quoted(found[0]), Quoted(found[1]))};
  }
  return Located{folder, {}, std::nullopt, (folder / found[0]).string()};
}

Result<Located> LocateInFolder(const fs::path& folder) {
  Located located{folder, {}, std::nullopt, ""};
  const fs::path index_path = folder / kIndexName;
  const bool has_single = Exists(folder / kSingleName);
  if (!Exists(index_path)) {
    if (!has_single) return LocateGguf(folder);
    located.files = {kSingleName};
    return located;
  }
  Result<WeightMap> map = ReadIndex(index_path);
  if (!map.ok()) return map.error();
  for (const auto& [tensor, file] : *map) located.files.push_back(file);
  std::sort(located.files.begin(), located.files.end());
  located.files.erase(std::unique(located.files.begin(), located.files.end()), located.files.end());
  if (has_single && !std::binary_search(located.files.begin(), located.files.end(), kSingleName)) {
    return Error{
        fmt::format("{}: it does not list {}, which lies beside it; engines differ in "
                    "which one they read, so only one may be there",
                    ShownPath(index_path.string()), kSingleName)};
  }
  located.index = std::move(*map);
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
                    ShownPath(path), "config.json", kSingleName, kIndexName)};
  }
  if (fs::is_directory(status)) return LocateInFolder(path);
  const fs::path file(path);
  if (file.extension() == kGgufSuffix) return Located{{}, {}, std::nullopt, path};
  if (file.extension() != kSuffix) {
    return Error{
        fmt::format("{}: not a folder and not a .safetensors or .gguf file", ShownPath(path))};
  }
  return Located{file.parent_path().empty() ? fs::path(".") : file.parent_path(),
                 {file.filename().string()},
                 std::nullopt,
                 ""};
}

// What the index says against what the files hold.
Status CheckIndex(const fs::path& index_path, const WeightMap& index,
                  const std::map<std::string, const TensorView*, std::less<>>& tensors) {
  const std::string where = ShownPath(index_path.string());
  for (const auto& [name, file] : index) {
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
    if (index.contains(name)) continue;
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

  const std::string config_path = (located->folder / "config.json").string();
  Result<std::string> config_json = ReadTextFile(config_path, kMaxConfigBytes);
  if (!config_json.ok()) {
    return Error{config_json.error().message + "; a checkpoint needs its config.json",
                 config_json.error().kind};
  }
  if (const fs::path description = located->folder / kModelSlimName; Exists(description)) {
    Result<std::string> merged =
        WithDescription(*config_json, ShownPath(config_path), description.string());
    if (!merged.ok()) return merged.error();
    config_json = std::move(merged);
  }
  Result<ModelConfig> config = ParseModelConfig(*config_json, ShownPath(config_path));
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
