#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness/judge/internal.h"
#include "harness/judge/judge.h"
#include "harness/judge/testing/test_model.h"

namespace assay::judge {
namespace {

// These formulas take fewer than 32 roundings of double on values of at most one or so.
constexpr double kRoundings = 32 * 0x1p-53;

using assay::testing::Encode;
using reference::Tensor;

TEST(ToTensor, ReadsEveryTypeThatATapMayHave) {
  const std::vector<double> values{1.5, -0.25, 96};
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16}) {
    EXPECT_EQ(ToTensor({type, {3}, Encode(values, type)}).data, values);
  }
  EXPECT_EQ(ToTensor({DType::kI32, {2}, Encode({-7, 300}, DType::kI32)}).data,
            (std::vector<double>{-7, 300}));
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0x7C00};
  TapValue half{DType::kF16, {5}, {}};
  half.bytes.resize(sizeof halves);
  std::memcpy(half.bytes.data(), halves, sizeof halves);
  EXPECT_EQ(ToTensor(half).data,
            (std::vector<double>{1, -2, std::ldexp(1.0, -24), 65504, INFINITY}));
}

TEST(CompareWhole, CosineAndL2) {
  const Metrics m = CompareWhole({{1, 2}, {3, 4}}, {{1, 2}, {4, -3}});
  EXPECT_NEAR(*m.cosine, 0, kRoundings);
  EXPECT_NEAR(*m.rel_l2, std::sqrt(50.0) / 5, kRoundings * *m.rel_l2);
  EXPECT_EQ(*m.max_abs, 7);
  EXPECT_FALSE(CompareWhole({{1}, {1}}, {{2}, {1, 2}}).cosine.has_value());
}

TEST(AddLogitMetrics, DivergenceAndTopOne) {
  const Tensor p{{2, 2}, {0, 0, 1, 3}};
  Metrics same;
  AddLogitMetrics(p, p, &same);
  EXPECT_NEAR(*same.kld, 0, kRoundings);
  EXPECT_EQ(*same.top1, 1);
  const Tensor q{{2, 2}, {std::log(0.25), std::log(0.75), 3, 1}};
  Metrics other;
  AddLogitMetrics(p, q, &other);
  const double first = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  const double s = 1 / (1 + std::exp(-2.0));
  const double second = s * 2 + (1 - s) * -2;
  EXPECT_NEAR(*other.kld, (first + second) / 2, kRoundings);
  EXPECT_NEAR(*other.kld_stderr, std::abs(first - second) / 2, kRoundings);
  EXPECT_EQ(*other.top1, 0);
}

OpJudgement Judged(int64_t elements, int64_t nothing) {
  OpJudgement j;
  j.judged = true;
  j.elements = elements;
  j.proves_nothing = nothing;
  return j;
}

TEST(Mistrust, NamesWhyAPassProvesLittle) {
  const Tensor sound{{4}, {1, 2, 3, 0}};
  EXPECT_EQ(Mistrust({Judged(10, 5)}, sound), "");
  EXPECT_NE(Mistrust({Judged(10, 6)}, sound).find("6 of 10"), std::string::npos);
  EXPECT_NE(Mistrust({Judged(10, 0)}, {{4}, {0, 0, 0, 1}}).find("zero"), std::string::npos);
  EXPECT_NE(Mistrust({Judged(10, 0)}, {{3}, {5, 5, 5}}).find("constant"), std::string::npos);
  EXPECT_NE(Mistrust({Judged(10, 0)}, {{4}, {7, 7, 7, 1}}).find("saturated"), std::string::npos);
  EXPECT_NE(Mistrust({}, sound).find("no op"), std::string::npos);
  EXPECT_NE(Mistrust({Judged(1, 0)}, {}).find("no elements"), std::string::npos);
}

OpJudgement JudgedOf(const reference::Node& node, int64_t elements, int64_t nothing) {
  OpJudgement j = Judged(elements, nothing);
  j.node = &node;
  j.shown = true;
  return j;
}

TEST(Mistrust, ManyEqualGathersAndReplicasDoNotHideAnOpThatProvesNothing) {
  const Tensor sound{{4}, {1, 2, 3, 0}};
  reference::Node logits;
  logits.tap = "logits";
  OpJudgement gather = JudgedOf(logits, 1000, 0), replica = gather;
  gather.gather = true;
  replica.same_as_rank = 0;
  EXPECT_EQ(Mistrust({JudgedOf(logits, 10, 5), gather, replica}, sound), "");
  const std::string reason = Mistrust({JudgedOf(logits, 10, 6), gather, replica}, sound);
  EXPECT_NE(reason.find("6 of 10 elements of logits"), std::string::npos) << reason;
  EXPECT_EQ(reason.find("too few inner taps"), std::string::npos) << reason;
  gather.judged = true;
  EXPECT_NE(Mistrust({gather}, sound), "") << "a gather alone is no evidence";
}

