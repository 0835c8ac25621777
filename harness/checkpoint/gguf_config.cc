#include "harness/checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

using nlohmann::json;

struct Architecture {
  std::string_view gguf, architecture, model_type;
};
constexpr std::array<Architecture, 3> kArchitectures = {{
    {"llama", "LlamaForCausalLM", "llama"},
    {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},
}};

constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kHead = "output.weight";

// Keys "llama.X" that say nothing beyond what is read, or nothing about what is computed.
constexpr std::array<std::string_view, 21> kKnownKeys = {"attention.head_count",
                                                         "attention.head_count_kv",
                                                         "attention.key_length",
                                                         "attention.layer_norm_rms_epsilon",
                                                         "attention.sliding_window",
                                                         "attention.value_length",
                                                         "block_count",
                                                         "context_length",
                                                         "embedding_length",
                                                         "expert_count",
                                                         "expert_used_count",
                                                         "feed_forward_length",
                                                         "rope.dimension_count",
                                                         "rope.freq_base",
                                                         "rope.scaling.attn_factor",
                                                         "rope.scaling.factor",
                                                         "rope.scaling.finetuned",
                                                         "rope.scaling.original_context_length",
                                                         "rope.scaling.type",
                                                         "tensor_data_layout",
                                                         "vocab_size"};

class Deriver {
 public:
  explicit Deriver(const GgufFile& file) : file_(file) {}

  Result<std::string> Derive() {
    FindArchitecture();
    if (!error_) CheckFile();
    if (!error_) known_ ? ReadKnown() : ReadUnknown();
    if (error_) return *error_;
    return out_.dump(2) + "\n";
  }

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
  void ReadKnown();
  void ReadUnknown();
  std::optional<int64_t> Count(std::string_view suffix);
  void Put(const char* ours, std::string_view suffix, bool required);
  void PutNumber(const char* ours, std::string_view suffix, std::optional<double> otherwise);
  void ReadHeads();
  void ReadRopeScaling();
  void ReadVocab();
  void ReadBiases();
  void MarkUnknownKeys();

  const GgufFile& file_;
  std::string name_;
  const Architecture* known_ = nullptr;
  json out_ = json::object();
  std::optional<Error> error_;
};

void Deriver::FindArchitecture() {
  constexpr const char* kKey = "general.architecture";
  const auto name = Take(file_.Text(kKey));
  if (error_) return;
  if (!name || name->empty() || name->size() > 64) {
    Fail(fmt::format("key '{}'", kKey),
         name ? "it must be a name of 1 to 64 bytes" : "missing; it must name the architecture");
    return;
  }
  name_ = std::string(*name);
  for (const Architecture& row : kArchitectures) {
    if (row.gguf == name_) known_ = &row;
  }
  const std::string shown = Shown(name_);
  out_["assay_container"] = "gguf";
  out_["architectures"] = {known_ != nullptr ? std::string(known_->architecture) : shown};
  out_["model_type"] = known_ != nullptr ? std::string(known_->model_type) : shown;
  // llama.cpp calls Mixtral a llama.
  if (known_ != nullptr && Count("expert_count").value_or(0) > 0) {
    MarkUnknown(fmt::format("architecture {} with experts is not known", Quoted(name_)));
  }
}

void Deriver::CheckFile() {
  if (const auto parts = Take(file_.Integer("split.count")); parts.value_or(1) > 1) {
    Fail("key 'split.count'",
         fmt::format("{}; a model in one file is read, not one of several", *parts),
         ErrorKind::kUnsupported);
  }
  const auto version = Take(file_.Integer("general.quantization_version"));
  if (version.value_or(2) == 2) return;
  for (const auto& [name, view] : file_.tensors()) {
    if (!IsBlock(view.dtype)) continue;
    Fail("key 'general.quantization_version'",
         fmt::format("{}; the blocks of tensor {} are read in version 2", *version, Quoted(name)),
         ErrorKind::kUnsupported);
  }
}

// An integer, or an array with one value for each layer that are all the same.
std::optional<int64_t> Deriver::Count(std::string_view suffix) {
  const std::string key = Key(suffix);
  const GgufValue* value = file_.Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kArray) return Take(file_.Integer(key));
  const auto all = Take(file_.Integers(key));
  if (!all) return std::nullopt;
  const bool same = !all->empty() && std::all_of(all->begin(), all->end(),
                                                 [&](int64_t one) { return one == all->front(); });
  if (same) return all->front();
  MarkUnknown(fmt::format("{} that differs from layer to layer is not known", Quoted(key)));
  return std::nullopt;
}

