// The walk over whole traces: no false alarm on correct runs, planted mistakes found where they
// are.
#include "harness/judge/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness/judge/testing/test_model.h"

namespace assay::judge {
namespace {

using assay::testing::Encode;
using assay::testing::Engine;
using assay::testing::Prefill;
using assay::testing::RequestFor;
using assay::testing::Sizes;
using assay::testing::TestModel;
using reference::Node;
using reference::Tensor;

std::vector<OpJudgement> Judge(const TestModel& model, const EngineTrace& trace, int tp,
                               const std::vector<reference::Step>& steps = Prefill(5)) {
  auto judged = JudgeTrace(RequestFor(model, trace, tp, steps));
  EXPECT_TRUE(judged.ok()) << (judged.ok() ? "" : judged.error().message);
  return judged.ok() ? std::move(*judged) : std::vector<OpJudgement>{};
}

const OpJudgement* FirstFailure(const std::vector<OpJudgement>& judged) {
  for (const OpJudgement& j : judged) {
    if (!j.pass) return &j;
  }
  return nullptr;
}

const OpJudgement& Of(const std::vector<OpJudgement>& judged, const std::string& tap, int rank,
                      int step = 0) {
  for (const OpJudgement& j : judged) {
    if (j.node->tap == tap && j.rank == rank && j.step == step) return j;
  }
  ADD_FAILURE() << tap << " was not judged";
  static const OpJudgement none;
  return none;
}

TEST(JudgeTrace, NoFalseAlarmWhateverTheOrderOfSummation) {
  double largest = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const TestModel model(seed);
    for (const int tp : {1, 2, 4}) {
      const EngineTrace trace =
          Engine(model, tp, seed * 31 + static_cast<uint64_t>(tp)).Run(Prefill(7));
      const auto judged = Judge(model, trace, tp, Prefill(7));
      const OpJudgement* failure = FirstFailure(judged);
      EXPECT_EQ(failure, nullptr) << "seed " << seed << " tp " << tp << " " << failure->node->tap
                                  << ": " << failure->reason;
      for (const OpJudgement& j : judged) largest = std::max(largest, j.max_ratio);
    }
  }
  EXPECT_GT(largest, 0.1) << "a bound that nothing comes near to sees nothing";
}

TEST(JudgeTrace, EveryTapOfARunIsJudged) {
  const TestModel model(3);
  const auto judged = Judge(model, Engine(model, 2).Run(Prefill(9)), 2, Prefill(9));
  for (const OpJudgement& j : judged) {
    EXPECT_TRUE(j.judged || j.reason == "no token is routed to this expert") << j.reason;
  }
}

TEST(JudgeTrace, OneWrongElementIsFoundOnItsRankAndNowhereElse) {
  const TestModel model(4);
  for (const char* tap :
       {"L1.post_norm", "L1.router.logits", "L1.moe.e1.gate", "L1.moe.e2.down", "L1.moe.partial",
        "L1.moe.out", "L1.residual_mlp", "logits", "L1.attn.scores", "L1.attn.ctx", "embed"}) {
    Engine engine(model, 2, 9);
    engine.hook = [&](const Node& node, int rank, Tensor* value) {
      if (node.tap == tap && rank == 1) value->data[9] = value->data[9] * 1.05 + 0.01;
    };
    const auto judged = Judge(model, engine.Run(Prefill(9)), 2, Prefill(9));
    for (const OpJudgement& j : judged) {
      const bool planted = j.node->tap == tap && j.rank == 1;
      EXPECT_EQ(j.pass, !planted) << j.node->tap << "@r" << j.rank << " " << j.reason;
      if (planted) {
        EXPECT_EQ(j.first, 9);
        EXPECT_EQ(j.wrong, 1);
      }
    }
  }
}

TEST(JudgeTrace, ExactDataIsJudgedBitForBit) {
  Sizes sizes;
  sizes.exact = true;
  const TestModel model(5, sizes);
  Engine engine(model, 2, 77);
  const auto judged = Judge(model, engine.Run(Prefill(5)), 2);
  EXPECT_EQ(FirstFailure(judged), nullptr);
  EXPECT_EQ(Of(judged, "L1.attn.q", 0).mode, "exact");
  EXPECT_EQ(Of(judged, "L1.moe.out", 0).mode, "bitwise");
  EXPECT_EQ(Of(judged, "embed", 0).mode, "bitwise");

  // One unit in the last place of bf16 is within any bound, and wrong here.
  engine.hook = [&](const Node& node, int, Tensor* value) {
    if (node.tap != "L1.attn.q") return;
    const double y = RoundTo(value->data[2], DType::kBF16);
    value->data[2] = y + std::ldexp(1.0, std::ilogb(y) - 7);
  };
  const auto wrong = Judge(model, engine.Run(Prefill(5)), 2);
  ASSERT_NE(FirstFailure(wrong), nullptr);
  EXPECT_EQ(FirstFailure(wrong)->node->tap, "L1.attn.q");
  EXPECT_TRUE(std::isinf(FirstFailure(wrong)->max_ratio));
}

TEST(JudgeTrace, TheSumOfRanksIsModelledBitForBitWhereItsOrderIsDeclared) {
  const TestModel model(6);
  Engine engine(model, 4);
  const auto judge = [&](bool declared) {
    const EngineTrace trace = engine.Run(Prefill(9));
    auto request = RequestFor(model, trace, 4, Prefill(9));
    request.contract.reduce_exact = declared;
    request.contract.rounding["reduce"] = DType::kF32;
    EngineTrace plain = trace;  // fp32 sums, which the test engine rounds: add again
    for (auto& [key, value] : plain.taps) {
      if (key.tap != "L1.moe.out") continue;
      Tensor sum =
          ToTensor(plain.taps.at({key.step, "L1.moe.partial", engine.reduce_ranks ? 3 : 0}));
      for (int turn = 1; turn < 4; ++turn) {
        const int r = engine.reduce_ranks ? 3 - turn : turn;
        const Tensor part = ToTensor(plain.taps.at({key.step, "L1.moe.partial", r}));
        for (size_t i = 0; i < sum.data.size(); ++i) {
          sum.data[i] = static_cast<float>(sum.data[i]) + static_cast<float>(part.data[i]);
        }
      }
      value = {DType::kF32, sum.shape, Encode(sum.data, DType::kF32)};
    }
    request.trace = &plain;
    request.nodes = {model.FindNode("L1.moe.partial"), model.FindNode("L1.moe.out")};
    auto judged = JudgeTrace(request);
    EXPECT_TRUE(judged.ok());
    return Of(*judged, "L1.moe.out", 0);
  };
  EXPECT_TRUE(judge(true).pass);
  EXPECT_EQ(judge(true).mode, "bitwise");
  EXPECT_EQ(judge(false).mode, "bounded");
  // Another order: within the bound, and not what was declared.
  engine.reduce_ranks = [](const Node&) { return std::vector<int>{3, 2, 1, 0}; };
  const OpJudgement reversed = judge(true);
  EXPECT_FALSE(reversed.pass);
  EXPECT_TRUE(std::isinf(reversed.max_ratio));
  EXPECT_GT(reversed.bound_ratio, 0);
  EXPECT_LE(reversed.bound_ratio, 1);
  EXPECT_NE(reversed.reason.find("of their bound"), std::string::npos) << reversed.reason;
  EXPECT_TRUE(judge(false).pass);
}

TEST(JudgeTrace, ARankLeftOutIsBeyondTheBound) {
  const TestModel model(6);
  Engine engine(model, 4);
  engine.reduce_ranks = [](const Node&) { return std::vector<int>{0, 1, 2}; };
  const auto missing = Judge(model, engine.Run(Prefill(9)), 4, Prefill(9));
  ASSERT_NE(FirstFailure(missing), nullptr);
  EXPECT_EQ(FirstFailure(missing)->node->tap, "L1.moe.out");
}

TEST(JudgeTrace, ReplicasReuseRankZeroAndDifferentBitsDoNot) {
  const TestModel model(7);
  Engine engine(model, 4, 3);
  auto judged = Judge(model, engine.Run(Prefill(5)), 4);
  EXPECT_EQ(Of(judged, "embed", 3).same_as_rank, 0);
  EXPECT_FALSE(Of(judged, "embed", 0).same_as_rank.has_value());
  engine.hook = [](const Node& node, int rank, Tensor* value) {
    if (node.tap == "embed" && rank == 2) value->data[0] += 1;
  };
  judged = Judge(model, engine.Run(Prefill(5)), 4);
  EXPECT_FALSE(Of(judged, "embed", 2).same_as_rank.has_value());
  EXPECT_FALSE(Of(judged, "embed", 2).pass);
  EXPECT_TRUE(Of(judged, "embed", 3).pass);
}

TEST(JudgeTrace, DecodeUsesTheKeysOfEarlierSteps) {
  const TestModel model(8);
  std::vector<reference::Step> steps = Prefill(4);
  steps.push_back({{7}, 4});
  steps.push_back({{3}, 5});
  Engine engine(model, 2, 5);
  const auto judged = Judge(model, engine.Run(steps), 2, steps);
  EXPECT_EQ(FirstFailure(judged), nullptr);
  EXPECT_EQ(Of(judged, "L1.attn.scores", 1, 2).elements, 6);
  // Reading another position's key in the last step only.
  int calls = 0;
  engine.hook = [&](const Node& node, int rank, Tensor* value) {
    if (node.tap == "L1.attn.scores" && rank == 0 && ++calls == 3) {
      std::swap(value->data[0], value->data[1]);
    }
  };
  const auto wrong = Judge(model, engine.Run(steps), 2, steps);
  ASSERT_NE(FirstFailure(wrong), nullptr);
  EXPECT_EQ(FirstFailure(wrong)->step, 2);
  EXPECT_EQ(FirstFailure(wrong)->node->tap, "L1.attn.scores");
}

TEST(JudgeTrace, StepsThatLeaveAGapAreNotJudgedOnGuesses) {
  const TestModel model(8);
  std::vector<reference::Step> steps = Prefill(4);
  steps.push_back({{7}, 4});
  const EngineTrace trace = Engine(model, 1).Run(steps);
  steps[1].first_position = 9;
  const auto judged = Judge(model, trace, 1, steps);
  EXPECT_FALSE(Of(judged, "L1.attn.scores", 0, 1).judged);
}

TEST(JudgeTrace, WithoutInnerTapsTheBlockIsStillJudged) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const TestModel model(seed);
    Engine engine(model, 2, seed);
    auto strip = [](EngineTrace trace) {
      EngineTrace few;
      for (auto& [key, value] : trace.taps) {
        if (key.tap.find(".moe.e") == std::string::npos && key.tap != "L1.moe.partial") {
          few.taps[key] = value;
        }
      }
      return few;
    };
    const EngineTrace few = strip(engine.Run(Prefill(5)));
    const auto judged = Judge(model, few, 2);
    EXPECT_EQ(FirstFailure(judged), nullptr);
    const OpJudgement& out = Of(judged, "L1.moe.out", 0);
    EXPECT_TRUE(out.judged) << out.reason;
    EXPECT_EQ(out.mode, "bounded");
    // Gate and up swapped on one rank inside the black box.
    engine.hook = [](const Node& node, int rank, Tensor* value) {
      if (node.path == "moe.act" && rank == 1) {
        for (double& v : value->data) v *= 1.5;
      }
    };
    const EngineTrace wrong = strip(engine.Run(Prefill(5)));
    EXPECT_FALSE(Of(Judge(model, wrong, 2), "L1.moe.out", 0).pass);
  }
}

