// Tensors of a GGUF file: names, extents, types, and where they lie.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/checkpoint/gguf_reader.h"
#include "harness/checkpoint/gguf_types.h"
#include "harness/checkpoint/tensor_name.h"

namespace assay {
namespace {

constexpr uint32_t kMaxExtents = 4;  // ggml's

// Rounds up to a multiple of a power of two; the callers' numbers are far from overflow.
uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

Status GgufReader::ReadInfo() {
  const size_t begin = at_;
  const Result<std::string_view> name =
      Text(fmt::format("tensor {}", infos_.size()), "its name", kMaxGgufNameBytes);
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

}  // namespace assay
