// Components: the stored tensors of the parameters under Assay's names, and what a rank holds of
// each (formats.md §9).
#include <fmt/format.h>

#include <cstring>

#include "reference/sharding.h"
#include "reference/weights.h"

namespace assay::reference {

Result<WeightStore::Component> WeightStore::Find(std::string_view component) const {
  const size_t dot = component.rfind('.');
  if (dot != std::string_view::npos) {
    const auto found = graph_.parameter_index.find(std::string(component.substr(0, dot)));
    const std::string suffix(component.substr(dot + 1));
    if (found != graph_.parameter_index.end()) {
      const Parameter& parameter = graph_.parameters[found->second];
      const bool known = (suffix == "bias" && parameter.has_bias) ||
                         ((suffix == "weight" || suffix == "scale") && parameter.has_weight);
      if (known) return Component{&parameter, suffix};
    }
  }
  return Error{fmt::format("component \"{}\" is not one of this model", component)};
}

std::vector<std::string> WeightStore::Components(int64_t layer) const {
  std::vector<std::string> names;
  for (const Parameter& parameter : graph_.parameters) {
    if (layer >= 0 && parameter.layer != layer) continue;
    if (!Present(parameter)) continue;
    if (parameter.has_weight) {
      const auto decoder = OpenHeaders(parameter);
      if (!decoder) continue;  // Check() has refused such a checkpoint
      for (const StoredPart& part : (*decoder)->parts()) {
        names.push_back(parameter.name + "." + part.suffix);
      }
    }
    if (parameter.has_bias) names.push_back(parameter.name + ".bias");
  }
  return names;
}

Result<std::string> WeightStore::SourceName(std::string_view component) const {
  const auto found = Find(component);
  if (!found) return found.error();
  if (found->suffix == "bias") return found->parameter->bias_source;
  const auto decoder = OpenHeaders(*found->parameter);
  if (!decoder) return decoder.error();
  for (const StoredPart& part : (*decoder)->parts()) {
    if (part.suffix == found->suffix) return part.view->name;
  }
  return Error{fmt::format("component \"{}\" is not one of this model", component)};
}

Result<Slice> WeightStore::SliceAt(const Component& component, const Where& where) const {
  const Parameter& parameter = *component.parameter;
  StoredPart part;
  if (component.suffix == "bias") {
    const auto bias = Bias(parameter);
    if (!bias) return bias.error();
    part = {"bias", "bias", *bias, "element", 1};
  } else {
    const auto decoder = OpenHeaders(parameter);
    if (!decoder) return decoder.error();
    for (const StoredPart& candidate : (*decoder)->parts()) {
      if (candidate.suffix == component.suffix) part = candidate;
    }
    if (part.view == nullptr) {
      return Error{fmt::format("component \"{}.{}\" is not one of this model", parameter.name,
                               component.suffix)};
    }
  }
  const std::string what =
      fmt::format("{}.{} ({})", parameter.name, component.suffix, part.view->name);
  Slice slice;
  slice.dtype = part.view->dtype;
  slice.unit = part.unit;
  slice.elements_per_column = part.elements_per_column;
  auto rows =
      AxisIndices(parameter.rows, config_.heads, config_.kv_heads, where, what + ", axis n");
  if (!rows) return rows.error();
  slice.rows = std::move(*rows);
  // A bias, and a scale of the whole row, do not depend on which columns a rank has.
  if (component.suffix == "bias" || part.whole_row) {
    slice.columns = {0};
    return slice;
  }
  const auto elements =
      AxisIndices(parameter.columns, config_.heads, config_.kv_heads, where, what + ", axis k");
  if (!elements) return elements.error();
  auto columns = StoredColumns(*elements, parameter.columns.extent, part.elements_per_column,
                               part.unit, what + ", axis k");
  if (!columns) return columns.error();
  slice.columns = std::move(*columns);
  return slice;
}

namespace {

void CopyBytes(const TensorView& view, int64_t stored_columns, Slice* slice) {
  const auto size = static_cast<size_t>(SizeOf(slice->dtype).count());
  slice->bytes.assign(slice->rows.size() * slice->columns.size() * size, std::byte{0});
  std::byte* to = slice->bytes.data();
  for (const int64_t row : slice->rows) {
    for (const int64_t column : slice->columns) {
      if (row >= 0) {
        const auto at = static_cast<size_t>(row * stored_columns + column) * size;
        std::memcpy(to, view.bytes.data() + at, size);
      }
      to += size;
    }
  }
}

}  // namespace

Result<Slice> WeightStore::LegalSlice(const Component& component, const Where& where) const {
  auto slice = SliceAt(component, where);
  if (!slice || component.suffix == "bias") return slice;
  // The parts of one linear are legal together or not at all: words that can be cut are of no use
  // if the groups of their scales cannot.
  const auto decoder = OpenHeaders(*component.parameter);
  if (!decoder) return decoder.error();
  for (const StoredPart& part : (*decoder)->parts()) {
    const auto other = SliceAt({component.parameter, part.suffix}, where);
    if (!other) return other.error();
  }
  return slice;
}

Result<Slice> WeightStore::ExpectedSlice(std::string_view component, const Where& where) const {
  const auto found = Find(component);
  if (!found) return found.error();
  auto slice = LegalSlice(*found, where);
  if (!slice) {
    Error error = slice.error();
    if (error.kind != ErrorKind::kRefused || !CheckWhere(where)) return error;
    // The reader wants to know what would work.
    for (int tp = where.degrees.tp - 1; tp >= 1; --tp) {
      if (!LegalSlice(*found, {{tp, tp}, 0})) continue;
      error.message += fmt::format("; the largest legal tp below {} is {}", where.degrees.tp, tp);
      break;
    }
    return error;
  }
  const auto source = SourceName(component);
  if (!source) return source.error();
  const TensorView* view = source_.Find(*source);
  const int64_t stored_columns = view->shape.size() > 1 ? view->shape[1] : 1;
  CopyBytes(*view, stored_columns, &*slice);
  return slice;
}

}  // namespace assay::reference
