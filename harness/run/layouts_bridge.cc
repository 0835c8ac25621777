#include "harness/run/layouts_bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "harness/units/scheme.h"
#include "kernels/layouts/layouts.h"

namespace assay::run {
namespace {

std::string_view PartOf(const std::string& component) {
  return std::string_view(component).substr(component.rfind('.') + 1);
}

// Rows times columns times the width, or -1 where the product is no size.
int64_t PlainBytes(const ExportedShard& shard) {
  int64_t values = 0, bytes = 0;
  if (shard.total_rows < 0 || shard.columns < 0 ||
      __builtin_mul_overflow(shard.total_rows, shard.columns, &values) ||
      __builtin_mul_overflow(values, SizeOf(shard.dtype).count(), &bytes)) {
    return -1;
  }
  return bytes;
}

bool HasPlainSize(const ExportedShard& shard) {
  return PlainBytes(shard) == static_cast<int64_t>(shard.bytes.size());
}

// A shape with what it points to.
struct Shape {
  kernels::StoredShape stored;
  std::vector<int32_t> order;
};

// Elements along K that the rank has of the parameter: along its columns, but for GPTQ and AWQ,
// which store the transposed matrix.
int64_t LocalK(const CellSpec& spec, const std::string& parameter, int rank, const Scheme& scheme) {
  const auto weight = spec.oracle->ExpectedSlice(parameter + ".weight", spec.where(rank));
  if (!weight) return 0;
  if (scheme.family == MethodFamily::kGptq || scheme.family == MethodFamily::kAwq) {
    return static_cast<int64_t>(weight->rows.size()) / weight->rows_per_unit *
           weight->elements_per_row;
  }
  return static_cast<int64_t>(weight->columns.size()) / weight->columns_per_unit *
         weight->elements_per_column;
}

// The sorted order of the groups that g_idx names: inputs of one group in their own order.
std::vector<int32_t> OrderOf(const CellSpec& spec, const std::string& parameter, int rank) {
  const auto slice = spec.oracle->ExpectedSlice(parameter + ".g_idx", spec.where(rank));
  if (!slice || slice->dtype != DType::kI32) return {};
  std::vector<int32_t> groups(slice->bytes.size() / sizeof(int32_t));
  std::memcpy(groups.data(), slice->bytes.data(), groups.size() * sizeof(int32_t));
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return groups[static_cast<size_t>(a)] < groups[static_cast<size_t>(b)];
  });
  return order;
}

Shape ShapeOf(const CellSpec& spec, const ShardKey& key, const std::string& tag,
              const std::string& method, const ExportedShard& shard) {
  Shape shape;
  shape.stored.dtype = shard.dtype;
  shape.stored.rows = shard.total_rows;
  shape.stored.columns = shard.columns;
  shape.stored.nope = spec.config.qk_nope;
  shape.stored.v = spec.config.v_dim;
  if (!tag.starts_with("marlin")) return shape;
  const std::string parameter = ParameterOf(key.component);
  const auto scheme = ParseScheme(method);
  if (!scheme) return shape;
  shape.stored.group = std::max<int64_t>(scheme->group, 0);
  shape.stored.k = LocalK(spec, parameter, key.rank, *scheme);
  if (scheme->actorder && PartOf(key.component) == "weight") {
    shape.order = OrderOf(spec, parameter, key.rank);
    shape.stored.order = shape.order;
  }
  return shape;
}

}  // namespace

std::string ShardReader::MethodOf(const std::string& component) const {
  const auto method = spec_.oracle->MethodOf(component);
  return method ? *method : spec_.MethodOf(ParameterOf(component));
}

bool ShardReader::CanRead(const std::string& component, const std::string& tag) const {
  return kernels::FindLayout(tag, MethodOf(component), PartOf(component)) != nullptr;
}

std::string ShardReader::WrongSize(const ShardKey& key, const ExportedShard& shard) const {
  bool fits = HasPlainSize(shard);
  if (shard.layout != "row") {
    const std::string method = MethodOf(key.component);
    const kernels::Layout* layout =
        kernels::FindLayout(shard.layout, method, PartOf(key.component));
    const Shape shape = ShapeOf(spec_, key, shard.layout, method, shard);
    fits = PlainBytes(shard) >= 0 && layout != nullptr &&
           layout->bytes(shape.stored) == static_cast<int64_t>(shard.bytes.size());
  }
  if (fits) return "";
  return fmt::format("layout {} of {} x {} {} does not have {} bytes", shard.layout,
                     shard.total_rows, shard.columns, NameOf(shard.dtype), shard.bytes.size());
}

Result<std::vector<std::byte>> ShardReader::Unpack(const ShardKey& key, const std::string& tag,
                                                   const ExportedShard& shard) const {
  if (tag == "row" && HasPlainSize(shard)) return shard.bytes;
  const std::string method = MethodOf(key.component);
  const kernels::Layout* layout =
      tag == "row" ? nullptr : kernels::FindLayout(tag, method, PartOf(key.component));
  const Shape shape = ShapeOf(spec_, key, tag, method, shard);
  if (layout == nullptr || PlainBytes(shard) < 0 ||
      layout->bytes(shape.stored) != static_cast<int64_t>(shard.bytes.size())) {
    return Error{fmt::format("{}: layout {} of {} bytes is not one that can be read back",
                             key.component, tag, shard.bytes.size())};
  }
  std::vector<std::byte> plain(static_cast<size_t>(PlainBytes(shard)));
  layout->unpack(shape.stored, shard.bytes.data(), plain.data());
  return plain;
}

std::string ShardReader::WrongPadding(const ShardKey& key, const ExportedShard& shard) const {
  if (shard.layout == "row" || shard.first_row != 0 || shard.rows == 0) return "";
  const std::string method = MethodOf(key.component);
  const kernels::Layout* layout = kernels::FindLayout(shard.layout, method, PartOf(key.component));
  const auto plain = Unpack(key, shard.layout, shard);
  if (layout == nullptr || !plain) return "";
  const Shape shape = ShapeOf(spec_, key, shard.layout, method, shard);
  if (layout->objection != nullptr && layout->objection(shape.stored, plain->data()) != nullptr) {
    return "";
  }
  // The same values packed again: what differs is no value's.
  std::vector<std::byte> again(shard.bytes.size());
  layout->pack(shape.stored, plain->data(), again.data());
  size_t wrong = 0, first = 0;
  for (size_t i = again.size(); i-- > 0;) {
    if (again[i] == shard.bytes[i]) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{} of {} bytes of layout {}, the first at {}: {:02x} where {:02x} is due",
                     wrong, again.size(), shard.layout, first, static_cast<int>(shard.bytes[first]),
                     static_cast<int>(again[first]));
}

std::vector<std::string> ShardReader::Tags(const std::string& component) const {
  std::vector<std::string> tags;
  for (std::string_view tag : kernels::Tags(MethodOf(component), PartOf(component))) {
    tags.emplace_back(tag);
  }
  return tags;
}

}  // namespace assay::run
