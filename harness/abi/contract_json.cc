// Contracts as JSON. contract.md documents the keys; a test holds the two together.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/abi/json_reading.h"

namespace assay {
namespace {

using Json = nlohmann::json;
using abi::IsOneOf;
using abi::Join;
using abi::Names;
using abi::ObjectReader;
using abi::ParseObject;
using abi::Shown;

const Names kKeys = {"name",         "rounding",    "accumulator",
                     "lanes",        "extra",       "dequant",
                     "rope_table",   "probs",       "exp_ulp",
                     "rsqrt_ulp",    "sin_ulp",     "sigmoid_ulp",
                     "tanh_ulp",     "div_ulp",     "daz",
                     "ftz",          "act",         "quantisers",
                     "reduce_order", "reduce_wire", "arithmetic_class",
                     "mla_absorbed"};

const Names kClasses = {"default", "embed", "norm",   "linear",  "partial", "rope",     "scores",
                        "ctx",     "act",   "router", "combine", "reduce",  "residual", "logits"};

// A tap without its layer and expert.
const Names kPaths = {
    "input_norm",    "attn.q_a",      "attn.q_a_norm", "attn.kv_a",      "attn.kv_a_norm",
    "attn.kv_b",     "attn.q",        "attn.k",        "attn.v",         "attn.q_norm",
    "attn.k_norm",   "attn.q_rot",    "attn.k_rot",    "attn.scores",    "attn.gate",
    "attn.ctx",      "attn.partial",  "attn.out",      "residual_attn",  "post_norm",
    "router.logits", "router.scores", "router.ids",    "router.weights", "moe.gate",
    "moe.up",        "moe.act",       "moe.down",      "moe.partial",    "moe.out",
    "shared.gate",   "shared.up",     "shared.act",    "shared.down",    "shared.out",
    "mlp.gate",      "mlp.up",        "mlp.act",       "mlp.down",       "mlp.out",
    "residual_mlp",  "final_norm"};

const Names kFloating = {"F64", "F32", "F16", "BF16"};
const Names kWires = {"F64", "F32", "F16", "BF16", "I8"};
const Names kActs = {"a16",     "a32",    "a8row",  "a8static", "a8g32", "a8g128", "af8row",
                     "af8g128", "amxfp8", "amxfp4", "anvfp4",   "q8_0",  "q8_1",   "q8_k"};
const Names kOrders = {"sequential", "ring", "tree"};
const Names kModelledActs = {"a8g32", "a8g128", "a8row", "amxfp8", "amxfp4"};
constexpr std::pair<const char*, CodeRule> kCodeRules[] = {
    {"x/s", CodeRule::kDivide},
    {"x*(1/s)", CodeRule::kTimesReciprocal},
    {"x*(127/amax)", CodeRule::kTimesInverse},
};

void ReadRounding(ObjectReader* reader, std::map<std::string, DType, std::less<>>* out) {
  const Json* table = reader->Find("rounding");
  if (table == nullptr) return;
  if (!table->is_object()) {
    return reader->Fail("rounding", "an object of op classes and types", *table);
  }
  for (const auto& [op, type] : table->items()) {
    if (!IsOneOf(op, kClasses) && !IsOneOf(op, kPaths)) {
      return reader->SetError(fmt::format(
          "contract: rounding has no op {}; allowed are the classes {} and the paths {}", Shown(op),
          Join(kClasses), Join(kPaths)));
    }
    if (!type.is_string() || !IsOneOf(type.get_ref<const std::string&>(), kFloating)) {
      return reader->Fail("rounding." + op, "one of " + Join(kFloating), type);
    }
    (*out)[op] = *DTypeFromName(type.get_ref<const std::string&>());
  }
}

// A variant of amxfp8 or amxfp4.
bool ReadVariant(ObjectReader* reader, const std::string& act, const Json& value,
                 Contract* contract) {
  Names names;
  for (const std::string_view name : ActVariantNames(act)) names.emplace_back(name);
  if (!value.is_string() || !IsOneOf(value.get_ref<const std::string&>(), names)) {
    reader->Fail("quantisers." + act, "one of " + Join(names), value);
    return false;
  }
  contract->variants[act] = value.get<std::string>();
  return true;
}

void ReadQuantisers(ObjectReader* reader, Contract* contract) {
  const Json* table = reader->Find("quantisers");
  if (table == nullptr) return;
  if (!table->is_object()) return reader->Fail("quantisers", "an object of act ids", *table);
  Names rules;
  for (const auto& [name, rule] : kCodeRules) rules.emplace_back(name);
  for (const auto& [act, value] : table->items()) {
    if (!IsOneOf(act, kModelledActs)) {
      return reader->SetError(fmt::format("contract: quantisers has no act {}; allowed are {}",
                                          Shown(act), Join(kModelledActs)));
    }
    if (!ActVariantNames(act).empty()) {
      if (!ReadVariant(reader, act, value, contract)) return;
      continue;
    }
    bool known = false;
    for (const auto& [name, rule] : kCodeRules) {
      if (!value.is_string() || value.get_ref<const std::string&>() != name) continue;
      contract->quantisers[act] = rule;
      known = true;
    }
    if (!known) return reader->Fail("quantisers." + act, "one of " + Join(rules), value);
  }
}

void ReadUlp(ObjectReader* reader, const char* key, double* out) {
  reader->Number(key, out, "a number of units in the last place, 0 or more");
}

}  // namespace

Result<Contract> ParseContract(std::string_view json) {
  Result<Json> parsed = ParseObject("contract", json);
  if (!parsed) return parsed.error();
  for (const auto& [key, value] : parsed->items()) {
    if (!IsOneOf(key, kKeys)) {
      return Error{
          fmt::format("contract: unknown key {}; allowed are {}", Shown(key), Join(kKeys))};
    }
  }
  Contract contract;
  ObjectReader reader("contract", *parsed);
  reader.Text("name", &contract.name);
  ReadRounding(&reader, &contract.rounding);
  reader.Type("accumulator", &contract.accumulator, kFloating);
  reader.Count("lanes", &contract.lanes);
  reader.Count("extra", &contract.extra);
  reader.Type("dequant", &contract.dequant, kFloating);
  reader.Type("rope_table", &contract.rope_table, kFloating);
  reader.Type("probs", &contract.probs, kFloating);
  ReadUlp(&reader, "exp_ulp", &contract.exp_ulp);
  ReadUlp(&reader, "rsqrt_ulp", &contract.rsqrt_ulp);
  ReadUlp(&reader, "sin_ulp", &contract.sin_ulp);
  ReadUlp(&reader, "sigmoid_ulp", &contract.sigmoid_ulp);
  ReadUlp(&reader, "div_ulp", &contract.div_ulp);
  ReadUlp(&reader, "tanh_ulp", &contract.tanh_ulp);
  reader.Flag("daz", &contract.daz);
  reader.Flag("ftz", &contract.ftz);
  reader.Text("act", &contract.act, &kActs);
  ReadQuantisers(&reader, &contract);
  reader.Text("reduce_order", &contract.reduce_order, &kOrders);
  reader.Type("reduce_wire", &contract.reduce_wire, kWires);
  reader.Text("arithmetic_class", &contract.arithmetic_class);
  reader.Flag("mla_absorbed", &contract.mla_absorbed);
  if (!reader.error().empty()) return Error{reader.error()};
  return contract;
}

std::string PrintContract(const Contract& contract) {
  nlohmann::ordered_json out;
  out["name"] = contract.name;
  out["rounding"] = nlohmann::ordered_json::object();
  for (const auto& [op, type] : contract.rounding) out["rounding"][op] = NameOf(type);
  out["accumulator"] = NameOf(contract.accumulator);
  out["lanes"] = contract.lanes;
  out["extra"] = contract.extra;
  out["dequant"] = NameOf(contract.dequant);
  out["rope_table"] = NameOf(contract.rope_table);
  out["probs"] = NameOf(contract.probs);
  out["exp_ulp"] = contract.exp_ulp;
  out["rsqrt_ulp"] = contract.rsqrt_ulp;
  out["sin_ulp"] = contract.sin_ulp;
  out["sigmoid_ulp"] = contract.sigmoid_ulp;
  out["div_ulp"] = contract.div_ulp;
  out["tanh_ulp"] = contract.tanh_ulp;
  out["daz"] = contract.daz;
  out["ftz"] = contract.ftz;
  out["act"] = contract.act;
  out["quantisers"] = nlohmann::ordered_json::object();
  for (const auto& [act, codes] : contract.quantisers) {
    for (const auto& [name, rule] : kCodeRules) {
      if (rule == codes) out["quantisers"][act] = name;
    }
  }
  for (const auto& [act, name] : contract.variants) out["quantisers"][act] = name;
  out["reduce_order"] = contract.reduce_order;
  out["reduce_wire"] = NameOf(contract.reduce_wire);
  out["arithmetic_class"] = contract.arithmetic_class;
  out["mla_absorbed"] = contract.mla_absorbed;
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace assay
