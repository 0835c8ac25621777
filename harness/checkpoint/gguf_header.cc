// Preamble and metadata.
#include <fmt/format.h>

#include <algorithm>

#include "harness/checkpoint/gguf_reader.h"

namespace assay {
namespace {

constexpr size_t kPreamble = 24;            // magic, version, two counts
constexpr uint64_t kMaxKeys = 1 << 16;      // real files have tens
constexpr uint64_t kMaxTensors = 1 << 20;   // Kimi-K2 has about 1,100: experts are fused
constexpr uint64_t kLeastKeyBytes = 14;     // length, one byte, type, one byte
constexpr uint64_t kLeastTensorBytes = 25;  // length, one byte, count of extents, type, offset

uint64_t SizeOfScalar(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

bool IsType(uint32_t code) { return code <= static_cast<uint32_t>(GgufType::kF64); }

}  // namespace

void GgufReader::Read() {
  const Status status = ReadHeader();
  if (status.ok()) return;
  faults_.TellFile(short_ ? "truncated" : "header", status.error().message, status.error().kind);
}

Status GgufReader::ReadHeader() {
  Status status = ReadPreamble();
  for (uint64_t i = 0; status.ok() && i < keys_; ++i) status = ReadKey();
  if (status.ok()) status = ReadAlignment();
  for (uint64_t i = 0; status.ok() && i < tensors_; ++i) status = ReadInfo();
  if (status.ok()) status = PlaceTensors();
  return status;
}

Status GgufReader::ReadPreamble() {
  constexpr std::string_view kMagic = "GGUF";
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min(bytes_.size(), kMagic.size()));
  if (start != kMagic) {
    return At(0, fmt::format("begins with {}; a GGUF file begins with 'GGUF'", Quoted(start)));
  }
  if (bytes_.size() < kPreamble) {
    return Short(0,
                 fmt::format("the file has {} bytes; a GGUF file begins with {}: magic, version, "
                             "count of tensors, count of keys",
                             bytes_.size(), kPreamble));
  }
  at_ = kMagic.size();
  if (Status version = ReadVersion(); !version.ok()) return version;
  const Result<uint64_t> tensors = ReadCount("tensors", kMaxTensors, kLeastTensorBytes);
  if (!tensors.ok()) return tensors.error();
  const Result<uint64_t> keys = ReadCount("keys", kMaxKeys, kLeastKeyBytes);
  if (!keys.ok()) return keys.error();
  tensors_ = *tensors;
  keys_ = *keys;
  return Ok();
}

Status GgufReader::ReadVersion() {
  const Result<uint32_t> version = Number<uint32_t>("the file", "the version");
  if (!version.ok()) return version.error();
  file_.version_ = *version;
  if (*version == 2 || *version == 3) return Ok();
  const uint32_t swapped = __builtin_bswap32(*version);
  std::string reason = fmt::format("GGUF version {} is not read; versions 2 and 3 are", *version);
  if (swapped >= 1 && swapped <= 255) {
    reason =
        fmt::format("a big-endian file (version {}); only little-endian ones are read", swapped);
  }
  return At(4, reason, ErrorKind::kUnsupported);
}

// Each of them takes at least `least_bytes` of what is left.
Result<uint64_t> GgufReader::ReadCount(std::string_view what, uint64_t most, uint64_t least_bytes) {
  const size_t begin = at_;
  const Result<uint64_t> count = Number<uint64_t>("the file", fmt::format("the count of {}", what));
  if (!count.ok()) return count.error();
  const uint64_t room = left() / least_bytes;
  if (*count > room || *count > most) {
    return At(begin, fmt::format("{} {}; at most {} are allowed in a file of {} bytes", *count,
                                 what, std::min(room, most), bytes_.size()));
  }
  return *count;
}

Status GgufReader::ReadKey() {
  const size_t begin = at_;
  const Result<std::string_view> key =
      Text(fmt::format("key {}", file_.metadata_.size()), "its name", kMaxGgufNameBytes);
  if (!key.ok()) return key.error();
  const bool has_control = std::any_of(key->begin(), key->end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (key->empty() || has_control) {
    return At(begin, fmt::format("key {}: a key must have a name without control characters",
                                 Quoted(*key)));
  }
  const std::string owner = fmt::format("key {}", Quoted(*key));
  const size_t at_type = at_;
  const Result<uint32_t> type = Number<uint32_t>(owner, "its type");
  if (!type.ok()) return type.error();
  if (!IsType(*type)) {
    return At(at_type, fmt::format("{}: type {}; types of values are 0 to 12", owner, *type));
  }
  GgufValue value;
  value.type = static_cast<GgufType>(*type);
  if (Status status = ReadValue(owner, value); !status.ok()) return status;
  if (!file_.metadata_.emplace(std::string(*key), value).second) {
    return At(begin, fmt::format("{}: given twice; a key may appear once", owner));
  }
  return Ok();
}

Status GgufReader::ReadValue(std::string_view owner, GgufValue& value) {
  if (value.type == GgufType::kArray) return ReadArray(owner, value);
  if (value.type == GgufType::kString) {
    const Result<std::string_view> text = Text(owner, "its text", UINT64_MAX);
    if (!text.ok()) return text.error();
    value.bytes = std::as_bytes(std::span(*text));
    return Ok();
  }
  const uint64_t size = SizeOfScalar(value.type);
  if (size > left()) {
    return Short(at_,
                 fmt::format("{}: a value of type {} takes {} bytes, but only {} are left; the "
                             "file is truncated",
                             owner, NameOf(value.type), size, left()));
  }
  value.bytes = bytes_.subspan(at_, size);
  at_ += size;
  return CheckBools(owner, value);
}

Status GgufReader::ReadArray(std::string_view owner, GgufValue& value) {
  const size_t begin = at_;
  const Result<uint32_t> element = Number<uint32_t>(owner, "the type of its elements");
  if (!element.ok()) return element.error();
  if (!IsType(*element)) {
    return At(begin,
              fmt::format("{}: elements of type {}; types of values are 0 to 12", owner, *element));
  }
  value.element = static_cast<GgufType>(*element);
  if (value.element == GgufType::kArray) {
    return At(begin, fmt::format("{}: an array of arrays; arrays of single values are read", owner),
              ErrorKind::kUnsupported);
  }
  const Result<uint64_t> count = Number<uint64_t>(owner, "the count of its elements");
  if (!count.ok()) return count.error();
  value.count = *count;
  const bool strings = value.element == GgufType::kString;
  const uint64_t least = strings ? sizeof(uint64_t) : SizeOfScalar(value.element);
  if (*count > left() / least) {
    return Short(begin,
                 fmt::format("{}: {} elements of type {}, but only {} bytes are left; the file "
                             "is truncated or the count is wrong",
                             owner, *count, NameOf(value.element), left()));
  }
  const size_t first = at_;
  if (!strings) at_ += *count * least;
  for (uint64_t i = 0; strings && i < *count; ++i) {
    if (SkipText()) continue;
    const Result<std::string_view> text = Text(owner, fmt::format("element {}", i), UINT64_MAX);
    if (!text.ok()) return text.error();
  }
  value.bytes = bytes_.subspan(first, at_ - first);
  return CheckBools(owner, value);
}

Status GgufReader::CheckBools(std::string_view owner, const GgufValue& value) const {
  const bool array = value.type == GgufType::kArray;
  if ((array ? value.element : value.type) != GgufType::kBool) return Ok();
  const auto bad = std::find_if(value.bytes.begin(), value.bytes.end(),
                                [](std::byte b) { return std::to_integer<int>(b) > 1; });
  if (bad == value.bytes.end()) return Ok();
  return At(static_cast<size_t>(&*bad - bytes_.data()),
            fmt::format("{}: a bool of {}; it must be 0 or 1", owner, std::to_integer<int>(*bad)));
}

Status GgufReader::ReadAlignment() {
  constexpr const char* kKey = "general.alignment";
  constexpr int64_t kMost = int64_t{1} << 20;
  const Result<std::optional<int64_t>> value = file_.Integer(kKey);
  if (!value.ok()) {
    // The file's own accessors name it; the fault does so again.
    return Error{WithoutPath(value.error().message, file_.path_), value.error().kind};
  }
  if (!value->has_value()) return Ok();
  const int64_t alignment = **value;
  if (alignment < 1 || alignment > kMost || (alignment & (alignment - 1)) != 0) {
    return Error{
        fmt::format("key '{}' is {}; it must be a power of two up to {}", kKey, alignment, kMost)};
  }
  file_.alignment_ = static_cast<uint64_t>(alignment);
  return Ok();
}

}  // namespace assay
