#include "harness/checkpoint/family_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

using Range = ConfigReader::Range;

constexpr Range kWidth{1, 1 << 20};
constexpr Range kHeads{1, 1 << 16};
constexpr Range kExperts{1, 1 << 16};
constexpr ConfigReader::Interval kScaling{0.0, 1e6};
constexpr ConfigReader::Interval kPositive{std::numeric_limits<float>::min(), 1e30};

// The first of several names of one count: files of different ages spell it differently.
int64_t RequiredOf(ConfigReader& reader, std::initializer_list<std::string_view> keys,
                   Range range) {
  for (const std::string_view key : keys) {
    if (reader.Has(key)) return reader.RequiredCount(key, range);
  }
  return reader.RequiredCount(*keys.begin(), range);
}

int64_t CountOf(ConfigReader& reader, std::initializer_list<std::string_view> keys, Range range,
                int64_t otherwise) {
  for (const std::string_view key : keys) {
    if (reader.Has(key)) return reader.Count(key, range, otherwise);
  }
  return otherwise;
}

// A list with a 0 or 1, or a name, for each layer.
template <class Is>
std::vector<bool> ReadLayerNames(ConfigReader& reader, std::string_view key, int64_t layers,
                                 const Is& is) {
  std::vector<bool> list;
  for (const std::string& name : reader.Strings(key)) list.push_back(is(name));
  if (!list.empty() && static_cast<int64_t>(list.size()) != layers) {
    reader.Reject(key, fmt::format("it must have an entry for each of {} layers", layers));
    list.assign(static_cast<size_t>(layers), false);
  }
  return list;
}

// Integers of a list; empty where the key is absent.
std::vector<int64_t> ReadIntegers(ConfigReader& reader, std::string_view key, Range range) {
  std::vector<int64_t> list;
  const nlohmann::json* value = reader.Value(key);
  if (value == nullptr) return list;
  const auto reject = [&] {
    reader.Reject(key,
                  fmt::format("it must be a list of integers from {} to {}", range.min, range.max));
    list.clear();
  };
  if (!value->is_array()) {
    reject();
    return list;
  }
  for (const nlohmann::json& entry : *value) {
    if (!entry.is_number_integer() || entry.get<int64_t>() < range.min ||
        entry.get<int64_t>() > range.max) {
      reject();
      return list;
    }
    list.push_back(entry.get<int64_t>());
  }
  return list;
}

void ReadGroupedHeads(ConfigReader& reader, ModelConfig& config) {
  const std::optional<int64_t> head_dim = reader.OptionalCount("head_dim", kWidth);
  if (!head_dim && config.heads > 0 && config.hidden % config.heads != 0) {
    reader.Reject(
        "num_attention_heads",
        fmt::format("it must divide hidden_size, {}, where head_dim is not given", config.hidden));
  }
  config.head_dim = head_dim.value_or(config.heads > 0 ? config.hidden / config.heads : 0);
  config.qkv_bias = config.o_bias = reader.Bool("attention_bias", false);
}

void ReadLatentAttention(ConfigReader& reader, ModelConfig& config) {
  config.q_lora = reader.Count("q_lora_rank", kWidth, 0);
  config.kv_lora = reader.RequiredCount("kv_lora_rank", kWidth);
  config.qk_nope = reader.RequiredCount("qk_nope_head_dim", kWidth);
  config.qk_rope = reader.RequiredCount("qk_rope_head_dim", kWidth);
  config.v_dim = reader.RequiredCount("v_head_dim", kWidth);
  config.head_dim = config.qk_nope + config.qk_rope;
  config.qkv_bias = config.o_bias = reader.Bool("attention_bias", false);
}

// Common to all: how many experts, how many are taken, how wide they are.
void ReadExperts(ConfigReader& reader, ModelConfig& config, int64_t width) {
  config.experts =
      RequiredOf(reader, {"num_experts", "num_local_experts", "n_routed_experts"}, kExperts);
  const int64_t most = std::max<int64_t>(config.experts, 1);
  config.top_k = RequiredOf(
      reader, {"num_experts_per_tok", "num_experts_per_token", "experts_per_token"}, {1, most});
  config.moe_intermediate =
      width > 0 ? width : reader.RequiredCount("moe_intermediate_size", kWidth);
  config.routed_scaling = reader.Number("routed_scaling_factor", kScaling, 1.0);
  config.groups = CountOf(reader, {"n_group", "num_expert_group"}, {1, most}, 1);
  config.topk_group =
      reader.Count("topk_group", {1, std::max<int64_t>(config.groups, 1)}, config.groups);
  config.shared_experts =
      CountOf(reader, {"n_shared_experts", "num_shared_experts"}, {0, kExperts.max}, 0);
}

