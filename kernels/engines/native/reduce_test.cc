// Sums over ranks through the C ABI: the order and wire that were asked for are what runs, in the
// model's own reduces and in the collectives called by themselves.
#include <gtest/gtest.h>

#include <set>

#include "kernels/collectives/collectives.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/engines/native/values.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kModel = "goldens/checkpoints/k2-mini";
const std::vector<int32_t> kTokens = {256, 102, 111, 114, 32};

struct Session {
  Session(const std::string& reduce, int tp, int attn_tp = 0)
      : checkpoint(OpenCheckpoint(kModel)), driver(NativeEngine()) {
    Wishes wishes;
    wishes.tp = tp;
    wishes.attn_tp = attn_tp;
    wishes.reduce = reduce;
    EXPECT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK) << driver.error().message;
  }
  void Run() {
    EXPECT_EQ(driver.LoadAll(*checkpoint), ASSAY_OK) << driver.error().message;
    driver.Logits(kTokens, 0, 261);
  }
  std::unique_ptr<Checkpoint> checkpoint;
  Driver driver;
};

// Four ranks of two rows; every order and wire has its own bits (collectives_test derives them).
std::vector<In> Parts() {
  std::vector<In> parts;
  for (int rank = 0; rank < 4; ++rank) {
    In in{"L1.moe.partial", {2, 5}, {}, {}, rank};
    for (int i = 0; i < 10; ++i) {
      const int mixed = (7 * rank + 3 * i) % 11;
      in.values.push_back(static_cast<float>(mixed - 5) * (1.0f + 0x1p-7f * static_cast<float>(i)) +
                          (mixed % 2 == 0 ? 0x1p-16f : 300.25f));
    }
    parts.push_back(std::move(in));
  }
  return parts;
}

// What the collective gives each rank, rounded once as the engine's contract says of a reduce.
std::vector<std::vector<float>> ChunksOf(const Reduction& reduction, const std::vector<In>& parts) {
  constexpr int64_t kCount = 10;
  const int ranks = static_cast<int>(parts.size());
  std::vector<const float*> in;
  std::vector<std::vector<float>> chunks;
  std::vector<float*> out;
  for (const In& part : parts) in.push_back(part.values.data());
  for (int rank = 0; rank < ranks; ++rank) {
    chunks.emplace_back(static_cast<size_t>(ChunkOf(kCount, ranks, rank).length));
  }
  for (auto& chunk : chunks) out.push_back(chunk.data());
  ReduceScatter(reduction, in, kCount, out);
  for (auto& chunk : chunks) {
    for (float& value : chunk) value = FromBf16(ToBf16(value));
  }
  return chunks;
}

// The model's reduces by hand: the sum of the taps of the partials, in the order that was asked.
TEST(Reduce, TheModelsSumsAreThoseOfTheCollective) {
  std::set<std::vector<double>> sums;
  for (const Reduction& reduction : Reductions()) {
    Session session(NameOf(reduction), 4);
    session.Run();
    for (const char* names : {"L0.attn.", "L1.moe."}) {
      const std::string prefix = names;
      std::vector<In> parts;
      for (int rank = 0; rank < 4; ++rank) {
        const Tap& tap = session.driver.taps[{prefix + "partial", rank}];
        In in{prefix + "partial", tap.shape, {}, {}, rank};
        for (double value : tap.Values()) in.values.push_back(static_cast<float>(value));
        parts.push_back(std::move(in));
      }
      const Tap out = session.driver.taps[{prefix + "out", 0}];
      std::vector<float> sum;
      ASSERT_EQ(session.driver.Reduce(prefix + "out", parts, &sum), ASSAY_OK);
      const std::vector<double> expected(sum.begin(), sum.end());
      for (int rank = 0; rank < 4; ++rank) {
        EXPECT_EQ((session.driver.taps[{prefix + "out", rank}].Values()), expected);
        std::string kernel = "all_reduce_" + NameOf(reduction);
        kernel.replace(kernel.find(':'), 1, "_");
        EXPECT_EQ((session.driver.ran[{prefix + "out", rank}].kernel), kernel);
      }
      if (prefix == "L0.attn.") sums.insert(out.Values());
    }
  }
  // After rounding to bf16 some orders agree; wires do not.
  EXPECT_GE(sums.size(), 3u);
}