TEST(Mistrust, CompositesCountEachForItself) {
  const Tensor sound{{4}, {1, 2, 3, 0}};
  reference::Node inner, logits;
  inner.tap = "L1.moe.out";
  OpJudgement block = JudgedOf(inner, 10, 6);
  EXPECT_EQ(Mistrust({block, JudgedOf(logits, 1000, 0)}, sound), "") << "inputs are shown";
  block.composite = true;
  const std::string reason = Mistrust({block, JudgedOf(logits, 1000, 0)}, sound);
  EXPECT_NE(reason.find("L1.moe.out; the engine shows too few"), std::string::npos) << reason;
}

TEST(Mistrust, AResultThatIsShownAndNotJudgedIsNotAPass) {
  const Tensor sound{{4}, {1, 2, 3, 0}};
  reference::Node embed, logits;
  logits.tap = "logits";
  OpJudgement open = JudgedOf(logits, 0, 0);
  open.judged = false;
  open.reason = "too close to call";
  const std::string reason = Mistrust({JudgedOf(embed, 10, 0), open}, sound);
  EXPECT_EQ(reason, "logits is shown, but was not judged: too close to call");
  open.shown = false;
  EXPECT_EQ(Mistrust({JudgedOf(embed, 10, 0), open}, sound), "");
}

TEST(Mistrust, MostlyNotFiniteProvesNothing) {
  reference::Node node;
  node.tap = "logits";
  const OpJudgement j = JudgedOf(node, 4, 0);
  EXPECT_EQ(Mistrust({j}, {{4}, {NAN, INFINITY, 1, 2}}), "") << "half is not mostly";
  EXPECT_EQ(Mistrust({j}, {{4}, {NAN, INFINITY, 1, NAN}}).rfind("not finite: 3 of 4", 0), 0u);
  EXPECT_EQ(Mistrust({j}, {{4}, {NAN, NAN, NAN, NAN}}).rfind("not finite", 0), 0u);
  OpJudgement oracle = j;
  oracle.not_finite = 3;
  EXPECT_EQ(Mistrust({oracle}, {{4}, {1, 2, 3, 0}}).rfind("not finite: 3 of 4", 0), 0u);
  // Masked scores are due.
  node.op = reference::Op::kScores;
  EXPECT_EQ(Mistrust({j}, {{4}, {-INFINITY, -INFINITY, 1, 2}}), "");
}

TEST(Mistrust, NamesTheRankWhosePartIsMissing) {
  reference::Node node;
  node.tap = "logits";
  OpJudgement first = JudgedOf(node, 4, 0), second = JudgedOf(node, 0, 0);
  first.rank = 0;
  second.rank = 1;
  second.judged = second.shown = false;
  const std::string reason = Mistrust({first, second}, {});
  EXPECT_NE(reason.find("rank 1's logits is not shown"), std::string::npos) << reason;
  second.shown = true;
  EXPECT_EQ(Mistrust({first, second}, {}), "the output has no elements");
}

TEST(CompareWhole, NothingFiniteHasNoPerfectMetrics) {
  const Tensor nan{{1, 2}, {NAN, NAN}}, mixed{{1, 2}, {NAN, 1}};
  EXPECT_FALSE(CompareWhole(nan, nan).cosine.has_value());
  EXPECT_EQ(*CompareWhole(mixed, mixed).cosine, 1);
  Metrics logits;
  AddLogitMetrics(nan, nan, &logits);
  EXPECT_FALSE(logits.kld.has_value());
  EXPECT_FALSE(logits.top1.has_value());
}

struct Ids {
  reference::Evaluation evaluation;
  Tensor scores{{1, 4}, {0.5, 0.4, 0.3, 0.2}};
  OpJudgement Compare(std::vector<double> got, double margin, const Tensor* error = nullptr) {
    evaluation.value = {{1, 2}, {0, 1}};
    evaluation.margin = {{1, 1}, {margin}};
    OpJudgement j;
    CompareIds({&evaluation, &scores, error, 0, std::ldexp(1.0, -24), false},
               {{1, 2}, std::move(got)}, &j);
    return j;
  }
};

TEST(CompareIds, MarginsDecide) {
  Ids ids;
  EXPECT_TRUE(ids.Compare({0, 1}, 0).pass);
  EXPECT_FALSE(ids.Compare({0, 2}, 0.1).pass);
  const OpJudgement close = ids.Compare({0, 2}, std::ldexp(1.0, -24));
  EXPECT_TRUE(close.pass);
  EXPECT_EQ(close.ambiguous, 1);
  // Scores that the engine did not show carry their bound.
  const Tensor error{{1, 4}, {0.04, 0.04, 0.04, 0.04}};
  EXPECT_TRUE(ids.Compare({0, 2}, 0.1, &error).pass);
  EXPECT_EQ(ids.Compare({0, 2}, 0.1, &error).proves_nothing, 2);
  EXPECT_EQ(close.proves_nothing, 0);
}

TEST(CompareIds, IllegalChoicesFailWhateverTheMargin) {
  Ids ids;
  EXPECT_NE(ids.Compare({1, 0}, 0).reason.find("ascending"), std::string::npos);
  EXPECT_NE(ids.Compare({1, 1}, 0).reason.find("twice"), std::string::npos);
  EXPECT_NE(ids.Compare({0, 4}, 0).reason.find("not in"), std::string::npos);
  EXPECT_NE(ids.Compare({-1, 0}, 0).reason.find("not in"), std::string::npos);
}

}  // namespace
}  // namespace assay::judge
