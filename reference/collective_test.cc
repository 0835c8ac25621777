// Sums over ranks by hand. 1 + 2^-24 is a tie in fp32 and goes to 1; 1 + 2^-8 is one in bf16.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/oracle.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::RandomTensor;

constexpr double kTie = 0x1p-24;      // of fp32 at 1
constexpr double kWireTie = 0x1p-8;   // of bf16 at 1
constexpr double kHalfTie = 0x1p-11;  // of fp16 at 1

// One part a rank, of these values.
using Parts = std::vector<std::vector<double>>;

std::vector<std::vector<double>> Reduced(const Parts& parts, std::string_view kind,
                                         std::string_view order, DType wire) {
  std::vector<Tensor> tensors;
  for (const auto& part : parts) {
    tensors.push_back({{1, static_cast<int64_t>(part.size())}, part});
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : tensors) pointers.push_back(&tensor);
  const auto sums = ModelReduce(pointers, kind, order, wire);
  if (!sums) {
    ADD_FAILURE() << sums.error().message;
    return {};
  }
  std::vector<std::vector<double>> out;
  for (const Tensor& sum : *sums) out.push_back(sum.data);
  return out;
}
std::vector<double> All(const Parts& parts, std::string_view order, DType wire) {
  return Reduced(parts, "all_reduce", order, wire)[0];
}
using Values = std::vector<double>;

TEST(Sequential, AddsFromRankZeroAndRoundsEachStep) {
  EXPECT_EQ(All({{1}, {kTie}, {kTie}}, "sequential", DType::kF32), Values{1});
  EXPECT_EQ(All({{kTie}, {kTie}, {1}}, "sequential", DType::kF32), Values{1 + 2 * kTie});
  EXPECT_EQ(All({{1, kTie}, {kTie, kTie}, {kTie, 1}}, "sequential", DType::kF32),
            (Values{1, 1 + 2 * kTie}));
}

TEST(Sequential, TheWireRoundsWhatTravelsAndTheResult) {
  // Rank 0 adds its own part unrounded; others' are rounded; the sum is rounded once more.
  const double part = 1 + kWireTie / 2;  // not bf16: rounds to 1
  EXPECT_EQ(All({{part}, {2}}, "sequential", DType::kF32), Values{3 + kWireTie / 2});
  EXPECT_EQ(All({{part}, {2}}, "sequential", DType::kBF16), Values{3});
  EXPECT_EQ(All({{-1}, {part}}, "sequential", DType::kBF16), Values{0});
  EXPECT_EQ(All({{part}, {-1}}, "sequential", DType::kBF16), Values{kWireTie / 2});
  EXPECT_EQ(All({{-1}, {1 + kHalfTie}}, "sequential", DType::kF16), Values{0});
  EXPECT_EQ(All({{-1}, {1 + 3 * kHalfTie}}, "sequential", DType::kF16), Values{4 * kHalfTie});
}

TEST(Ring, EachChunkStartsAtTheRankAfterItsOwner) {
  // Four ranks, four values, chunks of one. Chunk 0 is added 1, 2, 3, 0; chunk 3: 0, 1, 2, 3.
  const Parts parts = {
      {kTie, 1, kTie, 1}, {kTie, kTie, 1, kTie}, {kTie, kTie, kTie, kTie}, {1, kTie, kTie, kTie}};
  // chunk 0: ((t + t) + 1) + t = 1 + 2t, then + t is a tie to even: 1 + 4t.
  // chunk 1: 2, 3, 0, 1: ((t + t) + 1) + t the same. chunk 2: 3, 0, 1, 2 the same.
  // chunk 3: 0, 1, 2, 3: 1 + t + t + t = 1.
  EXPECT_EQ(All(parts, "ring", DType::kF32), (Values{1 + 4 * kTie, 1 + 4 * kTie, 1 + 4 * kTie, 1}));
  EXPECT_EQ(All(parts, "sequential", DType::kF32), (Values{1 + 4 * kTie, 1, 1, 1}));
}