void Deriver::Put(const char* ours, std::string_view suffix, bool required) {
  const std::optional<int64_t> value = Count(suffix);
  if (value) out_[ours] = *value;
  if (!value && required && file_.Value(Key(suffix)) == nullptr) {
    Fail(fmt::format("key {}", Quoted(Key(suffix))), "missing; the model needs it");
  }
}

void Deriver::PutNumber(const char* ours, std::string_view suffix,
                        std::optional<double> otherwise) {
  const std::string key = Key(suffix);
  const auto value = Take(file_.Number(key));
  if (!value && !otherwise && file_.Value(key) == nullptr) {
    Fail(fmt::format("key {}", Quoted(key)), "missing; the model needs it");
    return;
  }
  const double number = value.value_or(otherwise.value_or(0));
  if (!std::isfinite(number)) {  // JSON has no way to write it
    Fail(fmt::format("key {}", Quoted(key)), fmt::format("{}; it must be a finite number", number));
    return;
  }
  out_[ours] = number;
}

void Deriver::ReadHeads() {
  Put("num_attention_heads", "attention.head_count", true);
  Put("num_key_value_heads", "attention.head_count_kv", false);
  const auto key_length = Count("attention.key_length");
  const int64_t hidden = out_.value("hidden_size", int64_t{0});
  const int64_t heads = out_.value("num_attention_heads", int64_t{0});
  const bool divides = heads > 0 && hidden % heads == 0;
  if (key_length || divides) out_["head_dim"] = key_length ? *key_length : hidden / heads;
  const int64_t head_dim = out_.value("head_dim", int64_t{0});
  const int64_t value_length = Count("attention.value_length").value_or(head_dim);
  if (value_length != head_dim) {
    MarkUnknown(fmt::format("{} {} beside keys of {} is not known",
                            Quoted(Key("attention.value_length")), value_length, head_dim));
  }
  const int64_t rotated = Count("rope.dimension_count").value_or(head_dim);
  if (rotated != head_dim) {
    MarkUnknown(fmt::format("{} {} of heads of {} is not known",
                            Quoted(Key("rope.dimension_count")), rotated, head_dim));
  }
}

void Deriver::ReadRopeScaling() {
  auto type = Take(file_.Text(Key("rope.scaling.type")));
  // As llama.cpp reads it: a factor alone is linear scaling by it, and 0 is none.
  if (!type && Take(file_.Number(Key("rope.scaling.factor"))).value_or(0) != 0) type = "linear";
  if (!type || *type == "none") return;
  json scaling = {{"rope_type", Shown(*type)}};
  const bool known = *type == "linear" || *type == "yarn";
  if (known) {
    std::swap(out_, scaling);
    PutNumber("factor", "rope.scaling.factor", std::nullopt);
    if (*type == "yarn") {
      Put("original_max_position_embeddings", "rope.scaling.original_context_length", true);
    }
    std::swap(out_, scaling);
  }
  if (const auto factor = Take(file_.Number(Key("rope.scaling.attn_factor")));
      factor.value_or(1.0) != 1.0) {
    MarkUnknown(
        fmt::format("{} {} is not known", Quoted(Key("rope.scaling.attn_factor")), *factor));
  }
  out_["rope_scaling"] = std::move(scaling);
}

// The rows of the embedding are the vocabulary; what else says its size must agree.
void Deriver::ReadVocab() {
  const TensorView* embedding = file_.Find(kEmbedding);
  if (embedding == nullptr || embedding->shape.size() != 2) {
    Fail(fmt::format("tensor '{}'", kEmbedding),
         embedding == nullptr ? "missing; its rows are the vocabulary"
                              : "it must have two extents, elements and vocabulary");
    return;
  }
  const int64_t rows = embedding->shape[0];
  out_["vocab_size"] = rows;
  const std::pair<std::string, std::optional<int64_t>> others[] = {
      {Key("vocab_size"), Count("vocab_size")},
      {"tokenizer.ggml.tokens", Take(file_.Length("tokenizer.ggml.tokens"))}};
  for (const auto& [key, size] : others) {
    if (!size || *size == rows) continue;
    Fail(fmt::format("key {}", Quoted(key)),
         fmt::format("says {} tokens, but tensor '{}' has {} rows; they must agree", *size,
                     kEmbedding, rows));
  }
}

// llama.cpp adds a bias wherever the file has one; Hugging Face's config says it for all of them.
void Deriver::ReadBiases() {
  const bool qkv = file_.Find("blk.0.attn_q.bias") != nullptr;
  const bool out = file_.Find("blk.0.attn_output.bias") != nullptr;
  const bool qwen2 = known_->gguf == "qwen2";
  if (!qwen2) out_["attention_bias"] = qkv || out;
  if (qwen2 ? out : qkv != out) {
    MarkUnknown("a bias of 'attn_output' without one of 'attn_q', or the reverse, is not known");
  }
  const bool mlp = file_.Find("blk.0.ffn_gate.bias") != nullptr;
  if (known_->gguf == "llama") out_["mlp_bias"] = mlp;
}

