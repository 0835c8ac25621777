#include "kernels/bench/peaks.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/bench/peak_loops.h"
#include "kernels/bench/pool.h"

namespace assay::kernels::bench {
namespace {

// The scalar tier: plain C++, without any tier's flags.
int64_t FmaScalar(float* sink) {
  constexpr int kChains = 16;
  float acc[kChains];
  for (int c = 0; c < kChains; ++c) acc[c] = static_cast<float>(c);
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    for (int c = 0; c < kChains; ++c) acc[c] = acc[c] * 0.999F + 0.001F;
  }
  *sink = 0;
  for (int c = 0; c < kChains; ++c) *sink += acc[c];
  return kPeakSteps * kChains * 2;
}

int64_t Int8Scalar(float* sink) {
  constexpr int kChains = 16;
  int32_t acc[kChains] = {};
  int8_t x = 3;
  for (int64_t i = 0; i < kPeakSteps; ++i) {
    __asm__ volatile("" : "+r"(x));
    for (int c = 0; c < kChains; ++c) acc[c] += static_cast<int8_t>(c) * x;
  }
  *sink = 0;
  for (int c = 0; c < kChains; ++c) *sink += static_cast<float>(acc[c]);
  return kPeakSteps * kChains * 2;
}

double Measure(PeakFn (*loop_of)(Tier), int threads) {
  constexpr int kPasses = 20;  // the best of them: others may use the machine
  constexpr int kFloats = 16;
  std::vector<float> sinks(static_cast<size_t>(threads) * kFloats);
  std::vector<int64_t> done(static_cast<size_t>(threads));
  Pool pool(threads);
  double best = 0;
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    const PeakFn loop = loop_of(tier);
    if (loop == nullptr || !HostHas(tier)) continue;
    for (int pass = 0; pass < kPasses; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      pool.Run([&](int t) {
        done[static_cast<size_t>(t)] = loop(sinks.data() + static_cast<size_t>(t) * kFloats);
      });
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::max(best, 1e-9 * static_cast<double>(done[0] * threads) / took.count());
    }
  }
  return best;
}

}  // namespace

PeakFn FmaLoop(Tier tier) {
  switch (tier) {
    case Tier::kScalar:
      return FmaScalar;
    case Tier::kAvx2:
      return FmaAvx2;
    case Tier::kAvx512:
      return FmaAvx512;
  }
  return nullptr;
}

PeakFn Int8Loop(Tier tier) {
  switch (tier) {
    case Tier::kScalar:
      return Int8Scalar;
    case Tier::kAvx2:
      return Int8Avx2;
    case Tier::kAvx512:
      return Int8Avx512;
  }
  return nullptr;
}

double MeasureFma(int threads) { return Measure(FmaLoop, threads); }
double MeasureInt8(int threads) { return Measure(Int8Loop, threads); }

}  // namespace assay::kernels::bench
