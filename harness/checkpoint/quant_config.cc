// quantization_config: how the quantised weights are stored, as far as the file says it.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "harness/checkpoint/config_reader.h"
#include "harness/checkpoint/name_pattern.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr ConfigReader::Range kBits{1, 16};
constexpr ConfigReader::Range kGroupSize{-1, int64_t{1} << 30};  // -1: a whole row

// null, false: none; true: an older way to write "group".
std::string ReadActorder(ConfigReader& weights) {
  const json* value = weights.Value("actorder");
  if (value != nullptr && value->is_boolean()) return value->get<bool>() ? "group" : "";
  const std::string order = weights.String("actorder", "");
  if (order.empty() || order == "group" || order == "weight" || order == "static" ||
      order == "dynamic") {
    return order;
  }
  weights.Reject("actorder", "it must be null, true, false, group, weight, static or dynamic");
  return "";
}

std::string DefaultStrategy(int64_t stated_group) {
  if (stated_group > 0) return "group";
  return stated_group == -1 ? "channel" : "tensor";
}

void ReadBlock(ConfigReader& config, std::string_view key, QuantConfig& quant);

// The weights' part of one group of compressed-tensors' config_groups.
void ReadWeights(ConfigReader& weights, QuantConfig& quant) {
  quant.bits = static_cast<int>(weights.Count("num_bits", kBits, 8));
  quant.weight_type = weights.String("type", "int");
  if (quant.weight_type != "int" && quant.weight_type != "float") {
    weights.Reject("type", "it must be int or float");
  }
  const int64_t group = weights.Count("group_size", kGroupSize, 0);
  quant.group_size = group > 0 ? group : 0;
  quant.strategy = weights.String("strategy", DefaultStrategy(group));
  if ((quant.strategy == "group" || quant.strategy == "tensor_group") && quant.group_size == 0) {
    weights.Reject("group_size", "strategy " + quant.strategy + " needs a positive one");
  }
  quant.symmetric = weights.Bool("symmetric", true);
  quant.actorder = ReadActorder(weights);
  if (quant.strategy == "block") ReadBlock(weights, "block_structure", quant);
}

QuantConfig ReadGroup(ConfigReader& group, const std::string& format) {
  QuantConfig scheme;
  scheme.format = group.String("format", format);
  scheme.targets = group.Strings("targets");
  if (std::optional<ConfigReader> weights = group.Object("weights")) {
    ReadWeights(*weights, scheme);
    group.Absorb(*weights);
  }
  return scheme;
}

bool SameWeights(const QuantConfig& a, const QuantConfig& b) {
  const auto key = [](const QuantConfig& q) {
    return std::tie(q.bits, q.weight_type, q.group_size, q.strategy, q.symmetric, q.actorder,
                    q.format, q.block_n, q.block_k);
  };
  return key(a) == key(b);
}

// Groups of layers that have the same scheme are one; others stay apart, each with its targets.
QuantConfig ReadGroups(ConfigReader& config, const std::string& format) {
  std::optional<ConfigReader> groups = config.Object("config_groups");
  if (!groups) {
    config.Reject("config_groups", "compressed-tensors needs an object of groups");
    return {};
  }
  std::vector<QuantConfig> all;
  bool same = true;
  for (const auto& [name, value] : config.Value("config_groups")->items()) {
    std::optional<ConfigReader> group = groups->Object(name);
    if (!group) continue;
    all.push_back(ReadGroup(*group, format));
    groups->Absorb(*group);
    same = same && SameWeights(all.front(), all.back());
  }
  config.Absorb(*groups);
  if (all.empty()) return {};
  QuantConfig quant = all.front();
  if (same) {
    for (size_t i = 1; i < all.size(); ++i) {
      quant.targets.insert(quant.targets.end(), all[i].targets.begin(), all[i].targets.end());
    }
  } else {
    for (QuantConfig& group : all) group.method = "compressed-tensors";
    quant.groups = std::move(all);
  }
  return quant;
}

