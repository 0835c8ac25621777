// Each fault of a kernel or a collective changes what it says, where it says, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/faults/faults.h"
#include "kernels/faults/test_pair.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using native::Driver;
using native::Wishes;

TEST(Faults, K21DropsTheTailOfTheExpertsDownInOneTier) {
  if (!HostHas(Tier::kAvx2)) {
    Driver driver(FaultyEngine("K21/tail8"));
    Wishes wishes;
    wishes.tier = "avx2";
    EXPECT_EQ(driver.Open(native::OpenCheckpoint(kInt4)->config_json(), wishes), ASSAY_UNSUPPORTED);
    return;
  }
  Pair pair("K21/tail8", {.path = kInt4, .tp = 4, .tier = "avx2"});
  const auto taps = pair.DifferingTaps();
  EXPECT_EQ(ExpertTaps(taps, ".gate").size() + ExpertTaps(taps, ".up@").size() +
                ExpertTaps(taps, ".act").size(),
            0u);
  // Every rank of every routed expert.
  std::set<std::string> all;
  for (const auto& [key, tap] : pair.clean.taps) {
    if (key.first.starts_with("L1.moe.e") && key.first.ends_with(".down")) {
      all.insert(key.first + "@" + std::to_string(key.second));
    }
  }
  EXPECT_EQ(ExpertTaps(taps, ".down"), all);
  EXPECT_FALSE(Any(taps, "shared.down@0"));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());

  Pair scalar("K21/tail8", {.path = kInt4, .tp = 4, .tier = "scalar"});
  EXPECT_TRUE(scalar.DifferingTaps().empty());
  EXPECT_FALSE(scalar.LogitsDiffer());
}

TEST(Faults, K41LeavesOnePartialOut) {
  Pair pair("K41/missing", {.path = kInt4, .tp = 4});
  const auto taps = pair.DifferingTaps();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(Any(taps, "L1.moe.out@" + std::to_string(rank)));
    EXPECT_FALSE(Any(taps, "L1.moe.partial@" + std::to_string(rank)));
    EXPECT_FALSE(Any(taps, "L1.shared.out@" + std::to_string(rank)));
  }
  // The collective alone, through the ABI's own call.
  std::vector<native::In> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.push_back({"L1.moe.partial", {1, 2}, {1.0f * (1 << rank), 16}, {}, rank});
  }
  std::vector<float> sum;
  ASSERT_EQ(pair.clean.Reduce("L1.moe.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{15, 64}));
  ASSERT_EQ(pair.faulty.Reduce("L1.moe.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{13, 48}));
  ASSERT_EQ(pair.faulty.Reduce("L1.shared.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{15, 64}));
}

TEST(Faults, K23RepeatsTheRowBeforeATilesLast) {
  Pair pair("K23/lastrow", {});
  const auto taps = pair.DifferingTaps();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(pair.DifferingRows("L1.shared.down", rank), (std::set<int64_t>{3}));
    const auto rows = pair.faulty.taps[{"L1.shared.down", rank}];
    const size_t row = rows.bytes.size() / 5;
    EXPECT_EQ(std::memcmp(rows.bytes.data() + 2 * row, rows.bytes.data() + 3 * row, row), 0);
  }
  EXPECT_TRUE(ExpertTaps(taps, "").empty());
  EXPECT_FALSE(Any(taps, "L1.shared.act@0"));
  for (const std::vector<int32_t>& tokens : {std::vector<int32_t>{256}, {256, 102, 111}}) {
    Pair few("K23/lastrow", {.tokens = tokens});
    EXPECT_TRUE(few.DifferingTaps().empty());
    EXPECT_FALSE(few.LogitsDiffer());
  }
}

TEST(Faults, K29CutsTheExpertsActivationOff) {
  Pair pair("K29/truncate", {});
  const auto taps = pair.DifferingTaps();
  EXPECT_EQ(ExpertTaps(taps, ".act@"), AllExpertTaps(pair.clean, ".act"));
  EXPECT_TRUE(ExpertTaps(taps, ".gate@").empty());
  EXPECT_FALSE(Any(taps, "L1.shared.act@0"));
  // Half of the values, by one place towards zero.
  int64_t same = 0, other = 0;
  for (const auto& [key, tap] : pair.clean.taps) {
    if (!key.first.starts_with("L1.moe.e") || !key.first.ends_with(".act")) continue;
    const auto right = tap.Values(), cut = pair.faulty.taps[key].Values();
    for (size_t i = 0; i < right.size(); ++i) {
      if (right[i] == cut[i]) {
        ++same;
        continue;
      }
      ++other;
      EXPECT_LT(std::fabs(cut[i]), std::fabs(right[i]));
      EXPECT_LE(std::fabs(right[i]) - std::fabs(cut[i]), std::fabs(right[i]) * 0x1p-7);
    }
  }
  EXPECT_GT(same, 1000);
  EXPECT_GT(other, 1000);
}

TEST(Faults, K40DropsTheClamp) {
  Pair pair("K40/none", {.options = "limit=0.5"});
  const auto taps = pair.DifferingTaps();
  EXPECT_FALSE(ExpertTaps(taps, ".act@").empty());
  EXPECT_TRUE(ExpertTaps(taps, ".gate@").empty());
  EXPECT_TRUE(ExpertTaps(taps, ".up@").empty());
  EXPECT_FALSE(Any(taps, "L1.shared.act@0"));
  // What it gives is what there is without a limit.
  Pair unlimited("K40/none", {.options = "limit=inf"});
  EXPECT_TRUE(unlimited.DifferingTaps().empty());
  EXPECT_FALSE(unlimited.LogitsDiffer());
}

TEST(Faults, K43RoundsPartialsOnTheirWay) {
  Pair pair("K43/bf16", {});
  const auto taps = pair.DifferingTaps();
  EXPECT_TRUE(Any(taps, "L1.moe.out@0"));
  EXPECT_FALSE(Any(taps, "L1.moe.partial@0"));
  EXPECT_FALSE(Any(taps, "L1.shared.out@0"));
  EXPECT_FALSE(Any(taps, "L1.attn.out@0"));
  // Where the wire is bf16 anyway it changes nothing.
  Pair declared("K43/bf16", {.reduce = "ring:bf16"});
  EXPECT_TRUE(declared.DifferingTaps().empty());
  EXPECT_FALSE(declared.LogitsDiffer());
}

}  // namespace
}  // namespace assay::kernels
