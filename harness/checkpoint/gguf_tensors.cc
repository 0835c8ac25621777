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
  const Result<std::string_view> text =
      Text(fmt::format("tensor {}", infos_.size()), "its name", kMaxGgufNameBytes);
  if (!text.ok()) return text.error();
  const std::string name(*text);
  const std::string owner = fmt::format("tensor {}", Quoted(name));
  const Result<std::vector<uint64_t>> extents = ReadExtents(name);
  if (!extents.ok()) return extents.error();
  const Result<uint32_t> code = Number<uint32_t>(owner, "its type");
  if (!code.ok()) return code.error();
  const Result<uint64_t> offset = Number<uint64_t>(owner, "its offset");
  if (!offset.ok()) return offset.error();

  Info info;
  info.offset = *offset;
  if (const std::string fault = TensorNameFault(name); !fault.empty()) {
    faults_.TellTensor("name", name, fault);
    info.known = false;
  }
  info.known = FindDType(name, *code, info) && MakeShape(name, *extents, info) && info.known;
  info.whole = info.known;
  all_known_ = all_known_ && info.known;
  if (!infos_.emplace(name, std::move(info)).second) {
    faults_.TellTensor("duplicate", name, "given twice; a name may appear once");
    all_known_ = false;
  }
  return Ok();
}

Result<std::vector<uint64_t>> GgufReader::ReadExtents(std::string_view name) {
  const std::string owner = fmt::format("tensor {}", Quoted(name));
  const Result<uint32_t> count = Number<uint32_t>(owner, "its count of extents");
  if (!count.ok()) return count.error();
  if (*count > kMaxExtents) {
    return Error{
        fmt::format("{}: has {} extents; at most {} are allowed", owner, *count, kMaxExtents)};
  }
  std::vector<uint64_t> extents;
  for (uint32_t i = 0; i < *count; ++i) {
    const Result<uint64_t> extent = Number<uint64_t>(owner, fmt::format("extent {}", i));
    if (!extent.ok()) return extent.error();
    extents.push_back(*extent);
  }
  return extents;
}

bool GgufReader::FindDType(std::string_view name, uint32_t code, Info& info) {
  const GgmlType* type = FindGgmlType(code);
  if (type != nullptr && type->dtype) {
    info.dtype = *type->dtype;
    return true;
  }
  if (type == nullptr) {
    faults_.TellTensor("dtype", name,
                       fmt::format("type {}, which ggml is not known to have; read are {}", code,
                                   ReadableGgmlTypes()));
  } else {
    faults_.TellTensor(
        "dtype", name,
        fmt::format("type {} ({}) is not read; read are {}", type->name, code, ReadableGgmlTypes()),
        ErrorKind::kUnsupported);
  }
  return false;
}

// The file's first extent is the fastest one; of blocks, each takes several of its elements.
bool GgufReader::MakeShape(std::string_view name, const std::vector<uint64_t>& extents,
                           Info& info) {
  const auto fail = [&](std::string reason) {
    faults_.TellTensor("shape", name, std::move(reason));
    return false;
  };
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] >= 1 && extents[i] <= INT64_MAX) continue;
    return fail(fmt::format("extent {} is {}; it must be from 1 to 2^63-1", i, extents[i]));
  }
  info.shape.assign(extents.rbegin(), extents.rend());
  const int64_t per_block = ElementsOf(info.dtype).count();
  if (per_block > 1) {
    if (info.shape.empty() || info.shape.back() % per_block != 0) {
      return fail(
          fmt::format("a row has {} elements of {}; it must be a whole number of blocks of "
                      "{}",
                      info.shape.empty() ? 1 : info.shape.back(), NameOf(info.dtype), per_block));
    }
    info.shape.back() /= per_block;
  }
  const std::optional<Bytes> bytes = StoredBytes(info.dtype, info.shape);
  if (!bytes) {
    return fail(fmt::format("extents [{}] of {} overflow; a tensor may have up to 2^63-1 bytes",
                            fmt::join(extents, ", "), NameOf(info.dtype)));
  }
  info.bytes = static_cast<uint64_t>(bytes->count());
  return true;
}

