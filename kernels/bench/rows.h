// Kernels at speed, as a library: every row of the registry timed at real sizes, next to what this
// machine can do, measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/registry.h"

namespace assay::kernels::bench {

struct Shape {
  int64_t n = 0, k = 0;
};

struct BenchOptions {
  // Which rows: all keys must match. An empty list matches everything. `tiers` and `methods` match
  // by prefix ("gguf"), `kernels` by substring, `acts` and `hows` ("hardware", "emulated") by
  // prefix.
  std::vector<std::string> kernels, methods, acts, tiers, hows;
  std::vector<int64_t> m = {1, 32};
  std::vector<Shape> shapes = {{2048, 7168}};  // an expert's gate of Kimi-K2
  std::vector<int> threads;                    // empty: all cores
  double seconds = 0.2;                        // least time that a row is repeated for
  // Bytes of weights that a row goes through, and of the read loop: more than any cache holds, so
  // that every pass comes from memory.
  int64_t working_set = int64_t{256} << 20;
  // Called before a row is measured, with its number and how many there are.
  std::function<void(const std::string& what, int index, int count)> progress;
};

struct BenchRow {
  std::string kernel, op, method, act, tier, how;
  int threads = 0;
  int64_t m = 0, n = 0, k = 0;
  double gb_s = 0;  // 1e9 bytes of weights (codes and scales, as the layout holds them) a second
  double fraction_of_bandwidth = 0;  // of Machine::read_gb_s on as many threads
  double gflops = 0;                 // 2·m·n·k a call
  // Of the machine's peak on as many threads: "int8" for 8-bit activations, else "fma".
  double fraction_of_peak = 0;
};

// What the host can do on `threads` threads, by plain loops of its own; of several tiers the best.
struct Peaks {
  double read_gb_s = 0;
  double fma_gflops = 0;   // fp32 fused multiply-adds, two operations each
  double int8_gflops = 0;  // 8-bit products into 32 bits, two operations each
};

struct BenchReport {
  std::string cpu;                 // model name, "unknown" where the system does not say
  std::vector<std::string> tiers;  // what the host has
  int cores = 0;                   // that this process may use
  std::map<int, Peaks> peaks;      // by number of threads
  std::vector<BenchRow> rows;
  std::vector<std::string> skipped;  // rows that this host cannot run, with the reason
};

// Measures what `options` select, in the registry's order. Nothing selected: rows is empty, and
// nothing is measured.
BenchReport RunBench(const BenchOptions& options);

}  // namespace assay::kernels::bench