// weight_block_size, [rows, columns].
void ReadBlock(ConfigReader& config, std::string_view key, QuantConfig& quant) {
  const json* value = config.Value(key);
  if (value == nullptr) return;
  const bool pair = value->is_array() && value->size() == 2 && (*value)[0].is_number_integer() &&
                    (*value)[1].is_number_integer();
  constexpr int64_t kMost = int64_t{1} << 30;
  quant.block_n = pair ? (*value)[0].get<int64_t>() : 0;
  quant.block_k = pair ? (*value)[1].get<int64_t>() : 0;
  if (quant.block_n >= 1 && quant.block_k >= 1 && quant.block_n <= kMost &&
      quant.block_k <= kMost) {
    quant.strategy = "block";
    return;
  }
  quant.block_n = quant.block_k = 0;
  config.Reject(key, "it must be two positive integers");
}

// Modules that are not quantised: producers call the list differently.
void ReadIgnored(ConfigReader& config, QuantConfig& quant) {
  for (const char* key :
       {"modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore", "exclude"}) {
    const std::vector<std::string> names = config.Strings(key);
    quant.ignore.insert(quant.ignore.end(), names.begin(), names.end());
  }
}

void ReadGptq(ConfigReader& config, QuantConfig& quant) {
  quant.bits = static_cast<int>(config.Count("bits", {2, 8}, 4));
  quant.weight_type = "int";
  const int64_t group = config.Count("group_size", kGroupSize, -1);
  quant.group_size = group > 0 ? group : 0;
  quant.strategy = group > 0 ? "group" : "channel";
  quant.symmetric = config.Bool("sym", true);
  quant.desc_act = config.Bool("desc_act", false);
  quant.format = config.String("checkpoint_format", "gptq");
  quant.v2 = quant.format == "gptq_v2";
}

void ReadAwq(ConfigReader& config, QuantConfig& quant) {
  quant.bits = static_cast<int>(config.Count(config.Has("w_bit") ? "w_bit" : "bits", {4, 4}, 4));
  quant.weight_type = "int";
  quant.group_size =
      config.Count(config.Has("q_group_size") ? "q_group_size" : "group_size", {1, 1 << 30}, 128);
  quant.strategy = "group";
  quant.symmetric = !config.Bool("zero_point", true);
  quant.format = config.String("version", "gemm");
}

void ReadFp8(ConfigReader& config, QuantConfig& quant) {
  quant.bits = 8;
  quant.weight_type = "float";
  quant.strategy = "tensor";
  quant.format = config.String("fmt", "e4m3");
  quant.fnuz = quant.format == "e4m3fnuz";
  ReadBlock(config, "weight_block_size", quant);
}

void ReadMx(ConfigReader& config, QuantConfig& quant) {
  quant.bits = static_cast<int>(config.Count("bits", kBits, 4));
  quant.weight_type = "float";
  quant.strategy = "group";
  quant.group_size = config.Count("group_size", {1, 1 << 30}, 32);
}

// Quark writes its weights' scheme under global_quant_config.
void ReadQuark(ConfigReader& config, QuantConfig& quant) {
  quant.weight_type = "float";
  if (auto global = config.Object("global_quant_config")) {
    if (auto weight = global->Object("weight")) {
      quant.format = weight->String("dtype", "");
      quant.group_size = weight->Count("group_size", {1, 1 << 30}, 32);
      global->Absorb(*weight);
    }
    config.Absorb(*global);
  }
  quant.bits = quant.format.empty() || quant.format == "fp4" ? 4 : 8;
  quant.strategy = "group";
}

void ReadModelOpt(ConfigReader& config, QuantConfig& quant) {
  quant.format = config.String("quant_algo", "");
  quant.bits = quant.format == "FP8" ? 8 : 4;
  quant.weight_type = "float";
  quant.strategy = quant.format == "FP8" ? "tensor" : "tensor_group";
  quant.group_size = quant.format == "FP8" ? 0 : config.Count("group_size", {1, 1 << 30}, 16);
}

// quant_model_description.json, merged by whoever opened the checkpoint.
void ReadModelSlim(ConfigReader& config, QuantConfig& quant) {
  const json* description = config.Value("quant_description");
  if (description == nullptr) return;
  if (!description->is_object()) {
    config.Reject("quant_description", "it must be an object of tensor names");
    return;
  }
  for (const auto& [tensor, scheme] : description->items()) {
    // The file has settings beside its tensors ("model_quant_type", "group_size", "metadata").
    if (scheme.is_string()) quant.description[tensor] = scheme.get<std::string>();
    if (tensor == "group_size" && scheme.is_number_integer()) {
      quant.group_size = std::max<int64_t>(0, scheme.get<int64_t>());
    }
  }
  quant.weight_type = "int";
}

