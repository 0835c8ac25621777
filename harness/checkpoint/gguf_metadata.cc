// Typed access to a GGUF file's metadata.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

constexpr std::string_view kIntegers = "an integer from -2^63 to 2^63-1";

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// nullopt: no integer, or above 2^63-1.
std::optional<int64_t> LoadInteger(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8:
      return Load<uint8_t>(from);
    case GgufType::kI8:
      return Load<int8_t>(from);
    case GgufType::kU16:
      return Load<uint16_t>(from);
    case GgufType::kI16:
      return Load<int16_t>(from);
    case GgufType::kU32:
      return Load<uint32_t>(from);
    case GgufType::kI32:
      return Load<int32_t>(from);
    case GgufType::kI64:
      return Load<int64_t>(from);
    case GgufType::kU64:
      if (const uint64_t value = Load<uint64_t>(from); value <= INT64_MAX) {
        return static_cast<int64_t>(value);
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string_view NameOf(GgufType type) {
  constexpr std::array<std::string_view, 13> kNames = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                       "i32", "f32", "bool", "string", "array",
                                                       "u64", "i64", "f64"};
  return kNames.at(static_cast<size_t>(type));
}

const GgufValue* GgufFile::Value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

Error GgufFile::WrongKind(std::string_view key, const GgufValue& value,
                          std::string_view allowed) const {
  std::string kind(NameOf(value.type));
  if (value.type == GgufType::kArray) {
    kind = fmt::format("array of {} {}", value.count, NameOf(value.element));
  } else if (value.type == GgufType::kU64) {
    kind += fmt::format(" {}", Load<uint64_t>(value.bytes.data()));
  }
  return Error{fmt::format("{}: key {} is of type {}; it must be {}", ShownPath(path_), Quoted(key),
                           kind, allowed)};
}

Result<std::optional<int64_t>> GgufFile::Integer(std::string_view key) const {
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> integer = LoadInteger(value->type, value->bytes.data());
  if (!integer) return WrongKind(key, *value, kIntegers);
  return integer;
}

Result<std::optional<double>> GgufFile::Number(std::string_view key) const {
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == GgufType::kF32) {
    return std::optional<double>(Load<float>(value->bytes.data()));
  }
  if (value->type == GgufType::kF64) {
    return std::optional<double>(Load<double>(value->bytes.data()));
  }
  return WrongKind(key, *value, "f32 or f64");
}

Result<std::optional<bool>> GgufFile::Bool(std::string_view key) const {
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return WrongKind(key, *value, "bool");
  return std::optional<bool>(Load<uint8_t>(value->bytes.data()) != 0);
}

Result<std::optional<std::string_view>> GgufFile::Text(std::string_view key) const {
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::kString) return WrongKind(key, *value, "string");
  return std::optional<std::string_view>(
      std::in_place, reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Result<std::optional<std::vector<int64_t>>> GgufFile::Integers(std::string_view key) const {
  constexpr uint64_t kMost = 1 << 20;
  constexpr std::string_view kAllowed = "an array of at most 2^20 integers";
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<std::vector<int64_t>>();
  if (value->type != GgufType::kArray || value->count > kMost) {
    return WrongKind(key, *value, kAllowed);
  }
  std::vector<int64_t> integers;
  const size_t size = value->count == 0 ? 0 : value->bytes.size() / value->count;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = LoadInteger(value->element, value->bytes.data() + i * size);
    if (!integer) return WrongKind(key, *value, kAllowed);
    integers.push_back(*integer);
  }
  return std::optional(std::move(integers));
}

Result<std::optional<int64_t>> GgufFile::Length(std::string_view key) const {
  const GgufValue* value = Value(key);
  if (value == nullptr) return std::optional<int64_t>();
  if (value->type != GgufType::kArray || value->count > INT64_MAX) {
    return WrongKind(key, *value, "an array");
  }
  return std::optional(static_cast<int64_t>(value->count));
}

}  // namespace assay
