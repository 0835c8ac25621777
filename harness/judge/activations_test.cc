// 8-bit activations: scales, codes and the product are three ops, and each is blamed for itself.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/judge.h"
#include "harness/judge/testing/test_model.h"

namespace assay::judge {
namespace {

using assay::testing::Encode;
using assay::testing::Engine;
using assay::testing::Prefill;
using assay::testing::RequestFor;
using assay::testing::TestModel;
using reference::Node;
using reference::Tensor;

constexpr const char* kDown = "L1.moe.e2.down";

struct Rig {
  TestModel model{41};
  Engine engine{model, 2, 5};
  std::vector<reference::Step> steps = Prefill(9);
  EngineTrace trace;
  bool contract_says_so = false;

  Rig() { engine.act = "a8g32"; }
  std::vector<OpJudgement> Judge() {
    if (trace.taps.empty()) trace = engine.Run(steps);
    auto request = RequestFor(model, trace, 2, steps);
    if (contract_says_so) request.contract.act = engine.act;
    auto judged = JudgeTrace(request);
    EXPECT_TRUE(judged.ok()) << (judged.ok() ? "" : judged.error().message);
    return judged.ok() ? std::move(*judged) : std::vector<OpJudgement>{};
  }
};

std::vector<std::string> Failures(const std::vector<OpJudgement>& judged) {
  std::vector<std::string> taps;
  for (const OpJudgement& j : judged) {
    if (!j.pass) taps.push_back(j.node->tap + "@r" + std::to_string(j.rank));
  }
  return taps;
}

const OpJudgement* Find(const std::vector<OpJudgement>& judged, const std::string& tap,
                        int rank = 1) {
  for (const OpJudgement& j : judged) {
    if (j.node->tap == tap && j.rank == rank) return &j;
  }
  return nullptr;
}

// A change of one rank's codes or scales of expert 2's down.
void Change(Engine* engine, std::function<void(Tensor* codes, Tensor* scales)> change) {
  engine->codes = [change](const Node& node, int rank, Tensor* codes, Tensor* scales) {
    if (node.tap == kDown && rank == 1) change(codes, scales);
  };
}

TEST(Activations, AnHonestEngineHasNoFailureAndEachStageIsJudged) {
  for (const char* act : {"a8g32", "a8row"}) {
    for (const int seed : {41, 42, 43}) {
      Rig rig;
      rig.model = TestModel(static_cast<uint64_t>(seed));
      rig.engine = Engine(rig.model, 2, 5);
      rig.engine.act = act;
      const auto judged = rig.Judge();
      EXPECT_TRUE(Failures(judged).empty()) << Failures(judged)[0];
      const OpJudgement* scale = Find(judged, std::string(kDown) + ".x_scale");
      const OpJudgement* codes = Find(judged, std::string(kDown) + ".x_q");
      const OpJudgement* product = Find(judged, kDown);
      ASSERT_TRUE(scale != nullptr && codes != nullptr && product != nullptr);
      EXPECT_TRUE(scale->judged && codes->judged && product->judged);
      EXPECT_LT(scale, codes) << "in data-flow order";
      EXPECT_LT(codes, product);
      EXPECT_EQ(codes->mode, "discrete");
      EXPECT_FALSE(product->composite);
      EXPECT_EQ(codes->node->expert, 2);
      EXPECT_EQ(codes->node->path, "moe.down.x_q");
      EXPECT_GT(codes->elements, scale->elements);
    }
  }
}

TEST(Activations, AWrongScaleIsTheScalesAndNotTheProducts) {
  Rig rig;
  Change(&rig.engine, [](Tensor* codes, Tensor* scales) {
    for (double& c : codes->data) c = std::nearbyint(c * scales->data[0] / (scales->data[0] * 1.5));
    for (double& s : scales->data) s = static_cast<float>(s * 1.5);
  });
  const auto judged = rig.Judge();
  ASSERT_FALSE(Failures(judged).empty());
  EXPECT_EQ(Failures(judged)[0], std::string(kDown) + ".x_scale@r1");
  EXPECT_TRUE(Find(judged, kDown)->pass) << "right on what it was given";
  const OpJudgement& scale = *Find(judged, std::string(kDown) + ".x_scale");
  EXPECT_EQ(scale.first, 0);
  // Half as large again, rounded once here and once in the engine's own division.
  const double roundings = 2 * UnitRoundoff(DType::kF32) * scale.got;
  EXPECT_LE(std::abs(scale.got - scale.expected * 1.5), roundings);
}

TEST(Activations, AScaleMayBeOneUlpOffAndNoMore) {
  for (const int ulps : {1, 2}) {
    Rig rig;
    Change(&rig.engine, [&](Tensor*, Tensor* scales) {
      auto s = static_cast<float>(scales->data[0]);
      for (int i = 0; i < ulps; ++i) s = std::nextafter(s, 1.0f);
      scales->data[0] = s;
    });
    EXPECT_EQ(Failures(rig.Judge()).empty(), ulps == 1) << ulps;
  }
}

TEST(Activations, AWrongCodeHasItsPlaceAndTheProductIsClear) {
  Rig rig;
  Change(&rig.engine,
         [](Tensor* codes, Tensor*) { codes->data[37] += codes->data[37] > 0 ? -1 : 1; });
  const auto judged = rig.Judge();
  EXPECT_EQ(Failures(judged), std::vector<std::string>{std::string(kDown) + ".x_q@r1"});
  const OpJudgement& codes = *Find(judged, std::string(kDown) + ".x_q");
  EXPECT_EQ(codes.first, 37);
  EXPECT_EQ(codes.wrong, 1);
  EXPECT_EQ(std::abs(codes.got - codes.expected), 1);
}

// The judgement of code 1 of rank 1's first group, where x[0] = amax and x[1] = x.
OpJudgement JudgeCode(double amax, double x, double code) {
  Rig rig;
  rig.engine.hook = [&](const Node& node, int rank, Tensor* value) {
    if (node.tap != "L1.moe.e2.act" || rank != 1) return;
    for (int i = 0; i < 32; ++i) value->data[i] = amax * i / 128;
    value->data[0] = amax;
    value->data[1] = x;
  };
  Change(&rig.engine, [&](Tensor* codes, Tensor*) { codes->data[1] = code; });
  return *Find(rig.Judge(), std::string(kDown) + ".x_q");
}

TEST(Activations, NearATieTheNeighbourIsAdoptedAndCounted) {
  // 36 over fl(72 / 127) is one unit in the last place below 63.5.
  EXPECT_TRUE(JudgeCode(72, 36, 63).pass);
  EXPECT_EQ(JudgeCode(72, 36, 63).ambiguous, 0);
  EXPECT_TRUE(JudgeCode(72, 36, 64).pass);
  EXPECT_EQ(JudgeCode(72, 36, 64).ambiguous, 1);
  EXPECT_FALSE(JudgeCode(72, 36, 62).pass);
  EXPECT_FALSE(JudgeCode(72, 36, 65).pass);
}

TEST(Activations, InATieTheEvenCodeIsDue) {
  const double s = std::ldexp(1.0, -6);  // amax 127·s: the quotient is 3.5 in all its bits
  EXPECT_TRUE(JudgeCode(127 * s, 3.5 * s, 4).pass);
  EXPECT_FALSE(JudgeCode(127 * s, 3.5 * s, 3).pass);
  EXPECT_FALSE(JudgeCode(127 * s, 4.5 * s, 5).pass);
  EXPECT_EQ(JudgeCode(127 * s, 3.5 * s, 4).ambiguous, 0);
}

TEST(Activations, AProductThatIsWrongOnRightCodesIsTheProducts) {
  Rig rig;
  rig.engine.hook = [](const Node& node, int rank, Tensor* value) {
    if (node.tap == kDown && rank == 1) value->data[3] = value->data[3] * 1.1 + 0.1;
  };
  EXPECT_EQ(Failures(rig.Judge()), std::vector<std::string>{std::string(kDown) + "@r1"});
}

TEST(Activations, WithoutShownCodesTheOracleQuantises) {
  Rig rig;
  rig.trace = rig.engine.Run(rig.steps);
  std::erase_if(rig.trace.taps, [](const auto& tap) { return !LinearOf(tap.first.tap).empty(); });
  EXPECT_TRUE(Failures(rig.Judge()).empty());
  // The control: taken for an engine whose activations stay bf16, it is wrong.
  rig.trace.executed.clear();
  EXPECT_FALSE(Failures(rig.Judge()).empty());
  // And the contract alone says it as well.
  rig.contract_says_so = true;
  EXPECT_TRUE(Failures(rig.Judge()).empty());
}

TEST(Activations, ShapesAndTypesOfCodesAndScalesAreJudged) {
  for (const char* suffix : {".x_q", ".x_scale"}) {
    for (const bool type : {false, true}) {
      Rig rig;
      rig.trace = rig.engine.Run(rig.steps);
      TapValue& tap = rig.trace.taps.at({0, std::string(kDown) + suffix, 1});
      const Tensor value = ToTensor(tap);
      tap =
          type ? TapValue{DType::kI32, tap.shape, Encode(value.data, DType::kI32)}
               : TapValue{tap.dtype, {1, 3}, std::vector<std::byte>(3 * SizeOf(tap.dtype).count())};
      const auto judged = rig.Judge();
      EXPECT_EQ(Failures(judged), std::vector<std::string>{std::string(kDown) + suffix + "@r1"});
      EXPECT_TRUE(Find(judged, kDown)->judged);
    }
  }
}

TEST(Activations, CodesOfAKernelThatTakesNoneAreAContradiction) {
  Rig rig;
  rig.trace = rig.engine.Run(rig.steps);
  for (ExecutedRecord& record : rig.trace.executed) {
    if (record.tap == kDown && record.rank == 1) record.act = "a16";
  }
  const auto judged = rig.Judge();
  const OpJudgement& codes = *Find(judged, std::string(kDown) + ".x_q");
  EXPECT_FALSE(codes.pass);
  EXPECT_NE(codes.reason.find("a16"), std::string::npos) << codes.reason;
}

TEST(Activations, AHiddenInputIsStillHeldToItsBound) {
  for (const bool wrong : {false, true}) {
    Rig rig;
    if (wrong) {
      Change(&rig.engine,
             [](Tensor* codes, Tensor*) { codes->data[5] += codes->data[5] > 0 ? -9 : 9; });
    }
    rig.trace = rig.engine.Run(rig.steps);
    std::erase_if(rig.trace.taps, [](const auto& tap) { return tap.first.tap == "L1.moe.e2.act"; });
    const auto judged = rig.Judge();
    const OpJudgement& codes = *Find(judged, std::string(kDown) + ".x_q");
    EXPECT_TRUE(codes.judged && codes.composite);
    EXPECT_EQ(codes.pass, !wrong) << codes.reason;
    EXPECT_TRUE(Find(judged, kDown)->pass);
    EXPECT_FALSE(Find(judged, kDown)->composite) << "its codes are the engine's own";
  }
}

TEST(Activations, AnActWithoutAQuantiserIsNotJudgedOnAGuess) {
  Rig rig;
  rig.trace = rig.engine.Run(rig.steps);
  for (ExecutedRecord& record : rig.trace.executed) record.act = "q8_1";
  std::erase_if(rig.trace.taps, [](const auto& tap) { return !LinearOf(tap.first.tap).empty(); });
  const auto judged = rig.Judge();
  EXPECT_FALSE(Find(judged, kDown)->judged);
  EXPECT_NE(Find(judged, kDown)->reason.find("q8_1"), std::string::npos);
}

TEST(JudgeOne, JudgesCodesAgain) {
  Rig rig;
  rig.trace = rig.engine.Run(rig.steps);
  const auto request = RequestFor(rig.model, rig.trace, 2, rig.steps);
  const auto judged = JudgeTrace(request);
  const OpJudgement& codes = *Find(*judged, std::string(kDown) + ".x_q");
  const auto again = JudgeOne(request, *codes.node, 1, 0);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->judged && again->pass);
  EXPECT_EQ(again->elements, codes.elements);
}

TEST(LinearOf, NamesTheOpOfItsActivations) {
  EXPECT_EQ(LinearOf("L1.attn.q.x_q"), "L1.attn.q");
  EXPECT_EQ(LinearOf("logits.x_scale"), "logits");
  EXPECT_EQ(LinearOf("L1.attn.q"), "");
  EXPECT_EQ(LinearOf(".x_q"), "");
}

}  // namespace
}  // namespace assay::judge
