// What a run will take, said before a long one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/run/model.h"
#include "harness/run/problem.h"

namespace assay::cli {

struct Estimate {
  double seconds = 0;  // of wall time on `jobs` workers
  int64_t bytes = 0;   // of memory, all workers together
};

// From the cells' sizes alone: the parameters that a cell touches, its tokens and how many passes
// are made over them. The rates are this host's order of magnitude, not a promise.
Estimate EstimateRun(const std::vector<run::Problem>& problems, int64_t jobs,
                     run::ModelStore* models);

// "612 cells, about 40 s on 2 workers, about 0.3 GiB"; empty for a run of some seconds.
std::string EstimateLine(const std::vector<run::Problem>& problems, int64_t jobs,
                         run::ModelStore* models);

}  // namespace assay::cli
