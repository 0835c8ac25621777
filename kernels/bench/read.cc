#include "kernels/bench/read.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/bench/pool.h"

namespace assay::kernels::bench {
namespace {

constexpr int64_t kLine = 64;

typedef uint64_t Vector __attribute__((vector_size(16)));

// Reads [p, p + bytes) but for a rest, four lines at a time. The result keeps the compiler from
// dropping the loads.
uint64_t Read(const std::byte* p, int64_t bytes, int64_t ahead) {
  constexpr int64_t kStep = 4 * kLine;
  Vector sum[4] = {};
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
#pragma GCC unroll 4
    for (int64_t line = 0; line < kStep; line += kLine) {
      if (ahead > 0) __builtin_prefetch(p + i + line + ahead);
      const auto* vectors = reinterpret_cast<const Vector*>(p + i + line);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[v] |= vectors[v];
    }
  }
  const Vector all = sum[0] | sum[1] | sum[2] | sum[3];
  return all[0] | all[1];
}

}  // namespace

double MeasureRead(int threads, int64_t bytes) {
  // A pass is as short as a kernel's, so that both find a moment in which nobody disturbs them; a
  // pass takes the next part of the memory, so that none comes from a cache.
  constexpr int64_t kPassBytes = int64_t{16} << 20;
  constexpr int64_t kPasses = 400;
  std::vector<Vector> memory(static_cast<size_t>(bytes) / sizeof(Vector), Vector{1, 2});
  std::vector<uint64_t> results(static_cast<size_t>(threads) * 8);  // a cache line each
  const auto* begin = reinterpret_cast<const std::byte*>(memory.data());
  const int64_t part = std::min(bytes, kPassBytes), parts = bytes / part;
  const int64_t share = part / threads / kLine * kLine;
  Pool pool(threads);
  double best = 0;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    constexpr int64_t kAhead[] = {0, 1024, 2048, 4096, 8192};
    const int64_t ahead = kAhead[pass / 5 % 5];
    const std::byte* at = begin + pass % parts * part;
    const auto start = std::chrono::steady_clock::now();
    pool.Run(
        [&](int t) { results[static_cast<size_t>(t) * 8] = Read(at + t * share, share, ahead); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 1e-9 * static_cast<double>(share * threads) / took.count());
  }
  return best;
}

}  // namespace assay::kernels::bench
