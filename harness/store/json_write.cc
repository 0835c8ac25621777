// Results to JSON lines, keys in the order of interfaces.md §3.
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/store/result.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

// 2^53: up to here every whole double is an exact integer, printed without ".0".
constexpr double kLargestExactInteger = 9007199254740992.0;

Json Number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const bool whole = std::trunc(value) == value && std::fabs(value) <= kLargestExactInteger;
  if (whole && !(value == 0 && std::signbit(value))) return static_cast<int64_t>(value);
  return value;
}

Json Number(const std::optional<double>& value) { return value ? Number(*value) : Json(nullptr); }

Json Integer(const std::optional<int64_t>& value) { return value ? Json(*value) : Json(nullptr); }

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

template <class T>
Json ListOrNull(const std::vector<T>& list) {
  return list.empty() ? Json(nullptr) : Json(list);
}

Json ToObject(const Executed& executed) {
  Json out = Json::object();
  out["kernel"] = executed.kernel;
  out["tier"] = executed.tier;
  out["how"] = executed.how;
  out["layout"] = executed.layout;
  out["act"] = executed.act;
  out["tp"] = executed.tp;
  out["threads"] = executed.threads;
  out["engine"] = executed.engine;
  out["ranks_differ"] = executed.ranks_differ;
  return out;
}

Json ToObject(const Metrics& metrics) {
  Json out = Json::object();
  out["cosine"] = Number(metrics.cosine);
  out["rel_l2"] = Number(metrics.rel_l2);
  out["max_abs"] = Number(metrics.max_abs);
  out["max_ratio"] = Number(metrics.max_ratio);
  out["kld"] = Number(metrics.kld);
  out["kld_stderr"] = Number(metrics.kld_stderr);
  out["top1"] = Number(metrics.top1);
  out["three_way"] = Number(metrics.three_way);
  out["condition"] = Number(metrics.condition);
  out["mean_ratio"] = Number(metrics.mean_ratio);
  out["nmse"] = Number(metrics.nmse);
  out["allclose_excess"] = Number(metrics.allclose_excess);
  out["ambiguous"] = Integer(metrics.ambiguous);
  out["noise_floor"] = Number(metrics.noise_floor);
  out["floor_runs"] = Integer(metrics.floor_runs);
  out["tolerance"] = nullptr;
  if (metrics.tolerance) {
    Json& facts = out["tolerance"] = Json::object();
    facts["u_acc"] = metrics.tolerance->u_acc;
    facts["depth"] = Number(metrics.tolerance->depth);
    facts["c"] = Number(metrics.tolerance->c);
    facts["terms"] = metrics.tolerance->terms;
  }
  return out;
}

Json ToObject(const ErrorMap& map) {
  Json out = Json::object();
  out["rows"] = map.rows;
  out["columns"] = map.columns;
  out["row_unit"] = map.row_unit;
  out["column_unit"] = map.column_unit;
  out["rows_a_cell"] = map.rows_a_cell;
  out["columns_a_cell"] = map.columns_a_cell;
  out["value"] = map.value;
  out["cells"] = Json::array();
  for (const double cell : map.cells) out["cells"].push_back(Number(cell));
  return out;
}

Json ToObject(const Divergence& divergence) {
  Json out = Json::object();
  out["layer"] = Integer(divergence.layer);
  out["op"] = TextOrNull(divergence.op);
  out["tap"] = TextOrNull(divergence.tap);
  out["class"] = TextOrNull(divergence.cls);
  out["rank"] = Integer(divergence.rank);
  out["expert"] = Integer(divergence.expert);
  out["step"] = Integer(divergence.step);
  out["tensor"] = TextOrNull(divergence.tensor);
  out["unit"] = TextOrNull(divergence.unit);
  out["index"] = ListOrNull(divergence.index);
  out["local_index"] = ListOrNull(divergence.local_index);
  out["expected"] = Number(divergence.expected);
  out["got"] = Number(divergence.got);
  out["bits"] = ListOrNull(divergence.bits);
  out["propagated"] = divergence.propagated;
  out["cleared"] = divergence.cleared;
  if (divergence.map) out["map"] = ToObject(*divergence.map);
  out["signature"] = nullptr;
  const Signature& signature = divergence.signature;
  if (!signature.id.empty() || !signature.text.empty() || !signature.evidence.empty()) {
    Json& facts = out["signature"] = Json::object();
    facts["id"] = signature.id;
    facts["text"] = signature.text;
    facts["evidence"] = signature.evidence;
  }
  return out;
}

Json ToObject(const OpRow& row) {
  Json out = Json::object();
  out["tap"] = row.tap;
  out["step"] = row.step;
  out["local"] = Number(row.local);
  out["accumulated"] = Number(row.accumulated);
  out["floor"] = Number(row.floor);
  out["cosine"] = Number(row.cosine);
  out["rel_l2"] = Number(row.rel_l2);
  return out;
}

template <class T>
Json ToArray(const std::vector<T>& items) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(ToObject(item));
  return out;
}

Json Embed(const std::string& text) {
  if (text.empty()) return nullptr;
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ToJson(const CellResult& cell) {
  Json out = Json::object();
  out["type"] = "cell";
  out["problem"] = cell.problem;
  out["model_hash"] = TextOrNull(cell.model_hash);
  out["verdict"] = std::string(NameOf(cell.verdict));
  out["reason"] = cell.reason;
  out["executed"] = cell.executed ? ToObject(*cell.executed) : Json(nullptr);
  out["mode"] = TextOrNull(cell.mode);
  out["metrics"] = ToObject(cell.metrics);
  out["divergences"] = ToArray(cell.divergences);
  out["ops"] = ToArray(cell.ops);
  out["ms"] = Number(cell.ms);
  out["attempts"] = cell.attempts;
  out["repro"] = cell.repro;
  if (!cell.engine_output.empty()) out["engine_output"] = cell.engine_output;
  return Dump(out);
}

std::string ToJson(const RunHeader& header) {
  Json out = Json::object();
  out["type"] = "run";
  out["run_id"] = header.run_id;
  out["revision"] = header.revision;
  out["dirty"] = header.dirty;
  out["machine"] = Embed(header.machine_json);
  out["engines"] = Embed(header.engines_json);
  out["selection"] = header.selection;
  out["seed"] = header.seed;
  if (header.cells) {
    const CellList& cells = *header.cells;
    out["cells"] = {{"count", cells.count},         {"xxh3_128", cells.hash},
                    {"shard", cells.shard},         {"shards", cells.shards},
                    {"own_count", cells.own_count}, {"own_xxh3_128", cells.own_hash}};
  }
  if (!header.emulate.empty()) out["emulate"] = header.emulate;
  if (!header.requirements.empty()) out["require"] = header.requirements;
  if (!header.merged.empty()) out["merged"] = header.merged;
  return Dump(out);
}

std::string SummaryJson(const Totals& totals, double seconds) {
  Json out = Json::object();
  out["type"] = "summary";
  out["registered"] = totals.registered;
  out["collected"] = totals.collected;
  out["executed"] = totals.executed;
  out["pass"] = totals.pass;
  out["fail"] = totals.fail;
  out["mistrusted"] = totals.mistrusted;
  out["refused"] = totals.refused;
  out["skipped"] = totals.skipped;
  out["not_executed"] = totals.not_executed;
  out["infra"] = totals.infra;
  out["seconds"] = Number(seconds);
  return Dump(out);
}

}  // namespace assay
