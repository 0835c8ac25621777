// Loaded components as they lie in memory, and what was chosen for them.
#include <fmt/format.h>

#include "kernels/engines/native/session.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/names.h"

namespace assay::kernels::native {

// A text that lives as long as the session.
const char* Session::Kept(std::string_view text) { return kept_.emplace(text).first->c_str(); }

void Session::Export(int rank_id, std::string_view component, assay_shard* out) {
  if (out == nullptr) throw EngineError(ASSAY_FAILED, "out is NULL");
  const auto [op, part_name] = SplitComponent(component);
  const RankParameters& parameters = rank(CheckedRank(rank_id)).parameters;
  out->layout = "row";
  if (const Absent* absent = parameters.FindAbsent(component)) {
    out->dtype = static_cast<uint32_t>(absent->dtype);
    out->columns = absent->columns;
    out->method = Kept(absent->method);
    return;
  }
  const RankParameters::Place place = parameters.Find(op);
  const auto missing = [&]() {
    EngineError error(ASSAY_FAILED, fmt::format("{}: not loaded on rank {}", component, rank_id));
    error.tensor = std::string(component);
    return error;
  };
  if (place.parameter == nullptr) throw missing();
  const auto part = place.parameter->parts.find(part_name);
  const auto piece = place.segment->parts.find(part_name);
  if (part == place.parameter->parts.end() || piece == place.segment->parts.end()) throw missing();
  const Part& stored = part->second;
  out->layout = Kept(stored.layout);
  out->dtype = static_cast<uint32_t>(stored.shape.dtype);
  out->total_rows = stored.shape.rows;
  out->first_row = piece->second.first_row;
  out->rows = piece->second.rows;
  out->columns = stored.shape.columns;
  out->data = stored.bytes.data();
  out->bytes = static_cast<uint64_t>(stored.bytes.bytes());
  out->method = Kept(place.parameter->choice.method);
  out->kernel = Kept(place.parameter->choice.kernel);
}

}  // namespace assay::kernels::native
