// Reads fields of a parsed JSON line that nobody vouches for. Private to json_read.cc, the only
// file that includes it: the JSON library costs seconds of compile time.
#pragma once

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/units/status.h"

namespace assay::json {

using Json = nlohmann::ordered_json;

// A cell has four levels; what is far beyond is not ours. The limit keeps a hostile line from
// costing memory and time out of proportion.
inline constexpr int kDeepest = 32;
// The library looks a key up by going through all of them: many keys would take quadratic time.
inline constexpr size_t kMostKeys = 4096;
inline constexpr size_t kLongestQuote = 60;
inline constexpr size_t kLongestMessage = 200;

// A value as JSON in ASCII, cut: safe to print in a message.
inline std::string Quote(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongestQuote) text = text.substr(0, kLongestQuote) + "...";
  return text;
}

// Watches a parse for what the library lets pass: a key given twice, bottomless nesting, masses of
// keys. From the first such thing on, values are dropped.
class Watch {
 public:
  bool Allow(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (depth > kDeepest) Say(fmt::format("nested deeper than {} levels", kDeepest));
    if (event == Json::parse_event_t::key && wrong_.empty() && !keys_.empty()) {
      if (!keys_.back().insert(parsed.get<std::string>()).second) {
        Say(fmt::format("the key {} is given twice", Quote(parsed)));
      } else if (keys_.back().size() > kMostKeys) {
        Say(fmt::format("an object of more than {} keys", kMostKeys));
      }
    }
    return wrong_.empty();
  }
  const std::string& wrong() const { return wrong_; }

 private:
  void Say(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }
  std::string wrong_;
  std::vector<std::set<std::string>> keys_;
};

