// What lies where in a checkpoint's folder, and the texts beside its tensors. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/faults.h"
#include "harness/units/status.h"

namespace assay {

inline constexpr const char* kConfigName = "config.json";
inline constexpr const char* kSingleName = "model.safetensors";
inline constexpr const char* kIndexName = "model.safetensors.index.json";
inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";
inline constexpr std::string_view kGgufSuffix = ".gguf";

// false also where it cannot be known.
bool FileExists(const std::filesystem::path& path);

// Sorted names of the folder's files with this ending.
Result<std::vector<std::string>> FilesIn(const std::filesystem::path& folder,
                                         std::string_view suffix);

struct ShardIndex {
  std::map<std::string, std::string> weight_map;  // tensor -> file, both as in the index
  std::optional<uint64_t> total_size;             // metadata.total_size, where it is a count
  std::vector<std::string> Files() const;         // sorted, each once
};
// nullopt: nothing of it can be used. Every problem is told.
std::optional<ShardIndex> ReadShardIndex(const std::filesystem::path& path, Faults& faults);

// The text of the folder's config.json. ModelSlim says in a file of its own how each tensor is
// stored (quant_model_description.json): it is merged in, so that engines and planners get one
// text, as "quantization_config": {"quant_method": "ascend", "quant_description": {...}}.
Result<std::string> ReadConfigText(const std::filesystem::path& folder);

}  // namespace assay
