// Each term of each bound, with the numbers put in; and that a bound is not wider than it says.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/internal.h"
#include "harness/judge/judge.h"
#include "harness/judge/testing/test_model.h"

namespace assay::judge {
namespace {

using reference::Evaluation;
using reference::Node;
using reference::Op;
using reference::Tensor;

const double kU = std::ldexp(1.0, -24);

Evaluation Plain(double value, double magnitude, int64_t terms) {
  Evaluation e;
  e.value = {{1, 1}, {value}};
  e.magnitude = {{1, 1}, {magnitude}};
  e.terms = terms;
  return e;
}

Node NodeOf(Op op) {
  Node node;
  node.op = op;
  return node;
}

std::vector<std::string> Names(const Tolerance& t) { return t.Facts().terms; }

TEST(Depth, FollowsLanesAndFallsBackToTheNumberOfTerms) {
  EXPECT_EQ(DepthOf(256, 8, 1), 32 + 3 + 1 + 1);
  EXPECT_EQ(DepthOf(100, 16, 0), 7 + 4 + 1);
  EXPECT_EQ(DepthOf(100, 0, 0), 100);
  EXPECT_EQ(DepthOf(100, 0, 2), 102);
  EXPECT_EQ(DepthOf(2, 16, 0), 2) << "two terms round at most twice";
}

TEST(Derive, LinearIsDepthTimesMagnitude) {
  KernelFacts kernel;
  kernel.lanes = 8;
  kernel.extra = 1;
  const Tolerance t =
      Derive(NodeOf(Op::kLinear), Plain(0, 3, 256), DType::kF32, Contract(), &kernel, 1);
  EXPECT_EQ(t.depth, 37);
  EXPECT_NEAR(t.bound[0], 37 * kU * 3, 2 * kU * t.bound[0]) << "rounding the error itself";
  EXPECT_EQ(t.Facts().u_acc, "2^-24");
  EXPECT_NE(t.Print().find("d = ceil(256/8) + ceil(log2 8) + 1 + 1 = 37"), std::string::npos);
}

TEST(Derive, OutputRoundingComesOnTop) {
  const Tolerance t =
      Derive(NodeOf(Op::kLinear), Plain(2, 0, 1), DType::kBF16, Contract(), nullptr, 1);
  EXPECT_NEAR(t.bound[0], 2 * std::ldexp(1.0, -8),
              HalfSmallestSubnormal(DType::kBF16) + 4 * kU * t.bound[0]);
  EXPECT_EQ(Names(t), (std::vector<std::string>{"acc", "subnormal", "out"}));
}

TEST(Derive, FlushingIsATermOfItsOwnSize) {
  Contract flushing;
  flushing.ftz = true;
  const auto kept =
      Derive(NodeOf(Op::kLinear), Plain(0, 0, 4), DType::kF32, Contract(), nullptr, 1);
  const auto flushed =
      Derive(NodeOf(Op::kLinear), Plain(0, 0, 4), DType::kF32, flushing, nullptr, 1);
  EXPECT_LT(kept.bound[0], std::ldexp(1.0, -140));
  EXPECT_GE(flushed.bound[0], 8 * std::ldexp(1.0, -126));
}

TEST(Derive, BiasIsOneMoreTerm) {
  Evaluation e = Plain(0, 3, 10);
  e.function = {{1, 1}, {5}};
  const Tolerance t = Derive(NodeOf(Op::kLinear), e, DType::kF32, Contract(), nullptr, 1);
  EXPECT_NEAR(t.bound[0], 11 * kU * 3 + 11 * kU * 5, 2 * kU * t.bound[0]);
}

TEST(Derive, FunctionsCountTheirStatedErrors) {
  Contract good, bad;
  bad.rsqrt_ulp = 100;
  bad.exp_ulp = 100;
  bad.sin_ulp = 100;
  bad.sigmoid_ulp = 100;
  for (const Op op : {Op::kRmsNorm, Op::kRope, Op::kActivation, Op::kRouterScores, Op::kContext}) {
    Evaluation e = Plain(1, 1, op == Op::kRouterScores ? 0 : 8);
    e.function = {{1, 1}, {1}};
    const double narrow = Derive(NodeOf(op), e, DType::kF32, good, nullptr, 1).bound[0];
    const double wide = Derive(NodeOf(op), e, DType::kF32, bad, nullptr, 1).bound[0];
    EXPECT_GT(wide - narrow, 90 * kU);
  }
}

TEST(Derive, EachTanhOfAnActivationIsCounted) {
  Evaluation e = Plain(1, 1, 8);
  e.function = {{1, 1}, {1}};
  Contract contract;
  contract.tanh_ulp = 10;
  Node node = NodeOf(Op::kActivation);
  const double silu = Derive(node, e, DType::kF32, contract, nullptr, 1).bound[0];
  node.tanhs = 1;
  const double one = Derive(node, e, DType::kF32, contract, nullptr, 1).bound[0];
  node.tanhs = 2;
  const double two = Derive(node, e, DType::kF32, contract, nullptr, 1).bound[0];
  EXPECT_NEAR(one - silu, 24 * kU, kU * kU);  // 2·10 + 2·½ + 3
  EXPECT_NEAR(two - silu, 48 * kU, kU * kU);
  // −inf is no number's loss there: −β·0.
  const Tensor gate{{1, 1}, {-INFINITY}}, up{{1, 1}, {1}};
  const reference::Input in[] = {{&gate, nullptr}, {&up, nullptr}};
  EXPECT_EQ(Derive(node, e, DType::kF32, contract, nullptr, 1, in).bound[0], two);
  node.tanhs = 0;
  EXPECT_NE(Derive(node, e, DType::kF32, contract, nullptr, 1, in).bound[0], silu);
}

TEST(Derive, SoftmaxCountsTheSpreadOfItsScores) {
  Evaluation e = Plain(1, 1, 3);
  const Tensor flat{{1, 1, 3}, {1, 1, -INFINITY}}, steep{{1, 1, 3}, {1, 41, 1}};
  const Tensor v{{3, 1}, {1, 1, 1}};
  const reference::Input near[] = {{&flat, nullptr}, {&v, nullptr}};
  const reference::Input far[] = {{&steep, nullptr}, {&v, nullptr}};
  const double narrow =
      Derive(NodeOf(Op::kContext), e, DType::kF32, Contract(), nullptr, 1, near).bound[0];
  const double wide =
      Derive(NodeOf(Op::kContext), e, DType::kF32, Contract(), nullptr, 1, far).bound[0];
  EXPECT_NEAR(wide - narrow, 80 * kU, 2 * kU * wide + 80 * kU * 80 * kU);
  EXPECT_GT(Derive(NodeOf(Op::kContext), e, DType::kF32, Contract(), nullptr, 1).bound[0], wide);
}

TEST(Derive, WireRoundsTheRunningSumAtEachHop) {
  Contract contract;
  contract.reduce_wire = DType::kBF16;
  const Tensor one{{1, 1}, {1}};
  const std::vector<reference::Input> parts(8, {&one, nullptr});
  const Evaluation e = Plain(8, 8, 8);
  const double u = std::ldexp(1.0, -8);
  const double sequential =
      Derive(NodeOf(Op::kReduce), e, DType::kF32, contract, nullptr, 8, parts).bound[0];
  EXPECT_NEAR(sequential, u * (8 + 2 + 3 + 4 + 5 + 6 + 7 + 8), 16 * 8 * kU)
      << "the sums themselves are in fp32";
  contract.reduce_order = "ring";
  const double ring =
      Derive(NodeOf(Op::kReduce), e, DType::kF32, contract, nullptr, 8, parts).bound[0];
  EXPECT_NEAR(ring, u * (8 + 7 * 8), 16 * 8 * kU) << "the sums themselves are in fp32";
  contract.reduce_order = "tree";
  const double tree =
      Derive(NodeOf(Op::kReduce), e, DType::kF32, contract, nullptr, 8, parts).bound[0];
  EXPECT_NEAR(tree, u * (8 + 3 * 8), 16 * 8 * kU) << "the sums themselves are in fp32";
  contract.reduce_wire = DType::kF32;
  EXPECT_LT(Derive(NodeOf(Op::kReduce), e, DType::kF32, contract, nullptr, 8, parts).bound[0],
            8 * 8 * kU * (1 + 2 * kU));
}

TEST(Derive, PropagatedErrorsAreAdded) {
  Evaluation e = Plain(1, 1, 1);
  e.propagated = {{1, 1}, {0.25}};
  const Tolerance t = Derive(NodeOf(Op::kLinear), e, DType::kF32, Contract(), nullptr, 1);
  EXPECT_GE(t.bound[0], 0.25);
  EXPECT_LT(t.bound[0], 0.2501);
}

TEST(Derive, AnExactContractLeavesOnlyDoublePrecision) {
  const Tolerance t =
      Derive(NodeOf(Op::kLinear), Plain(1, 2, 10), DType::kF64, Contract::Exact(), nullptr, 1);
  EXPECT_GT(t.bound[0], 0);
  EXPECT_LT(t.bound[0], 100 * std::ldexp(1.0, -53) * 2);
}

// Compare: non-finite values.
struct Case {
  double y, k, magnitude;
  DType out;
  bool pass;
};

TEST(Compare, InfinityIfAndOnlyIfTheRangeIsExceeded) {
  const Case cases[] = {
      {1, INFINITY, 1, DType::kF32, false},
      {1, NAN, 1, DType::kF32, false},
      {1e39, INFINITY, 1, DType::kF32, true},
      {1e39, -INFINITY, 1, DType::kF32, false},
      {1e39, 3e38, 1, DType::kF32, false},
      {-1e39, -INFINITY, 1, DType::kBF16, true},
      {7e4, INFINITY, 7e4, DType::kF16, true},
      {6e4, INFINITY, 6e4, DType::kF16, false},
      {1, INFINITY, 1e39, DType::kF32, true},
      {1, NAN, 1e39, DType::kF32, true},
      {NAN, NAN, 1, DType::kF32, true},
      {NAN, 1, 1, DType::kF32, false},
      {-INFINITY, -INFINITY, 1, DType::kF32, true},
      {-INFINITY, -3e38, 1, DType::kF32, false},
      {-INFINITY, INFINITY, 1, DType::kF32, false},
      {2, 2, 1, DType::kF32, true},
  };
  for (const Case& c : cases) {
    Evaluation e = Plain(c.y, c.magnitude, 1);
    Demand demand;
    demand.evaluation = &e;
    demand.out = c.out;
    demand.tolerance.bound = {1e-6};
    OpJudgement j;
    Compare(demand, {{1, 1}, {c.k}}, &j);
    EXPECT_EQ(j.pass, c.pass) << c.y << " against " << c.k;
  }
}

// Each op class by what an fp32 evaluation loses where its products are subnormal.
TEST(Derive, RoundingsBelowTheLeastNormalNumberCountOneByOne) {
  const double h = HalfSmallestSubnormal(DType::kF32);
  const Tensor scores{{1, 2}, {std::ldexp(1.0, -140), 0.5}}, ids{{1, 2}, {0, 1}};
  const reference::Input routed[] = {{&scores, nullptr}, {&ids, nullptr}};
  Evaluation weights;  // scaling factor 2.5
  weights.terms = 2;
  for (const double s : scores.data) {
    weights.value.data.push_back(2.5 * s / (0.5 + std::ldexp(1.0, -140)));
  }
  weights.value.shape = {1, 2};
  const Tolerance t =
      Derive(NodeOf(Op::kRouterWeights), weights, DType::kF32, Contract(), nullptr, 1, routed);
  EXPECT_GE(t.bound[0], (2.5 + 1) * h);
  EXPECT_LT(t.bound[0], 10 * h);
  EXPECT_NE(t.Print().find("f = 2.5"), std::string::npos) << t.Print();
  // What the fp32 engine makes of it, and what it does not.
  const float share = static_cast<float>(scores.data[0]) / static_cast<float>(scores.data[1]);
  Demand demand;
  demand.evaluation = &weights;
  demand.tolerance = t;
  for (const double off : {0.0, 12.0}) {
    OpJudgement j;
    const double got = static_cast<double>(share * 2.5f) + off * 2 * h;
    Compare(demand, {{1, 2}, {got, weights.value.data[1]}}, &j);
    EXPECT_EQ(j.pass, off == 0) << off;
  }
  for (const Op op : {Op::kRmsNorm, Op::kRope, Op::kCombine, Op::kScores, Op::kContext}) {
    EXPECT_GE(Derive(NodeOf(op), Plain(0, 0, 4), DType::kF32, Contract(), nullptr, 1).bound[0],
              2 * h);
  }
  EXPECT_LT(Derive(NodeOf(Op::kAdd), Plain(0, 0, 1), DType::kF32, Contract(), nullptr, 1).bound[0],
            2 * h)
      << "sums of subnormals are exact";
}

TEST(Derive, ANormsGainMultipliesWhatItsProductLost) {
  const double h = HalfSmallestSubnormal(DType::kF32);
  const Evaluation e = Plain(0, 0, 4);
  const auto bound = [&](double gain) {
    return Derive(NodeOf(Op::kRmsNorm), e, DType::kF32, Contract(), nullptr, 1, {}, gain).bound[0];
  };
  EXPECT_EQ(bound(100) - bound(1), 99 * h);
}

TEST(Derive, ContextMayLoseSmallProbabilitiesTimesTheLargestValue) {
  const Tensor scores{{1, 1, 1}, {0}}, small{{1, 1}, {1}}, large{{1, 1}, {1000}};
  const auto bound = [&](const Tensor& v) {
    const reference::Input in[] = {{&scores, nullptr}, {&v, nullptr}};
    return Derive(NodeOf(Op::kContext), Plain(0, 0, 1), DType::kF32, Contract(), nullptr, 1, in)
        .bound[0];
  };
  EXPECT_GT(bound(large), 900 * bound(small));
  EXPECT_LT(bound(large), std::ldexp(1.0, -110));
}

TEST(Norm, ASumOfSquaresBeyondTheRangeIsNotJudged) {
  const Tensor x{{2, 2}, {3.4e38, 1, 2, 1}};
  const reference::Input in[] = {{&x, nullptr}};
  Evaluation e;
  e.terms = 2;
  e.value = {{2, 2}, {1.4, 4e-39, 1.26, 0.63}};
  Demand demand;
  demand.evaluation = &e;
  demand.tolerance = Derive(NodeOf(Op::kRmsNorm), e, DType::kF32, Contract(), nullptr, 1, in);
  EXPECT_NE(demand.tolerance.Print().find("beyond the accumulator's range, for 2"),
            std::string::npos)
      << demand.tolerance.Print();
  for (const double huge : {0.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    OpJudgement j;
    Compare(demand, {{2, 2}, {huge, 0, 1.26, 0.63}}, &j);
    EXPECT_TRUE(j.pass) << huge;
    EXPECT_EQ(j.proves_nothing, 2);
  }
  OpJudgement j;
  Compare(demand, {{2, 2}, {0, 0, 0, 0.63}}, &j);
  EXPECT_FALSE(j.pass) << "the row within the range is judged";
  EXPECT_EQ(j.first, 2);
}

TEST(Activation, OfMinusInfinityNothingIsDemanded) {
  const Tensor gate{{1, 3}, {-INFINITY, NAN, 1}}, up{{1, 3}, {1, 1, 1}};
  const reference::Input in[] = {{&gate, nullptr}, {&up, nullptr}};
  Evaluation e;
  e.value = {{1, 3}, {NAN, NAN, 1 / (1 + std::exp(-1.0))}};
  Demand demand;
  demand.evaluation = &e;
  demand.tolerance = Derive(NodeOf(Op::kActivation), e, DType::kF32, Contract(), nullptr, 1, in);
  for (const double lost : {0.0, -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    OpJudgement j;
    Compare(demand, {{1, 3}, {lost, NAN, e.value.data[2]}}, &j);
    EXPECT_TRUE(j.pass) << lost;
    EXPECT_EQ(j.not_finite, 2);
  }
  OpJudgement j;
  Compare(demand, {{1, 3}, {0, 0, e.value.data[2]}}, &j);
  EXPECT_FALSE(j.pass) << "NaN must not get lost";
  EXPECT_EQ(j.first, 1);
}

TEST(Compare, CountsWhatIsNotFinite) {
  Evaluation e;
  e.value = {{1, 3}, {NAN, -INFINITY, 1}};
  Demand demand;
  demand.evaluation = &e;
  demand.tolerance.bound = {0, 0, 0};
  OpJudgement j, scores;
  const Node node = NodeOf(Op::kScores);
  scores.node = &node;
  Compare(demand, e.value, &j);
  Compare(demand, e.value, &scores);
  EXPECT_TRUE(j.pass);
  EXPECT_EQ(j.not_finite, 2);
  EXPECT_EQ(scores.not_finite, 1) << "a masked score is due";
}

TEST(Compare, CountsWhatProvesNothingAndTheCondition) {
  Evaluation e;
  e.value = {{1, 2}, {1, 0.001}};
  e.magnitude = {{1, 2}, {1, 10}};
  Demand demand;
  demand.evaluation = &e;
  demand.tolerance.bound = {0.1, 0.1};
  OpJudgement j;
  Compare(demand, {{1, 2}, {1, 0.09}}, &j);
  EXPECT_TRUE(j.pass);
  EXPECT_EQ(j.proves_nothing, 1);
  EXPECT_NEAR(j.condition, 1e4, 1);
  EXPECT_EQ(j.worst, 1);
  EXPECT_NEAR(j.max_ratio, 0.89, kU);
}

// One fp32 addition: equal to the exact sum rounded at once, or double rounding, where both count.
TEST(Strict, AnAdditionIsBitwiseWhereItIsUnambiguous) {
  const double tie = 1 + std::ldexp(1.0, -8);  // half way between two bf16
  const Tensor a{{1, 2}, {1, tie}}, b{{1, 2}, {2, std::ldexp(1.0, -40)}};
  const reference::Input inputs[] = {{&a, nullptr}, {&b, nullptr}};
  Evaluation e;
  e.value = {{1, 2}, {3, tie + std::ldexp(1.0, -40)}};
  Demand demand;
  demand.evaluation = &e;
  demand.out = DType::kBF16;
  ASSERT_TRUE(DemandStrict(NodeOf(Op::kAdd), inputs, Contract(), true, &demand));
  EXPECT_EQ(demand.strict, (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(demand.want[0], 3);
  EXPECT_FALSE(DemandStrict(NodeOf(Op::kAdd), inputs, Contract(), false, &demand));
}

TEST(Strict, SumsOverRanksAreWhatTheDeclaredOrderGives) {
  const Tensor a{{1, 1}, {1}}, b{{1, 1}, {std::ldexp(1.0, -24)}};
  const reference::Input parts[] = {{&a}, {&b}, {&b}};
  Contract declared;
  declared.reduce_exact = true;
  Evaluation e = Plain(1 + std::ldexp(1.0, -23), 1, 3);
  Demand demand;
  demand.evaluation = &e;
  EXPECT_FALSE(DemandStrict(NodeOf(Op::kReduce), parts, declared, true, &demand))
      << "the oracle modelled nothing";
  e.modelled = {{1, 1}, {1 + std::ldexp(1.0, -9)}};
  EXPECT_FALSE(DemandStrict(NodeOf(Op::kReduce), parts, Contract(), true, &demand))
      << "the order was not declared";
  EXPECT_FALSE(DemandStrict(NodeOf(Op::kReduce), parts, declared, false, &demand));
  demand.out = DType::kBF16;
  ASSERT_TRUE(DemandStrict(NodeOf(Op::kReduce), parts, declared, true, &demand));
  EXPECT_EQ(demand.want[0], 1) << "rounded to the output's type";
}

TEST(Strict, OneOrTwoPartsLeaveNothingOpen) {
  const Tensor a{{1, 1}, {1}}, b{{1, 1}, {std::ldexp(1.0, -24)}};
  const reference::Input two[] = {{&a}, {&b}};
  Evaluation e = Plain(1 + std::ldexp(1.0, -24), 1, 2);
  Demand demand;
  demand.evaluation = &e;
  ASSERT_TRUE(DemandStrict(NodeOf(Op::kReduce), std::span(two, 1), Contract(), true, &demand));
  EXPECT_EQ(demand.want[0], 1);
  ASSERT_TRUE(DemandStrict(NodeOf(Op::kReduce), two, Contract(), true, &demand));
  EXPECT_EQ(demand.want[0], 1) << "a tie goes to even";
  Contract wire;
  wire.reduce_wire = DType::kBF16;
  EXPECT_FALSE(DemandStrict(NodeOf(Op::kReduce), two, wire, true, &demand));
}

// A value that is cut off instead of rounded is off by more than half a unit in the last place.
TEST(Derive, TheOutputsRoundingIsHalfAUnitInTheLastPlace) {
  const double step = std::ldexp(1.0, -7);  // bf16 in [1, 2)
  const auto bound = [](double y, double magnitude) {
    return Derive(NodeOf(Op::kLinear), Plain(y, magnitude, 1), DType::kBF16, Contract(), nullptr, 1)
        .bound[0];
  };
  const double least = HalfSmallestSubnormal(DType::kF32);
  EXPECT_LE(bound(1.99, 0), step / 2 + 2 * least);
  EXPECT_GE(bound(1.99, 0), step / 2);
  EXPECT_LE(bound(1.99, 0), std::ldexp(1.99, -8) + 2 * least) << "not wider than u·|y|";
  // What was added before may have carried it across a power of two.
  const double over = 2 - std::ldexp(1.0, -25);
  EXPECT_GE(bound(over, 2), step) << "2 + ε rounds by a larger step";
  for (const double y : {1.0, 1.3, 1.999, 3.7, 100.25, 1e-3}) {
    for (int i = 1; i < 200; ++i) {
      const double v = y * (1 + i / 317.0);
      EXPECT_LE(std::abs(RoundTo(v, DType::kBF16) - v), bound(v, 0)) << v;
    }
  }
}

TEST(Compare, TruncationOfOneOpIsFound) {
  Evaluation e;
  Tensor rounded, cut;
  for (int i = 0; i < 64; ++i) {
    const double v = 1 + (i + 0.37) / 71;
    const double nearest = RoundTo(v, DType::kBF16), ulp = std::ldexp(1.0, -7);
    e.value.data.push_back(v);
    rounded.data.push_back(nearest);
    cut.data.push_back(nearest > v ? nearest - ulp : nearest);
  }
  e.value.shape = rounded.shape = cut.shape = {1, 64};
  e.magnitude = e.value;
  e.terms = 16;
  Demand demand;
  demand.evaluation = &e;
  demand.out = DType::kBF16;
  demand.tolerance = Derive(NodeOf(Op::kLinear), e, DType::kBF16, Contract(), nullptr, 1);
  OpJudgement good, bad;
  Compare(demand, rounded, &good);
  Compare(demand, cut, &bad);
  EXPECT_TRUE(good.pass);
  EXPECT_GT(bad.wrong, 24);
}

}  // namespace
}  // namespace assay::judge
