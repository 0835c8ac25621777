#include "harness/cli/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "harness/run/cell.h"

namespace assay::cli {
namespace {

bool IsKind(std::string_view word) {
  const auto& kinds = run::Kinds();
  return std::find(kinds.begin(), kinds.end(), word) != kinds.end();
}

std::string DefaultMatrix() {
  const char* root = std::getenv("ASSAY_ROOT");
  return std::string(root != nullptr ? root : ".") + "/matrix/default.json";
}

std::vector<std::string> Problems(const Selection& selection) {
  std::vector<std::string> problems;
  for (const run::Problem& problem : selection.problems) {
    problems.push_back(run::PrintCanonical(problem));
  }
  for (const auto& [problem, reason] : selection.skipped) {
    problems.push_back(run::PrintCanonical(problem));
  }
  return problems;
}

// The list of a selection that is not cut into shards.
CellList ListOf(const Selection& selection) {
  const std::vector<std::string> problems = Problems(selection);
  const auto count = static_cast<int64_t>(problems.size());
  const std::string hash = HashCells(problems);
  return {count, hash, 1, 1, count, hash};
}

// "i/n" as two whole numbers from 0.
bool ReadShard(const std::string& shard, int64_t* index, int64_t* count) {
  const size_t slash = shard.find('/');
  if (slash == std::string::npos) return false;
  const auto number = [](std::string_view text, int64_t* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size() && *value >= 0;
  };
  return number(std::string_view(shard).substr(0, slash), index) &&
         number(std::string_view(shard).substr(slash + 1), count);
}

Result<Selection> SelectProblem(const std::string& text, const std::string& engine,
                                run::ModelStore* models) {
  auto problem = run::ParseProblem(text);
  if (!problem) return problem.error();
  if (!engine.empty()) problem->keys["engine"] = engine;
  Selection selection;
  selection.single = true;
  selection.text = run::PrintMinimal(*problem);
  // A problem that cannot be resolved still runs: it ends with a verdict that says why. What is
  // wrong with the string itself is bad usage.
  auto resolved = run::ResolveProblem(*problem, models);
  if (!resolved && resolved.error().kind == ErrorKind::kBadInput) return resolved.error();
  if (resolved) {
    auto legal = run::IsLegal(*resolved, models);
    if (!legal && legal.error().kind == ErrorKind::kBadInput) return legal.error();
  }
  selection.problems.push_back(resolved ? *resolved : *problem);
  selection.list = ListOf(selection);
  return selection;
}

Result<std::vector<run::Filter>> ParseFilters(const std::vector<std::string>& words) {
  std::vector<run::Filter> filters;
  for (const std::string& word : words) {
    const std::string first = word.substr(0, word.find(' '));
    if (first.find('=') == std::string::npos) {
      const std::vector<std::string> kinds(run::Kinds().begin(), run::Kinds().end());
      const std::string nearest = run::Nearest(first, kinds);
      return Error{fmt::format("{}: neither a kind{} nor a filter key=value; kinds are {}", first,
                               nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
                               fmt::join(kinds, ", "))};
    }
    auto filter = run::ParseFilter(word);
    if (!filter) return filter.error();
    filters.push_back(std::move(*filter));
  }
  return filters;
}

// Names the first filter that no cell passes, and the values that the cells have.
Error NoCell(const std::vector<std::string>& words, const std::vector<run::Filter>& filters,
             const std::vector<run::MatrixCell>& cells) {
  for (const run::Filter& filter : filters) {
    std::set<std::string> values;
    bool any = false;
    for (const run::MatrixCell& cell : cells) {
      any |= run::Matches(cell.problem, {filter});
      values.insert(run::ValueOf(cell.problem, filter.key));
    }
    if (any) continue;
    return Error{fmt::format("no cell of the matrix has {}={}; its cells have {}", filter.key,
                             fmt::join(filter.values, ","), fmt::join(values, ", "))};
  }
  return Error{
      fmt::format("no cell of the matrix has {}; ./assay list shows all", fmt::join(words, " "))};
}

}  // namespace

std::string RecordedPath(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const bool plain = static_cast<unsigned char>(c) > ' ' && c != '%';
    text += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return text;
}

std::string PathFromRecord(const std::string& text) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    const bool encoded = text[i] == '%' && i + 2 < text.size() &&
                         std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    path += encoded ? static_cast<char>(byte) : text[i];
    if (encoded) i += 2;
  }
  return path;
}