// Parses one line into an object. Error (bad input): opens with `where`.
inline Result<Json> ParseObject(std::string_view line, std::string_view where) {
  Watch watch;
  try {
    Json value = Json::parse(line, [&](int depth, Json::parse_event_t event, Json& parsed) {
      return watch.Allow(depth, event, parsed);
    });
    if (!watch.wrong().empty()) return Error{fmt::format("{}: {}", where, watch.wrong())};
    if (!value.is_object()) {
      return Error{fmt::format("{}: a line must be one JSON object, not {}", where, Quote(value))};
    }
    return value;
  } catch (const Json::exception& error) {
    if (!watch.wrong().empty()) return Error{fmt::format("{}: {}", where, watch.wrong())};
    // The library's text opens with its own name and number in brackets, and may quote the line.
    std::string text = error.what();
    if (const size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    std::string clean;
    for (const char c : text.substr(0, kLongestMessage)) clean += c >= ' ' && c <= '~' ? c : '?';
    return Error{fmt::format("{}: not JSON: {}", where, clean)};
  }
}

// Reads fields of one object. The first error is kept; reading goes on with defaults, so that the
// caller checks once at the end.
class Fields {
 public:
  Fields(const Json& object, std::string path, std::string* error)
      : object_(object), path_(std::move(path)), error_(error) {}

  std::string Text(const char* key) {
    const Json* value = Need(key);
    if (value != nullptr && !value->is_string()) Wrong(key, *value, "a string");
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  std::string TextOrNull(const char* key) { return IsNull(key) ? "" : Text(key); }
  // Left out by the writer where it is empty, or not written by earlier versions.
  std::string TextIfThere(const char* key) { return object_.contains(key) ? TextOrNull(key) : ""; }

  bool Flag(const char* key) {
    const Json* value = Need(key);
    if (value != nullptr && !value->is_boolean()) Wrong(key, *value, "true or false");
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  int64_t Integer(const char* key, int64_t lowest,
                  int64_t highest = std::numeric_limits<int64_t>::max()) {
    const Json* value = Need(key);
    if (value == nullptr) return lowest;
    if (!InRange(*value, lowest, highest)) {
      const bool open = highest == std::numeric_limits<int64_t>::max();
      Wrong(key, *value,
            open ? fmt::format("an integer of at least {}", lowest)
                 : fmt::format("an integer from {} to {}", lowest, highest));
      return lowest;
    }
    return value->get<int64_t>();
  }
  std::optional<int64_t> IntegerOrNull(const char* key, int64_t lowest) {
    if (IsNull(key)) return std::nullopt;
    return Integer(key, lowest);
  }
  std::optional<int64_t> IntegerOrNullIfThere(const char* key, int64_t lowest) {
    return object_.contains(key) ? IntegerOrNull(key, lowest) : std::nullopt;
  }
  int64_t IntegerIfThere(const char* key, int64_t lowest, int64_t highest) {
    return object_.contains(key) ? Integer(key, lowest, highest) : lowest;
  }

  double Number(const char* key) {
    const Json* value = Need(key);
    if (value == nullptr) return 0;
    if (value->is_number()) return value->get<double>();
    if (*value == "nan" || *value == "inf" || *value == "-inf") return NonFinite(*value);
    Wrong(key, *value, "a number, \"nan\", \"inf\" or \"-inf\"");
    return 0;
  }
  std::optional<double> NumberOrNull(const char* key) {
    if (IsNull(key)) return std::nullopt;
    return Number(key);
  }
  std::optional<double> NumberIfThere(const char* key) {
    return object_.contains(key) ? NumberOrNull(key) : std::nullopt;
  }
  double Duration(const char* key) {
    const double value = Number(key);
    if (!(value >= 0) || std::isinf(value)) Wrong(key, Json(value), "a finite number from 0");
    return value;
  }

  std::vector<int64_t> Integers(const char* key) {
    std::vector<int64_t> out;
    const auto low = std::numeric_limits<int64_t>::min();
    const auto high = std::numeric_limits<int64_t>::max();
    for (const Json& item : Array(key, "a list of integers")) {
      if (!InRange(item, low, high)) {
        Wrong(key, item, "a list of integers");
        break;
      }
      out.push_back(item.get<int64_t>());
    }
    return out;
  }
  std::vector<std::string> Texts(const char* key) {
    std::vector<std::string> out;
    for (const Json& item : Array(key, "a list of strings")) {
      if (!item.is_string()) {
        Wrong(key, item, "a list of strings");
        break;
      }
      out.push_back(item.get<std::string>());
    }
    return out;
  }
  std::vector<std::string> TextsIfThere(const char* key) {
    return object_.contains(key) ? Texts(key) : std::vector<std::string>();
  }

  std::vector<double> Numbers(const char* key) {
    std::vector<double> out;
    for (const Json& item : Array(key, "a list of numbers")) {
      const bool text = item == "nan" || item == "inf" || item == "-inf";
      if (!item.is_number() && !text) {
        Wrong(key, item, "a list of numbers");
        break;
      }
      out.push_back(text ? NonFinite(item) : item.get<double>());
    }
    return out;
  }

  // Calls read(Fields) on the object, or on each object of the list; a null object is passed over.
  template <class Read>
  void Object(const char* key, Read read) {
    if (IsNull(key)) return;
    const Json* value = Need(key);
    if (value == nullptr) return;
    if (!value->is_object()) return Wrong(key, *value, "an object or null");
    read(Fields(*value, path_ + key + ".", error_));
  }
  template <class Read>
  void ObjectIfThere(const char* key, Read read) {
    if (object_.contains(key)) Object(key, read);
  }
  template <class Read>
  void Objects(const char* key, Read read) {
    int position = 0;
    for (const Json& item : Array(key, "a list of objects")) {
      if (!item.is_object()) return Wrong(key, item, "a list of objects");
      read(Fields(item, fmt::format("{}{}[{}].", path_, key, position++), error_));
    }
  }

  // A value of any type, as its text.
  std::string Raw(const char* key) {
    const Json* value = Need(key);
    if (value == nullptr || value->is_null()) return "";
    if (value->is_string()) return value->get<std::string>();
    return value->dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void Wrong(const char* key, const Json& value, std::string_view allowed) {
    Fail(fmt::format("{}{} must be {}, not {}", path_, key, allowed, Quote(value)));
  }

 private:
  static double NonFinite(const Json& text) {
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    return text == "inf" ? infinity : -infinity;
  }
  bool IsNull(const char* key) const {
    const auto at = object_.find(key);
    return at != object_.end() && at->is_null();
  }
  const Json* Need(const char* key) {
    const auto at = object_.find(key);
    if (at != object_.end()) return &*at;
    Fail(fmt::format("{}{} is missing", path_, key));
    return nullptr;
  }
  const Json& Array(const char* key, std::string_view allowed) {
    static const Json kEmpty = Json::array();
    if (IsNull(key)) return kEmpty;
    const Json* value = Need(key);
    if (value == nullptr) return kEmpty;
    if (value->is_array()) return *value;
    Wrong(key, *value, allowed);
    return kEmpty;
  }
  static bool InRange(const Json& value, int64_t lowest, int64_t highest) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return false;
    }
    return value.get<int64_t>() >= lowest && value.get<int64_t>() <= highest;
  }
  void Fail(std::string message) {
    if (error_->empty()) *error_ = std::move(message);
  }

  const Json& object_;
  std::string path_;
  std::string* error_;
};

}  // namespace assay::json