bool GgufReader::CheckEnd(std::string_view name, const Info& info, uint64_t data_bytes) {
  if (info.offset % file_.alignment_ != 0) {
    faults_.TellTensor("overlap", name,
                       fmt::format("offset {} is no multiple of the alignment, {}", info.offset,
                                   file_.alignment_));
    return false;
  }
  if (info.offset <= data_bytes && info.bytes <= data_bytes - info.offset) return true;
  faults_.TellTensor("truncated", name,
                     fmt::format("has {} bytes at offset {} of the data, but the file has only {} "
                                 "bytes of data; it is truncated or the offset is wrong",
                                 info.bytes, info.offset, data_bytes));
  return false;
}

// Every byte of the data belongs to one tensor or is padding up to the alignment. What pads the
// last tensor may be missing.
void GgufReader::CheckPlaces(uint64_t data_bytes) {
  std::vector<Infos::value_type*> order;
  for (auto& item : infos_) {
    item.second.whole = item.second.known && CheckEnd(item.first, item.second, data_bytes);
    if (item.second.whole) order.push_back(&item);
    // What lies behind the file's end leaves no hole in it.
    all_known_ = all_known_ && (item.second.whole || item.second.offset >= data_bytes);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.offset, a->second.bytes) <
           std::pair(b->second.offset, b->second.bytes);
  });
  uint64_t end = 0, padded_end = 0;  // of what came before
  Infos::value_type* last = nullptr;
  for (auto* item : order) {
    auto& [name, info] = *item;
    if (info.offset < end) {
      faults_.TellTensor(
          "overlap", name,
          fmt::format("begins at offset {} of the data and overlaps tensor {}, which "
                      "ends at {}; tensors may not overlap",
                      info.offset, Quoted(last->first), end));
      info.whole = last->second.whole = false;
    } else if (info.offset != padded_end && all_known_) {
      faults_.TellTensor("hole", name,
                         fmt::format("begins at offset {} of the data, but what lies before ends, "
                                     "with its padding, at {}; a hole is not allowed",
                                     info.offset, padded_end));
    }
    if (info.offset + info.bytes < end) continue;
    end = info.offset + info.bytes;
    padded_end = AlignUp(end, file_.alignment_);
    last = item;
  }
  if (data_bytes <= padded_end || !all_known_) return;
  std::string reason = fmt::format(
      "{} bytes follow the padded end of the last tensor at offset {} of the data; "
      "trailing bytes are not allowed",
      data_bytes - padded_end, padded_end);
  if (last != nullptr) {
    faults_.TellTensor("trailing", last->first, std::move(reason));
  } else {
    faults_.TellFile("trailing", "no tensors, but " + reason);
  }
}

Status GgufReader::PlaceTensors() {
  const uint64_t begin = AlignUp(at_, file_.alignment_);
  if (begin > bytes_.size() && tensors_ > 0) {
    return Short(at_, fmt::format("the header ends here; the data begins at byte {}, but the file "
                                  "has {} bytes; it is truncated",
                                  begin, bytes_.size()));
  }
  file_.header_bytes_ = std::min<uint64_t>(begin, bytes_.size());
  const std::span<const std::byte> data = bytes_.subspan(file_.header_bytes_);
  CheckPlaces(data.size());
  for (const auto& [name, info] : infos_) {
    if (!info.whole) continue;
    file_.tensors_.emplace_hint(file_.tensors_.end(), name,
                                TensorView{name, info.dtype, info.shape,
                                           data.subspan(info.offset, info.bytes), file_.path_});
  }
  return Ok();
}

std::vector<TensorView> GgufReader::TakeDamaged() {
  std::vector<TensorView> damaged;
  for (auto& [name, info] : infos_) {
    if (!info.known || file_.tensors_.contains(name)) continue;
    damaged.push_back({name, info.dtype, std::move(info.shape), {}, file_.path_});
  }
  infos_.clear();
  return damaged;
}

}  // namespace assay