Result<Selection> Select(const std::vector<std::string>& words, const std::string& matrix,
                         const std::string& engine, run::ModelStore* models) {
  if (!words.empty() && IsKind(words[0].substr(0, words[0].find(' ')))) {
    return SelectProblem(fmt::format("{}", fmt::join(words, " ")), engine, models);
  }
  auto parsed = ParseFilters(words);
  if (!parsed) return parsed.error();
  const std::vector<run::Filter>& filters = *parsed;
  Selection selection;
  auto rows = run::ReadMatrix(matrix.empty() ? DefaultMatrix() : matrix);
  if (!rows) return rows.error();
  selection.rows = std::move(*rows);
  auto skips = run::ReadSkips(matrix.empty() ? DefaultMatrix() : matrix);
  if (!skips) return skips.error();
  auto cells = run::ExpandMatrix(selection.rows, models);
  if (!cells) return cells.error();
  if (const std::string wrong = run::CheckLegal(selection.rows, *cells); !wrong.empty()) {
    return Error{wrong};
  }
  std::set<std::string> known;
  for (run::MatrixCell& cell : *cells) {
    if (!engine.empty() && engine != cell.problem.Get("engine")) {
      cell.problem.keys["engine"] = engine;
      cell.problem.keys.erase("kernel");
      if (auto again = run::ResolveProblem(cell.problem, models)) cell.problem = std::move(*again);
    }
    if (!run::Matches(cell.problem, filters)) continue;
    // Cells that differed in another engine's kernel alone have become one.
    if (!known.insert(run::PrintCanonical(cell.problem)).second) continue;
    const auto skip = std::find_if(skips->begin(), skips->end(), [&](const run::Skip& candidate) {
      return run::Matches(cell.problem, candidate.filters);
    });
    if (skip != skips->end()) {
      selection.skipped.emplace_back(cell.problem, skip->reason);
      continue;
    }
    selection.problems.push_back(cell.problem);
    selection.cells.push_back(cell);
  }
  selection.whole_matrix = filters.empty();
  selection.text = fmt::format("{}", fmt::join(words, " "));
  if (!matrix.empty()) selection.text += " --matrix " + RecordedPath(matrix);
  if (!engine.empty()) selection.text += " --engine " + RecordedPath(engine);
  if (selection.problems.empty() && selection.skipped.empty()) {
    return NoCell(words, filters, *cells);
  }
  selection.list = ListOf(selection);
  return selection;
}

Status KeepShard(const std::string& shard, Selection* selection) {
  int64_t index = 0, count = 0;
  if (!ReadShard(shard, &index, &count)) {
    return Error{fmt::format("--shard {}: allowed is i/n with 1 <= i <= n, as in 2/4", shard)};
  }
  if (count < 1) return Error{fmt::format("--shard {}: allowed is i/n with n at least 1", shard)};
  if (count > kMostShards) {
    return Error{fmt::format("--shard {}: allowed is i/n with n at most {}", shard, kMostShards)};
  }
  if (index < 1 || index > count) {
    return Error{fmt::format("--shard {0}: i/n counts shards from 1: allowed are 1/{1} to {1}/{1}",
                             shard, count)};
  }
  std::vector<run::Problem> kept;
  std::vector<run::MatrixCell> cells;
  if (index != 1) selection->skipped.clear();  // the first shard reports them
  for (size_t i = 0; i < selection->problems.size(); ++i) {
    if (static_cast<int64_t>(i) % count != index - 1) continue;
    kept.push_back(selection->problems[i]);
    if (!selection->cells.empty()) cells.push_back(selection->cells[i]);
  }
  selection->problems = std::move(kept);
  selection->cells = std::move(cells);
  selection->text += fmt::format(" --shard {}/{}", index, count);
  CellList& list = selection->list;
  const CellList own = ListOf(*selection);
  list = {list.count, list.hash, index, count, own.count, own.hash};
  return Ok();
}

}  // namespace assay::cli