TEST(JudgeTrace, SaysWhatIsShownGatheredAndComposite) {
  const TestModel model(12);
  EngineTrace trace = Engine(model, 2).Run(Prefill(5));
  auto whole = JoinRanks(model, *model.FindNode("logits"), trace, {2, 2}, 0);
  ASSERT_TRUE(whole.ok());
  trace.taps[{0, "logits", -1}] = {DType::kF32, whole->shape, Encode(whole->data, DType::kF32)};
  auto judged = Judge(model, trace, 2);
  EXPECT_TRUE(Of(judged, "logits", -1).gather);
  EXPECT_TRUE(Of(judged, "logits", -1).shown);
  EXPECT_FALSE(Of(judged, "logits", 0).gather);
  EXPECT_FALSE(Of(judged, "logits", 0).composite);
  EXPECT_EQ(Mistrust(judged, *whole), "");
  trace.taps.erase({0, "L1.residual_mlp", 0});
  trace.taps.erase({0, "logits", 1});
  judged = Judge(model, trace, 2);
  EXPECT_TRUE(Of(judged, "logits", 0).composite);
  EXPECT_FALSE(Of(judged, "logits", 1).shown);
  EXPECT_FALSE(Of(judged, "logits", 1).judged);
  EXPECT_NE(Mistrust(judged, {}).find("rank 1's logits is not shown"), std::string::npos);
}

