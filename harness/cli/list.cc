// list: the cells of the matrix, and kernels without cells.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "harness/cli/options.h"
#include "harness/cli/selection.h"
#include "harness/cli/verbs.h"

namespace assay::cli {

int List(int argc, char** argv) {
  std::vector<std::string> words;
  std::string matrix;
  bool coverage = false, blind = false;
  Options options("list", "The cells that a selection takes, one problem string a line.",
                  "./assay list method=ct-int4-g32 tp=2,4");
  options.Words("filters", &words, "key=value[,value]; many are and-ed");
  options.Value("--matrix", &matrix, "a matrix file instead of matrix/default.json");
  options.Flag("--coverage", &coverage, "cells per kernel; kernels without cells: exit 1");
  options.Flag("--blind", &blind, "faults that the selection cannot see (not built yet)");
  if (auto code = options.Parse(argc, argv)) return *code;
  if (blind) return BadUsage("list --blind is not built yet");
  run::ModelStore models;
  auto selection = Select(words, matrix, "", &models);
  if (!selection) return BadUsage(selection.error().message);
  if (!coverage) {
    for (const run::Problem& problem : selection->problems) {
      std::puts(run::PrintMinimal(problem).c_str());
    }
    return 0;
  }
  std::map<std::string, int64_t> per_kernel;
  for (const run::MatrixCell& cell : selection->cells) {
    const std::string kernel = cell.problem.Get("kernel");
    ++per_kernel[kernel.empty() ? "(the engine's own choice)" : kernel];
  }
  for (const auto& [kernel, count] : per_kernel) {
    std::puts(fmt::format("{:>6}  {}", count, kernel).c_str());
  }
  const std::vector<std::string> without = run::KernelsWithoutCells(selection->cells);
  for (const std::string& kernel : without) std::puts(fmt::format("{:>6}  {}", 0, kernel).c_str());
  return without.empty() ? 0 : 1;
}

}  // namespace assay::cli
