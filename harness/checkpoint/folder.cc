#include "harness/checkpoint/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"

namespace assay {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = 16 << 20;
constexpr size_t kMaxIndexBytes = 100'000'000;
constexpr JsonLimits kIndexLimits{.max_depth = 8, .max_values = 4'000'000};
constexpr const char* kModelSlimName = "quant_model_description.json";
constexpr const char* kModelOptName = "hf_quant_config.json";

// A shard lies beside its index: a path in its name could reach any file of the machine.
bool IsShardName(std::string_view file) {
  const bool has_control = std::any_of(file.begin(), file.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  return file.find_first_of("/\\") == file.npos && !has_control &&
         file.size() > kSafetensorsSuffix.size() && file.ends_with(kSafetensorsSuffix);
}

// A file beside config.json whose text belongs under its quantization_config.
Result<json> ReadBeside(const fs::path& path) {
  const Result<std::string> text = ReadTextFile(path.string(), kMaxIndexBytes);
  if (!text.ok()) return text.error();
  return ParseStrictJson(*text, ShownPath(path.string()), kIndexLimits);
}

Result<std::string> WithDescription(const std::string& config_json, const std::string& where,
                                    const fs::path& path) {
  const Result<json> description = ReadBeside(path);
  if (!description.ok()) return description.error();
  Result<json> config = ParseStrictJson(config_json, where, JsonLimits());
  if (!config.ok()) return config.error();
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

bool HasQuant(const json& config) {
  const auto has = [](const json& object) {
    const auto found = object.find("quantization_config");
    return found != object.end() && !found->is_null();
  };
  const auto text = config.find("text_config");
  return has(config) || (text != config.end() && text->is_object() && has(*text));
}

// Older ones of ModelOpt's checkpoints say nothing in config.json itself.
Result<std::string> WithModelOpt(const std::string& config_json, const std::string& where,
                                 const fs::path& path) {
  Result<json> config = ParseStrictJson(config_json, where, JsonLimits());
  if (!config.ok()) return config.error();
  if (HasQuant(*config)) return config_json;
  const Result<json> beside = ReadBeside(path);
  if (!beside.ok()) return beside.error();
  const auto quant = beside->find("quantization");
  if (quant == beside->end() || !quant->is_object()) {
    return Error{fmt::format("{}: quantization is {}; it must be an object",
                             ShownPath(path.string()),
                             quant == beside->end() ? "missing" : ShownValue(*quant))};
  }
  if (!quant->contains("quant_algo") || (*quant)["quant_algo"].is_null()) return config_json;
  json merged = *quant;
  merged["quant_method"] = "modelopt";
  (*config)["quantization_config"] = std::move(merged);
  return config->dump();
}

}  // namespace

bool FileExists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<std::vector<std::string>> FilesIn(const fs::path& folder, std::string_view suffix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == suffix) found.push_back(it->path().filename().string());
  }
  if (error) {
    return Error{
        fmt::format("{}: cannot be listed: {}", ShownPath(folder.string()), error.message())};
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> ShardIndex::Files() const {
  std::vector<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.push_back(file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::optional<ShardIndex> ReadShardIndex(const fs::path& path, Faults& faults) {
  const std::string where = ShownPath(path.string());
  const auto fail = [&](std::string reason, ErrorKind kind = ErrorKind::kBadInput) {
    faults.TellFile("index", std::move(reason), kind);
    return std::nullopt;
  };
  const Result<std::string> text = ReadTextFile(path.string(), kMaxIndexBytes);
  if (!text.ok()) return fail(WithoutPath(text.error().message, path.string()), text.error().kind);
  const Result<json> parsed = ParseStrictJson(*text, where, kIndexLimits);
  if (!parsed.ok()) return fail(WithoutPath(parsed.error().message, path.string()));
  const auto map = parsed->find("weight_map");
  if (map == parsed->end() || !map->is_object() || map->empty()) {
    return fail(fmt::format("weight_map is {}; it must be an object that names each tensor's file",
                            map == parsed->end() ? "missing" : ShownValue(*map)));
  }
  ShardIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      faults.TellTensor("index", tensor,
                        fmt::format("its file is {}; it must be a string", ShownValue(file)));
    } else if (const std::string name = file.get<std::string>(); IsShardName(name)) {
      index.weight_map.emplace_hint(index.weight_map.end(), tensor, name);
    } else {
      faults.TellTensor("index", tensor,
                        fmt::format("its file is {}; it must be the plain name of a .safetensors "
                                    "file in the same folder",
                                    Quoted(name)));
    }
  }
  const auto metadata = parsed->find("metadata");
  if (metadata != parsed->end() && metadata->is_object() && metadata->contains("total_size") &&
      (*metadata)["total_size"].is_number_unsigned()) {
    index.total_size = (*metadata)["total_size"].get<uint64_t>();
  }
  return index;
}

Result<std::string> ReadConfigText(const fs::path& folder) {
  const std::string path = (folder / kConfigName).string();
  Result<std::string> text = ReadTextFile(path, kMaxConfigBytes);
  if (!text.ok()) {
    return Error{text.error().message + "; a checkpoint needs its config.json", text.error().kind};
  }
  if (const fs::path beside = folder / kModelSlimName; FileExists(beside)) {
    return WithDescription(*text, ShownPath(path), beside);
  }
  if (const fs::path beside = folder / kModelOptName; FileExists(beside)) {
    return WithModelOpt(*text, ShownPath(path), beside);
  }
  return text;
}

}  // namespace assay
