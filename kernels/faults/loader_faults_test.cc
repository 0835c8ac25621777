// Each fault of a loader changes what it says, where it says, and nothing else.
#include <gtest/gtest.h>

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

TEST(Faults, K02BytesLoadsTheWrongWordsOnEveryRankButTheFirst) {
  Pair pair("K02/bytes", {.path = kInt4, .tp = 4});
  EXPECT_EQ(pair.DifferingShards("L1.moe.e0.down.weight"), (std::set<int>{1, 2, 3}));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.scale").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.gate.weight").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.shared.down.weight").empty());
  const auto taps = pair.DifferingTaps();
  EXPECT_TRUE(Any(taps, ".down@1"));
  EXPECT_FALSE(Any(taps, ".down@0"));
  EXPECT_TRUE(pair.LogitsDiffer());
}

// The bytes that rank 1 has are those from byte 8 of each row on, not from word 8.
TEST(Faults, K02BytesStartsAtByteEight) {
  Pair pair("K02/bytes", {.path = kInt4, .tp = 4, .tier = "scalar"});
  assay_shard shard;
  ASSERT_EQ(pair.faulty.Export(1, "L1.moe.e0.down.weight", &shard), ASSAY_OK);
  const TensorView& whole =
      *pair.checkpoint->Find("model.layers.1.mlp.experts.0.down_proj.weight_packed");
  ASSERT_STREQ(shard.layout, "row");
  for (int64_t row = 0; row < shard.rows; ++row) {
    const auto* got = static_cast<const std::byte*>(shard.data) + row * 32;
    EXPECT_EQ(std::memcmp(got, whole.bytes.data() + row * 128 + 8, 32), 0) << row;
  }
}

// The places that `first` names hold other values than they should: else the fault would not
// determine them.
TEST(Faults, K02RepresentationIsRefusedAtAnyDegree) {
  const auto checkpoint = native::OpenCheckpoint(kInt4);
  for (int tp : {1, 2, 4}) {
    Driver driver(FaultyEngine("K02/representation"));
    Wishes wishes;
    wishes.tp = tp;
    ASSERT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK);
    EXPECT_EQ(driver.LoadAll(*checkpoint), ASSAY_REFUSED);
    EXPECT_STREQ(driver.error().tensor, "model.layers.1.mlp.experts.0.gate_proj.weight_packed");
    EXPECT_STREQ(driver.error().axis, "k");
    EXPECT_EQ(driver.error().got, 48);
    EXPECT_STREQ(driver.error().got_unit, "byte");
    EXPECT_EQ(driver.error().expected, 96);
    EXPECT_STREQ(driver.error().expected_unit, "element");
    const std::string_view message = driver.error().message;
    EXPECT_NE(message.find("axis k has 48 packed bytes (u4x2), the parameter takes 96 unpacked "
                           "elements"),
              std::string_view::npos)
        << message;
  }
  Pair unpacked("K02/representation", {.path = kBf16, .tp = 4});
  EXPECT_TRUE(unpacked.DifferingTaps().empty());
  EXPECT_FALSE(unpacked.LogitsDiffer());
}

TEST(Faults, K03GivesEveryRankTheFirstOnesScales) {
  Pair pair("K03/rank0", {.path = kInt4, .tp = 4});
  EXPECT_EQ(pair.DifferingShards("L1.moe.e0.down.scale"), (std::set<int>{1, 2, 3}));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.up.scale").empty());
  assay_shard first, last;
  ASSERT_EQ(pair.faulty.Export(0, "L1.moe.e3.down.scale", &first), ASSAY_OK);
  ASSERT_EQ(pair.faulty.Export(3, "L1.moe.e3.down.scale", &last), ASSAY_OK);
  ASSERT_EQ(first.bytes, last.bytes);
  EXPECT_EQ(std::memcmp(first.data, last.data, first.bytes), 0);
  // Its `first`: row 0's group 2, which is rank 1's first, is another than group 0.
  const TensorView& scales =
      *pair.checkpoint->Find("model.layers.1.mlp.experts.0.down_proj.weight_scale");
  EXPECT_NE(std::memcmp(scales.bytes.data(), scales.bytes.data() + 4, 2), 0);
  EXPECT_TRUE(Any(pair.DifferingTaps(), ".down@1"));
  EXPECT_FALSE(Any(pair.DifferingTaps(), ".down@0"));
}

