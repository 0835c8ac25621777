#include "harness/run/matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/checkpoint/shown.h"
#include "harness/run/cell.h"
#include "kernels/registry.h"

namespace assay::run {
namespace {

using Json = nlohmann::json;

// A matrix that is larger than this is a slip in its file.
constexpr size_t kMostCells = 1000000;

// JSON in which no object has a key twice: the parser would keep the last and drop the others.
Result<Json> ParseJson(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> open;
  std::string twice;
  const auto look = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  };
  try {
    Json json = Json::parse(text, look);
    if (!twice.empty()) return Error{fmt::format("{}: an object has {} twice", path, Shown(twice))};
    return json;
  } catch (const Json::exception& error) {
    return Error{fmt::format("{}: not JSON: {}", path, error.what())};
  }
}

Result<Json> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) return Error{fmt::format("{}: cannot be read", path)};
  auto json = ParseJson(text.str(), path);
  if (!json) return json.error();
  if (!json->is_object() || !json->contains("rows") || !(*json)["rows"].is_array() ||
      (*json)["rows"].empty()) {
    return Error{fmt::format("{}: not a JSON object with a list of rows", path)};
  }
  for (const auto& [key, value] : json->items()) {
    if (key != "about" && key != "rows" && key != "skips") {
      return Error{
          fmt::format("{}: unknown key {}; allowed are about, rows, skips", path, Shown(key))};
    }
  }
  if (json->contains("skips") && !(*json)["skips"].is_array()) {
    return Error{fmt::format("{}: skips must be a list", path)};
  }
  return json;
}

bool AreWords(const Json& json) {
  return json.is_array() &&
         std::all_of(json.begin(), json.end(), [](const Json& word) { return word.is_string(); });
}

// What is wrong with a row's own keys; empty if nothing is.
std::string Complain(const Json& json) {
  static const std::set<std::string> kAllowed = {"name",    "kind",  "cross",
                                                 "kernels", "legal", "tags"};
  if (!json.is_object()) return "a row must be an object";
  for (const auto& [key, value] : json.items()) {
    if (!kAllowed.count(key)) {
      return fmt::format("unknown key {}; allowed are {}", Shown(key), fmt::join(kAllowed, ", "));
    }
  }
  if (!json.contains("name") || !json["name"].is_string() || !json.contains("kind") ||
      !json["kind"].is_string() || !json.contains("cross") || !json["cross"].is_object() ||
      !json.contains("legal") || !json["legal"].is_number_integer()) {
    return "a row needs name, kind, cross (an object of lists) and legal (a count)";
  }
  if (json.contains("kernels") && json["kernels"] != "registry") {
    return "kernels: allowed is \"registry\"";
  }
  // Only Bazel uses them (slices.bzl).
  if (json.contains("tags") && !AreWords(json["tags"])) return "tags must be a list of strings";
  return "";
}

// One value of a key: a string without spaces, or a number.
Result<std::string> ReadValue(const Json& json, const std::string& where) {
  if (json.is_number()) return json.dump();
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  if (text.empty() || text.find_first_of(" \t\r\n") != std::string::npos) {
    return Error{fmt::format("{} is {}; allowed are numbers and strings without spaces", where,
                             json.dump(-1, ' ', false, Json::error_handler_t::replace))};
  }
  return text;
}

Result<MatrixRow> ReadRow(const Json& json, const std::string& where) {
  if (const std::string wrong = Complain(json); !wrong.empty()) return Error{where + ": " + wrong};
  MatrixRow row;
  row.name = json["name"];
  row.kind = json["kind"];
  row.legal = json["legal"];
  row.registry = json.contains("kernels");
  size_t cells = 1;
  for (const KeyInfo& key : Keys()) {
    const auto found = json["cross"].find(std::string(key.name));
    if (found == json["cross"].end()) continue;
    if (!found->is_array() || found->empty()) {
      return Error{fmt::format("{}: {} must be a list of values", where, key.name)};
    }
    std::vector<std::string> values;
    for (const Json& item : *found) {
      auto value = ReadValue(item, fmt::format("{}: a value of {}", where, key.name));
      if (!value) return value.error();
      values.push_back(std::move(*value));
    }
    cells *= values.size();
    if (cells > kMostCells) {
      return Error{fmt::format("{}: more than {} cells", where, kMostCells)};
    }
    row.cross.emplace_back(std::string(key.name), std::move(values));
  }
  for (const auto& [key, values] : json["cross"].items()) {
    const bool known = std::any_of(row.cross.begin(), row.cross.end(),
                                   [&key = key](const auto& item) { return item.first == key; });
    if (!known) {
      return Error{
          fmt::format("{}: cross has {}, which is no key of problem strings", where, Shown(key))};
    }
  }
  return row;
}