// What a key means that is not read here is not known, and so is what the model computes.
void Deriver::MarkUnknownKeys() {
  const std::string start = name_ + ".";
  for (auto it = file_.metadata().lower_bound(start);
       it != file_.metadata().end() && it->first.starts_with(start); ++it) {
    const std::string_view suffix = std::string_view(it->first).substr(start.size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), suffix) == kKnownKeys.end()) {
      MarkUnknown(fmt::format("key {} is not known", Quoted(it->first)));
    }
  }
}

void Deriver::ReadKnown() {
  Put("hidden_size", "embedding_length", true);
  Put("num_hidden_layers", "block_count", true);
  Put("intermediate_size", "feed_forward_length", true);
  Put("max_position_embeddings", "context_length", false);
  ReadHeads();
  PutNumber("rms_norm_eps", "attention.layer_norm_rms_epsilon", std::nullopt);
  PutNumber("rope_theta", "rope.freq_base", 10000.0);
  ReadRopeScaling();
  if (const auto window = Count("attention.sliding_window"); window.value_or(0) > 0) {
    MarkUnknown("sliding window attention is not known");
  }
  out_["hidden_act"] = "silu";
  out_["tie_word_embeddings"] = file_.Find(kHead) == nullptr;
  ReadVocab();
  ReadBiases();
  MarkUnknownKeys();
}

// As far as the keys mean the same; their values may be of any kind.
void Deriver::ReadUnknown() {
  constexpr std::pair<const char*, const char*> kCounts[] = {
      {"hidden_size", "embedding_length"},
      {"num_hidden_layers", "block_count"},
      {"intermediate_size", "feed_forward_length"},
      {"max_position_embeddings", "context_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"head_dim", "attention.key_length"},
      {"vocab_size", "vocab_size"}};
  for (const auto& [ours, suffix] : kCounts) {
    const auto value = file_.Integer(Key(suffix));
    if (value.ok() && value->has_value()) out_[ours] = **value;
  }
}

// "blk.12.attn_q.weight" → "attn_q.weight" and 12; nullopt: not of that form.
std::optional<std::pair<int64_t, std::string_view>> LayerName(std::string_view name) {
  constexpr std::string_view kStart = "blk.";
  if (!name.starts_with(kStart)) return std::nullopt;
  name.remove_prefix(kStart.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const size_t digits = static_cast<size_t>(end - name.data());
  const bool plain = error == std::errc() && digits > 0 && (digits == 1 || name[0] != '0');
  if (!plain || name[0] == '-' || digits >= name.size() || name[digits] != '.') return std::nullopt;
  return std::pair(layer, name.substr(digits + 1));
}

// Names after "blk.N." that a layer uses.
std::set<std::string, std::less<>> LayerNames(const ModelConfig& config) {
  std::set<std::string, std::less<>> names = {"attn_norm.weight", "ffn_norm.weight"};
  const auto linears = [&](std::initializer_list<const char*> modules, bool bias) {
    for (const char* module : modules) {
      names.insert(fmt::format("{}.weight", module));
      if (bias) names.insert(fmt::format("{}.bias", module));
    }
  };
  linears({"attn_q", "attn_k", "attn_v"}, config.qkv_bias);
  linears({"attn_output"}, config.o_bias);
  linears({"ffn_gate", "ffn_up", "ffn_down"}, config.mlp_bias);
  if (config.qk_norm) names.insert({"attn_q_norm.weight", "attn_k_norm.weight"});
  return names;
}

}  // namespace

Result<std::string> DeriveGgufConfig(const GgufFile& file) { return Deriver(file).Derive(); }

Status CheckGgufTensors(const GgufFile& file, const ModelConfig& config) {
  const std::set<std::string, std::less<>> in_layer = LayerNames(config);
  for (const auto& [name, view] : file.tensors()) {
    if (name == kEmbedding || name == "output_norm.weight" || (name == kHead && !config.tied)) {
      continue;
    }
    const auto layer = LayerName(name);
    if (layer && layer->first < config.layers && in_layer.contains(layer->second)) continue;
    return Error{
        fmt::format("{}: tensor {}: nothing of a {} of {} layers uses it; what it would "
                    "change is not known",
                    ShownPath(file.path()), Quoted(name), config.architecture, config.layers),
        ErrorKind::kUnsupported};
  }
  return Ok();
}

}  // namespace assay
