// Strict reading of JSON objects that come from outside: each error names the key, what stands
// there and what is allowed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::abi {

using Names = std::vector<std::string_view>;
bool IsOneOf(std::string_view word, const Names& names);
std::string Join(const Names& names);
// A value as it stands there, short enough for one line.
std::string Shown(const nlohmann::json& value);

// Error: no JSON, not an object, or a key twice (of two promises the library would keep one).
// `what` begins each message: "contract".
Result<nlohmann::json> ParseObject(std::string_view what, std::string_view text);

// Reads members of one object. A member that is not there leaves its variable as it is; the first
// thing that is wrong stays in error().
class ObjectReader {
 public:
  ObjectReader(std::string what, const nlohmann::json& object) : what_(what), object_(object) {}

  void Text(const char* key, std::string* out, const Names* allowed = nullptr);
  void Type(const char* key, DType* out, const Names& allowed);
  void Count(const char* key, int* out);                             // 0 or more
  void Number(const char* key, double* out, std::string_view what);  // finite, 0 or more
  void Flag(const char* key, bool* out);
  // nullptr: not there.
  const nlohmann::json* Find(const char* key) const;

  void Fail(std::string_view key, std::string_view allowed, const nlohmann::json& got);
  void SetError(std::string error);
  const std::string& error() const { return error_; }

 private:
  std::string what_;
  const nlohmann::json& object_;
  std::string error_;
};

// A whole number from 0 to INT_MAX; false if it is none.
bool ReadCount(const nlohmann::json& value, int* out);

}  // namespace assay::abi
