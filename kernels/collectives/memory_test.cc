// Where memory runs out: an exception in the caller, never the end of the process.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "kernels/collectives/collectives.h"

namespace {
// Allocations of any thread while armed; the one with the number `refused` fails.
std::atomic<bool> armed = false;
std::atomic<int> calls = 0, elsewhere = 0, refused = 0;
thread_local bool is_caller = false;

bool Refuses() {
  if (!armed) return false;
  if (!is_caller) ++elsewhere;
  return ++calls == refused;
}
void Arm(int refuse) {
  calls = elsewhere = 0;
  refused = refuse;
  is_caller = armed = true;
}
}  // namespace

// Not inlined: GCC 12 would take new and free for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = Refuses() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace assay::kernels {
namespace {

constexpr int kRanks = 4, kCount = 50;

// false: the allocation with that number was refused, and the caller was told.
bool Sums(const Reduction& reduction, Executor executor, int refuse) {
  std::vector<std::vector<float>> parts(kRanks, std::vector<float>(kCount, 1));
  std::vector<const float*> in;
  std::vector<float*> out;
  for (auto& part : parts) {
    in.push_back(part.data());
    out.push_back(part.data());
  }
  Arm(refuse);
  try {
    AllReduce(reduction, in, kCount, out, executor);
  } catch (const std::bad_alloc&) {
    armed = false;
    return false;
  }
  armed = false;
  for (const auto& part : parts) EXPECT_EQ(part, std::vector<float>(kCount, kRanks));
  return true;
}

TEST(Memory, EveryAllocationMayFail) {
  for (const Reduction& reduction : Reductions()) {
    for (Executor executor : {Executor::kThreads, Executor::kOne}) {
      ASSERT_TRUE(Sums(reduction, executor, 0));
      const int all = calls;
      EXPECT_EQ(elsewhere, 0) << "allocated in a rank's thread";
      int told = 0;
      for (int refuse = 1; refuse <= all; ++refuse) told += !Sums(reduction, executor, refuse);
      // Each mailbox's room at least; a refused thread is done without.
      EXPECT_GE(told, 2 * (kRanks - 1));
    }
  }
}

// Control: an allocation in a thread is seen as one.
TEST(Memory, AllocationsInThreadsAreCounted) {
  Arm(0);
  std::thread([] {
    std::vector<int>(100)[0] = 1;
    ::operator delete(::operator new(1));
  }).join();
  armed = false;
  EXPECT_GE(elsewhere, 1);
}

}  // namespace
}  // namespace assay::kernels
