#include "kernels/methods/quant_json.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

namespace assay::kernels {
namespace {

// In the order of writing, as people read it.
using Json = nlohmann::ordered_json;

constexpr int kIndent = 2;

const char* CtFormat(MethodFamily family) {
  switch (family) {
    case MethodFamily::kCtW8a8:
      return "int-quantized";
    case MethodFamily::kCtFp8:
      return "float-quantized";
    case MethodFamily::kCtMxfp4:
      return "mxfp4-pack-quantized";
    case MethodFamily::kCtMxfp8:
      return "mxfp8-quantized";
    case MethodFamily::kCtNvfp4:
      return "nvfp4-pack-quantized";
    default:
      return "pack-quantized";
  }
}

std::string CtStrategy(const Scheme& s) {
  if (s.family == MethodFamily::kCtNvfp4) return "tensor_group";
  switch (s.granularity) {
    case Granularity::kTensor:
      return "tensor";
    case Granularity::kChannel:
      return "channel";
    case Granularity::kBlock:
      return "block";
    default:
      return "group";
  }
}

Json CtWeights(const Scheme& s, int64_t k) {
  const bool is_int = s.family == MethodFamily::kCtInt || s.family == MethodFamily::kCtW8a8;
  const bool mx = s.family == MethodFamily::kCtMxfp4 || s.family == MethodFamily::kCtMxfp8;
  Json weights = {{"num_bits", s.bits},         {"type", is_int ? "int" : "float"},
                  {"symmetric", !s.asymmetric}, {"group_size", nullptr},
                  {"strategy", CtStrategy(s)},  {"block_structure", nullptr},
                  {"dynamic", false},           {"actorder", nullptr},
                  {"scale_dtype", nullptr},     {"zp_dtype", nullptr},
                  {"observer", "minmax"},       {"observer_kwargs", Json::object()}};
  if (s.granularity == Granularity::kGroup) weights["group_size"] = s.group < 0 ? k : s.group;
  if (s.granularity == Granularity::kBlock) weights["block_structure"] = {s.block_n, s.block_k};
  if (s.actorder) weights["actorder"] = "group";
  if (mx) weights["scale_dtype"] = "torch.uint8";
  if (s.family == MethodFamily::kCtNvfp4) weights["scale_dtype"] = "torch.float8_e4m3fn";
  if (s.asymmetric) weights["zp_dtype"] = "torch.int8";
  return weights;
}

Json CtInputs(const Scheme& s) {
  const bool fp8 = s.family == MethodFamily::kCtFp8;
  if (!fp8 && s.family != MethodFamily::kCtW8a8) return nullptr;
  Json inputs = {{"num_bits", 8},         {"type", fp8 ? "float" : "int"}, {"symmetric", true},
                 {"group_size", nullptr}, {"strategy", "token"},           {"dynamic", true}};
  if (s.granularity == Granularity::kBlock) {
    inputs["strategy"] = "group";
    inputs["group_size"] = s.block_k;
  }
  return inputs;
}

Json CtGroup(const Scheme& s, const Json& targets, int64_t k) {
  return {{"targets", targets},
          {"weights", CtWeights(s, k)},
          {"input_activations", CtInputs(s)},
          {"output_activations", nullptr},
          {"format", CtFormat(s.family)}};
}

Json CtConfig(const Scheme& s, const Json& ignore, const std::vector<ConvertedModule>& modules) {
  Json groups = Json::object();
  if (s.granularity == Granularity::kGroup && s.group < 0) {
    std::map<int64_t, Json> by_width;
    for (const ConvertedModule& module : modules) {
      by_width.try_emplace(module.k, Json::array()).first->second.push_back(module.name);
    }
    for (const auto& [k, targets] : by_width) {
      groups[fmt::format("group_{}", groups.size())] = CtGroup(s, targets, k);
    }
  } else {
    groups["group_0"] = CtGroup(s, Json::array({"Linear"}), 0);
  }
  Json config = {{"quant_method", "compressed-tensors"},
                 {"format", CtFormat(s.family)},
                 {"quantization_status", "compressed"},
                 {"version", s.old_packing || s.actorder ? "0.12.2" : "0.20.1"},
                 {"kv_cache_scheme", nullptr},
                 {"config_groups", groups},
                 {"ignore", ignore}};
  if (s.fnuz) config["fmt"] = "e4m3fnuz";
  return config;
}

// GPTQ says what it leaves out as patterns.
std::string ExactPattern(const std::string& module) {
  std::string pattern = "-:^";
  for (const char c : module) {
    if (c == '.') pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

Json GptqConfig(const Scheme& s, const std::vector<std::string>& ignore) {
  Json dynamic = Json::object();
  for (const std::string& module : ignore) dynamic[ExactPattern(module)] = Json::object();
  const bool grouped = s.granularity == Granularity::kGroup;
  return {{"quant_method", "gptq"},
          {"bits", s.bits},
          {"group_size", grouped ? s.group : -1},
          {"sym", !s.asymmetric},
          {"desc_act", s.actorder},
          {"static_groups", false},
          {"true_sequential", true},
          {"damp_percent", 0.01},
          {"lm_head", false},
          {"checkpoint_format", s.v2 ? "gptq_v2" : "gptq"},
          {"dynamic", dynamic},
          {"modules_to_not_convert", ignore}};
}

Json QuarkConfig(const Json& ignore) {
  const auto tensor = [](bool dynamic) {
    return Json{{"dtype", "fp4"},
                {"qscheme", "per_group"},
                {"group_size", 32},
                {"ch_axis", -1},
                {"is_dynamic", dynamic},
                {"symmetric", nullptr},
                {"scale_format", "e8m0"},
                {"scale_calculation_mode", "even"},
                {"scale_type", "float"},
                {"round_method", "half_even"},
                {"observer_cls", "PerBlockMXObserver"}};
  };
  return {{"quant_method", "quark"},
          {"quant_mode", "eager_mode"},
          {"export",
           {{"kv_cache_group", Json::array()},
            {"min_kv_scale", 0.0},
            {"pack_method", "reorder"},
            {"weight_format", "real_quantized"},
            {"weight_merge_groups", nullptr}}},
          {"global_quant_config",
           {{"weight", tensor(false)},
            {"input_tensors", tensor(true)},
            {"output_tensors", nullptr},
            {"bias", nullptr}}},
          {"layer_quant_config", Json::object()},
          {"layer_type_quant_config", Json::object()},
          {"exclude", ignore}};
}

Json ModelOptConfig(const Json& ignore) {
  const Json values = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  return {{"quant_method", "modelopt"},
          {"quant_algo", "NVFP4"},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"weights", values},
              {"input_activations", values},
              {"targets", Json::array({"Linear"})}}}}},
          {"ignore", ignore}};
}

