// Against the definitions of harness/abi/contract.md, written out here without messages.
#include "kernels/collectives/collectives.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

namespace assay::kernels {
namespace {

using Values = std::vector<float>;

float Bf16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t cut = bits & 0xFFFF0000u, rest = bits & 0xFFFFu;
  const bool up = rest > 0x8000u || (rest == 0x8000u && (bits & 0x10000u) != 0);
  return std::bit_cast<float>(cut + (up ? 0x10000u : 0u));
}

// w: what the wire does to a value.
float Sent(float v, Wire wire) { return wire == Wire::kFp32 ? v : Bf16(v); }

// The sum of value i in that order with `root` for rank 0, before the last rounding.
float Sum(const std::vector<Values>& parts, size_t i, Order order, Wire wire, int root) {
  const int n = static_cast<int>(parts.size());
  const auto part = [&](int r) { return parts[static_cast<size_t>((root + r) % n)][i]; };
  if (order == Order::kSequential) {
    float s = part(0);
    for (int r = 1; r < n; ++r) s = s + Sent(part(r), wire);
    return s;
  }
  if (order == Order::kRing) {
    float t = part(1);
    for (int r = 2; r <= n; ++r) t = Sent(t, wire) + part(r);
    return t;
  }
  Values p;
  for (int r = 0; r < n; ++r) p.push_back(part(r));
  for (int d = 1; d < n; d *= 2) {
    for (int r = 0; r + d < n; r += 2 * d) {
      p[static_cast<size_t>(r)] += Sent(p[static_cast<size_t>(r + d)], wire);
    }
  }
  return p[0];
}

int ChunkWith(size_t i, int64_t count, int ranks) {
  return static_cast<int>(static_cast<int64_t>(i) / ((count + ranks - 1) / ranks));
}

Values ExpectedSum(const std::vector<Values>& parts, const Reduction& reduction) {
  Values sum = parts[0];
  if (parts.size() == 1) return sum;
  for (size_t i = 0; i < sum.size(); ++i) {
    const int n = static_cast<int>(parts.size());
    const int root =
        reduction.order == Order::kRing ? ChunkWith(i, static_cast<int64_t>(sum.size()), n) : 0;
    sum[i] = Sent(Sum(parts, i, reduction.order, reduction.wire, root), reduction.wire);
  }
  return sum;
}

// Values over many binades, so that every order and wire gives other bits.
std::vector<Values> Parts(int ranks, size_t count, uint32_t seed) {
  std::vector<Values> parts(static_cast<size_t>(ranks), Values(count));
  uint64_t state = seed;
  for (Values& part : parts) {
    for (float& value : part) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<uint32_t>(state >> 33);
      value = std::ldexp(static_cast<float>(bits % 8388593) - 4194296.0f,
                         -static_cast<int>(bits >> 28) - 20);
    }
  }
  return parts;
}

std::vector<const float*> Pointers(const std::vector<Values>& parts) {
  std::vector<const float*> pointers;
  for (const Values& part : parts) pointers.push_back(part.data());
  return pointers;
}

std::vector<Values> Reduced(const std::vector<Values>& parts, const Reduction& reduction,
                            Executor executor) {
  std::vector<Values> outs(parts.size(),
                           Values(parts[0].size(), std::numeric_limits<float>::quiet_NaN()));
  std::vector<float*> pointers;
  for (Values& out : outs) pointers.push_back(out.data());
  AllReduce(reduction, Pointers(parts), static_cast<int64_t>(parts[0].size()), pointers, executor);
  return outs;
}

bool SameBits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

