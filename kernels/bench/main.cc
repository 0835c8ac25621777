// The benchmarks as a program of their own: `bench [key=value…]`, keys kernel, method, act, tier,
// how, m, threads, n, k, ms (least time of a row); values separated by commas.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "kernels/bench/rows.h"

namespace assay::kernels::bench {
namespace {

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Whole numbers from 1 on; exits with a line otherwise.
int64_t Number(const std::string& key, const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != 0 || value < 1 || value > 1 << 20) {
    std::fprintf(stderr, "bench: %s=%s is not a number from 1 to 1048576\n", key.c_str(),
                 text.c_str());
    std::exit(2);
  }
  return value;
}

bool Set(const std::string& key, const std::string& value, BenchOptions* options) {
  const std::map<std::string, std::vector<std::string>*> lists = {{"kernel", &options->kernels},
                                                                  {"method", &options->methods},
                                                                  {"act", &options->acts},
                                                                  {"tier", &options->tiers},
                                                                  {"how", &options->hows}};
  const auto list = lists.find(key);
  if (list != lists.end()) {
    *list->second = Split(value);
    return true;
  }
  if (key == "n") {
    options->shapes[0].n = Number(key, value);
  } else if (key == "k") {
    options->shapes[0].k = Number(key, value) / 32 * 32;
  } else if (key == "ms") {
    options->seconds = 1e-3 * static_cast<double>(Number(key, value));
  } else if (key == "m") {
    options->m.clear();
    for (const std::string& part : Split(value)) options->m.push_back(Number(key, part));
  } else if (key == "threads") {
    for (const std::string& part : Split(value)) {
      options->threads.push_back(static_cast<int>(Number(key, part)));
    }
  } else {
    return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = arg.find('=');
    if (equals == std::string::npos ||
        !Set(arg.substr(0, equals), arg.substr(equals + 1), &options)) {
      std::fprintf(stderr,
                   "bench: %s; allowed are kernel= method= act= tier= how= m= n= k= threads= ms=\n",
                   arg.c_str());
      return 2;
    }
  }
  const BenchReport report = RunBench(options);
  if (report.rows.empty()) {
    std::fprintf(stderr, "bench: nothing that this host can run was selected\n");
    return 125;
  }
  for (const auto& [threads, peaks] : report.peaks) {
    std::printf("%d threads: read %.1f GB/s, fma %.0f GFLOP/s, int8 %.0f GOP/s\n", threads,
                peaks.read_gb_s, peaks.fma_gflops, peaks.int8_gflops);
  }
  for (const BenchRow& row : report.rows) {
    std::printf("%-44s %-32s m=%-3lld t=%d %8.2f GB/s %5.1f %%  %9.1f GFLOP/s %5.1f %%\n",
                row.kernel.c_str(), row.how.c_str(), static_cast<long long>(row.m), row.threads,
                row.gb_s, 100 * row.fraction_of_bandwidth, row.gflops, 100 * row.fraction_of_peak);
  }
  return 0;
}

}  // namespace
}  // namespace assay::kernels::bench

int main(int argc, char** argv) { return assay::kernels::bench::Main(argc, argv); }
