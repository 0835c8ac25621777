// The message passing under the thread sanitizer: this file and the room's sources are compiled
// with it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/collectives/collectives.h"

namespace assay::kernels {
namespace {

TEST(Race, RanksShareNothingButMessages) {
  for (const Reduction& reduction : Reductions()) {
    for (int ranks : {2, 3, 4, 8}) {
      for (int64_t count : {1, 5, 300}) {
        std::vector<std::vector<float>> parts(static_cast<size_t>(ranks));
        std::vector<const float*> in;
        std::vector<float*> out;
        for (size_t r = 0; r < parts.size(); ++r) {
          parts[r].assign(static_cast<size_t>(count), 1.0f + static_cast<float>(r));
          in.push_back(parts[r].data());
          out.push_back(parts[r].data());
        }
        AllReduce(reduction, in, count, out, Executor::kThreads);
        const float sum = static_cast<float>(ranks * (ranks + 1)) / 2;
        for (const auto& part : parts) EXPECT_EQ(part.back(), sum);
        ReduceScatter(reduction, in, count, out, Executor::kThreads);
        EXPECT_EQ(parts[0][0], sum * static_cast<float>(ranks));
      }
    }
  }
}

// Control: the sanitizer is there, and sees ranks that do not wait for each other.
TEST(RaceDeathTest, SharedMemoryWithoutMessagesIsSeen) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::vector<float> values(64, 1.0f);
        const auto rank = [&] {
          for (float& value : values) value += 1.0f;
        };
        std::thread other(rank);
        rank();
        other.join();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

}  // namespace
}  // namespace assay::kernels