TEST(AllReduce, EveryRankHasTheDefinitionsBits) {
  int compared = 0;
  for (const Reduction& reduction : Reductions()) {
    for (int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      for (size_t count : {0u, 1u, 2u, 3u, 7u, 8u, 9u, 64u, 1001u}) {
        const auto parts = Parts(ranks, count, static_cast<uint32_t>(count) + 7);
        const Values expected = ExpectedSum(parts, reduction);
        for (Executor executor : {Executor::kOne, Executor::kThreads}) {
          for (const Values& out : Reduced(parts, reduction, executor)) {
            EXPECT_TRUE(SameBits(out, expected))
                << NameOf(reduction) << " of " << ranks << " ranks, " << count << " values";
            ++compared;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 6 * 9 * 2 * (1 + 2 + 3 + 4 + 5 + 7 + 8));
}

// Control: six definitions, and no two of them agree on these values.
TEST(AllReduce, OrdersAndWiresCanBeToldApart) {
  const auto parts = Parts(4, 1000, 3);
  std::set<std::vector<uint32_t>> results;
  for (const Reduction& reduction : Reductions()) {
    const Values out = Reduced(parts, reduction, Executor::kOne)[2];
    std::vector<uint32_t> bits(out.size());
    std::memcpy(bits.data(), out.data(), out.size() * sizeof(float));
    results.insert(std::move(bits));
  }
  EXPECT_EQ(results.size(), 6u);
}

TEST(AllReduce, ByHand) {
  const float half = 0x1p-8f;  // half a unit of bf16 at 1
  const auto bits = [](const Values& v, const Reduction& r) {
    std::vector<Values> parts;
    for (float value : v) parts.push_back({value});
    return Reduced(parts, r, Executor::kThreads)[1][0];
  };
  // 1 + 2^-24 is 1 in fp32.
  EXPECT_EQ(bits({1, 0x1p-24f, 0x1p-24f}, {Order::kSequential, Wire::kFp32}), 1);
  // The one chunk's ring begins at rank 1: the small ones first.
  EXPECT_EQ(bits({1, 0x1p-24f, 0x1p-24f}, {Order::kRing, Wire::kFp32}), 1 + 0x1p-23f);
  // (p0 + p1) + (p2 + p3)
  EXPECT_EQ(bits({1, 0x1p-24f, 0x1p-24f, 0x1p-24f}, {Order::kTree, Wire::kFp32}), 1 + 0x1p-23f);
  // Rank 0's own partial does not travel; its sum does, and rank 0 keeps what it sent.
  EXPECT_EQ(bits({1 + half, half}, {Order::kSequential, Wire::kBf16}), 1 + 2 * half);
  EXPECT_EQ(bits({half, 1 + half}, {Order::kSequential, Wire::kBf16}), 1);
  // One rank: nothing travels.
  EXPECT_EQ(Reduced({{1 + half}}, {Order::kTree, Wire::kBf16}, Executor::kThreads)[0][0], 1 + half);
}

TEST(AllReduce, InfinitiesAndNaNsTravel) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Reduction& reduction : Reductions()) {
    const auto outs = Reduced({{inf, 1, std::nanf("")}, {-inf, inf, 1}}, reduction, Executor::kOne);
    for (const Values& out : outs) {
      EXPECT_TRUE(std::isnan(out[0]));
      EXPECT_EQ(out[1], inf);
      EXPECT_TRUE(std::isnan(out[2]));
    }
  }
}

TEST(AllReduce, AnOutMayBeItsOwnPart) {
  auto parts = Parts(3, 50, 1);
  const Values expected = ExpectedSum(parts, {Order::kRing, Wire::kBf16});
  const auto in = Pointers(parts);
  std::vector<float*> outs;
  for (Values& part : parts) outs.push_back(part.data());
  AllReduce({Order::kRing, Wire::kBf16}, in, 50, outs, Executor::kThreads);
  for (const Values& part : parts) EXPECT_TRUE(SameBits(part, expected));
}

TEST(ReduceScatter, EveryRankHasItsChunkNotRoundedAgain) {
  int rounded_would_differ = 0;
  for (const Reduction& reduction : Reductions()) {
    for (int ranks : {1, 2, 3, 4, 8}) {
      for (size_t count : {0u, 1u, 3u, 7u, 16u, 1001u}) {
        const auto parts = Parts(ranks, count, 11);
        for (Executor executor : {Executor::kOne, Executor::kThreads}) {
          std::vector<Values> outs;
          std::vector<float*> pointers;
          for (int c = 0; c < ranks; ++c) {
            const Chunk chunk = ChunkOf(static_cast<int64_t>(count), ranks, c);
            outs.emplace_back(static_cast<size_t>(chunk.length), -7.0f);
          }
          for (Values& out : outs) pointers.push_back(out.data());
          ReduceScatter(reduction, Pointers(parts), static_cast<int64_t>(count), pointers,
                        executor);
          for (int c = 0; c < ranks; ++c) {
            const Chunk chunk = ChunkOf(static_cast<int64_t>(count), ranks, c);
            for (int64_t i = 0; i < chunk.length; ++i) {
              const auto at = static_cast<size_t>(chunk.begin + i);
              const float expected =
                  ranks == 1 ? parts[0][at] : Sum(parts, at, reduction.order, reduction.wire, c);
              EXPECT_EQ(outs[static_cast<size_t>(c)][static_cast<size_t>(i)], expected)
                  << NameOf(reduction) << " chunk " << c << " of " << ranks;
              rounded_would_differ += expected != Bf16(expected) ? 1 : 0;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(rounded_would_differ, 1000);
}

TEST(Schedules, ChunksCoverEveryValueOnce) {
  for (int64_t count : {0, 1, 5, 8, 9, 100}) {
    for (int ranks : {1, 2, 3, 8}) {
      int64_t at = 0;
      for (int c = 0; c < ranks; ++c) {
        const Chunk chunk = ChunkOf(count, ranks, c);
        EXPECT_EQ(chunk.begin, at);
        EXPECT_GE(chunk.length, 0);
        at += chunk.length;
      }
      EXPECT_EQ(at, count);
    }
  }
  // 9 over 8: two each, and the last ranks have none.
  EXPECT_EQ(ChunkOf(9, 8, 4).length, 1);
  EXPECT_EQ(ChunkOf(9, 8, 5).length, 0);
}

// In a ring a rank only talks to its neighbours, and sends as much as any other.
TEST(Schedules, ARingIsARing) {
  std::vector<int64_t> sent(4, 0);
  for (const Hop& hop : AllReduceSchedule(Order::kRing, 4, 100)) {
    if (hop.from == hop.to) continue;
    EXPECT_EQ(hop.to, (hop.from + 1) % 4);
    sent[static_cast<size_t>(hop.from)] += hop.length;
  }
  EXPECT_EQ(sent, (std::vector<int64_t>(4, 2 * 75)));
  EXPECT_TRUE(AllReduceSchedule(Order::kRing, 1, 100).empty());
}

TEST(Reductions, AreNamed) {
  std::set<std::string> names;
  for (const Reduction& reduction : Reductions()) {
    names.insert(NameOf(reduction));
    EXPECT_EQ(ReductionFromName(NameOf(reduction)), reduction);
  }
  EXPECT_EQ(names, (std::set<std::string>{"sequential:fp32", "sequential:bf16", "ring:fp32",
                                          "ring:bf16", "tree:fp32", "tree:bf16"}));
  EXPECT_EQ(ReductionFromName("tree"), (Reduction{Order::kTree, Wire::kFp32}));
  for (const char* wrong : {"", "ring:int8", "ring:", "star:fp32", ":bf16", "ring:bf16 "}) {
    EXPECT_FALSE(ReductionFromName(wrong).has_value()) << wrong;
  }
}

TEST(Gather, RanksSideBySideAndPaddingDropped) {
  // 2 rows; ranks hold columns 0-1, 2-3, 4-5, of which 5 columns are real.
  const Values a = {0, 1, 10, 11}, b = {2, 3, 12, 13}, c = {4, -1, 14, -1};
  Values out(10, -9);
  const std::vector<const float*> parts = {a.data(), b.data(), c.data()};
  GatherColumns(parts, 2, 2, 5, out.data());
  EXPECT_EQ(out, (Values{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}));
  // A rank that holds nothing but padding.
  Values three(6, -9);
  GatherColumns(parts, 2, 2, 3, three.data());
  EXPECT_EQ(three, (Values{0, 1, 2, 10, 11, 12}));
}

}  // namespace
}  // namespace assay::kernels