TEST(Ring, TheRunningSumIsRoundedAtEveryHopAndTheOwnersPartIsNot) {
  // Two ranks, chunks of one. Chunk 0: w(p1) + p0; chunk 1: w(p0) + p1; then w.
  const double odd = 1 + kWireTie / 2;
  EXPECT_EQ(All({{odd, -1}, {-1, odd}}, "ring", DType::kBF16),
            (Values{kWireTie / 2, kWireTie / 2}));
  EXPECT_EQ(All({{-1, odd}, {odd, -1}}, "ring", DType::kBF16), (Values{0, 0}));
  // Three ranks: 1 + 2^-9 + 2^-9 with a bf16 hop between is 1, then the third.
  const double half = kWireTie / 2;
  EXPECT_EQ(All({{0, 0, 1}, {0, 0, half}, {0, 0, half}}, "ring", DType::kBF16)[2], 1);
  EXPECT_EQ(All({{0, 0, 1}, {0, 0, half}, {0, 0, half}}, "ring", DType::kF32)[2], 1 + 2 * half);
}

TEST(Ring, CountsThatDoNotDivideMakeTheLastChunksShorterOrEmpty) {
  // Three ranks, four values: chunks of 2, 2, 0. Chunk 0: 1, 2, 0; chunk 1: 2, 0, 1.
  const Parts four = {{kTie, kTie, 1, 1}, {1, 1, kTie, kTie}, {kTie, kTie, kTie, kTie}};
  EXPECT_EQ(All(four, "ring", DType::kF32), (Values{1, 1, 1, 1}));
  const auto scattered = Reduced(four, "reduce_scatter", "ring", DType::kF32);
  ASSERT_EQ(scattered.size(), 3u);
  EXPECT_EQ(scattered[0], (Values{1, 1}));
  EXPECT_EQ(scattered[1], (Values{1, 1}));
  EXPECT_TRUE(scattered[2].empty());
  // Fewer values than ranks: chunks of one, the others empty.
  const Parts one = {{1}, {2}, {3}, {4}};
  EXPECT_EQ(All(one, "ring", DType::kF32), Values{10});
  const auto lone = Reduced(one, "reduce_scatter", "tree", DType::kF32);
  ASSERT_EQ(lone.size(), 4u);
  EXPECT_EQ(lone[0], Values{10});
  EXPECT_TRUE(lone[1].empty() && lone[2].empty() && lone[3].empty());
}

TEST(Tree, PairsAreAddedFirst) {
  // (0 + 1) + (2 + 3).
  EXPECT_EQ(All({{1}, {kTie}, {kTie}, {kTie}}, "tree", DType::kF32), Values{1 + 2 * kTie});
  EXPECT_EQ(All({{1}, {kTie}, {kTie}, {kTie}}, "sequential", DType::kF32), Values{1});
  // Three ranks: (0 + 1) + 2. Five: ((0 + 1) + (2 + 3)) + 4.
  EXPECT_EQ(All({{1}, {kTie}, {kTie}}, "tree", DType::kF32), Values{1});
  EXPECT_EQ(All({{1}, {0}, {kTie}, {kTie}, {kTie}}, "tree", DType::kF32), Values{1 + 4 * kTie});
  EXPECT_EQ(All({{kTie}, {kTie}, {kTie}, {0}, {1}}, "tree", DType::kF32), Values{1 + 4 * kTie});
}

TEST(Tree, TheWireRoundsWhatTravelsUp) {
  const double odd = 1 + kWireTie / 2;
  EXPECT_EQ(All({{-1}, {odd}, {0}, {0}}, "tree", DType::kBF16), Values{0});
  EXPECT_EQ(All({{odd}, {-1}, {0}, {0}}, "tree", DType::kBF16), Values{kWireTie / 2});
  // Rank 2's sum with rank 3 is rounded when it goes to rank 0.
  EXPECT_EQ(All({{-1}, {0}, {1}, {kWireTie}}, "tree", DType::kBF16), Values{0});
  EXPECT_EQ(All({{-1}, {0}, {1}, {kWireTie}}, "tree", DType::kF32), Values{kWireTie});
}

