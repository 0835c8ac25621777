#include <fstream>

#include "harness/abi/contract.h"
#include "harness/abi/describe.h"
#include "harness/run/problem.h"
#include "harness/store/results.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

void RequireTheSame(const std::string& first, const std::string& again) {
  if (first != again) Broken("does not come back", first + " | " + again);
}

// A line that reads is written so that it reads again as the same.
void RequireRoundTrip(const Line& line) {
  if (const auto* cell = std::get_if<CellResult>(&line)) {
    const std::string text = ToJson(*cell);
    auto again = CellFromJson(text, "again");
    if (!again) Broken("a cell that was written does not read", again.error().message);
    RequireTheSame(text, ToJson(*again));
  } else if (const auto* header = std::get_if<RunHeader>(&line)) {
    const std::string text = ToJson(*header);
    auto again = HeaderFromJson(text, "again");
    if (!again) Broken("a header that was written does not read", again.error().message);
    RequireTheSame(text, ToJson(*again));
  }
}

}  // namespace

int FuzzProblem(const uint8_t* data, size_t size) {
  auto problem = run::ParseProblem(Text(data, size));
  if (!problem) {
    RequireOneLine(problem.error());
    return 0;
  }
  for (const std::string& text : {run::PrintCanonical(*problem), run::PrintMinimal(*problem)}) {
    auto again = run::ParseProblem(text);
    if (!again) Broken("a problem that was printed does not read", again.error().message);
    RequireTheSame(run::PrintCanonical(*problem), run::PrintCanonical(*again));
  }
  return 0;
}

int FuzzResults(const uint8_t* data, size_t size) {
  const std::string path = FileOf("results.jsonl", data, size);
  auto record = ReadResults(path);
  if (!record) {
    RequireOneLine(record.error());
  } else {
    RequireRoundTrip(Line(record->header));
    for (const CellResult& cell : record->cells) RequireRoundTrip(Line(cell));
    (void)FlattenJson(record->header.machine_json);
    // What was read can be gone on with.
    const std::string folder = path.substr(0, path.rfind('/'));
    RunRecord resumed;
    auto writer = ResultsWriter::Resume(folder, &resumed);
    if (!writer) Broken("a record that reads cannot be resumed", writer.error().message);
    auto again = ReadResults(path);
    if (!again) Broken("a resumed record does not read", again.error().message);
    if (again->cells.size() != record->cells.size()) Broken("resuming lost a cell", path);
    return 0;
  }
  auto line = LineFromJson(Text(data, size), "line");
  if (line) {
    RequireRoundTrip(*line);
  } else {
    RequireOneLine(line.error());
  }
  return 0;
}

int FuzzDescribe(const uint8_t* data, size_t size) {
  auto facts = abi::ParseDescribe(Text(data, size));
  if (!facts) RequireOneLine(facts.error());
  auto contract = ParseContract(Text(data, size));
  if (!contract) RequireOneLine(contract.error());
  return 0;
}

}  // namespace assay::fuzz