// Which layers have experts: mlp_layer_types, or the first so many do not.
void ReadMoeLayers(ConfigReader& reader, ModelConfig& config) {
  config.moe_layers = ReadLayerNames(reader, "mlp_layer_types", config.layers,
                                     [](const std::string& name) { return name != "dense"; });
  if (!config.moe_layers.empty()) return;
  config.first_dense = reader.Count("first_k_dense_replace", {0, config.layers}, 0);
  config.moe_layer_freq = reader.Count("moe_layer_freq", {1, 10'000}, 1);
}

void ReadQwen3Moe(ConfigReader& reader, ModelConfig& config) {
  ReadGroupedHeads(reader, config);
  config.qk_norm = true;
  ReadExperts(reader, config, 0);
  config.norm_topk = reader.Bool("norm_topk_prob", false);
  config.scoring = "softmax";
  // Layers named in mlp_only_layers, or off the step, are dense.
  const int64_t step = reader.Count("decoder_sparse_step", {1, 10'000}, 1);
  const std::vector<int64_t> dense =
      ReadIntegers(reader, "mlp_only_layers", {0, std::max<int64_t>(config.layers - 1, 0)});
  if (dense.empty() && step == 1) return;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const bool named = std::find(dense.begin(), dense.end(), layer) != dense.end();
    config.moe_layers.push_back(!named && (layer + 1) % step == 0);
  }
}

void ReadGptOss(ConfigReader& reader, ModelConfig& config) {
  ReadGroupedHeads(reader, config);
  ReadExperts(reader, config, config.intermediate);
  config.attn_sinks = config.router_bias = config.expert_bias = true;
  config.scoring = "softmax";
}

void ReadDeepseekV4(ConfigReader& reader, ModelConfig& config) {
  config.head_dim = reader.RequiredCount("head_dim", kWidth);
  ReadExperts(reader, config, 0);
  config.norm_topk = reader.Bool("norm_topk_prob", true);
  config.scoring = reader.String("scoring_func", "sqrtsoftplus");
  config.topk_method = reader.String("topk_method", "noaux_tc");
  const std::vector<std::string> types = reader.Strings("mlp_layer_types");
  for (const std::string& type : types) config.hash_layers += type == "hash_moe" ? 1 : 0;
  config.moe_layers = ReadLayerNames(reader, "mlp_layer_types", config.layers,
                                     [](const std::string& name) { return name != "dense"; });
  // Hash-routed layers come first: a list that says otherwise is another model.
  for (int64_t i = 0; i < config.hash_layers; ++i) {
    if (types[static_cast<size_t>(i)] == "hash_moe") continue;
    reader.Reject("mlp_layer_types", "layers that are routed by token id must be the first ones");
    break;
  }
  if (types.empty()) {
    config.hash_layers = reader.Count("num_hash_layers", {0, config.layers}, 0);
  }
}

// Where both lists are there, each layer must be in one of them.
void CheckFullLayers(ConfigReader& linear, const ModelConfig& config) {
  if (!linear.Has("full_attn_layers")) return;
  std::vector<bool> full(config.kda_layers.size());
  for (const int64_t layer : ReadIntegers(linear, "full_attn_layers", {1, config.layers})) {
    full[static_cast<size_t>(layer - 1)] = true;
  }
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] != config.kda_layers[i]) continue;
    linear.Reject("full_attn_layers",
                  fmt::format("it and kda_layers must have each of {} layers once; layer {} is in "
                              "{}",
                              config.layers, i + 1, full[i] ? "both" : "neither"));
    return;
  }
}

