#include "kernels/cpu/support.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace assay::kernels {
namespace {

struct Free {
  void operator()(float* p) const { std::free(p); }
};

constexpr int64_t kAlign = 64;

// How many tests have the layout's check off at this moment.
std::atomic<int> layout_checks_off{0};

// `group` is what the kernel wants, `given` what the weight has; k is a multiple of it.
void Check(const WeightView& w, const char* layout, int64_t group, int64_t given, int64_t row_tile,
           int64_t n_begin, int64_t n_end) {
  const bool rows = 0 <= n_begin && n_begin <= n_end && n_end <= w.n && n_begin % row_tile == 0;
  const bool columns = w.k >= 0 && (group == 0 || (given == group && w.k % group == 0));
  const bool lies = w.layout == layout || layout_checks_off.load(std::memory_order_relaxed) > 0;
  if (lies && rows && columns) return;
  std::fprintf(stderr,
               "kernels: a linear kernel for layout '%s', group %lld, row tile %lld was given "
               "layout '%.*s', group %lld, n %lld, k %lld, rows [%lld, %lld)\n",
               layout, static_cast<long long>(group), static_cast<long long>(row_tile),
               static_cast<int>(w.layout.size()), w.layout.data(), static_cast<long long>(w.group),
               static_cast<long long>(w.n), static_cast<long long>(w.k),
               static_cast<long long>(n_begin), static_cast<long long>(n_end));
  std::abort();
}

}  // namespace

float* Scratch(int64_t floats) {
  thread_local std::unique_ptr<float, Free> buffer;
  thread_local int64_t capacity = 0;
  if (floats > capacity || !buffer) {
    const int64_t bytes = (floats * int64_t{sizeof(float)} / kAlign + 1) * kAlign;
    buffer.reset();  // the old content is not kept: do not hold both
    buffer.reset(static_cast<float*>(std::aligned_alloc(kAlign, static_cast<size_t>(bytes))));
    if (!buffer) {
      std::fprintf(stderr, "kernels: no memory for a workspace of %lld bytes\n",
                   static_cast<long long>(bytes));
      std::abort();
    }
    capacity = floats;
  }
  return buffer.get();
}

void CheckLinear(const WeightView& w, const char* layout, int64_t group, int64_t row_tile,
                 int64_t n_begin, int64_t n_end) {
  Check(w, layout, group, w.group, row_tile, n_begin, n_end);
}

void CheckGateUp(const WeightView& w) {
  if (w.n % 2 == 0) return;
  std::fprintf(stderr, "kernels: a linear kernel for gate and up was given n %lld, which is odd\n",
               static_cast<long long>(w.n));
  std::abort();
}

// Declared where tests alone can see it: testing/layout_check.h.
void SwitchLayoutChecksOff(bool off) { layout_checks_off += off ? 1 : -1; }

void CheckBlocks(const WeightView& w, const char* layout, int64_t block, int64_t row_tile,
                 int64_t n_begin, int64_t n_end) {
  Check(w, layout, block, block, row_tile, n_begin, n_end);
}

}  // namespace assay::kernels
