// quantization_config as each producer but compressed-tensors writes it.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "harness/checkpoint/name_pattern.h"
#include "harness/checkpoint/quant_parts.h"

namespace assay {
namespace {

// Modules that are not quantised: producers call the list differently.
void ReadIgnored(ConfigReader& config, QuantConfig& quant) {
  for (const char* key :
       {"modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore", "exclude"}) {
    const std::vector<std::string> names = ReadQuantPatterns(config, key);
    quant.ignore.insert(quant.ignore.end(), names.begin(), names.end());
  }
}

void SetGroup(QuantConfig& quant, int64_t stated) {
  quant.group_size = stated > 0 ? stated : 0;
  quant.strategy = stated > 0 ? "group" : "channel";
}

// -1: a whole row.
int64_t ReadRowsGroup(ConfigReader& config, std::string_view key, int64_t otherwise) {
  const int64_t group = config.Count(key, kQuantGroup, otherwise);
  if (group == 0) config.Reject(key, "it must be positive, or -1: a whole row");
  return group;
}

// GPTQModel's exceptions: "-:expression" leaves modules out, "+:expression" or "expression" gives
// them numbers of their own.
void ReadDynamic(ConfigReader& config, QuantConfig& quant) {
  std::optional<ConfigReader> dynamic = config.Object("dynamic");
  if (!dynamic) return;
  for (const auto& [key, value] : config.Value("dynamic")->items()) {
    std::string_view expression = key;
    const bool out = expression.starts_with("-:");
    if (out || expression.starts_with("+:")) expression.remove_prefix(2);
    if (!IsRegex(expression)) {
      dynamic->Reject(key, "its expression is not read here", ErrorKind::kUnsupported);
      continue;
    }
    const std::string pattern = fmt::format("re:{}", expression);
    if (out) {
      quant.ignore.push_back(pattern);
      continue;
    }
    std::optional<ConfigReader> own = dynamic->Object(key);
    if (!own) continue;
    QuantConfig group = quant;
    group.ignore.clear();
    group.groups.clear();
    group.targets = {pattern};
    group.bits = static_cast<int>(own->Count("bits", {2, 8}, quant.bits));
    SetGroup(group,
             ReadRowsGroup(*own, "group_size", quant.group_size > 0 ? quant.group_size : -1));
    group.symmetric = own->Bool("sym", quant.symmetric);
    group.desc_act = own->Bool("desc_act", quant.desc_act);
    dynamic->Absorb(*own);
    quant.groups.push_back(std::move(group));
  }
  config.Absorb(*dynamic);
  if (quant.groups.empty()) return;
  QuantConfig others = quant;
  others.ignore.clear();
  others.groups.clear();
  quant.groups.push_back(std::move(others));  // no targets: whatever no expression names
}

// Libraries disagree about the defaults of bits and group_size.
void ReadGptq(ConfigReader& config, QuantConfig& quant) {
  quant.bits = static_cast<int>(config.RequiredCount("bits", {2, 8}));
  quant.weight_type = "int";
  if (!config.Has("group_size")) config.Reject("group_size", "it must be an integer; -1 is a row");
  SetGroup(quant, ReadRowsGroup(config, "group_size", -1));
  quant.symmetric = config.Bool("sym", true);
  quant.desc_act = config.Bool("desc_act", false);
  const char* key = config.Has("checkpoint_format") ? "checkpoint_format" : "format";
  quant.format = config.String(key, "gptq");
  quant.v2 = quant.format == "gptq_v2";
  if (quant.format != "gptq" && !quant.v2) {
    config.Reject(key, "gptq and gptq_v2 are read", ErrorKind::kUnsupported);
  }
  if (!config.Bool("lm_head", false)) quant.ignore.push_back("lm_head");
  ReadDynamic(config, quant);
}

void ReadAwq(ConfigReader& config, QuantConfig& quant) {
  quant.bits =
      static_cast<int>(config.RequiredCount(config.Has("w_bit") ? "w_bit" : "bits", {4, 4}));
  quant.weight_type = "int";
  const char* group = config.Has("q_group_size") ? "q_group_size" : "group_size";
  SetGroup(quant, ReadRowsGroup(config, group, 128));
  quant.symmetric = !config.Bool("zero_point", true);
  quant.format = config.String("version", "gemm");
  for (char& c : quant.format) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (quant.format != "gemm") {
    config.Reject("version", "gemm is read", ErrorKind::kUnsupported);
  }
}

void ReadFp8(ConfigReader& config, QuantConfig& quant) {
  quant.bits = 8;
  quant.weight_type = "float";
  quant.strategy = "tensor";
  quant.format = config.String("fmt", "e4m3");
  quant.fnuz = quant.format == "e4m3fnuz";
  const std::string scales = config.String("scale_fmt", "float");
  if (scales != "float" && scales != "ue8m0") {
    config.Reject("scale_fmt", "it must be float or ue8m0");
  }
  ReadQuantBlock(config, "weight_block_size", quant);
}

void ReadMx(ConfigReader& config, QuantConfig& quant) {
  const int bits = quant.method == "mxfp8" ? 8 : 4;
  quant.bits = static_cast<int>(config.Count("bits", {bits, bits}, bits));
  quant.weight_type = "float";
  quant.strategy = "group";
  quant.group_size = config.Count("group_size", {1, 1 << 30}, 32);
}

// "fp4", "fp8_e4m3", "int8": the digits are the bits.
void ReadQuarkWeight(ConfigReader& weight, QuantConfig& quant) {
  quant.format = weight.String("dtype", "");
  const size_t digit = quant.format.find_first_of("123456789");
  if (digit == quant.format.npos) {
    weight.Reject("dtype", "it must name a type, such as fp4 or fp8_e4m3");
  } else {
    quant.bits = quant.format[digit] - '0';
  }
  quant.weight_type = quant.format.starts_with("int") ? "int" : "float";
  const std::string scheme = weight.String("qscheme", "per_group");
  if (scheme == "per_tensor" || scheme == "per_channel") {
    quant.strategy = scheme.substr(4);
    return;
  }
  if (scheme != "per_group") weight.Reject("qscheme", "per_tensor, per_channel and per_group are");
  quant.strategy = "group";
  quant.group_size = weight.Count("group_size", {1, 1 << 30}, 32);
}

// Quark writes a scheme for all, and others for modules by pattern. A null one is not quantised.
void ReadQuark(ConfigReader& outer, QuantConfig& quant) {
  std::optional<ConfigReader> nested = outer.Object("quant_config");
  ConfigReader& config = nested ? *nested : outer;
  const auto read = [&](ConfigReader& scheme, QuantConfig& into) {
    if (auto weight = scheme.Object("weight")) {
      ReadQuarkWeight(*weight, into);
      scheme.Absorb(*weight);
    }
  };
  if (auto global = config.Object("global_quant_config")) {
    read(*global, quant);
    config.Absorb(*global);
  } else {
    config.Reject("global_quant_config", "it must be an object with the weights' scheme");
  }
  if (auto layers = config.Object("layer_quant_config")) {
    for (const auto& [pattern, value] : config.Value("layer_quant_config")->items()) {
      QuantConfig group;
      group.method = quant.method;
      group.targets = {pattern};
      if (auto own = layers->Object(pattern)) {
        read(*own, group);
        layers->Absorb(*own);
      }
      quant.groups.push_back(std::move(group));
    }
    config.Absorb(*layers);
  }
  if (nested) outer.Absorb(*nested);
  if (quant.groups.empty()) return;
  QuantConfig others = quant;
  others.groups.clear();
  quant.groups.push_back(std::move(others));
}

void SetModelOpt(ConfigReader& config, std::string algorithm, QuantConfig& quant) {
  quant.format = std::move(algorithm);
  quant.weight_type = "float";
  if (quant.format.find("NVFP4") != quant.format.npos) {
    quant.bits = 4;
    quant.strategy = "tensor_group";
    quant.group_size = config.Count("group_size", {1, 1 << 30}, 16);
  } else if (quant.format == "FP8") {
    quant.bits = 8;
    quant.strategy = "tensor";
  } else if (quant.format == "MXFP8" || quant.format == "W4A8_MXFP4_FP8") {
    quant.bits = quant.format == "MXFP8" ? 8 : 4;
    quant.strategy = "group";
    quant.group_size = config.Count("group_size", {1, 1 << 30}, 32);
  } else {
    config.Reject("quant_algo",
                  "NVFP4, W4A16_NVFP4, FP8, MXFP8, W4A8_MXFP4_FP8 and MIXED_PRECISION are read",
                  ErrorKind::kUnsupported);
  }
}

// Each module by name; what is not named is not quantised. Modules of one scheme are one group.
void ReadMixedPrecision(ConfigReader& config, QuantConfig& quant) {
  std::optional<ConfigReader> layers = config.Object("quantized_layers");
  if (!layers)
    return config.Reject("quantized_layers", "MIXED_PRECISION needs an object of layers");
  std::map<std::pair<std::string, int64_t>, size_t> known;  // scheme -> index into groups
  for (const auto& [module, value] : config.Value("quantized_layers")->items()) {
    std::optional<ConfigReader> own = layers->Object(module);
    if (!own) continue;
    QuantConfig group;
    group.method = quant.method;
    SetModelOpt(*own, own->String("quant_algo", ""), group);
    layers->Absorb(*own);
    const auto [at, added] =
        known.try_emplace({group.format, group.group_size}, quant.groups.size());
    if (added) quant.groups.push_back(std::move(group));
    quant.groups[at->second].targets.push_back(module);
  }
  config.Absorb(*layers);
}

void ReadModelOpt(ConfigReader& config, QuantConfig& quant) {
  const std::string algorithm = config.String("quant_algo", "");
  if (algorithm == "MIXED_PRECISION") {
    quant.format = algorithm;
    ReadMixedPrecision(config, quant);
  } else {
    SetModelOpt(config, algorithm, quant);
  }
}

// quant_model_description.json, merged by whoever opened the checkpoint.
void ReadModelSlim(ConfigReader& config, QuantConfig& quant) {
  constexpr size_t kLongest = 100;  // of a scheme's name
  std::optional<ConfigReader> description = config.Object("quant_description");
  if (!description) return;
  for (const auto& [tensor, scheme] : config.Value("quant_description")->items()) {
    // The file has settings beside its tensors ("model_quant_type", "group_size", "metadata").
    const bool setting =
        tensor == "version" || tensor.ends_with("_quant_type") || !scheme.is_string();
    if (setting && tensor.find('.') == tensor.npos) continue;
    if (scheme.is_string() && scheme.get_ref<const std::string&>().size() <= kLongest) {
      quant.description.emplace_hint(quant.description.end(), tensor, scheme.get<std::string>());
    } else if (!scheme.is_object()) {
      description->Reject(
          tensor, fmt::format("it must be the name of a scheme of at most {} bytes", kLongest));
    }
  }
  const int64_t group = description->Count("group_size", kQuantGroup, 0);
  quant.group_size = group > 0 ? group : 0;
  quant.weight_type = "int";
  config.Absorb(*description);
}

struct Producer {
  std::string_view method;
  void (*read)(ConfigReader& config, QuantConfig& quant);
};
constexpr Producer kProducers[] = {{"gptq", ReadGptq},         {"awq", ReadAwq},
                                   {"fp8", ReadFp8},           {"mxfp4", ReadMx},
                                   {"mxfp8", ReadMx},          {"quark", ReadQuark},
                                   {"modelopt", ReadModelOpt}, {"modelopt_fp4", ReadModelOpt},
                                   {"ascend", ReadModelSlim}};

}  // namespace

void ReadProducer(ConfigReader& config, QuantConfig& quant) {
  for (const Producer& producer : kProducers) {
    if (producer.method != quant.method) continue;
    producer.read(config, quant);
    ReadIgnored(config, quant);
    return;
  }
  quant.bits = static_cast<int>(config.Count("bits", kQuantBits, 0));
  const int64_t group = config.Count("group_size", kQuantGroup, 0);
  quant.group_size = group > 0 ? group : 0;
  ReadIgnored(config, quant);
}

void AddFp4Experts(QuantConfig& quant) {
  QuantConfig experts, others = quant;
  experts.method = quant.method;
  experts.format = "mxfp4";
  experts.bits = 4;
  experts.weight_type = "float";
  experts.strategy = "group";
  experts.group_size = 32;
  experts.targets = {R"(re:.*\.experts\.\d+\..*)"};
  others.ignore.clear();
  quant.groups = {std::move(experts), std::move(others)};
}

}  // namespace assay