// Layers with KDA: layer_types, or linear_attn_config's list, which counts from 1.
void ReadKda(ConfigReader& reader, ModelConfig& config) {
  config.kda_layers =
      ReadLayerNames(reader, "layer_types", config.layers,
                     [](const std::string& name) { return name == "linear_attention"; });
  if (auto linear = reader.Object("linear_attn_config")) {
    config.kda_heads = linear->RequiredCount("num_heads", kHeads);
    config.kda_head_dim = linear->RequiredCount("head_dim", kWidth);
    config.kda_conv = linear->Count("short_conv_kernel_size", kWidth, 4);
    config.kda_full_gate = linear->Bool("use_full_rank_gate", false);
    if (config.kda_layers.empty()) {
      config.kda_layers.assign(static_cast<size_t>(std::max<int64_t>(config.layers, 0)), false);
      for (const int64_t layer : ReadIntegers(*linear, "kda_layers", {1, config.layers})) {
        config.kda_layers[static_cast<size_t>(layer - 1)] = true;
      }
      CheckFullLayers(*linear, config);
    }
    reader.Absorb(*linear);
    return;
  }
  config.kda_heads = reader.RequiredCount("linear_num_heads", kHeads);
  config.kda_head_dim = reader.RequiredCount("linear_head_dim", kWidth);
  config.kda_conv = reader.Count("linear_conv_kernel_dim", kWidth, 4);
}

void ReadKimi(ConfigReader& reader, ModelConfig& config) {
  ReadLatentAttention(reader, config);
  ReadKda(reader, config);
  ReadExperts(reader, config, 0);
  ReadMoeLayers(reader, config);
  config.norm_topk = reader.Bool("moe_renormalize", true);
  config.scoring = reader.String("moe_router_activation_func", "sigmoid");
  config.topk_method = reader.String("topk_method", "noaux_tc");
  if (config.family != Family::kKimiK3) return;
  config.mla_gate = reader.Bool("mla_use_output_gate", true);
  config.latent = reader.Count("routed_expert_hidden_size", kWidth, 0);
  config.latent_norm = reader.Bool("latent_moe_use_norm", config.latent > 0);
  config.attn_res_block = reader.Count("attn_res_block_size", {1, 10'000}, 0);
  // Never defaulted: without beta it is another function.
  config.situ_beta = reader.OptionalNumber("activation_situ_beta", kPositive);
  config.situ_linear_beta = reader.OptionalNumber("activation_situ_linear_beta", kPositive);
  if (config.hidden_act.starts_with("situ") && !config.situ_beta) {
    reader.Reject("activation_situ_beta",
                  fmt::format("hidden_act {} needs it", Quoted(config.hidden_act)));
  }
}

void ReadMinimaxM3(ConfigReader& reader, ModelConfig& config) {
  ReadGroupedHeads(reader, config);
  config.qk_norm = reader.Bool("use_qk_norm", true);
  // intermediate_size is the experts'.
  ReadExperts(reader, config, config.intermediate);
  config.intermediate = reader.Count("dense_intermediate_size", kWidth, config.intermediate);
  config.shared_intermediate = reader.Count("shared_intermediate_size", kWidth, 0);
  config.scoring = reader.String("scoring_func", "sigmoid");
  config.topk_method = reader.Bool("use_routing_bias", true) ? "noaux_tc" : "";
  for (const int64_t entry : ReadIntegers(reader, "moe_layer_freq", {0, 1})) {
    config.moe_layers.push_back(entry == 1);
  }
  if (!config.moe_layers.empty() &&
      static_cast<int64_t>(config.moe_layers.size()) != config.layers) {
    reader.Reject("moe_layer_freq",
                  fmt::format("it must have an entry for each of {} layers", config.layers));
    config.moe_layers.clear();
  }
}

}  // namespace

void ReadFamily(ConfigReader& decoder, ModelConfig& config) {
  switch (config.family) {
    case Family::kQwen3Moe:
      return ReadQwen3Moe(decoder, config);
    case Family::kGptOss:
      return ReadGptOss(decoder, config);
    case Family::kDeepseekV4:
      return ReadDeepseekV4(decoder, config);
    case Family::kKimiLinear:
    case Family::kKimiK3:
      return ReadKimi(decoder, config);
    case Family::kMinimaxM3:
      return ReadMinimaxM3(decoder, config);
    default:
      return;
  }
}

}  // namespace assay
