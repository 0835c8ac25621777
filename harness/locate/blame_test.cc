// Whose fault it is, and how many there are: several at once, engines that hide what is inside,
// choices of the router.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/locate/testing/rig.h"

namespace assay::locate {
namespace {

using assay::testing::Engine;
using assay::testing::Prefill;
using assay::testing::RequestFor;
using assay::testing::TestModel;
using reference::Node;
using reference::Tensor;

TEST(Locate, IndependentFaultsAreSeparateEntriesInDataFlowOrder) {
  Rig rig;
  auto& words = rig.engine.shards[{"L1.moe.e3.down.weight", 0}].bytes;
  std::fill(words.begin(), words.end(), std::byte{0});
  rig.engine.reduce_ranks = [](const Node&) { return std::vector<int>{0}; };
  rig.Plant("L1.attn.scores", 1, [](Tensor* v) { v->data[9] += 2; });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].tap, "L1.attn.scores");
  EXPECT_EQ(found[0].index, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(found[1].tensor, "L1.moe.e3.down.weight");
  EXPECT_EQ(found[2].cls, "collective");
}

TEST(Locate, AKernelWrongOnAWrongShardIsTwoFaults) {
  Rig rig;
  auto& scale = rig.engine.shards[{"L1.moe.e2.down.scale", 1}];
  scale.bytes = rig.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  rig.Plant("L1.moe.e2.down", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 3;
  });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 2u);
  std::set<std::string> classes{found[0].cls, found[1].cls};
  EXPECT_EQ(classes, (std::set<std::string>{"kernel", "loader"}));
}

TEST(Locate, ABlackBoxIsNotTheCollectivesFault) {
  Rig rig;
  rig.black_box = true;
  rig.Plant("L1.moe.e2.act", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 1.5;
  });
  auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tap, "L1.moe.out");
  EXPECT_EQ(found[0].cls, "kernel");
  EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"loader"}));
}

TEST(Locate, AWrongShardInsideABlackBoxExplainsWhatComesOut) {
  Rig rig(4);
  rig.black_box = true;
  rig.engine.shards[{"L1.moe.e2.down.scale", 3}].bytes =
      rig.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].cls, "loader");
  EXPECT_EQ(found[0].tensor, "L1.moe.e2.down.scale");
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"kernel"}));
}

TEST(Locate, TheRoutersChoiceIsTheRouters) {
  Rig rig;
  rig.Plant("L1.router.ids", 0, [](Tensor* v) {
    double* row = v->data.data();
    for (double e = 0; e < 4; ++e) {
      if (row[0] == e || row[1] == e) continue;
      row[1] = e;
      break;
    }
    if (row[0] > row[1]) std::swap(row[0], row[1]);
  });
  const auto found = rig.Run();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].cls, "router");
  EXPECT_EQ(found[0].op, "ids");
  EXPECT_EQ(found[0].signature.id, "other-choice");
}

TEST(Locate, IdsThatNoRouterMayGiveAreTheRoutersWhateverIsHidden) {
  const std::tuple<const char*, double, double> cases[] = {
      {"ids-out-of-range", 0, 99}, {"ids-out-of-range", -5, 1}, {"ids-twice", 2, 2}};
  for (const auto& [id, first, second] : cases) {
    for (const bool hidden : {false, true}) {
      Rig rig;
      EngineTrace trace = rig.engine.Run(rig.steps);
      TapValue& ids = trace.taps.at({0, "L1.router.ids", 0});
      auto values = judge::ToTensor(ids).data;
      values[0] = first;
      values[1] = second;
      ids.bytes = assay::testing::Encode(values, ids.dtype);
      if (hidden) {
        std::erase_if(trace.taps,
                      [](const auto& tap) { return tap.first.tap == "L1.router.scores"; });
      }
      LocateRequest request;
      request.judge = RequestFor(rig.model, trace, 2, rig.steps);
      auto judged = judge::JudgeTrace(request.judge);
      ASSERT_TRUE(judged.ok()) << judged.error().message;
      request.judgements = &*judged;
      const auto found = Locate(request);
      ASSERT_TRUE(found.ok());
      ASSERT_FALSE(found->empty());
      EXPECT_EQ((*found)[0].tap, "L1.router.ids");
      EXPECT_EQ((*found)[0].cls, "router");
      EXPECT_EQ((*found)[0].signature.id, id) << (*found)[0].signature.text;
    }
  }
}

TEST(Locate, TheRightExpertsInAnotherOrderAreNotAnotherChoice) {
  Rig rig;
  rig.Plant("L1.router.ids", 0, [](Tensor* v) { std::swap(v->data[0], v->data[1]); });
  const auto found = rig.Run();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].signature.id, "ids-not-ascending");
  EXPECT_NE(found[0].signature.text.find("not ascending"), std::string::npos);
}

TEST(Locate, AFactorNearOneIsPrintedWithItsDigits) {
  Rig rig;
  rig.Plant("L1.moe.partial", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 1.0000321;
  });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].signature.id, "constant-factor");
  EXPECT_NE(found[0].signature.text.find("1.00003"), std::string::npos) << found[0].signature.text;
}

TEST(Locate, AnOpsFindingHasItsStepAndAShardsHasNone) {
  Rig rig;
  rig.steps.push_back({{7}, 9});
  int calls = 0;
  rig.engine.hook = [&](const Node& node, int rank, Tensor* value) {
    if (node.tap == "L1.post_norm" && rank == 0 && ++calls == 2) value->data[0] += 5;
  };
  auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].step, 1);
  Rig wrong;
  wrong.engine.shards[{"L1.moe.e2.down.scale", 1}].bytes =
      wrong.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  found = wrong.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].step.has_value());
}

TEST(Locate, AnExactDatasLastPlaceIsATruncation) {
  assay::testing::Sizes sizes;
  sizes.exact = true;
  const TestModel model(5, sizes);
  Engine engine(model, 1, 3);
  engine.hook = [](const Node& node, int, Tensor* value) {
    if (node.tap != "L1.attn.q") return;
    for (double& v : value->data) {  // cut off after the eight bits of bf16
      if (v == 0) continue;
      const double unit = std::ldexp(1.0, std::ilogb(v) - 7);
      v = std::trunc(v / unit) * unit;
    }
  };
  const auto steps = Prefill(9);
  const EngineTrace trace = engine.Run(steps);
  LocateRequest request;
  request.judge = RequestFor(model, trace, 1, steps);
  auto judged = judge::JudgeTrace(request.judge);
  request.judgements = &*judged;
  auto found = Locate(request);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*found)[0].signature.id, "truncated-rounding");
}

TEST(Locate, NothingToLocateInIsAnError) { EXPECT_FALSE(Locate({}).ok()); }

}  // namespace
}  // namespace assay::locate
