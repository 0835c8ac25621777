// Which sums are exact in any order (numerics.md §1.1).
#include <gtest/gtest.h>

#include <cmath>

#include "reference/model.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;

const Contract kExact = Contract::Exact();

// exact: with weights that are integers times powers of two.
class Exact : public testing::Test {
 protected:
  // y = x Wᵀ of L0.mlp.up of llama-mini, all weights `w`, one row of activations.
  std::vector<uint8_t> Flags(const std::vector<float>& w_row, const std::vector<double>& x_row) {
    const Opened model = OpenModel("llama-mini");
    std::vector<float> weights;
    for (int n = 0; n < 384; ++n) {
      for (size_t k = 0; k < 144; ++k) weights.push_back(w_row[k % w_row.size()]);
    }
    MemorySource shard;
    shard.Put("L0.mlp.up.weight", DType::kF32, {384, 144}, testing_support::FloatBytes(weights));
    Overlay source(*model.checkpoint);
    source.changed.Put("model.layers.0.mlp.up_proj.weight", DType::kF32, {384, 144},
                       testing_support::FloatBytes(weights));
    const auto oracle = Oracle::Create(model.config(), source);
    EXPECT_TRUE(oracle.ok());
    Tensor x;
    x.shape = {1, 144};
    for (size_t k = 0; k < 144; ++k) x.data.push_back(x_row[k % x_row.size()]);
    const Node& node = *(*oracle)->FindNode("L0.mlp.up");
    const std::vector<Input> inputs = {{&x, nullptr}};
    const auto e = (*oracle)->Evaluate(node, inputs, Where{}, {{1}, 0}, Contract::Exact());
    EXPECT_TRUE(e.ok());
    return e->exact;
  }
  bool IsExact(const std::vector<float>& w, const std::vector<double>& x) {
    const auto flags = Flags(w, x);
    EXPECT_EQ(flags.size(), 384u);
    for (const uint8_t flag : flags) EXPECT_EQ(flag, flags[0]);
    return flags[0] != 0;
  }
};

TEST_F(Exact, SmallIntegersTimesPowersOfTwoAreExact) {
  EXPECT_TRUE(IsExact({-8, 7, 3, 1}, {1, -2, 3}));
  EXPECT_TRUE(IsExact({-8 * 0x1p-20f, 7 * 0x1p-20f}, {0x1p30, 3 * 0x1p30}));
  EXPECT_TRUE(IsExact({0}, {0.1}));
  EXPECT_TRUE(IsExact({0.1f}, {0}));
}

TEST_F(Exact, TheLimitIsTwoToTheTwentyFourUnits) {
  // 144 products of 2^24/144 would just fit; units are 1.
  const double fits = std::floor(0x1p24 / 144) / 2;  // odd: the unit is not larger
  EXPECT_TRUE(IsExact({1}, {2 * std::floor(fits / 2) + 1}));
  EXPECT_FALSE(IsExact({1}, {0x1p17 + 1}));
  EXPECT_TRUE(IsExact({1}, {0x1p17}));  // a large power of two is its own unit
}

TEST_F(Exact, FractionsAndFloatsOutOfRangeAreNot) {
  EXPECT_FALSE(IsExact({0.1f}, {1, 0.3}));
  EXPECT_FALSE(IsExact({0x1p-130f}, {1}));  // below fp32's normal range
  EXPECT_FALSE(IsExact({1}, {0x1p-140}));
  EXPECT_FALSE(IsExact({0x1p-70f}, {0x1p-70}));  // the product is
  EXPECT_FALSE(IsExact({1}, {0x1p130}));
  EXPECT_FALSE(IsExact({0x1p100f}, {0x1p100}));  // the sum overflows
  EXPECT_FALSE(IsExact({1}, {NAN}));
}

TEST(Evaluate, ABiasOffTheGridIsNotExact) {
  const Opened model = OpenModel("qwen2-mini");
  Tensor x = ops::Zeros({1, 84});
  x.data[0] = 1;
  const std::vector<Input> inputs = {{&x, nullptr}};
  const Overlay plain(*model.checkpoint);
  Overlay off(*model.checkpoint);
  const int64_t n = model.config().heads * model.config().head_dim;
  off.changed.Put("model.layers.0.self_attn.q_proj.bias", DType::kF32, {n},
                  testing_support::FloatBytes(
                      std::vector<float>(static_cast<size_t>(n), 1.0f / 3.0f * 0x1p-20f)));
  for (const bool on_grid : {true, false}) {
    const auto oracle = Oracle::Create(model.config(), on_grid ? plain : off);
    ASSERT_TRUE(oracle.ok());
    const Node& q = *(*oracle)->FindNode("L0.attn.q");
    const auto e = (*oracle)->Evaluate(q, inputs, Where{}, {{1}, 0}, kExact);
    ASSERT_TRUE(e.ok());
    for (const uint8_t flag : e->exact) EXPECT_EQ(flag, on_grid ? 1 : 0);
    ASSERT_EQ(e->function.data.size(), e->value.data.size());
    EXPECT_GT(e->function.data[0], 0);
  }
}

}  // namespace
}  // namespace assay::reference
