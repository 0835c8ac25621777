// quantization_config: how the quantised weights are stored, as far as the file says it.
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "harness/checkpoint/config_reader.h"

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
}

bool SameWeights(const QuantConfig& a, const QuantConfig& b) {
  const auto key = [](const QuantConfig& q) {
    return std::tie(q.bits, q.weight_type, q.group_size, q.strategy, q.symmetric, q.actorder,
                    q.format);
  };
  return key(a) == key(b);
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

// QuantConfig holds one scheme, so all groups of layers must have the same.
QuantConfig ReadGroups(ConfigReader& config, const std::string& format) {
  std::optional<ConfigReader> groups = config.Object("config_groups");
  if (!groups) {
    config.Reject("config_groups", "compressed-tensors needs an object of groups");
    return {};
  }
  std::optional<QuantConfig> all;
  for (const auto& [name, value] : config.Value("config_groups")->items()) {
    std::optional<ConfigReader> group = groups->Object(name);
    if (!group) continue;
    QuantConfig scheme = ReadGroup(*group, format);
    groups->Absorb(*group);
    if (!all) {
      all = std::move(scheme);
      continue;
    }
    if (!SameWeights(scheme, *all)) {
      groups->Reject(name, "its weights differ from another group's; one scheme is supported",
                     ErrorKind::kUnsupported);
    }
    all->targets.insert(all->targets.end(), scheme.targets.begin(), scheme.targets.end());
  }
  config.Absorb(*groups);
  return all.value_or(QuantConfig());
}

QuantConfig ReadOne(ConfigReader& config) {
  QuantConfig quant;
  quant.method = config.String("quant_method", "");
  if (quant.method.empty()) config.Reject("quant_method", "it must name the method");
  if (quant.method == "compressed-tensors") {
    QuantConfig scheme = ReadGroups(config, config.String("format", "dense"));
    if (scheme.format.empty()) scheme.format = config.String("format", "dense");
    scheme.method = quant.method;
    scheme.ignore = config.Strings("ignore");
    return scheme;
  }
  // Other methods: only what several of them share.
  quant.bits = static_cast<int>(config.Count("bits", kBits, quant.method == "fp8" ? 8 : 0));
  const int64_t group = config.Count("group_size", kGroupSize, 0);
  quant.group_size = group > 0 ? group : 0;
  quant.ignore = config.Strings("modules_to_not_convert");
  if (quant.method == "fp8") {
    quant.weight_type = "float";
    quant.strategy = config.Has("weight_block_size") ? "block" : "tensor";
  }
  return quant;
}

}  // namespace

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
