// Makes a Hugging Face config from a GGUF file's metadata. Private to this room.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/shown.h"

namespace assay {

class GgufDeriver {
 public:
  struct Architecture {
    std::string_view gguf, architecture, model_type;
    void (GgufDeriver::*read)();
    // Keys "llama.X" that say nothing beyond what is read, or nothing about what is computed.
    std::span<const std::string_view> (*keys)();
  };

  explicit GgufDeriver(const GgufFile& file) : file_(file) {}
  Result<std::string> Derive();

  // What architectures' rows read.
  void ReadDense();      // Llama, Qwen2, Qwen3
  void ReadKimiK3();     // gguf_families.cc
  void ReadMinimaxM3();  // gguf_families.cc

 private:
  std::string Key(std::string_view suffix) const { return fmt::format("{}.{}", name_, suffix); }
  void Fail(std::string_view what, std::string_view reason, ErrorKind kind = ErrorKind::kBadInput) {
    if (!error_)
      error_ = Error{fmt::format("{}: {}: {}", ShownPath(file_.path()), what, reason), kind};
  }
  void MarkUnknown(std::string why) {
    if (!out_.contains("assay_unknown")) out_["assay_unknown"] = std::move(why);
  }
  // The value, or nullopt where the key is absent or the result an error, which is kept.
  template <class T>
  std::optional<T> Take(const Result<std::optional<T>>& result) {
    if (result.ok()) return *result;
    if (!error_) error_ = result.error();
    return std::nullopt;
  }

  void FindArchitecture();
  void CheckFile();
  void ReadUnknown();
  // An integer, or an array with one value for each layer that are all the same.
  std::optional<int64_t> Count(std::string_view suffix);
  int64_t RequiredCount(std::string_view suffix);  // 0 where it is an error
  void Put(const char* ours, std::string_view suffix, bool required);
  void PutNumber(const char* ours, std::string_view suffix, std::optional<double> otherwise);
  void ReadSizes();
  void ReadHeads();
  void ReadRopeScaling();
  void ReadVocab();
  void ReadBiases();
  void ReadExperts();
  void ReadDeltaLayers();
  void ReadLatentAttention();
  void ReadIndexer();
  int64_t Layers() const { return out_.value("num_hidden_layers", int64_t{0}); }
  bool LayerHas(int64_t layer, std::string_view name) const {
    return file_.Find(fmt::format("blk.{}.{}", layer, name)) != nullptr;
  }
  void MarkUnknownKeys();

  const GgufFile& file_;
  std::string name_;
  const Architecture* known_ = nullptr;
  nlohmann::json out_ = nlohmann::json::object();
  std::optional<Error> error_;
};

using GgufNames = std::set<std::string, std::less<>>;
// Names after "blk.N." that layer N of Kimi-K3 or MiniMax-M3 uses.
GgufNames GgufFamilyNames(const ModelConfig& config, int64_t layer);
std::span<const std::string_view> GgufKimiK3Keys();
std::span<const std::string_view> GgufMinimaxM3Keys();

}  // namespace assay
