#include "reference/methods/stored.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numeric>

namespace assay::reference {
namespace {

bool IsE8M0(DType dtype) { return dtype == DType::kF8E8M0 || dtype == DType::kU8; }

Error NotThat(const TensorView& view, std::string_view types, int64_t rows, int64_t columns) {
  return Error{fmt::format("{}: {} {}, must be {} [{}, {}]", view.name, NameOf(view.dtype),
                           PrintShape(view.shape), types, rows, columns)};
}

}  // namespace

const Types kFloatTypes = {"a floating type,", IsFloating};
const Types kE8M0Types = {"F8_E8M0 or U8", IsE8M0};

Status CheckType(const TensorView& view, DType dtype) {
  if (view.dtype == dtype) return Ok();
  return Error{fmt::format("{}: {}, must be {}", view.name, NameOf(view.dtype), NameOf(dtype))};
}

Status CheckType(const TensorView& view, const Types& types) {
  if (types.has(view.dtype)) return Ok();
  return Error{fmt::format("{}: {}, must be {}", view.name, NameOf(view.dtype), types.name)};
}

bool IsScalar(const TensorView& view) {
  return view.shape.empty() || view.shape == std::vector<int64_t>{1};
}

bool IsGrid(const TensorView& view, int64_t rows, int64_t columns) {
  if (view.shape == std::vector<int64_t>{rows, columns}) return true;
  if (columns == 1 && view.shape == std::vector<int64_t>{rows}) return true;
  return rows == 1 && columns == 1 && view.shape.empty();
}

Status CheckGrid(const TensorView& view, DType dtype, int64_t rows, int64_t columns) {
  if (view.dtype == dtype && IsGrid(view, rows, columns)) return Ok();
  return NotThat(view, NameOf(dtype), rows, columns);
}

Status CheckGrid(const TensorView& view, const Types& types, int64_t rows, int64_t columns) {
  if (types.has(view.dtype) && IsGrid(view, rows, columns)) return Ok();
  return NotThat(view, types.name, rows, columns);
}

int32_t IntAt(const TensorView& view, int64_t index) {
  int32_t value;
  std::memcpy(&value, view.bytes.data() + index * 4, sizeof value);
  return value;
}

double ValueAt(const TensorView& view, int64_t index) {
  switch (view.dtype) {
    case DType::kF8E4M3:
      return FromFloat8(ByteAt(view, index), Float8::kE4M3);
    case DType::kF8E8M0:
    case DType::kU8: {
      const unsigned code = ByteAt(view, index);
      return code == kE8M0Nan ? std::nan("") : FromE8M0(code);
    }
    case DType::kI8:
      return static_cast<int8_t>(ByteAt(view, index));
    case DType::kI32:
      return IntAt(view, index);
    default: {
      double value;
      DecodeFloats(view, index, 1, &value);
      return value;
    }
  }
}

Status CheckScales(const TensorView& scale, std::string_view row, std::string_view column) {
  int64_t count = 1;
  for (const int64_t extent : scale.shape) count *= extent;
  const int64_t width = scale.shape.size() > 1 ? scale.shape.back() : 1;
  for (int64_t i = 0; i < count; ++i) {
    const double value = ValueAt(scale, i);
    if (std::isfinite(value)) continue;
    const std::string what =
        IsE8M0(scale.dtype)
            ? "255, which is NaN (0 to 254 are 2^-127 to 2^127)"
            : fmt::format("{}, must be finite", std::isnan(value) ? "NaN" : "infinite");
    return Error{fmt::format("{}: {} {}, {} {}: the scale is {}", scale.name, row, i / width,
                             column, i % width, what),
                 ErrorKind::kRefused};
  }
  return Ok();
}

Error BadInput(const PartFinder& parts, std::string_view what) {
  return Error{fmt::format("{}: {}", parts.Name(), what)};
}

Error Unsupported(const PartFinder& parts, std::string_view what) {
  return Error{fmt::format("{}: {} is not known to the oracle", parts.Name(), what),
               ErrorKind::kUnsupported};
}

StoredPart ScalarPart(std::string suffix, std::string file_suffix, const TensorView* view) {
  StoredPart part = {std::move(suffix), std::move(file_suffix), view, "element"};
  part.row_along = part.column_along = Along::kNone;
  part.replicated = true;
  return part;
}

StoredPart ChannelPart(std::string suffix, std::string file_suffix, const TensorView* view,
                       int64_t columns) {
  StoredPart part = {std::move(suffix), std::move(file_suffix), view, "group", columns, true};
  part.column_along = Along::kNone;
  return part;
}

Status AppendScalars(const PartFinder& parts,
                     std::span<const std::pair<const char*, const char*>> names,
                     std::vector<StoredPart>* to) {
  for (const auto& [suffix, file_suffix] : names) {
    const TensorView* view = parts.Find(file_suffix);
    if (view == nullptr) continue;
    const bool number =
        IsFloating(view->dtype) || view->dtype == DType::kI8 || view->dtype == DType::kI32;
    if (!number || !IsGrid(*view, 1, 1)) {
      return Error{fmt::format("{}: {} {}, must be one number", view->name, NameOf(view->dtype),
                               PrintShape(view->shape))};
    }
    to->push_back(ScalarPart(suffix, file_suffix, view));
  }
  return Ok();
}

PackedInts::PackedInts(int bits, bool old_packing) : bits_(bits) {
  constexpr int kWord = 32;
  if (old_packing) {
    per_word_ = kWord / bits;
    unit_values_ = per_word_;
  } else {
    const int common = std::gcd(kWord, bits);
    unit_values_ = kWord / common;
    unit_words_ = bits / common;
  }
}

int64_t PackedInts::Words(int64_t values) const {
  if (per_word_ > 0) return (values + per_word_ - 1) / per_word_;
  return (values * bits_ + 31) / 32;
}

uint32_t PackedInts::At(const std::byte* words, int64_t stride, int64_t i) const {
  const auto word = [&](int64_t index) {
    uint32_t value;
    std::memcpy(&value, words + index * stride, sizeof value);
    return uint64_t{value};
  };
  const int64_t first = per_word_ > 0 ? i / per_word_ : i * bits_ / 32;
  const int64_t shift = per_word_ > 0 ? i % per_word_ * bits_ : i * bits_ % 32;
  uint64_t value = word(first) >> shift;
  if (shift + bits_ > 32) value |= word(first + 1) << (32 - shift);
  return static_cast<uint32_t>(value & ((uint64_t{1} << bits_) - 1));
}

void PackedInts::Unpack(const std::byte* words, int64_t stride, int64_t count, double* out) const {
  const uint64_t mask = (uint64_t{1} << bits_) - 1;
  uint64_t held = 0;  // bits that are read and not used, and how many
  int bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (bits < bits_) {
      uint32_t word;
      std::memcpy(&word, words, sizeof word);
      words += stride;
      if (per_word_ > 0) held = 0, bits = 0;
      held |= uint64_t{word} << bits;
      bits += 32;
    }
    out[i] = static_cast<double>(static_cast<int>(held & mask));
    held >>= bits_;
    bits -= bits_;
  }
}

Result<GroupIndex> ReadGroupIndex(const TensorView& g_idx, int64_t columns, int64_t group) {
  if (const Status grid = CheckGrid(g_idx, DType::kI32, columns, 1); !grid) return grid.error();
  if (g_idx.bytes.size() != static_cast<size_t>(columns) * 4) {
    return Error{fmt::format("{}: its values are needed", g_idx.name)};
  }
  GroupIndex index;
  index.runs = true;
  for (int64_t k = 0; k < columns; ++k) {
    index.of.push_back(IntAt(g_idx, k));
    index.runs = index.runs && index.of.back() == index.of.front() + k / group;
  }
  return index;
}

Status CheckGroupIndex(const TensorView& g_idx, const GroupIndex& index, int64_t groups) {
  for (size_t k = 0; k < index.of.size(); ++k) {
    if (index.of[k] >= 0 && index.of[k] < groups) continue;
    return Error{fmt::format("{}: element {} is of group {}, but there are {} groups", g_idx.name,
                             k, index.of[k], groups)};
  }
  return Ok();
}

}  // namespace assay::reference
