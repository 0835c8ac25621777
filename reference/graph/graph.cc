#include "reference/graph/graph.h"

namespace assay::reference {
namespace {

struct FamilyRow {
  Family family;
  Result<Graph> (*build)(const ModelConfig&);
  // Instead of `build`, where the parameters alone are known.
  Result<Graph> (*list)(const ModelConfig&, const TensorSource&);
  bool in_gguf;  // its names in GGUF files are known
};
constexpr FamilyRow kFamilies[] = {
    {Family::kLlama, BuildLlama, nullptr, true},
    {Family::kQwen2, BuildLlama, nullptr, true},
    {Family::kQwen3, BuildLlama, nullptr, true},
    {Family::kDeepseekV3, BuildDeepseekV3, nullptr, false},
    {Family::kQwen3Moe, nullptr, ListQwen3Moe, false},
    {Family::kGptOss, nullptr, ListGptOss, false},
    {Family::kDeepseekV4, nullptr, ListDeepseekV4, false},
    {Family::kKimiLinear, nullptr, ListKimi, false},
    {Family::kKimiK3, nullptr, ListKimi, true},
    {Family::kMinimaxM3, nullptr, ListMinimaxM3, true},
};

// Whatever the ops are.
Status CheckSizes(const ModelConfig& c) {
  if (c.hidden <= 0 || c.layers <= 0 || c.heads <= 0 || c.vocab <= 0) {
    return Error{c.architecture + ": hidden, layers, heads and vocab must be positive"};
  }
  if (c.experts > 0 && c.moe_intermediate <= 0) {
    return Error{c.architecture + ": experts without moe_intermediate_size"};
  }
  return Ok();
}

Status CheckCommon(const ModelConfig& c) {
  if (c.hidden_act != "silu" && c.hidden_act != "situ") {
    return Error{c.architecture + ": hidden_act \"" + c.hidden_act +
                     "\" is not known to the oracle (silu and situ are)",
                 ErrorKind::kUnsupported};
  }
  // Never defaulted: without beta it is another function, and no error.
  const bool situ = c.hidden_act == "situ";
  if (situ != c.situ_beta.has_value() || (!situ && c.situ_linear_beta) ||
      !(c.situ_beta.value_or(1) > 0) || !(c.situ_linear_beta.value_or(1) > 0)) {
    return Error{c.architecture + ": hidden_act \"" + c.hidden_act + "\" with beta " +
                 (c.situ_beta ? std::to_string(*c.situ_beta) : "none") + " and linear_beta " +
                 (c.situ_linear_beta ? std::to_string(*c.situ_linear_beta) : "none") +
                 "; situ needs a positive beta, silu takes none"};
  }
  if (c.hidden <= 0 || c.layers <= 0 || c.heads <= 0 || c.vocab <= 0 || c.rms_norm_eps <= 0) {
    return Error{c.architecture +
                 ": hidden, layers, heads, vocab and rms_norm_eps must be positive"};
  }
  if (!c.is_mla() &&
      (c.head_dim <= 0 || c.head_dim % 2 != 0 || c.kv_heads <= 0 || c.heads % c.kv_heads != 0)) {
    return Error{c.architecture + ": " + std::to_string(c.heads) + " heads of " +
                 std::to_string(c.head_dim) + " over " + std::to_string(c.kv_heads) +
                 " key/value heads do not fit each other"};
  }
  if (!(c.act_limit > 0)) {
    return Error{c.architecture + ": the activation's limit is " + std::to_string(c.act_limit) +
                 ", must be positive"};
  }
  return Ok();
}

}  // namespace

Result<Graph> BuildGraph(const ModelConfig& config, const TensorSource& source) {
  for (const FamilyRow& row : kFamilies) {
    if (row.family != config.family) continue;
    if (config.container == Container::kGguf && !row.in_gguf) {
      return Error{config.architecture + " in a GGUF file is not known to the oracle",
                   ErrorKind::kUnsupported};
    }
    if (row.list != nullptr) {
      if (const Status sizes = CheckSizes(config); !sizes) return sizes.error();
      return row.list(config, source);
    }
    if (const Status common = CheckCommon(config); !common) return common.error();
    return row.build(config);
  }
  const std::string why = config.why_unknown.empty() ? "" : ": " + config.why_unknown;
  return Error{"architecture \"" + config.architecture + "\" is not known to the oracle" + why,
               ErrorKind::kUnsupported};
}

}  // namespace assay::reference
