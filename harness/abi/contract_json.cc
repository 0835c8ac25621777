// Contracts as JSON. contract.md documents the keys; a test holds the two together.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "harness/abi/contract.h"

namespace assay {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string_view>;

const Names kKeys = {"name",
                     "rounding",
                     "accumulator",
                     "lanes",
                     "extra",
                     "dequant",
                     "rope_table",
                     "probs",
                     "exp_ulp",
                     "rsqrt_ulp",
                     "sin_ulp",
                     "sigmoid_ulp",
                     "div_ulp",
                     "daz",
                     "ftz",
                     "act",
                     "reduce_order",
                     "reduce_wire",
                     "arithmetic_class",
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

bool IsOneOf(std::string_view word, const Names& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string Join(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// What stands there, short enough for one line.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// Reads the members of one contract; the first thing wrong stays in `error`.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void Text(const char* key, std::string* out, const Names* allowed = nullptr) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(key, "a string", *value);
    const auto& text = value->get_ref<const std::string&>();
    if (allowed != nullptr && !IsOneOf(text, *allowed)) {
      return Fail(key, "one of " + Join(*allowed), *value);
    }
    *out = text;
  }

  void Type(const char* key, DType* out, const Names& allowed) {
    std::string name;
    Text(key, &name, &allowed);
    if (!name.empty()) *out = *DTypeFromName(name);
  }

  void Count(const char* key, int* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    constexpr int kMost = std::numeric_limits<int>::max();
    const bool fits = value->is_number_unsigned() && value->get<uint64_t>() <= uint64_t{kMost};
    if (!fits) return Fail(key, fmt::format("a whole number from 0 to {}", kMost), *value);
    *out = static_cast<int>(value->get<uint64_t>());
  }

  void Ulp(const char* key, double* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    const bool sound =
        value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() >= 0;
    if (!sound) return Fail(key, "a number of units in the last place, 0 or more", *value);
    *out = value->get<double>();
  }

  void Flag(const char* key, bool* out) {
    const Json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(key, "true or false", *value);
    *out = value->get<bool>();
  }

  void Rounding(std::map<std::string, DType, std::less<>>* out) {
    const Json* table = Find("rounding");
    if (table == nullptr) return;
    if (!table->is_object()) return Fail("rounding", "an object of op classes and types", *table);
    for (const auto& [op, type] : table->items()) {
      if (!IsOneOf(op, kClasses) && !IsOneOf(op, kPaths)) {
        return SetError(
            fmt::format("contract: rounding has no op {}; allowed are the classes {} "
                        "and the paths {}",
                        Shown(op), Join(kClasses), Join(kPaths)));
      }
      if (!type.is_string() || !IsOneOf(type.get_ref<const std::string&>(), kFloating)) {
        return Fail("rounding." + op, "one of " + Join(kFloating), type);
      }
      (*out)[op] = *DTypeFromName(type.get_ref<const std::string&>());
    }
  }

  const std::string& error() const { return error_; }

 private:
  const Json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  void Fail(std::string_view key, std::string_view allowed, const Json& got) {
    SetError(fmt::format("contract: {} must be {}, not {}", key, allowed, Shown(got)));
  }
  void SetError(std::string error) {
    if (error_.empty()) error_ = std::move(error);
  }

  const Json& object_;
  std::string error_;
};

// JSON lets a key appear twice and the library keeps one of them: which of two promises holds must
// not depend on that.
Result<Json> ParseWithoutDuplicates(std::string_view text) {
  std::vector<std::set<std::string>> open;
  std::string duplicate;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open.back().insert(key).second && duplicate.empty()) duplicate = Shown(key);
    }
    return true;
  };
  try {
    Json parsed = Json::parse(text, watch);
    if (!duplicate.empty()) {
      return Error{fmt::format("contract: the key {} appears twice", duplicate)};
    }
    return parsed;
  } catch (const Json::exception& exception) {
    return Error{fmt::format("contract: not JSON: {}", exception.what())};
  }
}

}  // namespace

Result<Contract> ParseContract(std::string_view json) {
  Result<Json> parsed = ParseWithoutDuplicates(json);
  if (!parsed) return parsed.error();
  if (!parsed->is_object()) {
    return Error{fmt::format("contract: must be a JSON object, not {}", Shown(*parsed))};
  }
  for (const auto& [key, value] : parsed->items()) {
    if (!IsOneOf(key, kKeys)) {
      return Error{
          fmt::format("contract: unknown key {}; allowed are {}", Shown(key), Join(kKeys))};
    }
  }
  Contract contract;
  Reader reader(*parsed);
  reader.Text("name", &contract.name);
  reader.Rounding(&contract.rounding);
  reader.Type("accumulator", &contract.accumulator, kFloating);
  reader.Count("lanes", &contract.lanes);
  reader.Count("extra", &contract.extra);
  reader.Type("dequant", &contract.dequant, kFloating);
  reader.Type("rope_table", &contract.rope_table, kFloating);
  reader.Type("probs", &contract.probs, kFloating);
  reader.Ulp("exp_ulp", &contract.exp_ulp);
  reader.Ulp("rsqrt_ulp", &contract.rsqrt_ulp);
  reader.Ulp("sin_ulp", &contract.sin_ulp);
  reader.Ulp("sigmoid_ulp", &contract.sigmoid_ulp);
  reader.Ulp("div_ulp", &contract.div_ulp);
  reader.Flag("daz", &contract.daz);
  reader.Flag("ftz", &contract.ftz);
  reader.Text("act", &contract.act, &kActs);
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
  out["daz"] = contract.daz;
  out["ftz"] = contract.ftz;
  out["act"] = contract.act;
  out["reduce_order"] = contract.reduce_order;
  out["reduce_wire"] = NameOf(contract.reduce_wire);
  out["arithmetic_class"] = contract.arithmetic_class;
  out["mla_absorbed"] = contract.mla_absorbed;
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace assay
