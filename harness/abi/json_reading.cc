#include "harness/abi/json_reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace assay::abi {

using Json = nlohmann::json;

bool IsOneOf(std::string_view word, const Names& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string Join(const Names& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

Result<Json> ParseObject(std::string_view what, std::string_view text) {
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
      return Error{fmt::format("{}: the key {} appears twice", what, duplicate)};
    }
    if (!parsed.is_object()) {
      return Error{fmt::format("{}: must be a JSON object, not {}", what, Shown(parsed))};
    }
    return parsed;
  } catch (const Json::exception& exception) {
    std::string why = exception.what();
    std::replace(why.begin(), why.end(), '\n', ' ');
    return Error{fmt::format("{}: not JSON: {}", what, why)};
  }
}

bool ReadCount(const Json& value, int* out) {
  constexpr uint64_t kMost = std::numeric_limits<int>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) return false;
  *out = static_cast<int>(value.get<uint64_t>());
  return true;
}

const Json* ObjectReader::Find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void ObjectReader::Fail(std::string_view key, std::string_view allowed, const Json& got) {
  SetError(fmt::format("{}: {} must be {}, not {}", what_, key, allowed, Shown(got)));
}

void ObjectReader::SetError(std::string error) {
  if (error_.empty()) error_ = std::move(error);
}

void ObjectReader::Text(const char* key, std::string* out, const Names* allowed) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(key, "a string", *value);
  const auto& text = value->get_ref<const std::string&>();
  if (allowed != nullptr && !IsOneOf(text, *allowed)) {
    return Fail(key, "one of " + Join(*allowed), *value);
  }
  *out = text;
}

void ObjectReader::Type(const char* key, DType* out, const Names& allowed) {
  std::string name;
  Text(key, &name, &allowed);
  if (!name.empty()) *out = *DTypeFromName(name);
}

void ObjectReader::Count(const char* key, int* out) {
  const Json* value = Find(key);
  if (value == nullptr || ReadCount(*value, out)) return;
  Fail(key, "a whole number from 0 to 2147483647", *value);
}

void ObjectReader::Number(const char* key, double* out, std::string_view what) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  const bool sound =
      value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() >= 0;
  if (!sound) return Fail(key, what, *value);
  *out = value->get<double>();
}

void ObjectReader::Flag(const char* key, bool* out) {
  const Json* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(key, "true or false", *value);
  *out = value->get<bool>();
}

}  // namespace assay::abi