TEST(ReduceScatter, IsMadeByTheChunksOwnerAndNotRoundedToTheWire) {
  // Two ranks, chunks of one: rank 1 counts from itself.
  const double odd = 1 + kWireTie / 2;
  const Parts parts = {{odd, -1}, {-1, odd}};
  for (const char* order : {"sequential", "tree"}) {
    const auto chunks = Reduced(parts, "reduce_scatter", order, DType::kBF16);
    EXPECT_EQ(chunks[0], Values{kWireTie / 2}) << order;
    EXPECT_EQ(chunks[1], Values{kWireTie / 2}) << order;
  }
  // All-reduce counts from rank 0 for every element, and rounds the result.
  EXPECT_EQ(All(parts, "sequential", DType::kBF16), (Values{kWireTie / 2, 0}));
  EXPECT_EQ(Reduced({{1, 0}, {kWireTie, 0}}, "reduce_scatter", "sequential", DType::kBF16)[0],
            Values{1 + kWireTie});
  EXPECT_EQ(All({{1, 0}, {kWireTie, 0}}, "sequential", DType::kBF16)[0], 1);
}

TEST(Collectives, OneRankIsItsOwnSumAndNothingTravels) {
  const Values odd = {1 + kWireTie / 2, -3};
  for (const char* order : {"sequential", "ring", "tree"}) {
    EXPECT_EQ(All({odd}, order, DType::kBF16), odd);
    EXPECT_EQ(Reduced({odd}, "reduce_scatter", order, DType::kBF16), Parts{odd});
  }
}

TEST(Collectives, ExactSumsAreTheSameInEveryOrder) {
  // Integers: every order and degree agrees, and so do scattered chunks joined.
  for (size_t n = 1; n <= 9; ++n) {
    Parts parts(n);
    Values sum(13, 0.0);
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < 13; ++i) {
        parts[r].push_back(std::floor(8 * testing_support::Uniform(r, i)));
        sum[i] += parts[r][i];
      }
    }
    for (const char* order : {"sequential", "ring", "tree"}) {
      for (const DType wire : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        EXPECT_EQ(All(parts, order, wire), sum) << order << " " << n;
        Values joined;
        for (const auto& chunk : Reduced(parts, "reduce_scatter", order, wire)) {
          joined.insert(joined.end(), chunk.begin(), chunk.end());
        }
        EXPECT_EQ(joined, sum) << order << " " << n;
      }
    }
  }
}

TEST(Collectives, OverflowAndNanArePassedOn) {
  const double largest = std::numeric_limits<float>::max();
  EXPECT_EQ(All({{largest}, {largest}}, "sequential", DType::kF32), Values{INFINITY});
  EXPECT_EQ(All({{1}, {70000}}, "sequential", DType::kF16), Values{INFINITY});
  EXPECT_TRUE(std::isnan(All({{1}, {NAN}}, "ring", DType::kF32)[0]));
}

TEST(Collectives, WhatIsNotModelledIsAnErrorThatNamesIt) {
  const Tensor a = RandomTensor(1, {2, 3}), b = RandomTensor(1, {3, 2});
  const Tensor* same[] = {&a, &a};
  const Tensor* other[] = {&a, &b};
  const auto error = [](const auto& sums) {
    return sums.ok() ? std::string("none") : sums.error().message;
  };
  EXPECT_EQ(error(ModelReduce(same, "all_reduce", "ring", DType::kF32)), "none");
  EXPECT_NE(error(ModelReduce(same, "gather", "ring", DType::kF32)).find("gather"),
            std::string::npos);
  EXPECT_NE(error(ModelReduce(same, "all_reduce", "star", DType::kF32)).find("star"),
            std::string::npos);
  EXPECT_NE(error(ModelReduce(same, "all_reduce", "ring", DType::kI8)).find("I8"),
            std::string::npos);
  EXPECT_NE(error(ModelReduce(other, "all_reduce", "ring", DType::kF32)).find("[3, 2]"),
            std::string::npos);
  EXPECT_FALSE(ModelReduce({}, "all_reduce", "ring", DType::kF32).ok());
}

}  // namespace
}  // namespace assay::reference
