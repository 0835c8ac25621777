// Typed, checked reading of one JSON object of a config. Private to this room.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/units/status.h"

namespace assay {

// How strictly a config is read. In a model that we do not know a key may mean something else, so
// a value of another kind than expected is left out there instead of being an error.
enum class Reading { kStrict, kLenient };

// The first error is kept and the rest of the reading goes on with defaults: callers read all keys
// and ask once. Absent and null are the same, as in the files' own library.
class ConfigReader {
 public:
  // `where` is the file for messages, `path` the keys that lead to the object: "text_config.".
  // The object must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where, std::string path, Reading reading);

  bool Has(std::string_view key) const { return Value(key) != nullptr; }
  const nlohmann::json* Value(std::string_view key) const;  // nullptr if absent or null

  struct Range {
    int64_t min, max;
  };
  // Integers only: 64.0 is a mistake of whoever wrote the file.
  std::optional<int64_t> OptionalCount(std::string_view key, Range range);
  int64_t Count(std::string_view key, Range range, int64_t otherwise);
  int64_t RequiredCount(std::string_view key, Range range);
  struct Interval {
    double min, max;
  };
  std::optional<double> OptionalNumber(std::string_view key, Interval interval);
  double Number(std::string_view key, Interval interval, double otherwise);
  double RequiredNumber(std::string_view key, Interval interval);
  bool Bool(std::string_view key, bool otherwise);
  std::string String(std::string_view key, std::string otherwise);
  std::vector<std::string> Strings(std::string_view key);
  // A nested object, or nullopt (absent, or not an object, which is an error).
  std::optional<ConfigReader> Object(std::string_view key);

  // "FILE: key 'path.key' is VALUE; RULE". Ignored in lenient reading.
  void Reject(std::string_view key, std::string_view rule, ErrorKind kind = ErrorKind::kBadInput);
  // Takes over the error of a reader of a nested object.
  void Absorb(const ConfigReader& nested);
  Status status() const { return error_ ? Status(*error_) : Ok(); }
  const std::string& where() const { return where_; }
  // "rope_scaling.factor" for messages.
  std::string FullKey(std::string_view key) const { return path_ + std::string(key); }

 private:
  const nlohmann::json* object_;
  std::string where_, path_;
  Reading reading_;
  std::optional<Error> error_;
};

// Parts of a config, each in a file of its own.
RopeConfig ReadRope(ConfigReader& decoder, int64_t max_position);
// `root` is the whole file's reader where the decoder is nested, else the decoder's.
QuantConfig ReadQuant(ConfigReader& decoder, ConfigReader& root);

}  // namespace assay
