#include "kernels/collectives/sequential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace assay::kernels {
namespace {

// 1 + 2^-24 is 1 in fp32: an order of sums can be told from its result.
TEST(Sequential, AddsInRankOrder) {
  const float tiny = 0x1p-24f;
  const std::vector<float> big = {1, 1}, small = {tiny, tiny}, other = {tiny, -1};
  std::vector<float> out(2, std::numeric_limits<float>::quiet_NaN());
  const std::vector<const float*> forward = {big.data(), small.data(), other.data()};
  AllReduceSequential(forward, 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{1, 0}));
  const std::vector<const float*> backward = {small.data(), other.data(), big.data()};
  AllReduceSequential(backward, 2, out.data());
  EXPECT_EQ(out[0], 1 + 2 * tiny);
}

TEST(Sequential, OneRankIsACopy) {
  const std::vector<float> part = {-0.0f, 3, 1e30f};
  std::vector<float> out(3, 7);
  const std::vector<const float*> parts = {part.data()};
  AllReduceSequential(parts, 3, out.data());
  EXPECT_EQ(out, part);
  EXPECT_TRUE(std::signbit(out[0]));
  AllReduceSequential({}, 3, out.data());
  EXPECT_EQ(out, (std::vector<float>{0, 0, 0}));
}

TEST(Gather, RanksSideBySideAndPaddingDropped) {
  // 2 rows; ranks hold columns 0-1, 2-3, 4-5, of which 5 columns are real.
  const std::vector<float> a = {0, 1, 10, 11}, b = {2, 3, 12, 13}, c = {4, -1, 14, -1};
  std::vector<float> out(10, -9);
  const std::vector<const float*> parts = {a.data(), b.data(), c.data()};
  GatherColumns(parts, 2, 2, 5, out.data());
  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}));
  // A rank that holds nothing but padding.
  std::vector<float> three(6, -9);
  GatherColumns(parts, 2, 2, 3, three.data());
  EXPECT_EQ(three, (std::vector<float>{0, 1, 2, 10, 11, 12}));
}

TEST(Collectives, AreNamed) {
  ASSERT_EQ(Collectives().size(), 1u);
  EXPECT_EQ(Collectives()[0].order, "sequential");
  EXPECT_EQ(Collectives()[0].wire, "fp32");
}

}  // namespace
}  // namespace assay::kernels
