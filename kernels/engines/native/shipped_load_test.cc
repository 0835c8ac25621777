// Every shipped checkpoint, of every family and container, at many degrees: what lies in memory is
// what the plan says, byte for byte.
#include <gtest/gtest.h>

#include <map>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_shards.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

Wishes At(int tp, const char* tier, const char* options = "", int attn_tp = 0) {
  Wishes wishes;
  wishes.tp = tp;
  wishes.attn_tp = attn_tp;
  wishes.tier = tier;
  wishes.options = options;
  return wishes;
}

struct Total {
  Held held;
  int loaded = 0, refused = 0;
  void Add(const Held& one) {
    held.compared += one.compared;
    held.joined += one.joined;
    held.repacked += one.repacked;
    held.absent += one.absent;
    ++(one.compared > 0 ? loaded : refused);
  }
};

TEST(Shipped, EveryCheckpointAtEveryDegree) {
  std::map<std::string, Total> totals;
  for (const std::string& path : ShippedPaths()) {
    const Shipped shipped(path);
    for (const int tp : {1, 2, 3, 4, 8}) {
      // Heads that the degree does not divide forbid it only where attention is cut by it too.
      for (const int attn_tp : {tp, 1}) {
        SCOPED_TRACE(path + " tp " + std::to_string(tp) + " attn_tp " + std::to_string(attn_tp));
        Driver driver(NativeEngine());
        ASSERT_EQ(driver.Open(shipped.source.config_json, At(tp, "scalar", "", attn_tp)), ASSAY_OK)
            << driver.error().message;
        std::string why;
        const shard::Degrees degrees{.tp = tp, .attn_tp = attn_tp == tp ? 0 : attn_tp};
        totals[path].Add(LoadAndCompare(driver, shipped.source, degrees, &why));
      }
    }
  }
  EXPECT_EQ(totals.size(), 16u);
  int loaded = 0;
  for (const auto& [path, total] : totals) {
    loaded += total.loaded;
    EXPECT_GE(total.loaded, 3) << path << ": " << total.refused << " refused";
    EXPECT_GT(total.held.compared, 100) << path;
    EXPECT_EQ(total.held.absent, 0) << path;
  }
  EXPECT_GE(loaded, 90);
  EXPECT_GT(totals["goldens/quantised/k2-mini-int4-g32"].held.joined, 0);
}

// The same in the layouts of another tier's kernels.
TEST(Shipped, KernelsLayoutsHoldTheSame) {
  if (!HostHas(Tier::kAvx2)) return;
  const Shipped shipped("goldens/quantised/k2-mini-int4-g32");
  for (const int tp : {1, 2, 4, 8}) {
    Driver driver(NativeEngine());
    ASSERT_EQ(driver.Open(shipped.source.config_json, At(tp, "avx2")), ASSAY_OK);
    std::string why;
    const Held held = LoadAndCompare(driver, shipped.source, {.tp = tp}, &why);
    EXPECT_GT(held.compared, 0) << why;
    EXPECT_GT(held.repacked, 0) << why;
  }
}

struct Uneven {
  const char* path;
  const char* options;
  shard::Degrees degrees;
  bool absent;  // some ranks hold nothing of some experts
};

