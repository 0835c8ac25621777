// Chains rank by rank: parts that are quantised and rounded by themselves, sums in the contract's
// order and wire.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/golden_bound.h"
#include "reference/ops/ops.h"
#include "reference/test_support.h"
#include "reference/tiny_gguf.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::TinyGguf;

const Contract kExact = Contract::Exact();
const std::vector<int32_t> kTokens = {3, 69, 0, 17, 42};

std::map<std::string, Tensor> RunOf(const Oracle& oracle, const Contract& contract,
                                    std::optional<Parallel> parallel) {
  RunRequest request;
  request.steps = {{kTokens, 0}};
  request.parallel = parallel;
  auto trace = oracle.Run(request, contract);
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    return {};
  }
  return std::move((*trace)[0]);
}
double Worst(const Tensor& a, const Tensor& b) {
  double worst = 0;
  EXPECT_EQ(a.shape, b.shape);
  for (size_t i = 0; i < a.data.size(); ++i) {
    worst = std::max(worst, std::fabs(a.data[i] - b.data[i]));
  }
  return worst;
}

TEST(ByRanks, WithoutRoundingItIsTheWholeChain) {
  const TinyGguf tiny;
  const auto dense = tiny.MakeOracle();
  const Opened k2 = OpenModel("k2-mini-int4-g32", "quantised");
  struct Case {
    const Oracle* oracle;
    Parallel degrees;
  };
  // Experts over ranks, uneven splits and experts of rank 0 alone are other cuts of the same sums.
  Parallel expert{4, 2}, placed{2, 2}, uneven{3, 1}, listed{2, 2};
  expert.ep = 2;
  placed.hybrid = 2;
  uneven.split = Split::kCeil;
  listed.split = Split::kList;
  listed.list = {5, 3};
  for (const auto& [oracle, degrees] :
       {Case{dense.get(), {3, 1}}, Case{dense.get(), {2, 2}}, Case{k2.oracle.get(), {4, 2}},
        Case{k2.oracle.get(), {8, 8}}, Case{k2.oracle.get(), expert}, Case{k2.oracle.get(), placed},
        Case{k2.oracle.get(), uneven}, Case{k2.oracle.get(), listed}}) {
    const auto whole = RunOf(*oracle, kExact, std::nullopt);
    const auto ranks = RunOf(*oracle, kExact, degrees);
    ASSERT_EQ(whole.size(), ranks.size());
    RunRequest request;
    request.steps = {{kTokens, 0}};
    const auto moved = MeasureAmplification(*oracle, request, {whole});
    ASSERT_TRUE(moved.ok());
    for (const auto& [tap, value] : whole) {
      if (oracle->FindNode(tap)->op == Op::kScores) continue;  // has infinities
      // As for goldens: twice what the chain makes of every op's own double rounding.
      EXPECT_LE(Worst(value, ranks.at(tap)), 2 * moved->deviation.at(tap)) << tap;
    }
    // It is another order of additions: not the same bits.
    EXPECT_GT(Worst(whole.at("logits"), ranks.at("logits")), 0);
  }
}

// A contract with everything that ranks do by themselves.
Contract Rounded(const std::string& act, const std::string& order, DType wire) {
  Contract contract;
  contract.rounding = {{"default", DType::kBF16}, {"partial", DType::kF32},
                       {"scores", DType::kF32},   {"router", DType::kF32},
                       {"combine", DType::kF32},  {"logits", DType::kF32}};
  contract.act = act;
  contract.reduce_order = order;
  contract.reduce_wire = wire;
  return contract;
}

Tensor Columns(const Tensor& from, int64_t begin, int64_t count) {
  Tensor to = ops::Zeros({from.rows(), count});
  for (int64_t t = 0; t < from.rows(); ++t) {
    for (int64_t i = 0; i < count; ++i) {
      to.data[static_cast<size_t>(t * count + i)] =
          from.data[static_cast<size_t>(t * from.columns() + begin + i)];
    }
  }
  return to;
}

TEST(ByRanks, PartsAreQuantisedAndRoundedAndSummedAsTheContractSays) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Parallel degrees = {3, 1};
  for (const char* order : {"sequential", "ring", "tree"}) {
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      for (const char* act : {"a16", "a8row"}) {
        const Contract contract = Rounded(act, order, wire);
        const auto taps = RunOf(*oracle, contract, degrees);
        // By hand: the rank's columns of act, its product, the sum.
        std::vector<Tensor> parts;
        for (int rank = 0; rank < 3; ++rank) {
          const Tensor x = Columns(taps.at("L0.mlp.act"), 64 * rank, 64);
          const std::vector<Input> inputs = {{&x, nullptr}};
          auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.down"), inputs, {degrees, rank},
                                    {kTokens, 0}, contract);
          ASSERT_TRUE(e.ok()) << e.error().message;
          for (double& value : e->value.data) value = RoundTo(value, DType::kF32);
          parts.push_back(std::move(e->value));
        }
        const Tensor* pointers[] = {&parts[0], &parts[1], &parts[2]};
        auto sum = ModelReduce(pointers, "all_reduce", order, wire);
        ASSERT_TRUE(sum.ok());
        for (double& value : (*sum)[0].data) value = RoundTo(value, DType::kBF16);
        EXPECT_EQ(taps.at("L0.mlp.out").data, (*sum)[0].data) << order << " " << act;
        const Tensor& partial = taps.at("L0.mlp.down");
        EXPECT_EQ(partial.data[5], parts[0].data[5] + parts[1].data[5] + parts[2].data[5]);
      }
    }
  }
}