Json SlimConfig(std::string_view description) {
  Json config = {{"quant_method", "ascend"}};
  Json entries = Json::parse(description, nullptr, false);
  if (entries.is_object()) config["quant_description"] = std::move(entries);
  return config;
}

Json Config(const Scheme& s, const std::vector<std::string>& ignore,
            const std::vector<ConvertedModule>& modules, std::string_view description) {
  switch (s.family) {
    case MethodFamily::kDense:
    case MethodFamily::kGguf:
      return nullptr;
    case MethodFamily::kDeepseekFp8:
      return {{"quant_method", "fp8"},
              {"fmt", s.fnuz ? "e4m3fnuz" : "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {s.block_n, s.block_k}},
              {"modules_to_not_convert", ignore}};
    case MethodFamily::kGptq:
      return GptqConfig(s, ignore);
    case MethodFamily::kAwq:
      return {{"quant_method", "awq"}, {"bits", s.bits},
              {"group_size", s.group}, {"zero_point", s.asymmetric},
              {"version", "gemm"},     {"modules_to_not_convert", ignore}};
    case MethodFamily::kGptOssMxfp4:
      return {{"quant_method", "mxfp4"}, {"modules_to_not_convert", ignore}};
    case MethodFamily::kDeepseekV4Mxfp4:
      // The producer's own config speaks of its FP8 parts; its experts' type has a key beside it.
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"scale_fmt", "ue8m0"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}},
              {"expert_dtype", "fp4"},
              {"modules_to_not_convert", ignore}};
    case MethodFamily::kQuarkMxfp4:
      return QuarkConfig(ignore);
    case MethodFamily::kModelOptNvfp4:
      return ModelOptConfig(ignore);
    case MethodFamily::kModelSlimW8a8:
    case MethodFamily::kModelSlimW4a8:
      return SlimConfig(description);
    default:
      return CtConfig(s, ignore, modules);
  }
}

}  // namespace

std::string QuantConfigJson(const Scheme& scheme, const std::vector<std::string>& ignore,
                            const std::vector<ConvertedModule>& modules,
                            std::string_view description) {
  const Json config = Config(scheme, ignore, modules, description);
  return config.is_null() ? "" : config.dump(kIndent);
}

std::string ModelSlimDescription(const Scheme& scheme,
                                 const std::vector<DescribedTensor>& tensors) {
  const bool four = scheme.family == MethodFamily::kModelSlimW4a8;
  Json description = {{"version", "1.0.0"}, {"model_quant_type", four ? "W4A8_DYNAMIC" : "W8A8"}};
  if (scheme.granularity == Granularity::kGroup) description["group_size"] = scheme.group;
  for (const DescribedTensor& tensor : tensors) description[tensor.name] = tensor.type;
  return description.dump(kIndent);
}

Result<std::string> WithQuantConfig(std::string_view config, std::string_view quant) {
  Json root = Json::parse(config, nullptr, false);
  if (!root.is_object()) return Error{"config.json: it is no JSON object"};
  const auto inner = root.find("text_config");
  const bool has =
      root.contains("quantization_config") ||
      (inner != root.end() && inner->is_object() && inner->contains("quantization_config"));
  if (has) {
    return Error{
        "config.json: quantization_config: the model is quantised already; only a dense "
        "one can be converted",
        ErrorKind::kRefused};
  }
  if (!quant.empty()) root["quantization_config"] = Json::parse(quant, nullptr, false);
  return root.dump(kIndent) + "\n";
}

}  // namespace assay::kernels
