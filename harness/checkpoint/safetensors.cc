#include "harness/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/strict_json.h"
#include "harness/checkpoint/tensor_name.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors is mapped as it lies");

constexpr size_t kPrefixBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // the reference library's limit
constexpr size_t kMaxDimensions = 16;
// A matrix takes 8 values. Kimi-K2's 200,000 tensors in one file would need 1.7 million; the limit
// keeps the most hostile header below a GiB of memory.
constexpr JsonLimits kHeaderLimits{.max_depth = 4, .max_values = 8'000'000};

struct Entry {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data
};
using Entries = std::map<std::string, Entry, std::less<>>;

Error Bad(std::string_view where, std::string_view name, std::string_view reason) {
  return Error{fmt::format("{}: tensor {}: {}", where, Quoted(name), reason)};
}

std::string AllDTypes() {
  std::vector<std::string_view> names;
  for (uint32_t i = 0; i <= static_cast<uint32_t>(DType::kU64); ++i) {
    names.push_back(NameOf(static_cast<DType>(i)));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

Result<uint64_t> ParseCount(std::string_view where, std::string_view name, std::string_view what,
                            const json& value) {
  constexpr uint64_t kMax = INT64_MAX;
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMax) {
    return Bad(where, name,
               fmt::format("{} holds {}; it must hold integers from 0 to 2^63-1", what,
                           ShownValue(value)));
  }
  return value.get<uint64_t>();
}

Status ParseShape(std::string_view where, std::string_view name, const json& value, Entry& entry) {
  if (!value.is_array() || value.size() > kMaxDimensions) {
    return Bad(where, name,
               fmt::format("shape is {}; it must be an array of at most {} extents",
                           ShownValue(value), kMaxDimensions));
  }
  for (const json& extent : value) {
    const Result<uint64_t> count = ParseCount(where, name, "shape", extent);
    if (!count.ok()) return count.error();
    entry.shape.push_back(static_cast<int64_t>(*count));
  }
  return Ok();
}

Status ParseOffsets(std::string_view where, std::string_view name, const json& value,
                    Entry& entry) {
  if (!value.is_array() || value.size() != 2) {
    return Bad(where, name,
               fmt::format("data_offsets is {}; it must be [begin, end]", ShownValue(value)));
  }
  const Result<uint64_t> begin = ParseCount(where, name, "data_offsets", value[0]);
  if (!begin.ok()) return begin.error();
  const Result<uint64_t> end = ParseCount(where, name, "data_offsets", value[1]);
  if (!end.ok()) return end.error();
  entry.begin = *begin;
  entry.end = *end;
  if (entry.begin > entry.end) {
    return Bad(where, name,
               fmt::format("data_offsets [{}, {}] are reversed; begin must not exceed end",
                           entry.begin, entry.end));
  }
  return Ok();
}

// The offsets against the data that the file has, and against shape and type.
Status CheckExtent(std::string_view where, std::string_view name, const Entry& entry,
                   uint64_t data_bytes) {
  if (entry.end > data_bytes) {
    return Bad(where, name,
               fmt::format("ends at byte {} of the data, but the file has only {} bytes of data; "
                           "it is truncated or its offsets are wrong",
                           entry.end, data_bytes));
  }
  const std::optional<Bytes> expected = StoredBytes(entry.dtype, entry.shape);
  if (!expected) {
    return Bad(where, name,
               fmt::format("shape [{}] of {} overflows; a tensor may have up to 2^63-1 bytes",
                           fmt::join(entry.shape, ", "), NameOf(entry.dtype)));
  }
  const uint64_t actual = entry.end - entry.begin;
  if (actual != static_cast<uint64_t>(expected->count())) {
    return Bad(where, name,
               fmt::format("data_offsets span {} bytes, but shape [{}] of {} takes {}", actual,
                           fmt::join(entry.shape, ", "), NameOf(entry.dtype), expected->count()));
  }
  return Ok();
}

Result<Entry> ParseEntry(std::string_view where, const std::string& name, const json& value,
                         uint64_t data_bytes) {
  if (std::string reason = TensorNameFault(name); !reason.empty()) {
    return Bad(where, name, reason);
  }
  constexpr std::string_view kAllowed = "dtype, shape and data_offsets";
  if (!value.is_object()) {
    return Bad(
        where, name,
        fmt::format("its entry is {}; it must be an object of {}", ShownValue(value), kAllowed));
  }
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Bad(where, name, fmt::format("unknown key {}; allowed are {}", Quoted(key), kAllowed));
    }
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) {
      return Bad(where, name, fmt::format("has no '{}'; it must have {}", key, kAllowed));
    }
  }
  Entry entry;
  const json& dtype = value["dtype"];
  const auto known =
      dtype.is_string() ? DTypeFromName(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!known || IsBlock(*known)) {
    return Bad(where, name,
               fmt::format("dtype is {}; known are {}", ShownValue(dtype), AllDTypes()));
  }
  entry.dtype = *known;
  Status status = ParseShape(where, name, value["shape"], entry);
  if (status.ok()) status = ParseOffsets(where, name, value["data_offsets"], entry);
  if (status.ok()) status = CheckExtent(where, name, entry, data_bytes);
  if (!status.ok()) return status.error();
  return entry;
}

