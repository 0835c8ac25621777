// mutate: the fault library. Each fault is injected into the native engine, once where it must show
// and once where it cannot; what the harness finds of it is the harness's own score.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/pool.h"
#include "harness/store/result.h"
#include "kernels/faults/faults.h"

namespace assay::cli {
namespace {

using Json = nlohmann::ordered_json;
using kernels::Fault;

// What other harnesses gate on, and at which value: the figures are theirs (numerics.md), shown
// beside the score and never decisive here.
struct UsualGate {
  const char* name;
  bool (*passes)(const Metrics& metrics);
};
constexpr double kMeanRatioGate = 0.12, kCosineGate = 0.99, kRelativeGate = 1e-3, kNmseGate = 5e-4;
const UsualGate kUsualGates[] = {
    {"mean_ratio_0.12",
     [](const Metrics& m) { return m.mean_ratio.value_or(0) <= kMeanRatioGate; }},
    {"cosine_0.99", [](const Metrics& m) { return m.cosine.value_or(1) > kCosineGate; }},
    {"rel_1e-3", [](const Metrics& m) { return m.rel_l2.value_or(0) <= kRelativeGate; }},
    {"nmse_5e-4", [](const Metrics& m) { return m.nmse.value_or(0) <= kNmseGate; }},
    {"allclose_1e-2", [](const Metrics& m) { return m.allclose_excess.value_or(0) <= 1; }},
};

struct Row {
  const Fault* fault = nullptr;
  CellResult shown, blind;
  // What this host cannot execute is neither visible nor missed, neither clean nor an alarm.
  bool visible = false, clean = false;
  bool detected = false, located = false, false_alarm = false;
  std::map<std::string, bool> fields;  // of `first`: right or not
};

Json FirstOf(const Fault& fault) {
  Json first = Json::object();
  for (const auto& field : fault.first) {
    first[std::string(field.name)] = Json::parse(field.json, nullptr, false);
  }
  return first;
}

void Score(Row* row) {
  row->visible = row->shown.verdict != Verdict::kNotExecuted;
  row->clean = row->blind.verdict != Verdict::kNotExecuted;
  row->detected = row->shown.verdict == Verdict::kFail;
  row->false_alarm = row->clean && row->blind.verdict != Verdict::kPass;
  const Json cell = Json::parse(ToJson(row->shown), nullptr, false);
  const Json none = Json::object();
  const bool has =
      cell.is_object() && cell["divergences"].is_array() && !cell["divergences"].empty();
  const Json& got = has ? cell["divergences"][0] : none;
  if (!row->visible) return;
  row->located = row->detected;
  const Json first = FirstOf(*row->fault);
  for (const auto& [name, value] : first.items()) {
    const bool right = got.contains(name) && got[name] == value;
    row->fields[name] = right;
    row->located &= right;
  }
  row->fields["signature"] =
      got.contains("signature") && got["signature"]["id"] == std::string(row->fault->signature);
  row->located &= row->fields["signature"];
}

std::vector<const Fault*> Chosen(const std::string& kinds) {
  std::vector<const Fault*> chosen;
  for (const Fault& fault : kernels::Faults()) {
    bool wanted = kinds.empty();
    std::stringstream list(kinds);
    for (std::string kind; std::getline(list, kind, ',');) {
      wanted |= fault.kind == kind || fault.name == kind;
    }
    if (wanted) chosen.push_back(&fault);
  }
  return chosen;
}

// The first word of the list that names no fault; empty if each does.
std::string UnknownKind(const std::string& kinds) {
  std::stringstream list(kinds);
  for (std::string kind; std::getline(list, kind, ',');) {
    if (Chosen(kind).empty() || kind.empty()) return kind.empty() ? "(nothing)" : kind;
  }
  return "";
}

int PrintList(const std::vector<const Fault*>& faults, bool json) {
  Json out = Json::array();
  for (const Fault* fault : faults) {
    out.push_back({{"fault", fault->name},
                   {"problem", fault->problem},
                   {"blind", fault->blind},
                   {"class", fault->cls},
                   {"description", fault->description},
                   {"signature", fault->signature},
                   {"first", FirstOf(*fault)}});
    if (json) continue;
    std::puts(
        fmt::format("{}  ({})\n  {}\n  shows:  ./assay run '{}'\n  cannot: ./assay run '{}'\n",
                    fault->name, fault->cls, fault->description, fault->problem, fault->blind)
            .c_str());
  }
  if (json) std::puts(out.dump(1).c_str());
  return 0;
}

Result<std::vector<Row>> RunFaults(const std::vector<const Fault*>& faults) {
  std::vector<Row> rows;
  std::vector<run::Problem> problems;
  for (const Fault* fault : faults) {
    rows.emplace_back().fault = fault;
    for (const std::string_view text : {fault->problem, fault->blind}) {
      auto problem = run::ParseProblem(text);
      if (!problem) return problem.error();
      problems.push_back(std::move(*problem));
    }
  }
  run::ModelStore models;
  run::PoolOptions options;
  options.jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto collect = [&](size_t index, const CellResult& cell) {
    (index % 2 == 0 ? rows[index / 2].shown : rows[index / 2].blind) = cell;
    return Ok();
  };
  if (auto status = run::RunPool(problems, &models, options, collect); !status) {
    return status.error();
  }
  for (Row& row : rows) Score(&row);
  return rows;
}

int64_t Count(const std::vector<Row>& rows, bool (*is)(const Row& row)) {
  return std::count_if(rows.begin(), rows.end(), is);
}

// Coordinates by the names of the score; a group is the index in unit group.
Json Coordinates(const std::vector<Row>& rows) {
  Json out = Json::object();
  const std::pair<const char*, const char*> names[] = {{"layer", "layer"},   {"op", "op"},
                                                       {"rank", "rank"},     {"tensor", "tensor"},
                                                       {"expert", "expert"}, {"group", "index"}};
  for (const auto& [name, field] : names) {
    int64_t right = 0, of = 0;
    for (const Row& row : rows) {
      const auto found = row.fields.find(field);
      if (found == row.fields.end()) continue;
      ++of;
      right += found->second ? 1 : 0;
    }
    out[name] = {right, of};
  }
  return out;
}

Json CountField(const std::vector<Row>& rows, const std::string& field) {
  int64_t right = 0, of = 0;
  for (const Row& row : rows) {
    const auto found = row.fields.find(field);
    if (found == row.fields.end()) continue;
    ++of;
    right += found->second ? 1 : 0;
  }
  return {right, of};
}

Json ScoreJson(const std::vector<Row>& rows) {
  std::vector<double> seconds;
  int64_t detected = 0, located = 0, alarms = 0;
  Json gates = Json::object();
  for (const UsualGate& gate : kUsualGates) {
    gates[gate.name] = std::count_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.shown.executed && !gate.passes(row.shown.metrics);
    });
  }
  Json list = Json::array();
  for (const Row& row : rows) {
    detected += row.detected ? 1 : 0;
    located += row.located ? 1 : 0;
    alarms += row.false_alarm ? 1 : 0;
    seconds.push_back(row.shown.ms / 1000);
    list.push_back({{"fault", row.fault->name},
                    {"problem", row.shown.problem},
                    {"verdict", NameOf(row.shown.verdict)},
                    {"detected", row.detected},
                    {"located", row.located},
                    {"first", FirstOf(*row.fault)},
                    {"got", Json::parse(ToJson(row.shown))["divergences"]},
                    {"blind", row.blind.problem},
                    {"blind_verdict", NameOf(row.blind.verdict)},
                    {"blind_reason", row.blind.reason}});
  }
  std::sort(seconds.begin(), seconds.end());
  const Json median = seconds.empty() ? Json(nullptr) : Json(seconds[seconds.size() / 2]);
  const Json most = seconds.empty() ? Json(nullptr) : Json(seconds.back());
  return {{"mutants", rows.size()},
          {"visible", Count(rows, [](const Row& row) { return row.visible; })},
          {"detected", detected},
          {"located", located},
          {"coordinates", Coordinates(rows)},
          {"class", CountField(rows, "class")},
          {"signature", CountField(rows, "signature")},
          {"clean_cells", Count(rows, [](const Row& row) { return row.clean; })},
          {"false_alarms", alarms},
          {"seconds", {{"median", median}, {"max", most}}},
          {"usual_gates", gates},
          {"rows", list}};
}

