#include "harness/checkpoint/config_reader.h"

#include <fmt/format.h>

#include <utility>

#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"

namespace assay {

using nlohmann::json;

namespace {
constexpr size_t kMaxTextBytes = 4096;
constexpr size_t kMaxListed = 100'000;
}  // namespace

ConfigReader::ConfigReader(const json& object, std::string where, std::string path, Reading reading)
    : object_(&object), where_(std::move(where)), path_(std::move(path)), reading_(reading) {}

const json* ConfigReader::Value(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::Reject(std::string_view key, std::string_view rule, ErrorKind kind) {
  if (reading_ == Reading::kLenient || error_) return;
  const json* value = Value(key);
  error_ = Error{fmt::format("{}: key {} is {}; {}", where_, Quoted(FullKey(key)),
                             value == nullptr ? "missing" : ShownValue(*value), rule),
                 kind};
}

void ConfigReader::Absorb(const ConfigReader& nested) {
  if (!error_) error_ = nested.error_;
}

std::optional<int64_t> ConfigReader::OptionalCount(std::string_view key, Range range) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer()) {
    // Unsigned values above 2^63-1 would turn negative in an int64_t.
    const bool fits = !value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX;
    const int64_t count = fits ? value->get<int64_t>() : -1;
    if (fits && count >= range.min && count <= range.max) return count;
  }
  Reject(key, fmt::format("it must be an integer from {} to {}", range.min, range.max));
  return std::nullopt;
}

int64_t ConfigReader::Count(std::string_view key, Range range, int64_t otherwise) {
  return OptionalCount(key, range).value_or(otherwise);
}

int64_t ConfigReader::RequiredCount(std::string_view key, Range range) {
  if (!Has(key))
    Reject(key, fmt::format("it must be an integer from {} to {}", range.min, range.max));
  return Count(key, range, 0);
}

std::optional<double> ConfigReader::OptionalNumber(std::string_view key, Interval interval) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number >= interval.min && number <= interval.max) return number;
  }
  Reject(key, fmt::format("it must be a number from {} to {}", interval.min, interval.max));
  return std::nullopt;
}

double ConfigReader::Number(std::string_view key, Interval interval, double otherwise) {
  return OptionalNumber(key, interval).value_or(otherwise);
}

double ConfigReader::RequiredNumber(std::string_view key, Interval interval) {
  if (!Has(key)) {
    Reject(key, fmt::format("it must be a number from {} to {}", interval.min, interval.max));
  }
  return Number(key, interval, 0);
}

bool ConfigReader::Bool(std::string_view key, bool otherwise) {
  const json* value = Value(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  Reject(key, "it must be true or false");
  return otherwise;
}

std::string ConfigReader::String(std::string_view key, std::string otherwise) {
  const json* value = Value(key);
  if (value == nullptr) return otherwise;
  if (value->is_string() && value->get_ref<const std::string&>().size() <= kMaxTextBytes) {
    return value->get<std::string>();
  }
  Reject(key, fmt::format("it must be a string of at most {} bytes", kMaxTextBytes));
  return otherwise;
}

std::vector<std::string> ConfigReader::Strings(std::string_view key) {
  const json* value = Value(key);
  std::vector<std::string> strings;
  if (value == nullptr) return strings;
  bool good = value->is_array() && value->size() <= kMaxListed;
  for (size_t i = 0; good && i < value->size(); ++i) {
    const json& item = (*value)[i];
    good = item.is_string() && item.get_ref<const std::string&>().size() <= kMaxTextBytes;
    if (good) strings.push_back(item.get<std::string>());
  }
  if (good) return strings;
  Reject(key, fmt::format("it must be an array of at most {} strings of at most {} bytes",
                          kMaxListed, kMaxTextBytes));
  return {};
}

std::optional<ConfigReader> ConfigReader::Object(std::string_view key) {
  const json* value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) {
    return ConfigReader(*value, where_, FullKey(key) + ".", reading_);
  }
  Reject(key, "it must be an object");
  return std::nullopt;
}

}  // namespace assay
