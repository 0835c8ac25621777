// Loaded components as they lie in memory.
#include <fmt/format.h>

#include "kernels/engines/native/session.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {

void Session::Export(int rank_id, std::string_view component, assay_shard* out) {
  if (out == nullptr) throw EngineError(ASSAY_FAILED, "out is NULL");
  const size_t dot = component.rfind('.');
  const std::string_view op = component.substr(0, dot);
  const std::string_view part_name =
      dot == std::string_view::npos ? std::string_view() : component.substr(dot + 1);
  const RankParameters::Place place = rank(CheckedRank(rank_id)).parameters.Find(op);
  const auto missing = [&]() {
    EngineError error(ASSAY_FAILED, fmt::format("{}: not loaded on rank {}", component, rank_id));
    error.tensor = std::string(component);
    return error;
  };
  if (place.parameter == nullptr) throw missing();
  const auto part = place.parameter->parts.find(part_name);
  if (part == place.parameter->parts.end()) throw missing();
  const Part& stored = part->second;
  out->layout = tags_.emplace(stored.layout).first->c_str();
  out->dtype = static_cast<uint32_t>(stored.shape.dtype);
  out->total_rows = stored.shape.rows;
  out->first_row = place.segment->first_row;
  out->rows = place.segment->rows;
  out->columns = stored.shape.columns;
  out->data = stored.bytes.data();
  out->bytes = static_cast<uint64_t>(stored.bytes.bytes());
}

}  // namespace assay::kernels::native
