#include "harness/checkpoint/strict_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {
namespace {

using nlohmann::json;

// Builds the tree from nlohmann's events. The library's own builder would let the last of two
// equal keys win in silence, and would nest and grow without limit.
class StrictBuilder final : public nlohmann::json_sax<json> {
 public:
  // With `members` the root's own members go there instead of into the root.
  explicit StrictBuilder(const JsonLimits& limits, JsonMembers* members = nullptr)
      : limits_(limits), members_(members) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(value) != nullptr;
  }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return Fail("binary data is not JSON"); }
  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (members_ != nullptr && open_.size() == 1) {
      slot_ = &members_->emplace_back(name, nullptr).second;
      key_ = std::move(name);
      return true;
    }
    auto [slot, is_new] = open_.back()->emplace(name, nullptr);
    if (!is_new) {
      const std::string inside = keys_.back().empty() ? "" : " in " + Quoted(keys_.back());
      return Fail(
          fmt::format("key {} is given twice{}; a key may appear once", Quoted(name), inside));
    }
    slot_ = &*slot;
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    std::string_view text = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    if (const size_t colon = text.find(": "); colon != text.npos) text.remove_prefix(colon + 2);
    return Fail(fmt::format("not JSON at byte {}: {}", position, Shown(text)));
  }

  json root;
  std::string error;

 private:
  bool Fail(std::string message) {
    error = std::move(message);
    return false;
  }

  json* Add(json value) {
    if (++values_ > limits_.max_values) {
      Fail(fmt::format("more than {} JSON values; that is the limit", limits_.max_values));
      return nullptr;
    }
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *slot_ = std::move(value);
    return slot_;
  }

  bool Open(json value) {
    if (open_.size() >= limits_.max_depth) {
      return Fail(
          fmt::format("nested deeper than {} levels; that is the limit", limits_.max_depth));
    }
    const bool in_object = !open_.empty() && open_.back()->is_object();
    json* added = Add(std::move(value));
    if (added == nullptr) return false;
    // While a container is open nothing is added beside it, so the pointers stay valid.
    open_.push_back(added);
    keys_.push_back(in_object ? key_ : std::string());
    return true;
  }

  bool Close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  JsonLimits limits_;
  JsonMembers* members_;
  size_t values_ = 0;
  std::vector<json*> open_;
  std::vector<std::string> keys_;  // under which each open container stands
  json* slot_ = nullptr;           // where the value of the last key goes
  std::string key_;
};

Status Build(std::string_view text, std::string_view where, StrictBuilder& builder) {
  if (!json::sax_parse(text, &builder)) {
    return Error{fmt::format("{}: {}", where, builder.error)};
  }
  if (!builder.root.is_object()) {
    return Error{
        fmt::format("{}: holds {}; it must be a JSON object", where, ShownValue(builder.root))};
  }
  return Ok();
}

}  // namespace

Result<json> ParseStrictJson(std::string_view text, std::string_view where,
                             const JsonLimits& limits) {
  StrictBuilder builder(limits);
  if (Status status = Build(text, where, builder); !status.ok()) return status.error();
  return std::move(builder.root);
}

Result<JsonMembers> ParseStrictMembers(std::string_view text, std::string_view where,
                                       const JsonLimits& limits) {
  JsonMembers members;
  StrictBuilder builder(limits, &members);
  if (Status status = Build(text, where, builder); !status.ok()) return status.error();
  return members;
}

std::string ShownValue(const json& value) {
  if (value.is_string()) return "the string " + Quoted(value.get_ref<const std::string&>(), 60);
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  return value.dump();  // null, a boolean or a number: short and printable
}

Result<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  Result<UnixFile> file = UnixFile::OpenForReading(path);
  if (!file.ok()) return file.error();
  if (file->size() > max_bytes) {
    return Error{fmt::format("{}: {} bytes; at most {} are allowed", ShownPath(path), file->size(),
                             max_bytes)};
  }
  return file->ReadAll();
}

}  // namespace assay
