// One slice of the matrix as a test: --row NAME --model NAME [--tier NAME]. Writes the JUnit report
// that Bazel reads ($XML_OUTPUT_FILE) and the results ($TEST_UNDECLARED_OUTPUTS_DIR) itself.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "harness/cli/options.h"
#include "harness/run/matrix.h"
#include "harness/run/pool.h"
#include "harness/store/results.h"
#include "reports/junit.h"

namespace assay::cli {
namespace {

// The named row, cut down to one model and one tier.
Result<run::MatrixRow> CutRow(const std::vector<run::MatrixRow>& rows, const std::string& name,
                              const std::string& model, const std::string& tier) {
  for (run::MatrixRow row : rows) {
    if (row.name != name) continue;
    for (auto& [key, values] : row.cross) {
      if (key == "model") values = {model};
      if (key == "tier" && !tier.empty()) values = {tier};
    }
    return row;
  }
  return Error{fmt::format("the matrix has no row {}", name)};
}

int WriteReport(const RunRecord& record) {
  if (const char* path = std::getenv("XML_OUTPUT_FILE")) {
    std::ofstream(path) << reports::RenderJUnit(record);
  }
  const Totals totals = record.Count();
  for (const CellResult& cell : record.cells) {
    if (cell.verdict == Verdict::kPass || cell.verdict == Verdict::kRefused) continue;
    std::puts(fmt::format("{} {}\n  {}", NameOf(cell.verdict), cell.repro, cell.reason).c_str());
  }
  std::puts(fmt::format("{} cells: {} pass, {} refused, {} fail, {} mistrusted, {} not executed, "
                        "{} infra",
                        totals.collected, totals.pass, totals.refused, totals.fail,
                        totals.mistrusted, totals.not_executed, totals.infra)
                .c_str());
  const bool red =
      totals.fail + totals.mistrusted + totals.infra > 0 || totals.collected != totals.registered;
  return red || totals.collected == 0 ? 1 : 0;
}

int Slice(int argc, char** argv) {
  std::string row_name, model, tier, matrix = "matrix/default.json";
  Options options("slice", "One row of the matrix, for one model and tier, as a test.",
                  "slice --row moe --model k2-mini --tier scalar");
  options.Value("--row", &row_name, "name of the row");
  options.Value("--model", &model, "one of the row's models");
  options.Value("--tier", &tier, "one of the row's tiers");
  options.Value("--matrix", &matrix, "the matrix file");
  if (auto code = options.Parse(argc, argv)) return *code;
  auto rows = run::ReadMatrix(matrix);
  if (!rows) return BadUsage(rows.error().message);
  auto row = CutRow(*rows, row_name, model, tier);
  if (!row) return BadUsage(row.error().message);
  run::ModelStore models;
  auto cells = run::ExpandMatrix({*row}, &models);
  if (!cells) return BadUsage(cells.error().message);
  std::vector<run::Problem> problems;
  for (const run::MatrixCell& cell : *cells) problems.push_back(cell.problem);
  RunRecord record;
  record.summary = Summary{};
  const auto collect = [&](size_t, const CellResult& cell) {
    record.cells.push_back(cell);
    return Ok();
  };
  if (auto status = run::RunPool(problems, &models, {}, collect); !status) {
    return BadUsage(status.error().message);
  }
  Totals totals = record.Count();
  totals.registered = static_cast<int64_t>(problems.size());
  record.summary->totals = totals;
  return WriteReport(record);
}

}  // namespace
}  // namespace assay::cli

int main(int argc, char** argv) { return assay::cli::Slice(argc, argv); }
