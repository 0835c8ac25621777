// The words after `bench` as what the kernel room's bench takes, and its answer as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "harness/units/status.h"
#include "kernels/bench/rows.h"

namespace assay::cli {

// key=value[,value]: kernel, method, act, tier, how, m, shape (2048x7168). Error: anything else.
Result<kernels::bench::BenchOptions> ParseBench(const std::vector<std::string>& words);

// Lines of at most 80 columns.
std::string BenchTable(const kernels::bench::BenchReport& report);
// interfaces.md §3, and the peaks of each number of threads.
std::string BenchJson(const kernels::bench::BenchReport& report);

}  // namespace assay::cli