void PrintTable(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (!row.visible) {
      std::puts(
          fmt::format("{:<18} not executed here: {}", row.fault->name, row.shown.reason).c_str());
      continue;
    }
    std::puts(fmt::format("{:<18} {:<10} {:<12} where it cannot show: {}", row.fault->name,
                          row.detected ? "found" : "MISSED", row.located ? "located" : "MISPLACED",
                          NameOf(row.blind.verdict))
                  .c_str());
    std::puts(fmt::format("    {}", row.shown.reason).c_str());
    for (const auto& [name, right] : row.fields) {
      if (!right) std::puts(fmt::format("    wrong: {}", name).c_str());
    }
    if (row.false_alarm) std::puts(fmt::format("    {}", row.blind.reason).c_str());
  }
  const int64_t visible = Count(rows, [](const Row& row) { return row.visible; });
  const int64_t located = Count(rows, [](const Row& row) { return row.located; });
  const int64_t alarms = Count(rows, [](const Row& row) { return row.false_alarm; });
  std::puts(
      fmt::format("{} of {} faults located, {} false alarms", located, visible, alarms).c_str());
}

}  // namespace

int Mutate(int argc, char** argv) {
  bool list = false, json = false;
  std::string kinds;
  Options options(
      "mutate",
      "Injects each fault of the library into the native engine, where it must show and "
      "where it cannot, and scores what the harness says.",
      "./assay mutate --kind K03 --json");
  options.Flag("--list", &list, "the faults and their problem strings; runs nothing");
  options.Flag("--json", &json, "print JSON");
  options.Value("--kind", &kinds, "only these kinds or faults: K03,K41/missing");
  if (auto code = options.Parse(argc, argv)) return *code;
  const std::vector<const Fault*> faults = Chosen(kinds);
  if (const std::string unknown = UnknownKind(kinds); !unknown.empty()) {
    return BadUsage(
        fmt::format("--kind {}: no such fault {}; see ./assay mutate --list", kinds, unknown));
  }
  if (list) return PrintList(faults, json);
  auto rows = RunFaults(faults);
  if (!rows) return BadUsage(rows.error().message);
  if (json) {
    std::puts(ScoreJson(*rows).dump(1).c_str());
  } else {
    PrintTable(*rows);
  }
  const bool red = std::any_of(rows->begin(), rows->end(), [](const Row& row) {
    return (row.visible && !row.located) || row.false_alarm;
  });
  const bool none = Count(*rows, [](const Row& row) { return row.visible; }) == 0;
  return red ? 1 : none ? kExitNothingExecuted : 0;
}

}  // namespace assay::cli
