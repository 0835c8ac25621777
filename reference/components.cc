// Components: the stored tensors of the parameters under Assay's names, and what a rank holds of
// each (formats.md §9).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "harness/units/scheme.h"
#include "reference/sharding.h"
#include "reference/weights.h"

namespace assay::reference {

Result<WeightStore::Component> WeightStore::Find(std::string_view component) const {
  const size_t dot = component.rfind('.');
  if (dot != std::string_view::npos) {
    const auto found = graph_.parameter_index.find(std::string(component.substr(0, dot)));
    if (found != graph_.parameter_index.end()) {
      return Component{&graph_.parameters[found->second], std::string(component.substr(dot + 1))};
    }
  }
  return Error{fmt::format("component \"{}\" is not one of this model", component)};
}

std::vector<std::string> WeightStore::Components(int64_t layer) const {
  std::vector<std::string> names;
  for (const Parameter& parameter : graph_.parameters) {
    if (layer >= 0 && parameter.layer != layer) continue;
    if (!Present(parameter)) continue;
    const auto stored = StoredOf(parameter);
    if (!stored) continue;  // Check() has refused such a checkpoint
    for (const Stored& tensor : *stored) {
      names.push_back(parameter.name + "." + tensor.part.suffix);
    }
  }
  return names;
}

Result<std::string> WeightStore::SourceName(std::string_view component) const {
  const auto found = Find(component);
  if (!found) return found.error();
  const auto stored = StoredOf(*found->parameter);
  if (!stored) return stored.error();
  for (const Stored& tensor : *stored) {
    if (tensor.part.suffix == found->suffix) return tensor.part.view->name;
  }
  return Error{fmt::format("component \"{}\" is not one of this model", component)};
}

Result<std::string> WeightStore::MethodOf(std::string_view parameter) const {
  auto found = graph_.parameter_index.find(std::string(parameter));
  if (found == graph_.parameter_index.end()) {
    found = graph_.parameter_index.find(std::string(parameter.substr(0, parameter.rfind('.'))));
  }
  if (found == graph_.parameter_index.end()) {
    return Error{fmt::format("parameter \"{}\" is not one of this model", parameter)};
  }
  const Parameter& p = graph_.parameters[found->second];
  if (p.has_weight && p.exact.empty()) {
    const auto decoder = OpenHeaders(p);
    if (!decoder) return decoder.error();
    return (*decoder)->method();
  }
  const auto stored = StoredOf(p);
  if (!stored) return stored.error();
  const DType dtype = stored->front().part.view->dtype;
  if (!IsFloating(dtype)) {
    std::string name(assay::NameOf(dtype));
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return name;
  }
  Scheme dense;
  dense.dtype = dtype;
  return assay::NameOf(dense);
}

namespace {

// Indices of one stored axis, from those of the logical axis along which it lies.
struct Laid {
  const std::vector<int64_t>&n, &k;
  int64_t n_extent, k_extent;
  Result<std::vector<int64_t>> Indices(Along along, const Grain& grain, int64_t stored,
                                       const std::string& what) const {
    if (along == Along::kNone) {
      std::vector<int64_t> all(static_cast<size_t>(stored));
      std::iota(all.begin(), all.end(), int64_t{0});
      return all;
    }
    const bool rows = along == Along::kRows;
    return StoredIndices(rows ? n : k, rows ? n_extent : k_extent, grain, stored,
                         what + (rows ? ", axis n" : ", axis k"));
  }
};

void CopyBytes(const Grid& grid, Slice* slice) {
  const auto size = static_cast<size_t>(SizeOf(slice->dtype).count());
  slice->bytes.assign(slice->rows.size() * slice->columns.size() * size, std::byte{0});
  std::byte* to = slice->bytes.data();
  for (const int64_t row : slice->rows) {
    for (const int64_t column : slice->columns) {
      if (row >= 0 && column >= 0) {
        const int64_t at = grid.first + row * grid.row_step + column * grid.column_step;
        std::memcpy(to, grid.whole->bytes.data() + static_cast<size_t>(at) * size, size);
      }
      to += size;
    }
  }
}

}  // namespace

Result<Slice> WeightStore::SliceOf(const Parameter& parameter, const Stored& stored,
                                   const Where& where) const {
  const StoredPart& part = stored.part;
  const std::string what = fmt::format("{}.{} ({})", parameter.name, part.suffix, part.view->name);
  Slice slice;
  slice.dtype = part.view->dtype;
  slice.unit = part.unit;
  slice.elements_per_column = part.elements_per_column;
  slice.row_unit = part.row_unit;
  slice.elements_per_row = part.elements_per_row;
  slice.columns_per_unit = part.columns_per_unit;
  slice.rows_per_unit = part.rows_per_unit;
  slice.replicated = part.replicated;
  if (parameter.expert >= 0) {
    const auto held = HeldOf(parameter.expert, config_.experts, where, what);
    if (!held) return held.error();
    slice.absent = *held == Held::kAbsent;
    if (slice.absent) return slice;
  }
  const auto n = Indices(parameter, parameter.rows, where, what + ", axis n");
  if (!n) return n.error();
  const auto k = Indices(parameter, parameter.columns, where, what + ", axis k");
  if (!k) return k.error();
  const Laid laid{*n, *k, parameter.rows.extent, parameter.columns.extent};
  auto rows = laid.Indices(part.replicated ? Along::kNone : part.row_along,
                           {part.elements_per_row, part.rows_per_unit, part.row_unit},
                           stored.grid.rows, what);
  if (!rows) return rows.error();
  const bool whole_row = part.replicated || part.whole_row;
  auto columns = laid.Indices(whole_row ? Along::kNone : part.column_along,
                              {part.elements_per_column, part.columns_per_unit, part.unit},
                              stored.grid.columns, what);
  if (!columns) return columns.error();
  slice.rows = std::move(*rows);
  slice.columns = std::move(*columns);
  return slice;
}

// The parts of one linear are legal together or not at all: words that can be cut are of no use if
// the groups of their scales cannot.
Result<Slice> WeightStore::LegalSlice(const Component& component, const Where& where,
                                      Grid* grid) const {
  const auto stored = StoredOf(*component.parameter);
  if (!stored) return stored.error();
  std::optional<Slice> mine;
  for (const Stored& tensor : *stored) {
    auto slice = SliceOf(*component.parameter, tensor, where);
    if (!slice) return slice.error();
    if (tensor.part.suffix != component.suffix) continue;
    mine = std::move(*slice);
    if (grid != nullptr) *grid = tensor.grid;
  }
  if (mine) return std::move(*mine);
  return Error{fmt::format("component \"{}.{}\" is not one of this model",
                           component.parameter->name, component.suffix)};
}

Result<Slice> WeightStore::ExpectedSlice(std::string_view component, const Where& where) const {
  const auto found = Find(component);
  if (!found) return found.error();
  Grid grid;
  auto slice = LegalSlice(*found, where, &grid);
  if (!slice) {
    Error error = slice.error();
    if (error.kind != ErrorKind::kRefused || !CheckWhere(where)) return error;
    const Parallel& d = where.degrees;
    if (d.split == Split::kList || d.dp > 1 || d.ep > 1) return error;
    // The reader wants to know what would work.
    for (int tp = d.tp - 1; tp >= 1; --tp) {
      Where smaller = where;
      smaller.degrees.tp = smaller.degrees.attn_tp = tp;
      smaller.rank = 0;
      if (!LegalSlice(*found, smaller, nullptr)) continue;
      error.message += fmt::format("; the largest legal tp below {} is {}", d.tp, tp);
      break;
    }
    return error;
  }
  CopyBytes(grid, &*slice);
  return slice;
}

}  // namespace assay::reference
