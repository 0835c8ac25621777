// JSON from outside. Private to this room: json.hpp costs seconds of every file that includes it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/units/status.h"

namespace assay {

struct JsonLimits {
  size_t max_depth = 32;        // config.json files have about six
  size_t max_values = 1 << 20;  // bounds the memory: a value takes up to about 100 bytes
};

// Parses one JSON object. Errors, with `where` in front: not JSON (with the byte), a key given
// twice in one object, nesting deeper or more values than the limits, not an object.
Result<nlohmann::json> ParseStrictJson(std::string_view text, std::string_view where,
                                       const JsonLimits& limits);

// The same, as the object's own members in the order of the text: a key that is given twice there
// is two members. Inside of them it is an error.
using JsonMembers = std::vector<std::pair<std::string, nlohmann::json>>;
Result<JsonMembers> ParseStrictMembers(std::string_view text, std::string_view where,
                                       const JsonLimits& limits);

// The kind of a value for messages: "a string", "an array", "-3", "1e+40" ...
std::string ShownValue(const nlohmann::json& value);

// The whole text of a regular file. Errors: cannot be read, not a regular file, too large.
Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace assay
