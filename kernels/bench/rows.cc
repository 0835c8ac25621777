#include "kernels/bench/rows.h"

#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>

#include "kernels/bench/peaks.h"
#include "kernels/bench/pool.h"
#include "kernels/bench/read.h"
#include "kernels/bench/workload.h"

namespace assay::kernels::bench {
namespace {

struct Case {
  const LinearKernel* row;
  Shape shape;
  int64_t m;
  int threads;
};

using Match = bool (*)(std::string_view text, const std::string& wish);
bool StartsWith(std::string_view text, const std::string& wish) { return text.starts_with(wish); }
bool Contains(std::string_view text, const std::string& wish) {
  return text.find(wish) != std::string_view::npos;
}

bool Any(const std::vector<std::string>& wishes, std::string_view text, Match match) {
  const auto matches = [&](const std::string& wish) { return match(text, wish); };
  return wishes.empty() || std::any_of(wishes.begin(), wishes.end(), matches);
}

bool Selected(const BenchOptions& options, const LinearKernel& row) {
  return Any(options.kernels, row.name, Contains) && Any(options.methods, row.method, StartsWith) &&
         Any(options.acts, row.act, StartsWith) &&
         Any(options.tiers, NameOf(row.tier), StartsWith) &&
         Any(options.hows, NameOf(row.how), StartsWith);
}

bool CanRun(const LinearKernel& row) { return row.how == How::kPortable || HostHas(row.tier); }

int Cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// Prints nothing: what is kept is the best pass.
class Silent : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*runs*/) override {}
};

// Seconds of the best pass, as the machine's own figures are the best pass of many: others may use
// the machine, and what they take away is not the kernel's.
double SecondsOfAPass(const Case& c, Workload& work, double least_seconds) {
  Pool pool(c.threads);
  double best = std::numeric_limits<double>::infinity();
  const auto run = [&](benchmark::State& state) {
    for (auto _ : state) {
      const auto start = std::chrono::steady_clock::now();
      work.Pass(pool, c.threads);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
  };
  benchmark::RegisterBenchmark(std::string(c.row->name).c_str(), run)
      ->UseRealTime()
      ->MinTime(least_seconds);
  Silent silent;
  benchmark::RunSpecifiedBenchmarks(&silent, nullptr, ".*");
  benchmark::ClearRegisteredBenchmarks();
  return best;
}

BenchRow Measure(const Case& c, const BenchOptions& options) {
  Workload work(*c.row, c.shape, c.m, options.working_set);
  const double seconds = SecondsOfAPass(c, work, options.seconds);
  BenchRow row;
  row.kernel = c.row->name;
  row.op = NameOf(OpKind::kLinear);
  row.method = c.row->method;
  row.act = c.row->act;
  row.tier = NameOf(c.row->tier);
  row.how = NameOf(c.row->how);
  row.threads = c.threads;
  row.m = c.m;
  row.n = c.shape.n;
  row.k = c.shape.k;
  row.gb_s = 1e-9 * static_cast<double>(work.bytes()) / seconds;
  row.gflops = 2e-9 * static_cast<double>(c.m * c.shape.n * c.shape.k) / seconds;
  return row;
}

// Why a row cannot take a size; empty if it can. Methods with groups come in whole groups of 32.
std::string WhyNot(const LinearKernel& row, Shape shape, int64_t m) {
  constexpr int64_t kGroup = 32, kMostBytes = int64_t{1} << 32;
  const std::string size = std::to_string(shape.n) + "x" + std::to_string(shape.k);
  if (row.method != "bf16" && shape.k % kGroup != 0) {
    return size + ": K is no multiple of " + std::to_string(kGroup);
  }
  // What decodes to more as floats, or has as large activations and results, is a slip.
  int64_t weights = 0, inputs = 0, outputs = 0;
  const bool huge = __builtin_mul_overflow(shape.n, shape.k, &weights) ||
                    __builtin_mul_overflow(m, shape.k, &inputs) ||
                    __builtin_mul_overflow(m, shape.n, &outputs);
  const int64_t most = kMostBytes / static_cast<int64_t>(sizeof(float));
  if (huge || weights > most || inputs > most || outputs > most) {
    return size + " at m = " + std::to_string(m) + ": more than 4 GiB as floats";
  }
  return "";
}

std::vector<Case> CasesOf(const BenchOptions& options, BenchReport* report) {
  const std::vector<int> threads =
      options.threads.empty() ? std::vector<int>{report->cores} : options.threads;
  std::vector<Case> cases;
  for (const LinearKernel& row : LinearKernels()) {
    if (!Selected(options, row)) continue;
    if (!CanRun(row)) {
      report->skipped.push_back(std::string(row.name) + ": this host has no " +
                                std::string(NameOf(row.tier)));
      continue;
    }
    for (const Shape shape : options.shapes) {
      for (const int64_t m : options.m) {
        if (const std::string why = WhyNot(row, shape, m); !why.empty()) {
          report->skipped.push_back(std::string(row.name) + ": " + why);
          continue;
        }
        for (const int count : threads) cases.push_back({&row, shape, m, count});
      }
    }
  }
  return cases;
}

void MeasurePeaks(int threads, int64_t working_set, Peaks* peaks) {
  peaks->read_gb_s = std::max(peaks->read_gb_s, MeasureRead(threads, working_set));
  peaks->fma_gflops = std::max(peaks->fma_gflops, MeasureFma(threads));
  peaks->int8_gflops = std::max(peaks->int8_gflops, MeasureInt8(threads));
}

}  // namespace

BenchReport RunBench(const BenchOptions& options) {
  BenchReport report;
  report.cpu = CpuName();
  report.cores = Cores();
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    if (HostHas(tier)) report.tiers.emplace_back(NameOf(tier));
  }
  const std::vector<Case> cases = CasesOf(options, &report);
  for (const Case& c : cases) report.peaks[c.threads];
  // Before and after the rows: the machine may have been slower at one of these times.
  for (auto& [threads, peaks] : report.peaks) MeasurePeaks(threads, options.working_set, &peaks);
  int index = 0;
  for (const Case& c : cases) {
    if (options.progress) {
      options.progress(std::string(c.row->name) + " m=" + std::to_string(c.m), index,
                       static_cast<int>(cases.size()));
    }
    report.rows.push_back(Measure(c, options));
    ++index;
  }
  for (auto& [threads, peaks] : report.peaks) MeasurePeaks(threads, options.working_set, &peaks);
  for (BenchRow& row : report.rows) {
    const Peaks& peaks = report.peaks.at(row.threads);
    row.fraction_of_bandwidth = row.gb_s / peaks.read_gb_s;
    // FP8 activations are multiplied as fp32.
    const bool floats = row.act == "a16" || row.act == "amxfp8";
    row.fraction_of_peak = row.gflops / (floats ? peaks.fma_gflops : peaks.int8_gflops);
  }
  return report;
}

}  // namespace assay::kernels::bench
