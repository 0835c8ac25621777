// quantization_config: how the quantised weights are stored, as far as the file says it.
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "harness/checkpoint/name_pattern.h"
#include "harness/checkpoint/quant_parts.h"
#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

using nlohmann::json;

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

// Formats of floating codes say so by their names where the type is left out.
bool IsFloatFormat(std::string_view format) {
  return format.find("fp4") != format.npos || format.find("fp8") != format.npos ||
         format.find("float") != format.npos;
}

// The weights' part of one group of compressed-tensors' config_groups.
void ReadWeights(ConfigReader& weights, QuantConfig& quant) {
  quant.bits = static_cast<int>(weights.Count("num_bits", kQuantBits, 8));
  quant.weight_type = weights.String("type", IsFloatFormat(quant.format) ? "float" : "int");
  if (quant.weight_type != "int" && quant.weight_type != "float") {
    weights.Reject("type", "it must be int or float");
  }
  const int64_t group = weights.Count("group_size", kQuantGroup, 0);
  quant.group_size = group > 0 ? group : 0;
  quant.strategy = weights.String("strategy", DefaultStrategy(group));
  // -1 with strategy "group": one group, as wide as the row.
  const bool grouped = quant.strategy == "group" || quant.strategy == "tensor_group";
  if (grouped && (group == 0 || (group < 0 && quant.strategy != "group"))) {
    weights.Reject("group_size", "strategy " + quant.strategy + " needs a positive one");
  }
  quant.symmetric = weights.Bool("symmetric", true);
  quant.actorder = ReadActorder(weights);
  if (quant.strategy != "block") return;
  if (!weights.Has("block_structure")) {
    weights.Reject("block_structure", "strategy block needs two positive integers");
  }
  ReadQuantBlock(weights, "block_structure", quant);
}

QuantConfig ReadGroup(ConfigReader& group, const std::string& format) {
  QuantConfig scheme;
  scheme.format = group.String("format", format);
  scheme.targets = ReadQuantPatterns(group, "targets");
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

QuantConfig ReadCompressedTensors(ConfigReader& config) {
  QuantConfig scheme = ReadGroups(config, config.String("format", "dense"));
  if (scheme.format.empty()) scheme.format = config.String("format", "dense");
  scheme.method = "compressed-tensors";
  scheme.ignore = ReadQuantPatterns(config, "ignore");
  scheme.fnuz = config.String("fmt", "") == "e4m3fnuz";
  for (QuantConfig& group : scheme.groups) group.fnuz = scheme.fnuz;
  if (auto sparsity = config.Object("sparsity_config")) {
    if (sparsity->String("format", "dense") != "dense") {
      sparsity->Reject("format", "sparse weights are not read", ErrorKind::kUnsupported);
    }
    config.Absorb(*sparsity);
  }
  return scheme;
}

QuantConfig ReadOne(ConfigReader& config) {
  QuantConfig quant;
  quant.method = config.String("quant_method", "");
  if (quant.method.empty()) config.Reject("quant_method", "it must name the method");
  if (quant.method == "compressed-tensors") return ReadCompressedTensors(config);
  ReadProducer(config, quant);
  return quant;
}

}  // namespace

// weight_block_size, [rows, columns].
void ReadQuantBlock(ConfigReader& config, std::string_view key, QuantConfig& quant) {
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

std::vector<std::string> ReadQuantPatterns(ConfigReader& config, std::string_view key) {
  std::vector<std::string> patterns = config.Strings(key);
  for (const std::string& pattern : patterns) {
    if (!pattern.starts_with("re:") || IsRegex(std::string_view(pattern).substr(3))) continue;
    config.Reject(
        key,
        fmt::format("the expression {} is not read here: letters, classes, groups, |, * + "
                    "? and counts are",
                    Quoted(pattern, 80)),
        ErrorKind::kUnsupported);
    break;
  }
  return patterns;
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
  if (quant.method == "fp8") {
    // In the model's config or in this one.
    ConfigReader& says = config->Has("expert_dtype") ? *config : decoder;
    const std::string experts = says.String("expert_dtype", "fp8");
    if (experts == "fp4") {
      AddFp4Experts(quant);
    } else if (experts != "fp8") {
      says.Reject("expert_dtype", "fp4 and fp8 are read", ErrorKind::kUnsupported);
    }
  }
  decoder.Absorb(*config);
  return quant;
}

}  // namespace assay
