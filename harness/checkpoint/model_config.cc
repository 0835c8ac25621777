#include "harness/checkpoint/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "harness/checkpoint/config_reader.h"
#include "harness/checkpoint/family_config.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"

namespace assay {
namespace {

using nlohmann::json;
using Range = ConfigReader::Range;

// Far above any known model, far below where a product of three overflows.
constexpr Range kWidth{1, 1 << 20};
constexpr Range kLayers{1, 10'000};
constexpr Range kHeads{1, 1 << 16};
constexpr Range kVocab{1, 1 << 27};
constexpr Range kPositions{1, int64_t{1} << 40};
constexpr Range kExperts{1, 1 << 16};
constexpr ConfigReader::Interval kEps{0.0, 1.0};
// A kernel clamps in fp32.
constexpr ConfigReader::Interval kLimit{std::numeric_limits<float>::min(), 1e30};

struct KnownName {
  std::string_view name;
  Family family;
};
constexpr std::array<KnownName, 14> kArchitectures = {{
    {"LlamaForCausalLM", Family::kLlama},
    {"MistralForCausalLM", Family::kLlama},
    {"Qwen2ForCausalLM", Family::kQwen2},
    {"Qwen3ForCausalLM", Family::kQwen3},
    {"DeepseekV3ForCausalLM", Family::kDeepseekV3},
    {"KimiK25ForConditionalGeneration", Family::kDeepseekV3},
    {"Qwen3MoeForCausalLM", Family::kQwen3Moe},
    {"GptOssForCausalLM", Family::kGptOss},
    {"DeepseekV4ForCausalLM", Family::kDeepseekV4},
    {"KimiLinearForCausalLM", Family::kKimiLinear},
    {"KimiK3ForConditionalGeneration", Family::kKimiK3},
    {"KimiK3ForCausalLM", Family::kKimiK3},
    {"MiniMaxM3SparseForCausalLM", Family::kMinimaxM3},
    {"MiniMaxM3SparseForConditionalGeneration", Family::kMinimaxM3},
}};
constexpr std::array<KnownName, 14> kModelTypes = {{
    {"llama", Family::kLlama},
    {"mistral", Family::kLlama},
    {"qwen2", Family::kQwen2},
    {"qwen3", Family::kQwen3},
    {"deepseek_v3", Family::kDeepseekV3},
    {"kimi_k2", Family::kDeepseekV3},
    {"kimi_k25", Family::kDeepseekV3},
    {"qwen3_moe", Family::kQwen3Moe},
    {"gpt_oss", Family::kGptOss},
    {"deepseek_v4", Family::kDeepseekV4},
    {"kimi_linear", Family::kKimiLinear},
    {"kimi_k3", Family::kKimiK3},
    {"minimax_m3_vl", Family::kMinimaxM3},
    {"minimax_m3_vl_text", Family::kMinimaxM3},
}};

template <size_t n>
std::optional<Family> FamilyOf(const std::array<KnownName, n>& table, std::string_view name) {
  for (const KnownName& row : table) {
    if (row.name == name) return row.family;
  }
  return std::nullopt;
}

struct Identity {
  Family family = Family::kUnknown;
  std::string why_unknown, architecture, model_type;
};

// What the decoder says of itself counts; what a model around it says, only where it is silent.
Identity Identify(ConfigReader& decoder, ConfigReader& root) {
  Identity id;
  std::vector<std::string> names = decoder.Strings("architectures");
  id.model_type = decoder.String("model_type", "");
  if (names.empty() && id.model_type.empty()) {
    names = root.Strings("architectures");
    id.model_type = root.String("model_type", "");
    decoder.Absorb(root);
  }
  if (names.size() > 1) decoder.Reject("architectures", "it must name one architecture");
  if (!names.empty()) id.architecture = names.front();

  const auto by_name = FamilyOf(kArchitectures, id.architecture);
  const auto by_type = FamilyOf(kModelTypes, id.model_type);
  if (by_name && by_type && *by_name != *by_type) {
    decoder.Reject("model_type", fmt::format("architecture {} says otherwise; they must agree",
                                             Quoted(id.architecture)));
  }
  // Whoever derived the config from another container found what it cannot say.
  const std::string derived = root.String("assay_unknown", "");
  decoder.Absorb(root);
  const bool unknown_name = !id.architecture.empty() && !by_name;
  const bool unknown_type = !id.model_type.empty() && !by_type;
  if (!derived.empty()) {
    id.why_unknown = Shown(derived);
  } else if (unknown_name) {
    id.why_unknown = fmt::format("architecture {} is not known", Quoted(id.architecture));
  } else if (unknown_type) {
    id.why_unknown = fmt::format("model_type {} is not known", Quoted(id.model_type));
  } else if (!by_name && !by_type) {
    id.why_unknown = "neither architectures nor model_type is given";
  } else {
    id.family = by_name ? *by_name : *by_type;
  }
  // Kimi-K3's decoder calls itself by its older sibling's name; the model around it knows better,
  // and where it stands alone, it has what the sibling does not.
  const bool latent =
      decoder.Has("routed_expert_hidden_size") || decoder.Has("attn_res_block_size");
  if (id.family == Family::kKimiLinear && (latent || root.String("model_type", "") == "kimi_k3")) {
    id.family = Family::kKimiK3;
  }
  decoder.Absorb(root);
  return id;
}

// Which feature of a known family is not modelled. The first one found is enough.
void MarkUnknown(ModelConfig& config, std::string why) {
  config.family = Family::kUnknown;
  if (config.why_unknown.empty()) config.why_unknown = std::move(why);
}

void ReadDimensions(ConfigReader& reader, ModelConfig& config) {
  config.hidden = reader.RequiredCount("hidden_size", kWidth);
  config.layers = reader.RequiredCount("num_hidden_layers", kLayers);
  config.heads = reader.RequiredCount("num_attention_heads", kHeads);
  config.kv_heads = reader.Count("num_key_value_heads", kHeads, config.heads);
  // DeepSeek-V4 has no dense MLP.
  config.intermediate = config.family == Family::kDeepseekV4
                            ? reader.Count("intermediate_size", kWidth, 0)
                            : reader.RequiredCount("intermediate_size", kWidth);
  config.vocab = reader.RequiredCount("vocab_size", kVocab);
  const char* positions =
      reader.Has("max_position_embeddings") ? "max_position_embeddings" : "model_max_length";
  config.max_position = reader.Count(positions, kPositions, 0);
  config.rms_norm_eps = reader.Number("rms_norm_eps", kEps, 1e-6);
  config.hidden_act = reader.String("hidden_act", "silu");
  config.act_limit = reader.Number("swiglu_limit", kLimit, config.act_limit);
  if (config.kv_heads > 0 && config.heads % config.kv_heads != 0) {
    reader.Reject("num_key_value_heads",
                  fmt::format("it must divide num_attention_heads, {}", config.heads));
  }
}

// Whether the oracle evaluates the family's ops; of the others parameters alone are known.
bool Runs(Family family) {
  return family == Family::kLlama || family == Family::kQwen2 || family == Family::kQwen3 ||
         family == Family::kDeepseekV3;
}

// Grouped-query attention: Llama, Mistral, Qwen2, Qwen3.
void ReadGqa(ConfigReader& reader, Family family, ModelConfig& config) {
  const std::optional<int64_t> head_dim = reader.OptionalCount("head_dim", kWidth);
  if (!head_dim && config.heads > 0 && config.hidden % config.heads != 0) {
    reader.Reject("num_attention_heads", fmt::format("it must divide hidden_size, {}, where "
                                                     "head_dim is not given",
                                                     config.hidden));
  }
  config.head_dim = head_dim.value_or(config.heads > 0 ? config.hidden / config.heads : 0);
  if (config.head_dim % 2 != 0) {
    reader.Reject("head_dim", fmt::format("a head has {} elements; RoPE needs an even number",
                                          config.head_dim));
  }
  const bool attention_bias = reader.Bool("attention_bias", false);
  config.qkv_bias = family == Family::kQwen2 || attention_bias;
  config.o_bias = family != Family::kQwen2 && attention_bias;
  config.mlp_bias = family == Family::kLlama && reader.Bool("mlp_bias", false);
  config.qk_norm = family == Family::kQwen3;
}

void ReadMla(ConfigReader& reader, ModelConfig& config) {
  config.q_lora = reader.Count("q_lora_rank", kWidth, 0);
  config.kv_lora = reader.RequiredCount("kv_lora_rank", kWidth);
  config.qk_nope = reader.RequiredCount("qk_nope_head_dim", kWidth);
  config.qk_rope = reader.RequiredCount("qk_rope_head_dim", kWidth);
  config.v_dim = reader.RequiredCount("v_head_dim", kWidth);
  // The file's own head_dim is the rope part's width in some and absent in others.
  config.head_dim = config.qk_nope + config.qk_rope;
  if (reader.Count("qk_head_dim", kWidth, config.head_dim) != config.head_dim) {
    reader.Reject("qk_head_dim",
                  fmt::format("qk_nope_head_dim and qk_rope_head_dim make {}", config.head_dim));
  }
  if (config.qk_rope % 2 != 0) reader.Reject("qk_rope_head_dim", "it must be even");
  if (config.kv_heads != config.heads) {
    reader.Reject(
        "num_key_value_heads",
        fmt::format("latent attention has as many as num_attention_heads, {}", config.heads));
  }
  config.rope_interleave = reader.Bool("rope_interleave", true);
  config.qkv_bias = config.o_bias = reader.Bool("attention_bias", false);
}

// Where libraries disagree about a default (first_k_dense_replace, n_group, topk_group,
// routed_scaling_factor), the key must be there.
void ReadMoe(ConfigReader& reader, ModelConfig& config) {
  config.experts = reader.Count("n_routed_experts", kExperts, 0);
  if (config.experts == 0) return;
  config.top_k = reader.RequiredCount("num_experts_per_tok", {1, config.experts});
  config.moe_intermediate = reader.RequiredCount("moe_intermediate_size", kWidth);
  config.shared_experts = reader.Count("n_shared_experts", {0, kExperts.max}, 0);
  config.first_dense = reader.RequiredCount("first_k_dense_replace", {0, config.layers});
  config.moe_layer_freq = reader.Count("moe_layer_freq", kLayers, 1);
  config.groups = reader.RequiredCount("n_group", {1, config.experts});
  config.topk_group = reader.RequiredCount("topk_group", {1, std::max<int64_t>(config.groups, 1)});
  config.norm_topk = reader.Bool("norm_topk_prob", true);
  config.routed_scaling = reader.RequiredNumber("routed_scaling_factor", {0.0, 1e6});
  config.scoring = reader.String("scoring_func", "sigmoid");
  config.topk_method = reader.String("topk_method", "noaux_tc");
  if (config.groups == 0) return;  // an error already
  const int64_t in_group = config.experts / config.groups;
  if (config.experts % config.groups != 0) {
    reader.Reject("n_group", fmt::format("it must divide n_routed_experts, {}", config.experts));
  } else if (config.groups > 1 && in_group < 2) {
    reader.Reject("n_group", "a group's score is the sum of its two largest: it needs two experts");
  } else if (config.top_k > config.topk_group * in_group) {
    reader.Reject("num_experts_per_tok",
                  fmt::format("the {} chosen groups have only {} experts", config.topk_group,
                              config.topk_group * in_group));
  }
}

// Attention windows and partial rotation exist in files of these families, but not in the oracle.
void MarkVariants(ConfigReader& reader, Family family, ModelConfig& config) {
  const bool qwen = family == Family::kQwen2 || family == Family::kQwen3;
  const bool use_window = reader.Bool("use_sliding_window", !qwen);
  if (use_window && (qwen || reader.Has("sliding_window"))) {
    MarkUnknown(config, "sliding window attention is not known");
  }
  for (const std::string& type : reader.Strings("layer_types")) {
    if (type != "full_attention") {
      MarkUnknown(config, fmt::format("layer type {} is not known", Quoted(type)));
    }
  }
  double rotary = reader.Number("partial_rotary_factor", {0.0, 1.0}, 1.0);
  if (auto rope = reader.Object("rope_parameters")) {
    rotary = std::min(rotary, rope->Number("partial_rotary_factor", {0.0, 1.0}, 1.0));
    reader.Absorb(*rope);
  }
  if (rotary != 1.0) MarkUnknown(config, "partial_rotary_factor below 1 is not known");
  if (config.hidden_act != "silu") {
    MarkUnknown(config, fmt::format("hidden_act {} is not known", Quoted(config.hidden_act)));
  }
  const std::string& rope = config.rope.type;
  if (rope != "default" && rope != "linear" && rope != "llama3" && rope != "yarn") {
    MarkUnknown(config, fmt::format("rope type {} is not known", Quoted(rope)));
  }
  if (family != Family::kDeepseekV3) return;
  if (config.qkv_bias) MarkUnknown(config, "attention_bias with latent attention is not known");
  if (config.experts > 0 && (config.scoring != "sigmoid" || config.topk_method != "noaux_tc")) {
    MarkUnknown(config, fmt::format("scoring_func {} with topk_method {} is not known",
                                    Quoted(config.scoring), Quoted(config.topk_method)));
  }
}

// Engines get the config alone: it says itself that the tensors are llama.cpp's.
void ReadContainer(ConfigReader& root, ConfigReader& decoder, ModelConfig& config) {
  const std::string container = root.String("assay_container", "safetensors");
  if (container != "safetensors" && container != "gguf") {
    root.Reject("assay_container", "it must be safetensors or gguf");
  }
  decoder.Absorb(root);
  if (container != "gguf") return;
  config.container = Container::kGguf;
  config.lm_head = config.tied ? "token_embd.weight" : "output.weight";
  // The rows of q and k of a llama are stored in the order in which neighbours are rotated.
  config.rope_interleave = config.rope_interleave || config.family == Family::kLlama;
}

bool ReadTied(ConfigReader& decoder, ConfigReader& root) {
  const bool outer = root.Bool("tie_word_embeddings", false);
  decoder.Absorb(root);
  const bool tied = decoder.Bool("tie_word_embeddings", outer);
  if (decoder.Has("tie_word_embeddings") && root.Has("tie_word_embeddings") && tied != outer) {
    decoder.Reject("tie_word_embeddings", "the outer one says otherwise; they must agree");
  }
  return tied;
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view text, std::string_view where) {
  const Result<json> parsed = ParseStrictJson(text, where, JsonLimits());
  if (!parsed.ok()) return parsed.error();
  ConfigReader root(*parsed, std::string(where), "", Reading::kStrict);
  const std::optional<ConfigReader> nested = root.Object("text_config");
  if (const Status status = root.status(); !status.ok()) return status.error();
  ConfigReader decoder = nested.value_or(root);

  Identity id = Identify(decoder, root);
  if (const Status status = decoder.status(); !status.ok()) return status.error();
  if (id.family == Family::kUnknown) {
    root = ConfigReader(*parsed, std::string(where), "", Reading::kLenient);
    decoder = root.Object("text_config").value_or(root);
  }

  ModelConfig config;
  config.family = id.family;
  config.why_unknown = std::move(id.why_unknown);
  config.architecture = std::move(id.architecture);
  config.model_type = std::move(id.model_type);
  ReadDimensions(decoder, config);
  if (id.family == Family::kDeepseekV3) {
    ReadMla(decoder, config);
    ReadMoe(decoder, config);
  } else if (id.family == Family::kUnknown || Runs(id.family)) {
    ReadGqa(decoder, id.family, config);
  } else {
    ReadFamily(decoder, config);
  }
  config.tied = ReadTied(decoder, root);
  config.rope = ReadRope(decoder, config.max_position);
  config.quant = ReadQuant(decoder, root);
  if (Runs(id.family)) MarkVariants(decoder, id.family, config);
  ReadContainer(root, decoder, config);
  if (const Status status = decoder.status(); !status.ok()) return status.error();
  return config;
}

}  // namespace assay