TEST(JudgeTrace, ShapesAndTypesOfTapsAreJudged) {
  const TestModel model(10);
  EngineTrace trace = Engine(model, 2).Run(Prefill(5));
  TapValue& tap = trace.taps[{0, "L1.post_norm", 1}];
  const TapValue right = tap;
  tap.shape = {4, 32};
  tap.bytes.resize(4 * 32 * 2);
  auto judged = Judge(model, trace, 2);
  EXPECT_FALSE(Of(judged, "L1.post_norm", 1).pass);
  EXPECT_NE(Of(judged, "L1.post_norm", 1).reason.find("shape"), std::string::npos);
  EXPECT_FALSE(Of(judged, "L1.router.logits", 1).judged);

  tap = {DType::kF32, right.shape, Encode(ToTensor(right).data, DType::kF32)};
  EXPECT_TRUE(Of(Judge(model, trace, 2), "L1.post_norm", 1).pass) << "wider, but rounded";
  const float unrounded = 1.0001f;
  std::memcpy(tap.bytes.data() + 8, &unrounded, 4);
  judged = Judge(model, trace, 2);
  EXPECT_NE(Of(judged, "L1.post_norm", 1).reason.find("not so rounded"), std::string::npos);
  tap = {DType::kI32, right.shape, Encode(ToTensor(right).data, DType::kI32)};
  EXPECT_NE(Of(Judge(model, trace, 2), "L1.post_norm", 1).reason.find("type"), std::string::npos);

  // The contract says fp32 for the router's logits.
  tap = right;
  TapValue& logits = trace.taps[{0, "L1.router.logits", 0}];
  logits = {DType::kBF16, logits.shape, Encode(ToTensor(logits).data, DType::kBF16)};
  EXPECT_NE(Of(Judge(model, trace, 2), "L1.router.logits", 0).reason.find("type BF16"),
            std::string::npos);
}

