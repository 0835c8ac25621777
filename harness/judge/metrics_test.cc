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