TEST(Faults, K08SwapsGateAndUpOnRankOne) {
  for (const char* path : {kInt4, kBf16}) {
    Pair pair("K08/rank1", {.path = path, .tp = 4});
    EXPECT_EQ(pair.DifferingShards("L1.moe.e0.gate.weight"), (std::set<int>{1}));
    EXPECT_EQ(pair.DifferingShards("L1.moe.e0.up.weight"), (std::set<int>{1}));
    EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());
    EXPECT_TRUE(pair.DifferingShards("L1.shared.gate.weight").empty());
    // Swapped, and nothing worse: what gate gives is what up would have given.
    int compared = 0;
    for (const auto& [key, tap] : pair.faulty.taps) {
      const size_t at = key.first.find(".gate");
      if (!key.first.starts_with("L1.moe.e") || at == std::string::npos || key.second != 1)
        continue;
      std::string up = key.first;
      up.replace(at, 5, ".up");
      EXPECT_EQ(tap, (pair.clean.taps[{up, 1}]));
      ++compared;
    }
    EXPECT_GT(compared, 0);
    EXPECT_FALSE(Any(pair.DifferingTaps(), ".gate@0"));
    EXPECT_TRUE(pair.LogitsDiffer());
  }
}

TEST(Faults, K07SwapsTheNibblesOfPackedExperts) {
  Pair pair("K07/swap", {});
  for (const char* component :
       {"L1.moe.e0.gate.weight", "L1.moe.e3.up.weight", "L2.moe.e1.down.weight"}) {
    EXPECT_EQ(pair.DifferingShards(component), (std::set<int>{0, 1, 2, 3})) << component;
    assay_shard a, b;
    ASSERT_EQ(pair.clean.Export(2, component, &a), ASSAY_OK);
    ASSERT_EQ(pair.faulty.Export(2, component, &b), ASSAY_OK);
    std::vector<std::byte> right = RowMajor(a, component);
    for (std::byte& byte : right) byte = (byte << 4) | (byte >> 4);
    EXPECT_EQ(right, RowMajor(b, component)) << component;
  }
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.gate.scale").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.shared.gate.weight").empty());
  EXPECT_EQ(ExpertTaps(pair.DifferingTaps(), ".gate@"), AllExpertTaps(pair.clean, ".gate"));

  Pair unpacked("K07/swap", {.path = kBf16});
  EXPECT_TRUE(unpacked.DifferingTaps().empty());
  EXPECT_FALSE(unpacked.LogitsDiffer());
}

TEST(Faults, K13KeepsOneTensorOfTheFirstLoad) {
  Pair pair("K13/stale", {.reload = true});
  const std::string stale = "L1.moe.e2.up.weight";
  EXPECT_EQ(pair.DifferingShards(stale), (std::set<int>{1}));
  for (const char* other : {"L1.moe.e2.up.scale", "L1.moe.e2.gate.weight", "L1.moe.e1.up.weight",
                            "L2.moe.e2.up.weight", "L1.attn.q.weight"}) {
    EXPECT_TRUE(pair.DifferingShards(other).empty()) << other;
  }
  // Its rows are the first load's: rotated by one.
  const std::string source = "model.layers.1.mlp.experts.2.up_proj.weight_packed";
  const TensorView& up = *pair.checkpoint->Find(source);
  assay_shard shard;
  ASSERT_EQ(pair.faulty.Export(1, stale, &shard), ASSAY_OK);
  const size_t row = up.bytes.size() / 256;
  const auto expected = up.bytes.subspan((64 + 1) * row, 64 * row);
  EXPECT_EQ(RowMajor(shard, stale), std::vector<std::byte>(expected.begin(), expected.end()));
  const auto ups = ExpertTaps(pair.DifferingTaps(), ".up@");
  EXPECT_LE(ups.size(), 1u);  // nobody may be routed to it
  for (const std::string& tap : ups) EXPECT_EQ(tap, "L1.moe.e2.up@1");

  Pair once("K13/stale", {});
  EXPECT_TRUE(once.DifferingShards(stale).empty());
  EXPECT_TRUE(once.DifferingTaps().empty());
  EXPECT_FALSE(once.LogitsDiffer());
}

}  // namespace
}  // namespace assay::kernels
