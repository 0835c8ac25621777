#include "kernels/bench/read.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "kernels/bench/pool.h"

namespace assay::kernels::bench {
namespace {

TEST(Pool, CallsEachIndexOnceAPassAndWaitsForAll) {
  for (const int threads : {1, 2, 3}) {
    Pool pool(threads);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(threads));
    for (int pass = 1; pass <= 50; ++pass) {
      pool.Run([&](int t) { ++calls[static_cast<size_t>(t)]; });
      for (const auto& count : calls) ASSERT_EQ(count, pass);
    }
  }
}

TEST(MeasureRead, GivesAFigureThatMemoryCanHave) {
  const double gb_s = MeasureRead(1, int64_t{64} << 20);
  EXPECT_GT(gb_s, 0.1);
  EXPECT_LT(gb_s, 10000);  // more: the compiler dropped the loads
}

}  // namespace
}  // namespace assay::kernels::bench
