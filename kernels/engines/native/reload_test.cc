// A second load takes the place of the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"

namespace assay::kernels::native {
namespace {

const std::vector<int32_t> kTokens = {256, 102, 111, 114, 32};

// Each tensor's rows rotated by one: legal values in the wrong places.
MemorySource Rotated(const Checkpoint& checkpoint) {
  MemorySource source;
  for (const std::string& name : checkpoint.Names()) {
    const TensorView& view = *checkpoint.Find(name);
    std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
    if (!name.ends_with("weight_shape") && view.shape[0] > 1) {
      const auto row = static_cast<std::ptrdiff_t>(bytes.size()) / view.shape[0];
      std::rotate(bytes.begin(), bytes.begin() + row, bytes.end());
    }
    source.Put(name, view.dtype, view.shape, std::move(bytes));
  }
  return source;
}

struct Case {
  const char* path;
  int tp;
};

class Reload : public testing::TestWithParam<Case> {
 protected:
  Reload() : checkpoint_(OpenCheckpoint(GetParam().path)), decoy_(Rotated(*checkpoint_)) {}
  void Open(Driver* driver, int tp) {
    Wishes wishes;
    wishes.tp = tp;
    ASSERT_EQ(driver->Open(checkpoint_->config_json(), wishes), ASSAY_OK);
  }
  void LoadDecoy(Driver* driver) {
    for (int rank = 0; rank < driver->tp(); ++rank) {
      ASSERT_EQ(driver->Load(rank, decoy_, decoy_.Names()), ASSAY_OK) << driver->error().message;
    }
  }
  std::unique_ptr<Checkpoint> checkpoint_;
  MemorySource decoy_;
};

TEST_P(Reload, LeavesNothingOfTheFirstLoad) {
  for (int tp : {1, GetParam().tp}) {
    Driver once(NativeEngine()), twice(NativeEngine());
    Open(&once, tp);
    Open(&twice, tp);
    ASSERT_EQ(once.LoadAll(*checkpoint_), ASSAY_OK);
    LoadDecoy(&twice);
    const int64_t held = once.live_allocations;
    EXPECT_EQ(twice.live_allocations, held);
    // Keys and values of the first load's weights are gone too.
    const std::vector<float> decoys = twice.Logits(kTokens, 0, 261);
    ASSERT_EQ(twice.LoadAll(*checkpoint_), ASSAY_OK) << twice.error().message;
    std::vector<float> out;
    EXPECT_EQ(twice.Run("model", -1, {32}, 5, {}, &out, {1, 261}), ASSAY_FAILED);
    twice.taps.clear();
    const std::vector<float> logits = once.Logits(kTokens, 0, 261);
    EXPECT_NE(decoys, logits);
    EXPECT_EQ(twice.Logits(kTokens, 0, 261), logits);
    EXPECT_TRUE(once.taps == twice.taps);
    // What is held is what one load holds.
    EXPECT_EQ(twice.live_allocations, once.live_allocations);
    for (const char* component : {"embed.weight", "L0.attn.out.weight", "L0.mlp.up.weight"}) {
      for (int rank = 0; rank < tp; ++rank) {
        assay_shard a, b;
        ASSERT_EQ(once.Export(rank, component, &a), ASSAY_OK);
        ASSERT_EQ(twice.Export(rank, component, &b), ASSAY_OK);
        ASSERT_EQ(a.bytes, b.bytes);
        EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0) << component;
      }
    }
  }
}

// A reload may name a part; the rest stays.
TEST_P(Reload, OfOneLayerReplacesThatLayer) {
  Driver driver(NativeEngine());
  Open(&driver, 1);
  LoadDecoy(&driver);
  const auto names = NamesWith(*checkpoint_, "layers.1.");
  ASSERT_EQ(driver.Load(0, *checkpoint_, names, 1), ASSAY_OK) << driver.error().message;
  const auto equals = [&](const char* component, const TensorSource& source, const char* name) {
    assay_shard shard;
    EXPECT_EQ(driver.Export(0, component, &shard), ASSAY_OK);
    const TensorView& view = *source.Find(name);
    return shard.bytes == view.bytes.size() &&
           std::memcmp(shard.data, view.bytes.data(), shard.bytes) == 0;
  };
  EXPECT_TRUE(
      equals("L1.input_norm.weight", *checkpoint_, "model.layers.1.input_layernorm.weight"));
  EXPECT_TRUE(equals("L0.input_norm.weight", decoy_, "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(equals("L1.attn.out.weight", *checkpoint_, "model.layers.1.self_attn.o_proj.weight"));
}

// A load that fails changes nothing.
TEST_P(Reload, ThatFailsLeavesTheOldWeights) {
  Driver driver(NativeEngine());
  Open(&driver, 1);
  ASSERT_EQ(driver.LoadAll(*checkpoint_), ASSAY_OK);
  const std::vector<float> logits = driver.Logits(kTokens, 0, 261);
  auto names = decoy_.Names();
  names.erase(std::find(names.begin(), names.end(), "model.norm.weight"));
  names.erase(std::find(names.begin(), names.end(), "model.layers.1.self_attn.o_proj.weight"));
  EXPECT_NE(driver.Load(0, decoy_, names, 0, "L1.attn.out.weight whole <- x\n"), ASSAY_OK);
  ASSERT_EQ(driver.Reset(), ASSAY_OK);
  EXPECT_EQ(driver.Logits(kTokens, 0, 261), logits);
}

INSTANTIATE_TEST_SUITE_P(Models, Reload,
                         testing::Values(Case{"goldens/quantised/k2-mini-int4-g32", 4},
                                         Case{"goldens/checkpoints/llama-mini", 3},
                                         Case{"goldens/checkpoints/qwen3-mini", 2}),
                         [](const auto& info) { return "case" + std::to_string(info.index); });

}  // namespace
}  // namespace assay::kernels::native
