// Every linear kernel of the registry at real sizes (Kimi-K2's experts: 7168 × 2048 and back), next
// to the read bandwidth measured in the same run on as many threads. The counters of a row:
//   GB/s       bytes of weights (codes and scales) a second
//   read GB/s  what a plain read loop reached
//   ratio      the one over the other: 1 is a kernel that only waits for memory
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernels/bench/pool.h"
#include "kernels/bench/read.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"
#include "kernels/registry.h"

namespace assay::kernels::bench {
namespace {

// More than any last-level cache that a core of these machines sees: every pass comes from memory.
constexpr int64_t kWorkingSet = int64_t{512} << 20;

struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{2048, 7168}, {7168, 2048}};

double ReadBandwidth(int threads) {
  static std::map<int, double> known;
  const auto found = known.find(threads);
  if (found != known.end()) return found->second;
  return known[threads] = MeasureRead(threads, kWorkingSet);
}

// Weights of one kernel, as many copies as fill the working set, in the kernel's layout. Any bits
// will do as long as they are finite: codes of any value, scales and bf16 weights near one.
class Copies {
 public:
  Copies(const LinearKernel& row, Shape shape) : row_(row), shape_(shape) {
    const Method& method = *FindMethod(row.method);
    group_ = method.group.count();
    const StoredShape weight{method.weight_dtype, shape.n,
                             shape.k / method.packing.elements.count()};
    codes_ = FindLayout(row.layout, row.method, "weight")->bytes(weight);
    if (group_ > 0) {
      const StoredShape scale{method.scale_dtype, shape.n, shape.k / group_};
      scales_ = FindLayout(row.layout, row.method, "scale")->bytes(scale);
    }
    count_ = std::max<int64_t>(1, kWorkingSet / bytes());
    memory_.resize(static_cast<size_t>(count_ * bytes()) / sizeof(uint16_t));
    for (size_t i = 0; i < memory_.size(); ++i) {
      memory_[i] = static_cast<uint16_t>(0x3F00 + (i * 2654435761u >> 25));
    }
  }
  int64_t bytes() const { return codes_ + scales_; }
  WeightView View(int64_t pass) const {
    const auto* copy = reinterpret_cast<const std::byte*>(memory_.data()) + pass % count_ * bytes();
    return {row_.layout, shape_.n, shape_.k, copy, group_ > 0 ? copy + codes_ : nullptr, group_};
  }

 private:
  const LinearKernel& row_;
  Shape shape_;
  int64_t group_ = 0, codes_ = 0, scales_ = 0, count_ = 0;
  std::vector<uint16_t> memory_;
};

void Run(benchmark::State& state, const LinearKernel& row, Shape shape, int64_t m, int threads) {
  if (!HostHas(row.tier)) {
    state.SkipWithError("this host does not have the tier");
    return;
  }
  const Copies weights(row, shape);
  const std::vector<uint16_t> x(static_cast<size_t>(m * shape.k), 0x3F80);
  std::vector<float> y(static_cast<size_t>(m * shape.n));
  Pool pool(threads);
  // A thread's rows: multiples of row_tile, as the dispatcher splits.
  const int64_t tiles = (shape.n + row.row_tile - 1) / row.row_tile;
  const auto cut = [&](int64_t t) { return std::min(shape.n, tiles * t / threads * row.row_tile); };
  int64_t pass = 0;
  for (auto _ : state) {
    const WeightView view = weights.View(pass++);
    pool.Run([&](int t) { row.run(view, Activations{.bf16 = x.data()}, m, cut(t), cut(t + 1), y.data(), shape.n); });
    benchmark::ClobberMemory();
  }
  const double passes = static_cast<double>(state.iterations());
  const double gb = passes * static_cast<double>(weights.bytes()) * 1e-9;
  const double read = ReadBandwidth(threads);
  using benchmark::Counter;
  state.counters["GB/s"] = Counter(gb, Counter::kIsRate);
  state.counters["read GB/s"] = read;
  state.counters["ratio"] = Counter(gb / read, Counter::kIsRate);
  state.counters["GFLOP/s"] =
      Counter(2e-9 * passes * static_cast<double>(m * shape.n * shape.k), Counter::kIsRate);
}

void Register() {
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const LinearKernel& row : LinearKernels()) {
    for (const Shape shape : kShapes) {
      for (const int64_t m : {1, 32}) {
        for (const int threads : all == 1 ? std::vector<int>{1} : std::vector<int>{1, all}) {
          const std::string name = std::string(row.name) + "/n=" + std::to_string(shape.n) +
                                   "/k=" + std::to_string(shape.k) + "/m=" + std::to_string(m) +
                                   "/threads=" + std::to_string(threads);
          benchmark::RegisterBenchmark(
              name.c_str(),
              [&row, shape, m, threads](auto& state) { Run(state, row, shape, m, threads); })
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::kernels::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  assay::kernels::bench::Register();
  if (benchmark::RunSpecifiedBenchmarks() == 0) return 1;  // nothing measured is not a result
}