std::vector<Uneven> UnevenCases() {
  using shard::Split;
  const char* gptoss = "goldens/quantised/gptoss-mini-mxfp4";
  const char* k2 = "goldens/quantised/k2-mini-int4-g32";
  std::vector<Uneven> cases = {
      {gptoss, "split=ceil", {.tp = 2, .split = Split::kCeil}, false},
      {gptoss, "split=ceil", {.tp = 4, .split = Split::kCeil}, false},
      {"goldens/checkpoints/llama-mini", "split=ceil", {.tp = 3, .split = Split::kCeil}, false},
      {k2, "ep=2", {.tp = 4, .ep = 2}, true},
      {k2, "ep=2", {.tp = 2, .ep = 2}, true},
      {k2, "dp=2 lm_head=dp", {.tp = 4, .dp = 2, .lm_head_dp = true}, false},
      {k2, "dp=2 ep=2", {.tp = 4, .dp = 2, .ep = 2}, true},
      {k2, "placement=hybrid:3", {.tp = 4, .hybrid = 3}, true},
      {"goldens/checkpoints/k3-mini", "dp=2 ep=2", {.tp = 2, .dp = 2, .ep = 2}, true},
  };
  Uneven map{k2, "ep=2 experts=0,1,2,3,4,5,-1,0", {.tp = 4, .ep = 2}, true};
  map.degrees.experts.physical_to_logical = {0, 1, 2, 3, 4, 5, -1, 0};
  cases.push_back(map);
  return cases;
}

TEST(Shipped, UnevenSplitsExpertsOverRanksAndTwoPlaces) {
  for (const Uneven& c : UnevenCases()) {
    SCOPED_TRACE(std::string(c.path) + " " + c.options);
    const Shipped shipped(c.path);
    Driver driver(NativeEngine());
    const Wishes wishes = At(c.degrees.tp, "scalar", c.options, c.degrees.attention());
    ASSERT_EQ(driver.Open(shipped.source.config_json, wishes), ASSAY_OK) << driver.error().message;
    std::string why;
    const Held held = LoadAndCompare(driver, shipped.source, c.degrees, &why);
    EXPECT_GT(held.compared, 0) << why;
    EXPECT_EQ(held.absent > 0, c.absent);
    // Marlin's tiles for what is placed on the accelerator.
    EXPECT_EQ(held.repacked > 0, c.degrees.hybrid > 0);
  }
}

// The comparison is able to fail: degrees that the session was not opened with.
TEST(Shipped, OtherDegreesAreSeen) {
  const Shipped shipped("goldens/quantised/k2-mini-int4-g32");
  Driver driver(NativeEngine());
  ASSERT_EQ(driver.Open(shipped.source.config_json, At(4, "scalar", "ep=2")), ASSAY_OK);
  std::string why;
  ASSERT_GT(LoadAndCompare(driver, shipped.source, {.tp = 4, .ep = 2}, &why).compared, 0);
  const auto plan = shard::PlanModel(shipped.source.config, *shipped.source.tensors, {.tp = 4},
                                     shard::Selection{});
  assay_shard shard;
  ASSERT_EQ(driver.Export(3, "L1.moe.e0.gate.weight", &shard), ASSAY_OK);
  EXPECT_EQ(shard.rows, 0);
  EXPECT_FALSE(plan->plan->Find("L1.moe.e0.gate.weight")->ranks[3].empty());
}

// Families without blocks here are loaded, and the answer to a run names them.
TEST(Shipped, WhatIsOnlyLoadedSaysSo) {
  for (const auto& [path, word] : {std::pair{"goldens/checkpoints/qwen3moe-mini", "Qwen3Moe"},
                                   {"goldens/checkpoints/gptoss-mini", "GptOss"},
                                   {"goldens/checkpoints/v4-mini", "DeepseekV4"},
                                   {"goldens/checkpoints/k3-mini", "Kimi"}}) {
    const Shipped shipped(path);
    Driver driver(NativeEngine());
    ASSERT_EQ(driver.Open(shipped.source.config_json, At(1, "scalar")), ASSAY_OK);
    std::vector<float> out;
    EXPECT_EQ(driver.Run("model", -1, {1}, 0, {}, &out, {1, shipped.source.config.vocab}),
              ASSAY_UNSUPPORTED);
    EXPECT_NE(std::string(driver.error().message).find(word), std::string::npos)
        << driver.error().message;
    EXPECT_EQ(driver.Op(0, "L0.input_norm", {}, {1, 1}, &out), ASSAY_UNSUPPORTED);
  }
}

}  // namespace
}  // namespace assay::kernels::native
