#include "harness/checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"
#include "harness/checkpoint/tensor_name.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr size_t kMaxDimensions = 16;
// A matrix takes 8 values. Kimi-K2's 200,000 tensors in one file would need 1.7 million; the limit
// keeps the most hostile header below a GiB of memory.
constexpr JsonLimits kHeaderLimits{.max_depth = 4, .max_values = 8'000'000};
constexpr std::string_view kAllowed = "dtype, shape and data_offsets";

std::string AllDTypes() {
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i <= static_cast<uint32_t>(DType::kU64); ++i) {
    names.push_back(NameOf(static_cast<DType>(i)));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

// Reads one entry; false, with a fault told, where a part of it cannot be read.
class EntryReader {
 public:
  EntryReader(Faults& faults, SafetensorsEntry& entry) : faults_(faults), entry_(entry) {}

  bool Read(const json& value) {
    return HasItsKeys(value) && ReadDType(value["dtype"]) && ReadShape(value["shape"]) &&
           ReadOffsets(value["data_offsets"]);
  }

 private:
  bool Fail(std::string_view kind, std::string reason) {
    faults_.TellTensor(kind, entry_.name, std::move(reason));
    return false;
  }

  bool HasItsKeys(const json& value) {
    if (!value.is_object()) {
      return Fail("header", fmt::format("its entry is {}; it must be an object of {}",
                                        ShownValue(value), kAllowed));
    }
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Fail("header", fmt::format("unknown key {}; allowed are {}", Quoted(key), kAllowed));
      }
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(key)) {
        return Fail("header", fmt::format("has no '{}'; it must have {}", key, kAllowed));
      }
    }
    return true;
  }

  // A type that is not known leaves the rest of the entry useful: where its bytes lie.
  bool ReadDType(const json& value) {
    const auto known =
        value.is_string() ? DTypeFromName(value.get_ref<const std::string&>()) : std::nullopt;
    if (known && !IsBlock(*known)) {
      entry_.dtype = *known;
    } else {
      Fail("dtype", fmt::format("dtype is {}; known are {}", ShownValue(value), AllDTypes()));
    }
    return true;
  }

  std::optional<uint64_t> Count(std::string_view what, const json& value) {
    constexpr uint64_t kMax = INT64_MAX;
    if (value.is_number_unsigned() && value.get<uint64_t>() <= kMax) return value.get<uint64_t>();
    Fail("header", fmt::format("{} holds {}; it must hold integers from 0 to 2^63-1", what,
                               ShownValue(value)));
    return std::nullopt;
  }

  bool ReadShape(const json& value) {
    if (!value.is_array() || value.size() > kMaxDimensions) {
      return Fail("header", fmt::format("shape is {}; it must be an array of at most {} extents",
                                        ShownValue(value), kMaxDimensions));
    }
    for (const json& extent : value) {
      const std::optional<uint64_t> count = Count("shape", extent);
      if (!count) return false;
      entry_.shape.push_back(static_cast<int64_t>(*count));
    }
    return true;
  }

  bool ReadOffsets(const json& value) {
    if (!value.is_array() || value.size() != 2) {
      return Fail("header",
                  fmt::format("data_offsets is {}; it must be [begin, end]", ShownValue(value)));
    }
    const std::optional<uint64_t> begin = Count("data_offsets", value[0]);
    const std::optional<uint64_t> end = begin ? Count("data_offsets", value[1]) : std::nullopt;
    if (!end) return false;
    if (*begin > *end) {
      return Fail("header", fmt::format("data_offsets [{}, {}] are reversed; begin must not exceed "
                                        "end",
                                        *begin, *end));
    }
    entry_.begin = *begin;
    entry_.end = *end;
    return true;
  }

  Faults& faults_;
  SafetensorsEntry& entry_;
};

// The offsets against the data that the file has, and against shape and type.
bool HasItsBytes(const SafetensorsEntry& entry, uint64_t data_bytes, Faults& faults) {
  const auto fail = [&](std::string_view kind, std::string reason) {
    faults.TellTensor(kind, entry.name, std::move(reason));
    return false;
  };
  if (!entry.dtype) return false;
  const std::optional<Bytes> expected = StoredBytes(*entry.dtype, entry.shape);
  const uint64_t actual = entry.end - entry.begin;
  const bool fits = expected && actual == static_cast<uint64_t>(expected->count());
  if (entry.end > data_bytes) {
    // Offsets that agree with the shape are right, and the file is too short for them.
    return fail(fits ? "truncated" : "shape",
                fmt::format("ends at byte {} of the data, but the file has only {} bytes of data; "
                            "it is truncated or its offsets are wrong",
                            entry.end, data_bytes));
  }
  if (!expected) {
    return fail("shape",
                fmt::format("shape [{}] of {} overflows; a tensor may have up to 2^63-1 bytes",
                            fmt::join(entry.shape, ", "), NameOf(*entry.dtype)));
  }
  if (fits) return true;
  return fail("shape",
              fmt::format("data_offsets span {} bytes, but shape [{}] of {} takes {}", actual,
                          fmt::join(entry.shape, ", "), NameOf(*entry.dtype), expected->count()));
}