// The cross product, later keys varying fastest, as problem strings.
std::vector<std::string> Cross(const MatrixRow& row) {
  std::vector<std::string> problems{row.kind};
  for (const auto& [key, values] : row.cross) {
    std::vector<std::string> longer;
    for (const std::string& problem : problems) {
      for (const std::string& value : values) {
        longer.push_back(fmt::format("{} {}={}", problem, key, value));
      }
    }
    problems = std::move(longer);
  }
  return problems;
}

// A problem for each kernel of the registry that takes the cell's weights, with its tier and its
// activations, if the row does not say which. Both ways of running a kernel have one name and one
// cell: which of them runs is the host's to say.
std::vector<Problem> WithKernels(const Problem& asked, const std::string& method) {
  std::vector<Problem> crossed;
  std::set<std::string> named;
  for (const kernels::LinearKernel& kernel : kernels::LinearKernels()) {
    const std::string tier(kernels::NameOf(kernel.tier));
    const bool fits = kernel.method == method &&
                      (!asked.Has("act") || asked.Get("act") == kernel.act) &&
                      (!asked.Has("tier") || asked.Get("tier") == tier);
    if (!fits || !named.insert(std::string(kernel.name)).second) continue;
    Problem with = asked;
    with.keys["kernel"] = std::string(kernel.name);
    with.keys["tier"] = tier;
    with.keys["act"] = std::string(kernel.act);
    if (method == "bf16") with.keys.erase("act");
    crossed.push_back(std::move(with));
  }
  return crossed;
}

// The model is one that `./assay golden fetch` gets, and is not here: the cell says so when it
// runs.
bool IsToBeFetched(const Problem& problem, const Error& error) {
  const std::vector<std::string> fetched = FetchedModels();
  return error.kind == ErrorKind::kEnvironment &&
         std::find(fetched.begin(), fetched.end(), problem.Get("model")) != fetched.end();
}

Status AddCell(ResolvedCell resolved, size_t row, std::set<std::string>* seen,
               std::vector<MatrixCell>* cells) {
  MatrixCell cell{std::move(resolved.problem), row, resolved.legal};
  if (!seen->insert(PrintCanonical(cell.problem)).second) {
    return Error{
        fmt::format("two cells of the matrix are the same: {}", PrintMinimal(cell.problem))};
  }
  cells->push_back(std::move(cell));
  return Ok();
}

}  // namespace

Result<std::vector<Skip>> ReadSkips(const std::string& path) {
  auto json = ReadFile(path);
  if (!json) return json.error();
  std::vector<Skip> skips;
  if (!json->contains("skips")) return skips;
  for (const Json& item : (*json)["skips"]) {
    const std::string where = fmt::format("{}: skip {}", path, skips.size());
    if (!item.is_object() || !item.contains("reason") || !item["reason"].is_string() ||
        item["reason"] == "" || !item.contains("cells") || !item["cells"].is_array() ||
        item["cells"].empty()) {
      return Error{where + ": needs cells (a list of key=value) and a reason"};
    }
    for (const auto& [key, value] : item.items()) {
      if (key == "cells" || key == "reason") continue;
      return Error{fmt::format("{}: unknown key {}; allowed are cells, reason", where, Shown(key))};
    }
    Skip skip{{}, item["reason"]};
    for (const Json& text : item["cells"]) {
      auto filter = ParseFilter(text.is_string() ? text.get<std::string>() : text.dump());
      if (!filter) return Error{fmt::format("{}: {}", where, Shown(filter.error().message, 2000))};
      skip.filters.push_back(std::move(*filter));
    }
    skips.push_back(std::move(skip));
  }
  return skips;
}

Result<std::vector<MatrixRow>> ReadMatrix(const std::string& path) {
  auto read = ReadFile(path);
  if (!read) return read.error();
  const Json& json = *read;
  std::vector<MatrixRow> rows;
  std::set<std::string> names;
  for (const Json& item : json["rows"]) {
    auto row = ReadRow(item, fmt::format("{}: row {}", path, rows.size()));
    if (!row) return row.error();
    if (!names.insert(row->name).second) {
      return Error{fmt::format("{}: two rows are named {}", path, Shown(row->name))};
    }
    row->path = path;
    rows.push_back(std::move(*row));
  }
  return rows;
}

