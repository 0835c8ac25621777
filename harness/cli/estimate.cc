#include "harness/cli/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/judge/floor.h"
#include "harness/run/chain.h"

namespace assay::cli {
namespace {

// Starting a child twice, transfer, judging's fixed part.
constexpr double kSecondsACell = 0.03;
// Multiply-adds a second of the oracle in double, which is the slowest of what a cell does;
// measured with SmolLM2 on two cores.
constexpr double kOracleRate = 2e9;
// The ops one by one with their bounds (two), and the chain for accumulated error.
constexpr int kOraclePasses = 3;
// A load cell compares each stored byte of each rank.
constexpr double kBytesASecond = 2e8;
// File, guarded copy, the engine's shards, what comes back.
constexpr int64_t kCopies = 4;
constexpr int64_t kBytesAWorker = int64_t{64} << 20;
constexpr double kLongSeconds = 3;
constexpr size_t kManyCells = 20;

struct ModelSize {
  double bytes = 0;
  double elements = 0;
  double layers = 1;
};

ModelSize SizeOf(const std::string& name, run::ModelStore* models) {
  ModelSize size;
  auto model = models->Get(name);
  if (!model) return size;
  for (const std::string& tensor : (*model)->checkpoint->Names()) {
    const TensorView* view = (*model)->checkpoint->Find(tensor);
    size.bytes += static_cast<double>(view->bytes.size());
  }
  // Four-bit weights have two elements in a byte, bf16 has half a one.
  const bool quantised = (*model)->method != "bf16";
  size.elements = size.bytes * (quantised ? 1.8 : 0.5);
  size.layers = static_cast<double>(std::max<int64_t>(1, (*model)->checkpoint->config().layers));
  return size;
}

double SecondsOf(const run::Problem& problem, const ModelSize& size) {
  if (problem.kind == "load") return kSecondsACell + size.bytes / kBytesASecond;
  // Models and layers have a noise floor, of as many chains more as its budget allows.
  const bool chains = problem.kind == "model" || problem.kind == "layer";
  if (!chains) return kSecondsACell + size.bytes / kBytesASecond / 4;
  auto tokens = run::ParseTokens(problem.Get("tokens"));
  const double count = tokens ? static_cast<double>(tokens->total()) : 33;
  const double macs = size.elements * count / (problem.kind == "layer" ? size.layers : 1);
  const int passes =
      kOraclePasses + judge::RunsWithin(static_cast<uint64_t>(macs), run::kFloorBudget);
  return kSecondsACell + passes * macs / kOracleRate;
}

}  // namespace

Estimate EstimateRun(const std::vector<run::Problem>& problems, int64_t jobs,
                     run::ModelStore* models) {
  std::map<std::string, ModelSize> sizes;
  Estimate estimate;
  double largest = 0, longest = 0;
  for (const run::Problem& problem : problems) {
    const std::string name = problem.Get("model");
    const auto [at, is_new] = sizes.try_emplace(name);
    if (is_new) at->second = SizeOf(name, models);
    const double seconds = SecondsOf(problem, at->second);
    estimate.seconds += seconds;
    longest = std::max(longest, seconds);
    largest = std::max(largest, at->second.bytes);
  }
  const int64_t workers = std::clamp<int64_t>(jobs, 1, std::max<int64_t>(1, problems.size()));
  estimate.seconds = std::max(longest, estimate.seconds / static_cast<double>(workers));
  estimate.bytes = workers * (kBytesAWorker + kCopies * static_cast<int64_t>(largest));
  return estimate;
}

std::string EstimateLine(const std::vector<run::Problem>& problems, int64_t jobs,
                         run::ModelStore* models) {
  if (problems.empty()) return "";
  const Estimate estimate = EstimateRun(problems, jobs, models);
  if (problems.size() < kManyCells && estimate.seconds < kLongSeconds) return "";
  const std::string time = estimate.seconds < 100
                               ? fmt::format("{:.0f} s", std::max(1.0, estimate.seconds))
                               : fmt::format("{:.0f} min", estimate.seconds / 60);
  return fmt::format("{} cells, about {} on {} workers, about {:.1f} GiB of memory",
                     problems.size(), time, jobs,
                     static_cast<double>(estimate.bytes) / double(1 << 30));
}

}  // namespace assay::cli