// Every byte of the data belongs to exactly one tensor.
void CheckCoverage(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes, Faults& faults) {
  std::vector<SafetensorsEntry*> order;
  for (SafetensorsEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  uint64_t covered = 0;
  SafetensorsEntry* last = nullptr;
  for (SafetensorsEntry* entry : order) {
    if (entry->begin < covered) {
      faults.TellTensor(
          "overlap", entry->name,
          fmt::format("begins at byte {} of the data and overlaps tensor {}, which ends at {}; "
                      "tensors may not overlap",
                      entry->begin, Quoted(last->name), covered));
      entry->whole = last->whole = false;
    } else if (entry->begin > covered) {
      faults.TellTensor("hole", entry->name,
                        fmt::format("begins at byte {} of the data, but what lies before ends at "
                                    "{}; a hole of {} bytes is not allowed",
                                    entry->begin, covered, entry->begin - covered));
    }
    if (entry->end < covered) continue;
    covered = entry->end;
    last = entry;
  }
  if (covered >= data_bytes) return;
  std::string reason = fmt::format(
      "{} bytes follow the last tensor's end at byte {} of the data; trailing bytes are not "
      "allowed",
      data_bytes - covered, covered);
  if (last != nullptr) {
    faults.TellTensor("trailing", last->name, std::move(reason));
  } else {
    faults.TellFile("trailing", "no tensors, but " + reason);
  }
}

void ReadMetadata(const json& value, std::map<std::string, std::string>& metadata, Faults& faults) {
  if (!value.is_object()) {
    faults.TellFile("header", fmt::format("__metadata__ is {}; it must be an object of strings",
                                          ShownValue(value)));
    return;
  }
  for (const auto& [key, text] : value.items()) {
    if (text.is_string()) {
      metadata.emplace(key, text.get<std::string>());
    } else {
      faults.TellFile("header", fmt::format("__metadata__ {} is {}; it must be a string",
                                            Quoted(key), ShownValue(text)));
    }
  }
}

// Length of the JSON text, checked against the file.
std::optional<size_t> HeaderBytes(std::span<const std::byte> file, Faults& faults) {
  const auto fail = [&](std::string_view kind, std::string reason) {
    faults.TellFile(kind, std::move(reason));
    return std::nullopt;
  };
  if (file.size() < kSafetensorsPrefix) {
    return fail("truncated",
                fmt::format("{} bytes; a safetensors file begins with an 8-byte header length",
                            file.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxSafetensorsHeader) {
    return fail("header", fmt::format("header length is {} bytes; at most {} are allowed", length,
                                      kMaxSafetensorsHeader));
  }
  if (length > file.size() - kSafetensorsPrefix) {
    return fail("truncated", fmt::format("header length is {} bytes, but only {} follow; the file "
                                         "is truncated or no safetensors file",
                                         length, file.size() - kSafetensorsPrefix));
  }
  if (length < 2 || file[kSafetensorsPrefix] != std::byte{'{'}) {
    return fail("header", fmt::format("the header of {} bytes does not begin with '{{'; it must be "
                                      "a JSON object",
                                      length));
  }
  return static_cast<size_t>(length);
}

}  // namespace

SafetensorsHeader ReadSafetensorsHeader(std::span<const std::byte> file, Faults& faults) {
  SafetensorsHeader header;
  const std::optional<size_t> header_bytes = HeaderBytes(file, faults);
  if (!header_bytes) return header;
  header.data_begin = kSafetensorsPrefix + *header_bytes;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kSafetensorsPrefix,
                              *header_bytes);
  const Result<JsonMembers> members = ParseStrictMembers(text, "header", kHeaderLimits);
  if (!members.ok()) {
    faults.TellFile("header", members.error().message);
    return header;
  }
  const uint64_t data_bytes = file.size() - header.data_begin;
  std::set<std::string_view> names;
  bool all_placed = true;
  for (const auto& [name, value] : *members) {
    if (!names.insert(name).second) {
      // Which of them a reader takes differs; none of the bytes of the second one is missed.
      faults.TellTensor("duplicate", name,
                        fmt::format("key {} is given twice; a key may appear once", Quoted(name)));
      all_placed = false;
      continue;
    }
    if (name == "__metadata__") {
      ReadMetadata(value, header.metadata, faults);
      continue;
    }
    SafetensorsEntry entry{name, std::nullopt, {}, 0, 0, false, false};
    const std::string fault = TensorNameFault(name);
    if (!fault.empty()) faults.TellTensor("name", name, fault);
    if (EntryReader(faults, entry).Read(value)) {
      entry.readable = fault.empty() && entry.dtype.has_value();
      entry.whole = HasItsBytes(entry, data_bytes, faults) && entry.readable;
      header.entries.push_back(std::move(entry));
    } else {
      all_placed = false;
    }
  }
  // Where an entry does not say which bytes are its, a hole may be they.
  if (all_placed) CheckCoverage(header.entries, data_bytes, faults);
  return header;
}

}  // namespace assay