TEST(ByRanks, WhatRanksDoThemselvesChangesTheResult) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const auto out = [&](const Contract& contract, std::optional<Parallel> parallel) {
    return RunOf(*oracle, contract, parallel).at("L0.mlp.out");
  };
  const Parallel three = {3, 1}, two = {2, 1};
  // A scale of the whole row is not the ranks' own.
  const Contract a8 = Rounded("a8row", "sequential", DType::kF32);
  EXPECT_GT(Worst(out(a8, std::nullopt), out(a8, three)), 0);
  EXPECT_GT(Worst(out(a8, two), out(a8, three)), 0);
  // A wire of 16 bits is seen.
  EXPECT_GT(Worst(out(Rounded("a16", "ring", DType::kBF16), three),
                  out(Rounded("a16", "ring", DType::kF32), three)),
            0);
}

TEST(ByRanks, ObserversSeeEveryRanksPartAndMayChangeIt) {
  const Opened k2 = OpenModel("k2-mini-int4-g32", "quantised");
  RunRequest request;
  request.steps = {{kTokens, 0}};
  request.parallel = {4, 2};
  std::map<std::string, int> calls;
  int with_bounds = 0;
  request.observe = [&](const Node& node, int, Evaluation* e) {
    ++calls[node.tap];
    with_bounds += e->magnitude.data.empty() ? 0 : 1;
    if (node.tap == "L1.moe.partial") {
      for (double& value : e->value.data) value = 1;
    }
  };
  const auto trace = k2.oracle->Run(request, Rounded("a16", "sequential", DType::kF32));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(calls["L0.attn.partial"], 2);
  EXPECT_EQ(calls["L0.mlp.down"], 4);
  EXPECT_EQ(calls["L1.moe.partial"], 4);
  EXPECT_EQ(calls["L1.moe.out"], 1);
  EXPECT_EQ(calls["L0.attn.q"], 1);
  EXPECT_GT(with_bounds, 0);
  for (const double value : (*trace)[0].at("L1.moe.out").data) EXPECT_EQ(value, 4);
  // Values alone, where nobody needs more.
  request.observe_bounds = false;
  with_bounds = 0;
  calls.clear();
  ASSERT_TRUE(k2.oracle->Run(request, Rounded("a16", "sequential", DType::kF32)).ok());
  EXPECT_EQ(with_bounds, 0);
  EXPECT_EQ(calls["L0.mlp.down"], 4);
}

TEST(ByRanks, DegreesThatAreIllegalAndPartialSumsThatAreGivenAreErrors) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  RunRequest request;
  request.steps = {{kTokens, 0}};
  request.parallel = {8, 8};  // four heads
  const auto refused = oracle->Run(request, kExact);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  Parallel groups{4, 2};
  groups.dp = 2;
  request.parallel = groups;
  EXPECT_EQ(oracle->Run(request, kExact).error().kind, ErrorKind::kUnsupported);
  request.parallel = {3, 1};
  request.given["L0.mlp.down"] = ops::Zeros({5, TinyGguf::kHidden});
  const auto given = oracle->Run(request, kExact);
  ASSERT_FALSE(given.ok());
  EXPECT_EQ(given.error().kind, ErrorKind::kUnsupported);
  request.parallel.reset();
  EXPECT_TRUE(oracle->Run(request, kExact).ok());
}

TEST(Reduce, IsModelledWhereTheContractDeclaresIt) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  std::vector<Tensor> parts;
  for (const double value : {1.0, 0x1p-24, 0x1p-24}) {
    parts.push_back(ops::Zeros({3, TinyGguf::kHidden}));
    for (double& x : parts.back().data) x = value;
  }
  const std::vector<Input> inputs = {
      {&parts[0], nullptr}, {&parts[1], nullptr}, {&parts[2], nullptr}};
  Contract contract = Rounded("a16", "sequential", DType::kF32);
  const auto evaluate = [&] {
    auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.out"), inputs, {{3, 1}, 0}, {{1, 2, 3}, 0},
                              contract);
    EXPECT_TRUE(e.ok());
    return std::move(*e);
  };
  EXPECT_TRUE(evaluate().modelled.data.empty());
  contract.reduce_exact = true;
  const Evaluation e = evaluate();
  EXPECT_EQ(e.value.data[0], 1 + 0x1p-23);  // exact
  ASSERT_EQ(e.modelled.data.size(), e.value.data.size());
  EXPECT_EQ(e.modelled.data[0], 1);
  contract.reduce_order = "ring";  // chunk 0: ranks 1, 2, 0
  EXPECT_EQ(evaluate().modelled.data[0], 1 + 0x1p-23);
  contract.reduce_wire = DType::kI8;
  EXPECT_FALSE(
      oracle
          ->Evaluate(*oracle->FindNode("L0.mlp.out"), inputs, {{3, 1}, 0}, {{1, 2, 3}, 0}, contract)
          .ok());
}

}  // namespace
}  // namespace assay::reference