TEST(JudgeTrace, PaddingColumnsOfLogitsAreZero) {
  const TestModel model(11);
  Engine engine(model, 2);
  engine.hook = [](const Node& node, int rank, Tensor* value) {
    // Half the smallest subnormal of fp32 is what a bound would allow; zero is what is demanded.
    if (node.tap == "logits" && rank == 1) value->data.back() = std::ldexp(1.0, -149);
  };
  const auto judged = Judge(model, engine.Run(Prefill(5)), 2);
  EXPECT_FALSE(Of(judged, "logits", 1).pass);
  EXPECT_EQ(Of(judged, "logits", 1).first, Of(judged, "logits", 1).elements - 1);
  EXPECT_TRUE(Of(judged, "logits", 0).pass);
}

TEST(JudgeTrace, GatheredLogitsAreTheRanksColumns) {
  const TestModel model(12);
  EngineTrace trace = Engine(model, 2).Run(Prefill(5));
  auto whole = JoinRanks(model, *model.FindNode("logits"), trace, {2, 2}, 0);
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ(whole->shape, (std::vector<int64_t>{5, 21}));
  trace.taps[{0, "logits", -1}] = {DType::kF32, whole->shape, Encode(whole->data, DType::kF32)};
  EXPECT_TRUE(Of(Judge(model, trace, 2), "logits", -1).pass);
  EXPECT_EQ(Of(Judge(model, trace, 2), "logits", -1).mode, "bitwise");
  std::swap(whole->data[20], whole->data[0]);
  trace.taps[{0, "logits", -1}].bytes = Encode(whole->data, DType::kF32);
  const auto judged = Judge(model, trace, 2);
  EXPECT_FALSE(Of(judged, "logits", -1).pass);
  EXPECT_EQ(Of(judged, "logits", -1).reason.rfind("gather", 0), 0u);
  EXPECT_TRUE(Of(judged, "logits", 0).pass);
}

