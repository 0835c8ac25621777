// bench: kernels at speed, next to what this machine can do.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "harness/cli/bench_options.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/store/result.h"

namespace assay::cli {

int Bench(int argc, char** argv) {
  std::vector<std::string> words;
  bool json = false;
  int64_t threads = 0;
  Options options(
      "bench",
      "Times each kernel of the registry at real sizes, as GB/s of weights and GFLOP/s, "
      "each with its share of what this machine did in the same run. Kernels of a tier "
      "that is not here run as portable intrinsics, marked so.",
      "./assay bench method=ct-int4-g32 m=1 --threads 1");
  options.Words("filters", &words,
                "kernel=, method=, act=, tier=, how=, m=1,32, shape=2048x7168; many are and-ed");
  options.Flag("--json", &json, "print JSON");
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  options.Number("--threads", &threads, 0, cores, "0: all cores");
  if (auto code = options.Parse(argc, argv)) return *code;
  auto bench = ParseBench(words);
  if (!bench) return BadUsage(bench.error().message);
  if (threads > 0) bench->threads = {static_cast<int>(threads)};
  const bool live = isatty(STDERR_FILENO) != 0;
  bench->progress = [live](const std::string& what, int index, int count) {
    if (live) std::fprintf(stderr, "\r\x1b[K%d/%d %s", index, count, what.c_str());
  };
  const kernels::bench::BenchReport report = kernels::bench::RunBench(*bench);
  if (live) std::fputs("\r\x1b[K", stderr);
  if (report.rows.empty() && report.skipped.empty()) {
    std::string all;
    for (const std::string& word : words) all += " " + word;
    return BadUsage(fmt::format("bench{}: no kernel is so; ./assay bench lists all", all));
  }
  std::puts(json ? BenchJson(report).c_str() : BenchTable(report).c_str());
  return report.rows.empty() ? kExitNothingExecuted : 0;
}

}  // namespace assay::cli