// Attention's sum goes over attention ranks alone; with one of them nothing travels.
TEST(Reduce, AttentionHasItsOwnGroup) {
  Session one("sequential:fp32", 4, 1), wire("sequential:bf16", 4, 1);
  one.Run();
  wire.Run();
  EXPECT_EQ((one.driver.taps[{"L0.attn.out", 3}]), (wire.driver.taps[{"L0.attn.out", 3}]));
  EXPECT_NE((one.driver.taps[{"L0.mlp.out", 3}]), (wire.driver.taps[{"L0.mlp.out", 3}]));
}

TEST(Reduce, EveryRankGetsItsChunk) {
  for (const Reduction& reduction : Reductions()) {
    Session session(NameOf(reduction), 4);
    const auto parts = Parts();
    std::vector<std::vector<float>> chunks;
    ASSERT_EQ(session.driver.Collective("reduce_scatter", "L1.moe.out", parts, {{3}, {3}, {3}, {1}},
                                        &chunks),
              ASSAY_OK)
        << session.driver.error().message;
    EXPECT_EQ(chunks, ChunksOf(reduction, parts)) << NameOf(reduction);
    EXPECT_NE(chunks[1], chunks[2]);  // the check could fail
    EXPECT_EQ((session.driver.ran[{"L1.moe.out", 2}].kernel.find("reduce_scatter_")), 0u);
  }
}

TEST(Reduce, AGatherJoinsColumnsAndCutsThem) {
  Session session("", 2);
  const std::vector<In> parts = {{"logits", {2, 3}, {0, 1, 2, 10, 11, 12}, {}, 0},
                                 {"logits", {2, 3}, {3, 4, 5, 13, 14, 15}, {}, 1}};
  std::vector<std::vector<float>> out;
  ASSERT_EQ(session.driver.Collective("gather", "logits", parts, {{2, 5}}, &out), ASSAY_OK);
  EXPECT_EQ(out[0], (std::vector<float>{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}));
  EXPECT_EQ((session.driver.ran[{"logits", -1}].kernel), "gather_columns");
}

// Sizes are checked before anything is written.
TEST(Reduce, WrongSizesAreErrors) {
  Session session("", 4);
  Driver& driver = session.driver;
  const auto parts = Parts();
  std::vector<std::vector<float>> out;
  const auto fails = [&](const char* kind, const std::vector<In>& in,
                         const std::vector<std::vector<int64_t>>& shapes, const char* word) {
    EXPECT_EQ(driver.Collective(kind, "t", in, shapes, &out), ASSAY_FAILED) << kind;
    EXPECT_NE(std::string_view(driver.error().message).find(word), std::string_view::npos)
        << driver.error().message;
  };
  fails("all_reduce", parts, {{2, 4}}, "does not hold");
  fails("all_reduce", parts, {}, "output is NULL");
  fails("all_reduce", {}, {{2}}, "rank_count is 0");
  fails("reduce_scatter", parts, {{3}, {3}, {4}}, "3 outputs for 4 ranks");
  fails("reduce_scatter", parts, {{3}, {3}, {3}, {2}}, "does not hold");
  fails("gather", parts, {{2, 21}}, "at most 20");
  fails("gather", parts, {{1, 20}}, "must be [2");
  fails("gather", parts, {{40}}, "must be [2");
  auto uneven = parts;
  uneven[2].shape = {5, 2};
  fails("all_reduce", uneven, {{2, 5}}, "a part is [5, 2], the first [2, 5]");
  fails("gather", uneven, {{2, 20}}, "a part is [5, 2]");
  EXPECT_EQ(driver.Collective("broadcast", "t", parts, {{2, 5}}, &out), ASSAY_UNSUPPORTED);
}

}  // namespace
}  // namespace assay::kernels::native