TEST(JudgeTrace, NotANumberAndMasksFail) {
  const TestModel model(13);
  for (const char* tap : {"L1.attn.scores", "L1.moe.out", "logits"}) {
    Engine engine(model, 1);
    engine.hook = [&](const Node& node, int, Tensor* value) {
      if (node.tap == tap) value->data[1] = std::string(tap) == "L1.attn.scores" ? -1e30 : NAN;
    };
    const OpJudgement* failure = FirstFailure(Judge(model, engine.Run(Prefill(5)), 1));
    ASSERT_NE(failure, nullptr);
  }
}

TEST(JudgeTrace, RoutingIsDiscreteWithMargins) {
  const TestModel model(14);
  Engine engine(model, 2);
  engine.hook = [](const Node& node, int rank, Tensor* value) {
    if (node.op != reference::Op::kRouterIds || rank != 1) return;
    double* row = value->data.data();
    // The expert that is not chosen takes the place of one that is.
    for (double e = 0; e < 4; ++e) {
      if (row[0] != e && row[1] != e) {
        row[1] = e;
        break;
      }
    }
    if (row[0] > row[1]) std::swap(row[0], row[1]);
  };
  auto judged = Judge(model, engine.Run(Prefill(5)), 2);
  EXPECT_FALSE(Of(judged, "L1.router.ids", 1).pass);
  EXPECT_EQ(Of(judged, "L1.router.ids", 1).mode, "discrete");
  EXPECT_TRUE(Of(judged, "L1.router.ids", 0).pass);
  engine.hook = [](const Node& node, int, Tensor* value) {
    if (node.op == reference::Op::kRouterIds) std::swap(value->data[0], value->data[1]);
  };
  // Order alone is wrong as well: the weights are in the order of the ids. The engine itself goes
  // on with them, so only the ids are looked at.
  judged = Judge(model, engine.Run(Prefill(5)), 2);
  EXPECT_NE(Of(judged, "L1.router.ids", 0).reason.find("ascending"), std::string::npos);
}

TEST(JudgeTrace, ForcedRoutingIsWhatWasGiven) {
  const TestModel model(15);
  const EngineTrace trace = Engine(model, 1).Run(Prefill(5));
  auto request = RequestFor(model, trace, 1, Prefill(5));
  request.routing_forced = true;
  const TapKey ids{0, "L1.router.ids", -1};
  request.given[ids] = trace.taps.at({0, "L1.router.ids", 0});
  EXPECT_TRUE(Of(*JudgeTrace(request), "L1.router.ids", 0).pass);
  request.given[ids].bytes[0] ^= std::byte{1};
  EXPECT_FALSE(Of(*JudgeTrace(request), "L1.router.ids", 0).pass);
}

TEST(JudgeOne, OtherWeightsHealALoadersFault) {
  const TestModel model(16);
  Engine engine(model, 2);
  const ShardKey key{"L1.moe.e2.down.scale", 1};
  engine.shards[key].bytes = engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  const EngineTrace trace = engine.Run(Prefill(9));
  auto request = RequestFor(model, trace, 2, Prefill(9));
  const Node& down = *model.FindNode("L1.moe.e2.down");
  EXPECT_FALSE(JudgeOne(request, down, 1, 0)->pass);
  MemorySource shard;
  for (const char* suffix : {".weight", ".scale"}) {
    const ExportedShard& s = engine.shards.at({down.weight + suffix, 1});
    shard.Put(down.weight + suffix, s.dtype, {s.rows, s.columns}, s.bytes);
  }
  request.weights = [&](int) { return &shard; };
  EXPECT_TRUE(JudgeOne(request, down, 1, 0)->pass);
}

TEST(JudgeTrace, TheWorstOpIsComparedWithAPlainEvaluation) {
  const TestModel model(17);
  const auto judged = Judge(model, Engine(model, 1, 2).Run(Prefill(5)), 1);
  int with = 0;
  for (const OpJudgement& j : judged) {
    if (!j.three_way) continue;
    ++with;
    EXPECT_GT(*j.three_way, 0);
    EXPECT_LT(*j.three_way, 10);
  }
  EXPECT_EQ(with, 1);
}

TEST(JudgeTrace, PassingJudgementsKeepNoTensors) {
  const TestModel model(18);
  for (const OpJudgement& j : Judge(model, Engine(model, 1).Run(Prefill(5)), 1)) {
    EXPECT_TRUE(j.oracle.data.empty());
    EXPECT_TRUE(j.tolerance.bound.empty());
  }
}

}  // namespace
}  // namespace assay::judge