struct Producer {
  std::string_view method;
  void (*read)(ConfigReader& config, QuantConfig& quant);
};
constexpr Producer kProducers[] = {{"gptq", ReadGptq},        {"awq", ReadAwq},
                                   {"fp8", ReadFp8},          {"mxfp4", ReadMx},
                                   {"quark", ReadQuark},      {"modelopt", ReadModelOpt},
                                   {"ascend", ReadModelSlim}, {"modelopt_fp4", ReadModelOpt}};

QuantConfig ReadOne(ConfigReader& config) {
  QuantConfig quant;
  quant.method = config.String("quant_method", "");
  if (quant.method.empty()) config.Reject("quant_method", "it must name the method");
  if (quant.method == "compressed-tensors") {
    QuantConfig scheme = ReadGroups(config, config.String("format", "dense"));
    if (scheme.format.empty()) scheme.format = config.String("format", "dense");
    scheme.method = quant.method;
    scheme.ignore = config.Strings("ignore");
    scheme.fnuz = config.String("fmt", "") == "e4m3fnuz";
    for (QuantConfig& group : scheme.groups) group.fnuz = scheme.fnuz;
    return scheme;
  }
  for (const Producer& producer : kProducers) {
    if (producer.method != quant.method) continue;
    producer.read(config, quant);
    ReadIgnored(config, quant);
    return quant;
  }
  // Others: only what several of them share.
  quant.bits = static_cast<int>(config.Count("bits", kBits, 0));
  const int64_t group = config.Count("group_size", kGroupSize, 0);
  quant.group_size = group > 0 ? group : 0;
  ReadIgnored(config, quant);
  return quant;
}

bool IsIgnored(const QuantConfig& quant, std::string_view module) {
  for (const std::string& entry : quant.ignore) {
    if (entry.starts_with("re:")) {
      if (MatchesRegex(std::string_view(entry).substr(3), module)) return true;
    } else if (quant.method == "compressed-tensors") {
      if (entry == module) return true;
    } else if (MatchesPrefix(entry, module) || module.ends_with("." + entry)) {
      return true;
    } else if (quant.method == "awq" && !entry.empty() && module.find(entry) != module.npos) {
      return true;
    }
  }
  return false;
}

// How well a group's target names the module: an exact name before an expression before a class.
int MatchOf(const QuantConfig& group, std::string_view module) {
  int best = group.targets.empty() ? 1 : 0;
  for (const std::string& target : group.targets) {
    if (target == module) return 3;
    if (target.starts_with("re:")) {
      if (MatchesRegex(std::string_view(target).substr(3), module)) best = 2;
    } else if (target.find('.') == std::string::npos) {
      best = std::max(best, 1);  // "Linear"
    }
  }
  return best;
}

}  // namespace

QuantConfig QuantConfig::For(std::string_view module) const {
  if (IsIgnored(*this, module)) return {};
  const QuantConfig* best = nullptr;
  int how = 0;
  for (const QuantConfig& group : groups) {
    const int match = MatchOf(group, module);
    if (match > how) how = match, best = &group;
  }
  QuantConfig scheme = best != nullptr ? *best : *this;
  if (best == nullptr && !groups.empty()) return {};  // no group names it
  scheme.groups.clear();
  scheme.ignore.clear();
  return scheme;
}

QuantConfig ReadQuant(ConfigReader& decoder, ConfigReader& root) {
  constexpr const char* kKey = "quantization_config";
  const json* inner = decoder.Value(kKey);
  const json* outer = root.Value(kKey);
  if (inner != nullptr && outer != nullptr && *inner != *outer) {
    decoder.Reject(kKey, "the outer quantization_config says otherwise; they must agree");
  }
  ConfigReader& owner = inner != nullptr ? decoder : root;
  std::optional<ConfigReader> config = owner.Object(kKey);
  if (!config) {
    decoder.Absorb(owner);
    return {};
  }
  QuantConfig quant = ReadOne(*config);
  decoder.Absorb(*config);
  return quant;
}

}  // namespace assay