Result<std::vector<MatrixCell>> ExpandMatrix(const std::vector<MatrixRow>& rows,
                                             ModelStore* models) {
  std::vector<MatrixCell> cells;
  std::set<std::string> seen;
  for (size_t index = 0; index < rows.size(); ++index) {
    for (const std::string& text : Cross(rows[index])) {
      const auto where = [&](const Error& error) {
        return Error{fmt::format("{}: row {}: {}: {}", rows[index].path, rows[index].name, text,
                                 error.message),
                     error.kind};
      };
      auto problem = ParseProblem(text);
      if (!problem) return where(problem.error());
      auto resolved = ResolveAndPlan(*problem, models);
      if (!resolved && IsToBeFetched(*problem, resolved.error())) {
        cells.push_back({*problem, index, true, false});
        continue;
      }
      if (!resolved) return where(resolved.error());
      std::vector<ResolvedCell> expanded;
      if (!rows[index].registry) {
        expanded.push_back(std::move(*resolved));
      } else {
        for (const Problem& one : WithKernels(*problem, resolved->problem.Get("method"))) {
          auto with = ResolveAndPlan(one, models);
          if (!with) return where(with.error());
          expanded.push_back(std::move(*with));
        }
      }
      for (ResolvedCell& one : expanded) {
        auto added = AddCell(std::move(one), index, &seen, &cells);
        if (!added) return where(added.error());
      }
    }
  }
  return cells;
}

std::string CheckLegal(const std::vector<MatrixRow>& rows, const std::vector<MatrixCell>& cells) {
  std::vector<int64_t> legal(rows.size(), 0);
  std::vector<bool> known(rows.size(), true);
  for (const MatrixCell& cell : cells) {
    legal[cell.row] += cell.legal ? 1 : 0;
    known[cell.row] = known[cell.row] && cell.known;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (known[i] && legal[i] != rows[i].legal) {
      return fmt::format("{}: row {} states {} legal cells, the planner finds {}", rows[i].path,
                         rows[i].name, rows[i].legal, legal[i]);
    }
  }
  return "";
}

Result<Filter> ParseFilter(const std::string& text) {
  const size_t equals = text.find('=');
  std::vector<std::string> known{"kind"};
  for (const KeyInfo& key : Keys()) known.emplace_back(key.name);
  const std::string key = text.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return Error{fmt::format("{}: a filter is key=value[,value]", text)};
  }
  if (std::find(known.begin(), known.end(), key) == known.end()) {
    const std::string nearest = Nearest(key, known);
    return Error{fmt::format("{}: unknown key {}{}; allowed are {}", text, key,
                             nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                             fmt::join(known, ", "))};
  }
  Filter filter{key, {}};
  std::stringstream values(text.substr(equals + 1));
  for (std::string value; std::getline(values, value, ',');) {
    if (!value.empty()) filter.values.push_back(value);
  }
  if (filter.values.empty()) {
    return Error{fmt::format("{}: a filter is key=value[,value]", text)};
  }
  return filter;
}

std::string ValueOf(const Problem& problem, std::string_view key) {
  if (key == "kind") return problem.kind;
  const std::string value = problem.Get(key);
  return value.empty() && key == "attn_tp" ? problem.Get("tp") : value;
}

bool Matches(const Problem& problem, const std::vector<Filter>& filters) {
  return std::all_of(filters.begin(), filters.end(), [&](const Filter& filter) {
    const std::string value = ValueOf(problem, filter.key);
    const bool prefix = filter.key == "tier" || filter.key == "method";
    return std::any_of(filter.values.begin(), filter.values.end(), [&](const std::string& wanted) {
      return prefix ? value.starts_with(wanted) : value == wanted;
    });
  });
}

std::vector<std::string> KernelsWithoutCells(const std::vector<MatrixCell>& cells) {
  std::set<std::string> named;
  for (const MatrixCell& cell : cells) named.insert(cell.problem.Get("kernel"));
  std::vector<std::string> without;
  for (const kernels::LinearKernel& kernel : kernels::LinearKernels()) {
    if (!named.count(std::string(kernel.name))) without.emplace_back(kernel.name);
  }
  return without;
}

}  // namespace assay::run
