#include "harness/shard/methods/method.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace assay::shard {
namespace {

// A vector's [n] is [n, 1]; one value's [] is [1, 1].
std::vector<int64_t> AsGrid(const Part& part, int64_t columns) {
  std::vector<int64_t> shape = part.shape;
  if (shape.empty()) shape = {1};
  if (shape.size() == 1 && columns == 1) shape.push_back(1);
  return shape;
}

char NameOfAxis(const StoredAxis& axis, char otherwise) {
  return axis.along == Along::kN ? 'n' : axis.along == Along::kK ? 'k' : otherwise;
}

Status CheckExtent(const Part& part, const StoredAxis& axis, char name, int64_t has) {
  const int64_t expected = axis.stored();
  if (has == expected) return Ok();
  std::string why;
  if (axis.along != Along::kNone && axis.unit == "group") {
    why = fmt::format(" ({} elements in groups of {})", axis.extent, axis.elements);
  }
  return Error{fmt::format("{}: axis {} has {} {}s, expected {} {}s{}", Where(*part.tensor), name,
                           has, axis.unit, expected, axis.unit, why)};
}

Status CheckBytes(const TensorView& tensor) {
  int64_t bytes = SizeOf(tensor.dtype).count();
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return Error{fmt::format("{}: [{}] of {} has more bytes than an int64 counts", Where(tensor),
                               fmt::join(tensor.shape, ", "), NameOf(tensor.dtype))};
    }
  }
  if (tensor.bytes.size() != static_cast<uint64_t>(bytes)) {
    return Error{fmt::format("{}: has {} bytes, its shape and type {} need {}", Where(tensor),
                             tensor.bytes.size(), NameOf(tensor.dtype), bytes)};
  }
  return Ok();
}

bool CutsColumns(Cut cut) {
  return cut == Cut::kColumns || cut == Cut::kHeadColumns || cut == Cut::kSharedColumns ||
         cut == Cut::kExpertColumns || cut == Cut::kKdaColumns;
}

}  // namespace

Error Unsupported(std::string message) {
  return Error{std::move(message), ErrorKind::kUnsupported};
}

int64_t StoredAxis::stored() const { return (extent * values + elements - 1) / elements; }

Status CheckGrid(const Part& part, const StoredAxis& rows, const StoredAxis& columns) {
  const std::vector<int64_t> shape = AsGrid(part, columns.stored());
  if (shape.size() != 2) {
    return Error{fmt::format("{}: has {} axes [{}], expected 2 [{}, {}]", Where(*part.tensor),
                             part.shape.size(), fmt::join(part.shape, ", "), rows.stored(),
                             columns.stored())};
  }
  if (Status s = CheckExtent(part, rows, NameOfAxis(rows, 'n'), shape[0]); !s) return s;
  if (Status s = CheckExtent(part, columns, NameOfAxis(columns, 'k'), shape[1]); !s) return s;
  return CheckBytes(*part.tensor);
}

Status CheckType(const Part& part, std::initializer_list<DType> types, ErrorKind kind) {
  const DType dtype = part.tensor->dtype;
  if (std::find(types.begin(), types.end(), dtype) != types.end()) return Ok();
  std::vector<std::string_view> names;
  for (const DType type : types) names.push_back(NameOf(type));
  return Error{fmt::format("{}: stored as {}, must be {}", Where(*part.tensor), NameOf(dtype),
                           fmt::join(names, " or ")),
               kind};
}

Status CheckScaleType(const Part& part) {
  return CheckType(part, {DType::kBF16, DType::kF16, DType::kF32});
}

Result<const Part*> NeedPart(const Linear& linear, std::string_view suffix) {
  if (const Part* part = linear.parts.Find(suffix)) return part;
  return Error{fmt::format("{}: missing from the checkpoint; {} needs it, of which {} is there",
                           linear.parts.NameOf(suffix), linear.spec.name,
                           linear.parts.parts().front().tensor->name)};
}

Status CheckExponents(const Part& scale, int64_t rows, int64_t groups) {
  constexpr std::byte kNoScale{0xFF};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      if (scale.Byte(row, group, groups) != kNoScale) continue;
      return Error{
          fmt::format("{}: row {}, group {} is 255, which is not a number; allowed is 0 to 254",
                      Where(*scale.tensor), row, group)};
    }
  }
  return Ok();
}

Status CheckGroupIndex(const Part& part, int64_t k, int64_t group, int64_t groups, bool* trivial) {
  std::vector<int64_t> members(static_cast<size_t>(groups));
  *trivial = true;
  for (int64_t i = 0; i < k; ++i) {
    int32_t number = 0;
    std::memcpy(&number, part.tensor->bytes.data() + i * 4, sizeof number);
    if (number < 0 || number >= groups) {
      return Error{fmt::format("{}: element {} is of group {}; allowed is 0 to {}",
                               Where(*part.tensor), i, number, groups - 1)};
    }
    ++members[static_cast<size_t>(number)];
    *trivial = *trivial && number == i / group;
  }
  for (int64_t number = 0; number < groups; ++number) {
    const int64_t due = std::min(group, k - number * group);
    if (members[static_cast<size_t>(number)] != due) {
      return Error{fmt::format("{}: group {} has {} elements, expected {} elements",
                               Where(*part.tensor), number, members[static_cast<size_t>(number)],
                               due)};
    }
  }
  return Ok();
}

void Lister::SetMethod(const Scheme& scheme, int64_t group) {
  method_ = NameOf(scheme);
  group_ = group;
}

Status Lister::Add(const Part& part, std::string_view suffix, const StoredAxis& rows,
                   const StoredAxis& columns) {
  if (Status s = CheckGrid(part, rows, columns); !s) return s;
  const Spec& spec = linear_.spec;
  Component c;
  c.name = fmt::format("{}.{}", spec.name, suffix);
  c.source = part.tensor->name;
  c.dtype = part.tensor->dtype;
  c.rows = rows.stored();
  c.columns = columns.stored();
  c.packing = {ElementsOf(c.dtype), SizeOf(c.dtype)};
  for (const StoredAxis* axis : {&columns, &rows}) {
    if (axis->unit == "word") {
      c.packing = {Elements(axis->elements), Bytes(SizeOf(c.dtype).count() * axis->values)};
    }
  }
  c.unit = columns.unit;
  c.column_elements = Elements(columns.elements);
  c.group = Elements(group_);
  c.row_elements = Elements(columns.extent);
  c.row_along = rows.along;
  c.column_along = columns.along;
  c.row_unit = rows.unit;
  c.elements_per_row = Elements(rows.elements);
  c.columns_per_unit = columns.values;
  c.rows_per_unit = rows.values;
  c.row_extent = Elements(rows.extent);
  c.first = part.first;
  c.row_step = part.row_step;
  c.column_step = part.column_step;
  c.method = method_;
  out_->push_back({std::move(c), spec.cut, spec.segment, spec.expert});
  return Ok();
}

Status Lister::AddOnce(const Part& part, std::string_view suffix, const StoredAxis& rows,
                       const StoredAxis& columns) {
  if (Status s = Add(part, suffix, rows, columns); !s) return s;
  if (CutsColumns(linear_.spec.cut)) out_->back().cut = Cut::kOnce;
  return Ok();
}

Status Lister::AddScalar(const Part& part, std::string_view suffix) {
  return Add(part, suffix, Whole(), Whole());
}

}  // namespace assay::shard
