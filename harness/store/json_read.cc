// JSON lines to results. A line comes from a file that anybody may have written: every field is
// checked before use, and the first thing that is wrong becomes one message.
#include <fmt/format.h>

#include <limits>

#include "harness/store/json_fields.h"
#include "harness/store/result.h"

namespace assay {
namespace {

using json::Fields;
using json::Json;
using json::ParseObject;

Executed ReadExecuted(Fields in) {
  Executed out;
  out.kernel = in.Text("kernel");
  out.tier = in.Text("tier");
  out.how = in.Text("how");
  out.layout = in.Text("layout");
  out.act = in.Text("act");
  out.tp = in.Integer("tp", 0);
  out.threads = in.Integer("threads", 0);
  out.engine = in.Text("engine");
  out.ranks_differ = in.Integers("ranks_differ");
  return out;
}

Metrics ReadMetrics(Fields in) {
  Metrics out;
  out.cosine = in.NumberOrNull("cosine");
  out.rel_l2 = in.NumberOrNull("rel_l2");
  out.max_abs = in.NumberOrNull("max_abs");
  out.max_ratio = in.NumberOrNull("max_ratio");
  out.kld = in.NumberOrNull("kld");
  out.kld_stderr = in.NumberIfThere("kld_stderr");
  out.top1 = in.NumberIfThere("top1");
  out.three_way = in.NumberIfThere("three_way");
  out.mean_ratio = in.NumberIfThere("mean_ratio");
  out.nmse = in.NumberIfThere("nmse");
  out.allclose_excess = in.NumberIfThere("allclose_excess");
  out.condition = in.NumberIfThere("condition");
  out.ambiguous = in.IntegerOrNull("ambiguous", 0);
  out.noise_floor = in.NumberOrNull("noise_floor");
  out.floor_runs = in.IntegerOrNullIfThere("floor_runs", 0);
  in.Object("tolerance", [&](Fields facts) {
    out.tolerance.emplace();
    out.tolerance->u_acc = facts.Text("u_acc");
    out.tolerance->depth = facts.Number("depth");
    out.tolerance->c = facts.Number("c");
    out.tolerance->terms = facts.Texts("terms");
  });
  return out;
}

ErrorMap ReadMap(Fields in) {
  ErrorMap out;
  out.rows = in.Integer("rows", 0);
  out.columns = in.Integer("columns", 0);
  out.row_unit = in.Text("row_unit");
  out.column_unit = in.Text("column_unit");
  out.rows_a_cell = in.Integer("rows_a_cell", 1);
  out.columns_a_cell = in.Integer("columns_a_cell", 1);
  out.value = in.Text("value");
  out.cells = in.Numbers("cells");
  int64_t count = 0;
  if (__builtin_mul_overflow(out.rows, out.columns, &count) ||
      count != static_cast<int64_t>(out.cells.size())) {
    in.Wrong("cells", Json(out.cells.size()), "a list of rows·columns numbers");
  }
  return out;
}

Divergence ReadDivergence(Fields in) {
  Divergence out;
  out.layer = in.IntegerOrNull("layer", 0);
  out.op = in.TextOrNull("op");
  out.tap = in.TextOrNull("tap");
  out.cls = in.TextOrNull("class");
  out.rank = in.IntegerOrNull("rank", -1);  // -1: one value for all ranks
  out.expert = in.IntegerOrNull("expert", 0);
  out.step = in.IntegerOrNullIfThere("step", 0);
  out.tensor = in.TextOrNull("tensor");
  out.unit = in.TextOrNull("unit");
  out.index = in.Integers("index");
  out.local_index = in.Integers("local_index");
  out.expected = in.NumberOrNull("expected");
  out.got = in.NumberOrNull("got");
  out.bits = in.Texts("bits");
  if (!out.bits.empty() && out.bits.size() != 2) {
    in.Wrong("bits", Json(out.bits), "two strings, expected and got");
  }
  out.propagated = in.Texts("propagated");
  out.cleared = in.TextsIfThere("cleared");
  in.ObjectIfThere("map", [&](Fields facts) { out.map = ReadMap(facts); });
  in.Object("signature", [&](Fields facts) {
    out.signature = {facts.Text("id"), facts.Text("text"), facts.Text("evidence")};
  });
  return out;
}

OpRow ReadOp(Fields in) {
  OpRow out;
  out.tap = in.Text("tap");
  out.step = static_cast<int>(in.IntegerIfThere("step", 0, std::numeric_limits<int>::max()));
  out.local = in.NumberOrNull("local");
  out.accumulated = in.NumberOrNull("accumulated");
  out.floor = in.NumberIfThere("floor");
  out.cosine = in.NumberOrNull("cosine");
  out.rel_l2 = in.NumberOrNull("rel_l2");
  return out;
}

CellResult ReadCell(Fields in) {
  CellResult out;
  out.problem = in.Text("problem");
  out.model_hash = in.TextOrNull("model_hash");
  const std::string name = in.Text("verdict");
  if (const auto verdict = VerdictFromName(name)) {
    out.verdict = *verdict;
  } else {
    in.Wrong("verdict", Json(name),
             "PASS, FAIL, REFUSED, MISTRUSTED, SKIPPED, NOT_EXECUTED or INFRA");
  }
  out.reason = in.TextOrNull("reason");
  in.Object("executed", [&](Fields facts) { out.executed = ReadExecuted(facts); });
  out.mode = in.TextOrNull("mode");
  in.Object("metrics", [&](Fields facts) { out.metrics = ReadMetrics(facts); });
  in.Objects("divergences", [&](Fields one) { out.divergences.push_back(ReadDivergence(one)); });
  in.Objects("ops", [&](Fields one) { out.ops.push_back(ReadOp(one)); });
  out.ms = in.Duration("ms");
  out.attempts = static_cast<int>(in.Integer("attempts", 1, std::numeric_limits<int>::max()));
  out.repro = in.TextOrNull("repro");
  out.engine_output = in.TextIfThere("engine_output");
  return out;
}

RunHeader ReadHeader(Fields in) {
  RunHeader out;
  out.run_id = in.Text("run_id");
  out.revision = in.Text("revision");
  out.dirty = in.Flag("dirty");
  out.machine_json = in.Raw("machine");
  out.engines_json = in.Raw("engines");
  out.selection = in.Text("selection");
  out.seed = in.Integer("seed", std::numeric_limits<int64_t>::min());
  in.ObjectIfThere("cells", [&](Fields cells) {
    CellList& list = out.cells.emplace();
    list.count = cells.Integer("count", 0);
    list.hash = cells.Text("xxh3_128");
    list.shards = cells.Integer("shards", 1, kMostShards);
    list.shard = cells.Integer("shard", 1, list.shards);
    list.own_count = cells.Integer("own_count", 0, list.count);
    list.own_hash = cells.Text("own_xxh3_128");
  });
  out.emulate = in.TextIfThere("emulate");
  out.requirements = in.TextsIfThere("require");
  out.merged = in.TextsIfThere("merged");
  return out;
}

Summary ReadSummary(Fields in) {
  Summary out;
  Totals& totals = out.totals;
  totals.registered = in.Integer("registered", 0);
  totals.collected = in.Integer("collected", 0);
  totals.executed = in.Integer("executed", 0);
  totals.pass = in.Integer("pass", 0);
  totals.fail = in.Integer("fail", 0);
  totals.mistrusted = in.Integer("mistrusted", 0);
  totals.refused = in.Integer("refused", 0);
  totals.skipped = in.Integer("skipped", 0);
  totals.not_executed = in.Integer("not_executed", 0);
  totals.infra = in.Integer("infra", 0);
  out.seconds = in.Duration("seconds");
  return out;
}

// Parses the line and reads it as what its type says.
Result<Line> ParseLine(std::string_view line, std::string_view where) {
  const Result<Json> object = ParseObject(line, where);
  if (!object.ok()) return object.error();
  std::string error;
  Fields fields(*object, "", &error);
  Line out;
  const std::string type = fields.Text("type");
  if (type == "cell") {
    out = ReadCell(fields);
  } else if (type == "run") {
    out = ReadHeader(fields);
  } else if (type == "summary") {
    out = ReadSummary(fields);
  } else {
    fields.Wrong("type", Json(type), "\"run\", \"cell\" or \"summary\"");
  }
  if (!error.empty()) return Error{fmt::format("{}: {}", where, error)};
  return out;
}

template <class T>
Result<T> ReadAs(std::string_view line, std::string_view where, std::string_view type) {
  Result<Line> out = ParseLine(line, where);
  if (!out.ok()) return out.error();
  if (T* wanted = std::get_if<T>(&*out)) return std::move(*wanted);
  return Error{fmt::format("{}: a line of type \"{}\" must stand here", where, type)};
}

void Flatten(const Json& value, const std::string& name, int depth,
             std::vector<std::pair<std::string, std::string>>* out) {
  if (depth > json::kDeepest) return;  // a text of brackets must not exhaust the stack
  const auto text = [](const Json& leaf) {
    return leaf.is_string() ? leaf.get<std::string>()
                            : leaf.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) {
      Flatten(child, name.empty() ? key : name + "." + key, depth + 1, out);
    }
  } else if (value.is_array() && !value.empty() && value.front().is_structured()) {
    for (const Json& child : value) Flatten(child, name, depth + 1, out);
  } else if (value.is_array()) {
    std::string joined;
    for (const Json& leaf : value) joined += (joined.empty() ? "" : " ") + text(leaf);
    out->emplace_back(name, joined);
  } else if (!value.is_null()) {
    out->emplace_back(name, text(value));
  }
}

}  // namespace

Result<Line> LineFromJson(std::string_view line, std::string_view where) {
  return ParseLine(line, where);
}

Result<CellResult> CellFromJson(std::string_view line, std::string_view where) {
  return ReadAs<CellResult>(line, where, "cell");
}

Result<RunHeader> HeaderFromJson(std::string_view line, std::string_view where) {
  return ReadAs<RunHeader>(line, where, "run");
}

Result<Summary> SummaryFromJson(std::string_view line, std::string_view where) {
  return ReadAs<Summary>(line, where, "summary");
}

std::vector<std::pair<std::string, std::string>> FlattenJson(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> out;
  if (text.empty()) return out;
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    out.emplace_back("", std::string(text));
  } else {
    Flatten(value, "", 0, &out);
  }
  return out;
}

}  // namespace assay
