#include "harness/checkpoint/gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "harness/checkpoint/gguf_types.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/tensor_name.h"
#include "harness/checkpoint/unix_file.h"

namespace assay {

static_assert(std::endian::native == std::endian::little, "GGUF is mapped as it lies");

namespace {

constexpr size_t kPreamble = 24;            // magic, version, two counts
constexpr uint64_t kMaxKeyBytes = 65535;    // GGUF's rule
constexpr uint64_t kMaxKeys = 1 << 16;      // real files have tens
constexpr uint64_t kMaxTensors = 1 << 20;   // Kimi-K2 has about 1,100: experts are fused
constexpr uint64_t kLeastKeyBytes = 14;     // length, one byte, type, one byte
constexpr uint64_t kLeastTensorBytes = 25;  // length, one byte, count of extents, type, offset
constexpr uint32_t kMaxExtents = 4;         // ggml's

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

// Rounds up to a multiple of a power of two; the callers' numbers are far from overflow.
uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

struct Info {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // C's order, in storage values
  uint64_t offset = 0, bytes = 0;
};
using Infos = std::map<std::string, Info, std::less<>>;

}  // namespace

// Reads the header from front to back. `at_` is the next byte.
class GgufReader {
 public:
  GgufReader(GgufFile& file, std::string where, std::span<const std::byte> bytes)
      : file_(file), where_(std::move(where)), bytes_(bytes) {}

  Status Read() {
    Status status = ReadPreamble();
    for (uint64_t i = 0; status.ok() && i < keys_; ++i) status = ReadKey();
    if (status.ok()) status = ReadAlignment();
    for (uint64_t i = 0; status.ok() && i < tensors_; ++i) status = ReadInfo();
    if (status.ok()) status = PlaceTensors();
    return status;
  }

 private:
  Error At(size_t byte, std::string_view reason, ErrorKind kind = ErrorKind::kBadInput) const {
    return Error{fmt::format("{}: byte {}: {}", where_, byte, reason), kind};
  }
  Error Bad(std::string_view tensor, std::string_view reason,
            ErrorKind kind = ErrorKind::kBadInput) const {
    return Error{fmt::format("{}: tensor {}: {}", where_, Quoted(tensor), reason), kind};
  }
  uint64_t left() const { return bytes_.size() - at_; }