// Every byte of the data belongs to exactly one tensor.
Status CheckCoverage(std::string_view where, const Entries& entries, uint64_t data_bytes) {
  std::vector<const Entries::value_type*> order;
  order.reserve(entries.size());
  for (const auto& item : entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  const std::string* last = nullptr;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    if (entry.begin < covered) {
      return Bad(where, name,
                 fmt::format("begins at byte {} of the data and overlaps tensor {}, which ends at "
                             "{}; tensors may not overlap",
                             entry.begin, Quoted(*last), covered));
    }
    if (entry.begin > covered) {
      return Bad(where, name,
                 fmt::format("begins at byte {} of the data, but what lies before ends at {}; a "
                             "hole of {} bytes is not allowed",
                             entry.begin, covered, entry.begin - covered));
    }
    covered = entry.end;
    last = &name;
  }
  if (covered == data_bytes) return Ok();
  const std::string reason = fmt::format(
      "{} bytes follow the last tensor's end at byte {} of the data; trailing bytes are not "
      "allowed",
      data_bytes - covered, covered);
  return last != nullptr ? Bad(where, *last, reason)
                         : Error{fmt::format("{}: no tensors, but {}", where, reason)};
}

Result<std::map<std::string, std::string>> ParseMetadata(std::string_view where,
                                                         const json& value) {
  if (!value.is_object()) {
    return Error{fmt::format("{}: __metadata__ is {}; it must be an object of strings", where,
                             ShownValue(value))};
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return Error{fmt::format("{}: __metadata__ {} is {}; it must be a string", where, Quoted(key),
                               ShownValue(text))};
    }
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// Length of the JSON text, checked against the file.
Result<size_t> HeaderBytes(std::string_view where, std::span<const std::byte> file) {
  if (file.size() < kPrefixBytes) {
    return Error{fmt::format("{}: {} bytes; a safetensors file begins with an 8-byte header length",
                             where, file.size())};
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeaderBytes) {
    return Error{fmt::format("{}: header length is {} bytes; at most {} are allowed", where, length,
                             kMaxHeaderBytes)};
  }
  if (length > file.size() - kPrefixBytes) {
    return Error{
        fmt::format("{}: header length is {} bytes, but only {} follow; the file is "
                    "truncated or no safetensors file",
                    where, length, file.size() - kPrefixBytes)};
  }
  if (length < 2 || file[kPrefixBytes] != std::byte{'{'}) {
    return Error{
        fmt::format("{}: the header of {} bytes does not begin with '{{'; it must be a "
                    "JSON object",
                    where, length)};
  }
  return static_cast<size_t>(length);
}

}  // namespace

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const Result<UnixFile> opened = UnixFile::OpenForReading(path);
  if (!opened.ok()) return opened.error();
  const Result<void*> mapping = opened->Map();
  if (!mapping.ok()) return mapping.error();
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  file->mapping_ = *mapping;
  file->mapped_bytes_ = opened->size();

  const std::string where = ShownPath(path);
  const std::span bytes(static_cast<const std::byte*>(*mapping), file->mapped_bytes_);
  const Result<size_t> header_bytes = HeaderBytes(where, bytes);
  if (!header_bytes.ok()) return header_bytes.error();
  file->header_bytes_ = *header_bytes;
  const Result<json> header = ParseStrictJson(file->header(), where + ": header", kHeaderLimits);
  if (!header.ok()) return header.error();

  const std::span data = bytes.subspan(kPrefixBytes + *header_bytes);
  Entries entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") {
      auto metadata = ParseMetadata(where, value);
      if (!metadata.ok()) return metadata.error();
      file->metadata_ = std::move(*metadata);
      continue;
    }
    Result<Entry> entry = ParseEntry(where, name, value, data.size());
    if (!entry.ok()) return entry.error();
    entries.emplace_hint(entries.end(), name, std::move(*entry));
  }
  if (Status status = CheckCoverage(where, entries, data.size()); !status.ok()) {
    return status.error();
  }
  for (auto& [name, entry] : entries) {
    const auto tensor = data.subspan(entry.begin, entry.end - entry.begin);
    file->tensors_.emplace_hint(
        file->tensors_.end(), name,
        TensorView{name, entry.dtype, std::move(entry.shape), tensor, path});
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::string_view SafetensorsFile::header() const {
  return {static_cast<const char*>(mapping_) + kPrefixBytes, header_bytes_};
}

}  // namespace assay
