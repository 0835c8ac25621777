#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "harness/store/results.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

fs::path FileOf(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? fs::path(path) : fs::path(path) / kResultsFile;
}

// Puts one line into the record. The message of a misplaced line says what must stand there.
Status Take(Line line, std::string_view where, RunRecord* record, bool* has_header) {
  if (record->finished()) {
    return Error{fmt::format("{}: a line after the summary, which must be the last", where)};
  }
  const bool is_header = std::holds_alternative<RunHeader>(line);
  if (is_header == *has_header) {
    return Error{fmt::format("{}: {}", where,
                             is_header ? "a second line of type \"run\"; only the first may be one"
                                       : "the first line must be of type \"run\"")};
  }
  if (is_header) {
    record->header = std::get<RunHeader>(std::move(line));
    *has_header = true;
  } else if (auto* cell = std::get_if<CellResult>(&line)) {
    record->cells.push_back(std::move(*cell));
  } else {
    record->summary = std::get<Summary>(line);
    const Totals counted = record->Count();
    if (!(counted == record->summary->totals)) {
      return Error{fmt::format("{}: the summary does not fit the file's {} cells", where,
                               record->cells.size())};
    }
  }
  return Ok();
}

}  // namespace

Totals RunRecord::Count() const {
  Totals totals;
  for (const CellResult& cell : cells) totals.Add(cell.verdict);
  totals.registered = summary ? summary->totals.registered : totals.collected;
  return totals;
}

Result<RunRecord> ReadResults(const std::string& path) {
  const fs::path file = FileOf(path);
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return Error{fmt::format("{}: cannot be read; a folder of results holds a file {}",
                             file.string(), kResultsFile),
                 ErrorKind::kEnvironment};
  }
  RunRecord record;
  bool has_header = false;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    const std::string where = fmt::format("{}:{}", file.string(), number);
    // getline met the end of the file before a newline: the one line that a kill may have torn.
    const bool unterminated = in.eof();
    Result<Line> line = LineFromJson(text, where);
    if (!line.ok() && unterminated) {
      record.torn = line.error().message;
      break;
    }
    if (!line.ok()) return line.error();
    const Status taken = Take(*std::move(line), where, &record, &has_header);
    if (!taken.ok()) return taken.error();
  }
  if (in.bad()) {
    return Error{fmt::format("{}: reading failed", file.string()), ErrorKind::kEnvironment};
  }
  if (!has_header) {
    return Error{fmt::format(
        "{}:1: the first line must be of type \"run\"{}", file.string(),
        record.torn.empty() ? ", but the file is empty" : ", but it is torn: " + record.torn)};
  }
  return record;
}

bool HasRecord(const std::string& dir) {
  std::ifstream in(fs::path(dir) / kResultsFile, std::ios::binary);
  std::string text;
  return std::getline(in, text) && HeaderFromJson(text, "").ok();
}

}  // namespace assay