  // `owner` says whose value ends early: "key 'x'".
  template <class T>
  Result<T> Number(std::string_view owner, std::string_view what) {
    if (left() < sizeof(T)) {
      return At(at_, fmt::format("{}: {} takes {} bytes, but only {} are left; the file is "
                                 "truncated or its counts are wrong",
                                 owner, what, sizeof(T), left()));
    }
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  // A length of 8 bytes and so many bytes of text.
  Result<std::string_view> Text(std::string_view owner, std::string_view what, uint64_t most) {
    const size_t begin = at_;
    const Result<uint64_t> length = Number<uint64_t>(owner, fmt::format("the length of {}", what));
    if (!length.ok()) return length.error();
    if (*length > most) {
      return At(begin, fmt::format("{}: {} has {} bytes; at most {} are allowed", owner, what,
                                   *length, most));
    }
    if (*length > left()) {
      return At(begin, fmt::format("{}: {} has {} bytes, but only {} are left; the file is "
                                   "truncated or the length is wrong",
                                   owner, what, *length, left()));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, *length);
    at_ += *length;
    return text;
  }

  Status ReadPreamble();
  Status ReadVersion();
  Result<uint64_t> ReadCount(std::string_view what, uint64_t most, uint64_t least_bytes);
  Status ReadKey();
  Status ReadValue(std::string_view owner, GgufValue& value);
  Status ReadArray(std::string_view owner, GgufValue& value);
  Status CheckBools(std::string_view owner, const GgufValue& value) const;
  Status ReadAlignment();
  Status ReadInfo();
  Status ReadShape(std::string_view name, std::vector<uint64_t>& extents);
  Result<DType> ReadDType(std::string_view name);
  Status MakeShape(std::string_view name, const std::vector<uint64_t>& extents, Info& info) const;
  Status PlaceTensors();
  Status CheckPlaces(uint64_t data_bytes) const;

  GgufFile& file_;
  std::string where_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t keys_ = 0, tensors_ = 0;
  Infos infos_;
};

Status GgufReader::ReadPreamble() {
  constexpr std::string_view kMagic = "GGUF";
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                               std::min(bytes_.size(), kMagic.size()));
  if (start != kMagic) {
    return At(0, fmt::format("begins with {}; a GGUF file begins with 'GGUF'", Quoted(start)));
  }
  if (bytes_.size() < kPreamble) {
    return At(0, fmt::format("the file has {} bytes; a GGUF file begins with {}: magic, version, "
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
      Text(fmt::format("key {}", file_.metadata_.size()), "its name", kMaxKeyBytes);
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
    return At(at_, fmt::format("{}: a value of type {} takes {} bytes, but only {} are left; the "
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
    return At(begin, fmt::format("{}: {} elements of type {}, but only {} bytes are left; the file "
                                 "is truncated or the count is wrong",
                                 owner, *count, NameOf(value.element), left()));
  }
  const size_t first = at_;
  if (!strings) at_ += *count * least;
  for (uint64_t i = 0; strings && i < *count; ++i) {
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
  if (!value.ok()) return value.error();
  if (!value->has_value()) return Ok();
  const int64_t alignment = **value;
  if (alignment < 1 || alignment > kMost || (alignment & (alignment - 1)) != 0) {
    return Error{fmt::format("{}: key '{}' is {}; it must be a power of two up to {}", where_, kKey,
                             alignment, kMost)};
  }
  file_.alignment_ = static_cast<uint64_t>(alignment);
  return Ok();
}

Status GgufReader::ReadInfo() {
  const size_t begin = at_;
  const Result<std::string_view> name =
      Text(fmt::format("tensor {}", infos_.size()), "its name", kMaxKeyBytes);
  if (!name.ok()) return name.error();
  if (const std::string fault = TensorNameFault(*name); !fault.empty()) {
    return At(begin, fmt::format("tensor {}: {}", Quoted(*name), fault));
  }
  std::vector<uint64_t> extents;
  if (Status status = ReadShape(*name, extents); !status.ok()) return status;
  const Result<DType> dtype = ReadDType(*name);
  if (!dtype.ok()) return dtype.error();
  const Result<uint64_t> offset =
      Number<uint64_t>(fmt::format("tensor {}", Quoted(*name)), "its offset");
  if (!offset.ok()) return offset.error();
  Info info;
  info.dtype = *dtype;
  info.offset = *offset;
  if (Status status = MakeShape(*name, extents, info); !status.ok()) return status;
  if (!infos_.emplace(std::string(*name), std::move(info)).second) {
    return Bad(*name, "given twice; a name may appear once");
  }
  return Ok();
}

Status GgufReader::ReadShape(std::string_view name, std::vector<uint64_t>& extents) {
  const std::string owner = fmt::format("tensor {}", Quoted(name));
  const Result<uint32_t> count = Number<uint32_t>(owner, "its count of extents");
  if (!count.ok()) return count.error();
  if (*count > kMaxExtents) {
    return Bad(name, fmt::format("has {} extents; at most {} are allowed", *count, kMaxExtents));
  }
  for (uint32_t i = 0; i < *count; ++i) {
    const Result<uint64_t> extent = Number<uint64_t>(owner, fmt::format("extent {}", i));
    if (!extent.ok()) return extent.error();
    if (*extent < 1 || *extent > INT64_MAX) {
      return Bad(name, fmt::format("extent {} is {}; it must be from 1 to 2^63-1", i, *extent));
    }
    extents.push_back(*extent);
  }
  return Ok();
}

Result<DType> GgufReader::ReadDType(std::string_view name) {
  const Result<uint32_t> code =
      Number<uint32_t>(fmt::format("tensor {}", Quoted(name)), "its type");
  if (!code.ok()) return code.error();
  const GgmlType* type = FindGgmlType(*code);
  if (type == nullptr) {
    return Bad(name, fmt::format("type {}, which ggml is not known to have; read are {}", *code,
                                 ReadableGgmlTypes()));
  }
  if (type->dtype) return *type->dtype;
  return Bad(
      name,
      fmt::format("type {} ({}) is not read; read are {}", type->name, *code, ReadableGgmlTypes()),
      ErrorKind::kUnsupported);
}

// The file's first extent is the fastest one; of blocks, each takes several of its elements.
Status GgufReader::MakeShape(std::string_view name, const std::vector<uint64_t>& extents,
                             Info& info) const {
  info.shape.assign(extents.rbegin(), extents.rend());
  const int64_t per_block = ElementsOf(info.dtype).count();
  if (per_block > 1) {
    if (info.shape.empty() || info.shape.back() % per_block != 0) {
      return Bad(name, fmt::format("a row has {} elements of {}; it must be a whole number of "
                                   "blocks of {}",
                                   info.shape.empty() ? 1 : info.shape.back(), NameOf(info.dtype),
                                   per_block));
    }
    info.shape.back() /= per_block;
  }
  const std::optional<Bytes> bytes = StoredBytes(info.dtype, info.shape);
  if (!bytes) {
    return Bad(name,
               fmt::format("extents [{}] of {} overflow; a tensor may have up to 2^63-1 bytes",
                           fmt::join(extents, ", "), NameOf(info.dtype)));
  }
  info.bytes = static_cast<uint64_t>(bytes->count());
  return Ok();
}

// Every byte of the data belongs to one tensor or is padding up to the alignment. What pads the
// last tensor may be missing.
Status GgufReader::CheckPlaces(uint64_t data_bytes) const {
  std::vector<const Infos::value_type*> order;
  order.reserve(infos_.size());
  for (const auto& item : infos_) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  uint64_t end = 0, padded_end = 0;  // of what came before
  const std::string* last = nullptr;
  for (const auto* item : order) {
    const auto& [name, info] = *item;
    if (info.offset % file_.alignment_ != 0) {
      return Bad(name, fmt::format("offset {} is no multiple of the alignment, {}", info.offset,
                                   file_.alignment_));
    }
    if (info.offset > data_bytes || info.bytes > data_bytes - info.offset) {
      return Bad(name, fmt::format("has {} bytes at offset {} of the data, but the file has only "
                                   "{} bytes of data; it is truncated or the offset is wrong",
                                   info.bytes, info.offset, data_bytes));
    }
    if (info.offset < end) {
      return Bad(name, fmt::format("begins at offset {} of the data and overlaps tensor {}, which "
                                   "ends at {}; tensors may not overlap",
                                   info.offset, Quoted(*last), end));
    }
    if (info.offset != padded_end) {
      return Bad(name, fmt::format("begins at offset {} of the data, but what lies before ends, "
                                   "with its padding, at {}; a hole is not allowed",
                                   info.offset, padded_end));
    }
    end = info.offset + info.bytes;
    padded_end = AlignUp(end, file_.alignment_);
    last = &name;
  }
  if (data_bytes <= padded_end) return Ok();
  const std::string reason = fmt::format(
      "{} bytes follow the padded end of the last tensor at offset {} of the data; "
      "trailing bytes are not allowed",
      data_bytes - padded_end, padded_end);
  return last != nullptr ? Bad(*last, reason)
                         : Error{fmt::format("{}: no tensors, but {}", where_, reason)};
}

Status GgufReader::PlaceTensors() {
  const uint64_t begin = AlignUp(at_, file_.alignment_);
  if (begin > bytes_.size() && tensors_ > 0) {
    return At(at_, fmt::format("the header ends here; the data begins at byte {}, but the file has "
                               "{} bytes; it is truncated",
                               begin, bytes_.size()));
  }
  file_.header_bytes_ = std::min<uint64_t>(begin, bytes_.size());
  const std::span<const std::byte> data = bytes_.subspan(file_.header_bytes_);
  if (Status status = CheckPlaces(data.size()); !status.ok()) return status;
  for (auto& [name, info] : infos_) {
    file_.tensors_.emplace_hint(file_.tensors_.end(), name,
                                TensorView{name, info.dtype, std::move(info.shape),
                                           data.subspan(info.offset, info.bytes), file_.path_});
  }
  return Ok();
}

Result<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  const Result<UnixFile> opened = UnixFile::OpenForReading(path);
  if (!opened.ok()) return opened.error();
  const Result<void*> mapping = opened->Map();
  if (!mapping.ok()) return mapping.error();
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  file->mapping_ = *mapping;
  file->mapped_bytes_ = opened->size();
  const std::span bytes(static_cast<const std::byte*>(*mapping), file->mapped_bytes_);
  if (Status status = GgufReader(*file, ShownPath(path), bytes).Read(); !status.ok()) {
    return status.error();
  }
  return file;
}

GgufFile::~GgufFile() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

const TensorView* GgufFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufFile::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  return names;
}

std::span<const std::byte> GgufFile::header() const {
  return {static_cast<const std::byte*>(mapping_), header_bytes_};
}

}  // namespace assay
