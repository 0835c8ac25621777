#include "harness/checkpoint/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "harness/checkpoint/gguf_deriver.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kHead = "output.weight";

// Keys "llama.X" that say nothing beyond what is read, or nothing about what is computed.
constexpr std::array<std::string_view, 21> kDenseKeys = {"attention.head_count",
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

std::span<const std::string_view> DenseKeys() { return kDenseKeys; }

constexpr std::array<GgufDeriver::Architecture, 5> kArchitectures = {{
    {"llama", "LlamaForCausalLM", "llama", &GgufDeriver::ReadDense, DenseKeys},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", &GgufDeriver::ReadDense, DenseKeys},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", &GgufDeriver::ReadDense, DenseKeys},
    {"kimi-k3", "KimiK3ForCausalLM", "kimi_k3", &GgufDeriver::ReadKimiK3, GgufKimiK3Keys},
    {"minimax-m3", "MiniMaxM3SparseForCausalLM", "minimax_m3_vl_text", &GgufDeriver::ReadMinimaxM3,
     GgufMinimaxM3Keys},
}};

}  // namespace

Result<std::string> GgufDeriver::Derive() {
  FindArchitecture();
  if (!error_) CheckFile();
  if (!error_ && known_ != nullptr) {
    (this->*known_->read)();
    MarkUnknownKeys();
  } else if (!error_) {
    ReadUnknown();
  }
  if (error_) return *error_;
  return out_.dump(2) + "\n";
}

void GgufDeriver::FindArchitecture() {
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
}

void GgufDeriver::CheckFile() {
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
std::optional<int64_t> GgufDeriver::Count(std::string_view suffix) {
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

void GgufDeriver::Put(const char* ours, std::string_view suffix, bool required) {
  if (required) RequiredCount(suffix);
  if (const std::optional<int64_t> value = Count(suffix)) out_[ours] = *value;
}

int64_t GgufDeriver::RequiredCount(std::string_view suffix) {
  const std::optional<int64_t> value = Count(suffix);
  if (!value && file_.Value(Key(suffix)) == nullptr) {
    Fail(fmt::format("key {}", Quoted(Key(suffix))), "missing; the model needs it");
  }
  return value.value_or(0);
}

void GgufDeriver::PutNumber(const char* ours, std::string_view suffix,
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

void GgufDeriver::ReadHeads() {
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

void GgufDeriver::ReadRopeScaling() {
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
void GgufDeriver::ReadVocab() {
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
void GgufDeriver::ReadBiases() {
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
void GgufDeriver::MarkUnknownKeys() {
  const std::string start = name_ + ".";
  const std::span<const std::string_view> keys = known_->keys();
  for (auto it = file_.metadata().lower_bound(start);
       it != file_.metadata().end() && it->first.starts_with(start); ++it) {
    const std::string_view suffix = std::string_view(it->first).substr(start.size());
    if (std::find(keys.begin(), keys.end(), suffix) == keys.end()) {
      MarkUnknown(fmt::format("key {} is not known", Quoted(it->first)));
    }
  }
}

void GgufDeriver::ReadSizes() {
  Put("hidden_size", "embedding_length", true);
  Put("num_hidden_layers", "block_count", true);
  Put("max_position_embeddings", "context_length", false);
  PutNumber("rms_norm_eps", "attention.layer_norm_rms_epsilon", std::nullopt);
  out_["tie_word_embeddings"] = file_.Find(kHead) == nullptr;
  ReadVocab();
}

void GgufDeriver::ReadDense() {
  // llama.cpp calls Mixtral a llama.
  if (Count("expert_count").value_or(0) > 0) {
    MarkUnknown(fmt::format("architecture {} with experts is not known", Quoted(name_)));
  }
  ReadSizes();
  Put("intermediate_size", "feed_forward_length", true);
  ReadHeads();
  PutNumber("rope_theta", "rope.freq_base", 10000.0);
  ReadRopeScaling();
  if (const auto window = Count("attention.sliding_window"); window.value_or(0) > 0) {
    MarkUnknown("sliding window attention is not known");
  }
  out_["hidden_act"] = "silu";
  ReadBiases();
}

// As far as the keys mean the same; their values may be of any kind.
void GgufDeriver::ReadUnknown() {
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

namespace {

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

// Names after "blk.N." that a layer of a dense model uses.
GgufNames DenseNames(const ModelConfig& config) {
  GgufNames names = {"attn_norm.weight", "ffn_norm.weight"};
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

Result<std::string> DeriveGgufConfig(const GgufFile& file) { return GgufDeriver(file).Derive(); }

Status CheckGgufTensors(const GgufFile& file, const ModelConfig& config) {
  const bool k3 = config.family == Family::kKimiK3;
  const bool dense = !k3 && config.family != Family::kMinimaxM3;
  std::map<int64_t, GgufNames> names;  // of a layer; of a dense model they are all alike
  for (const auto& [name, view] : file.tensors()) {
    if (name == kEmbedding || name == "output_norm.weight" || (name == kHead && !config.tied)) {
      continue;
    }
    if (k3 && name == "output_res_score.weight" && config.attn_res_block > 0) continue;
    const auto layer = LayerName(name);
    if (layer && layer->first < config.layers) {
      const auto [at, added] = names.try_emplace(dense ? 0 : layer->first);
      if (added) at->second = dense ? DenseNames(config) : GgufFamilyNames(config, layer->first);
      if (at->second.contains(layer->second)) continue;
    }
    return Error{
        fmt::format("{}: tensor {}: nothing of a {} of {} layers uses it; what it would "
                    "change is not known",
                    ShownPath(file.path()), Quoted(name), config.architecture, config.layers),
        ErrorKind::kUnsupported};
  }
  return Ok();
}

}  // namespace assay
