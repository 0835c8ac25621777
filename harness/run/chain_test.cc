// The oracle's chain of a cell: what it is kept under, and what is said where it, or the comparison
// with it, is missing.
#include "harness/run/chain.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "harness/run/measures.h"
#include "harness/run/testing/cells.h"

namespace assay::run {
namespace {

std::unique_ptr<CellSpec> Resolved(const std::string& text) {
  auto spec = ResolveCell(*ParseProblem(text), &Models());
  if (!spec) {
    ADD_FAILURE() << spec.error().message;
    std::abort();
  }
  const Status filled = FillCell(spec->get());
  EXPECT_TRUE(filled.ok()) << (filled.ok() ? "" : filled.error().message);
  return std::move(*spec);
}

// An engine that shows what the chain has, rank by rank where a tap is not cut.
abi::Outcome Shows(const Chain& chain) {
  abi::Outcome outcome;
  for (size_t step = 0; step < chain.trace.size(); ++step) {
    for (const auto& [tap, value] : chain.trace[step]) {
      TapValue shown{DType::kF64, value.shape, {}};
      const auto bytes = std::as_bytes(std::span(value.data));
      shown.bytes.assign(bytes.begin(), bytes.end());
      outcome.trace.taps[{static_cast<int>(step), tap, -1}] = std::move(shown);
    }
  }
  return outcome;
}

constexpr const char* kLayer = "layer model=llama-mini layer=0 tokens=3";

TEST(Chain, AFailureOfTheOracleIsSaid) {
  const auto spec = Resolved("model model=llama-mini tokens=3 seed=8");
  const auto whole = ChainOf(*spec, {}, {});
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->why_not, "");
  EXPECT_FALSE(whole->trace.empty());
  spec->steps[0].tokens[0] = 1 << 30;  // no such token
  const auto none = ChainOf(*spec, {}, {});
  ASSERT_NE(none, nullptr);
  EXPECT_NE(none->why_not.find("no chain of the oracle"), std::string::npos) << none->why_not;
  EXPECT_TRUE(none->trace.empty());
  const Accumulation nothing = Accumulate(*spec, {}, *none);
  EXPECT_TRUE(nothing.errors.empty());
  EXPECT_EQ(ChainLeftOut(*none, nothing), none->why_not);
}

TEST(Chain, TapsThatCannotBeComparedAreCounted) {
  const auto spec = Resolved(kLayer);
  const auto chain = ChainOf(*spec, {}, {});
  ASSERT_NE(chain, nullptr);
  abi::Outcome outcome = Shows(*chain);
  const Accumulation all = Accumulate(*spec, outcome, *chain);
  EXPECT_TRUE(all.not_compared.empty());
  EXPECT_EQ(ChainLeftOut(*chain, all), "");
  ASSERT_FALSE(all.errors.empty());
  EXPECT_EQ(all.errors.back().tap, "L0.residual_mlp");

  // A row too few, and ranks that do not join.
  TapValue& last = outcome.trace.taps.at({0, "L0.residual_mlp", -1});
  last.shape[0] -= 1;
  last.bytes.resize(last.bytes.size() / 3 * 2);
  const Accumulation some = Accumulate(*spec, outcome, *chain);
  ASSERT_EQ(some.not_compared.size(), 1u);
  EXPECT_EQ(some.not_compared[0].first, "L0.residual_mlp");
  EXPECT_EQ(some.errors.size() + 1, all.errors.size());
  const std::string text = ChainLeftOut(*chain, some);
  EXPECT_NE(text.find("1 ops, the last L0.residual_mlp"), std::string::npos) << text;

  // What is not shown at all is told as not given back.
  outcome.trace.taps.erase({0, "L0.residual_mlp", -1});
  EXPECT_TRUE(Accumulate(*spec, outcome, *chain).not_compared.empty());
}

TEST(Chain, TheReasonSaysWhatWasNotCompared) {
  const std::string rest = "model model=llama-mini prompt=t5 tp=3 tier=scalar";
  const auto without = [&rest](const char* tap) {
    setenv("QUIET_ENGINE", tap, 1);
    const CellResult cell = Execute(rest + " engine=" + kQuiet);
    unsetenv("QUIET_ENGINE");
    return cell;
  };
  // The engine gives two of three ranks' parts.
  ExpectVerdict(without("but:L0.mlp.gate"), Verdict::kPass,
                "not compared with the oracle's chain: 1 ops, the last L0.mlp.gate");
  const CellResult last = without("but:logits");
  ExpectVerdict(last, Verdict::kMistrusted,
                "not compared with the oracle's chain: 1 ops, the last logits");
  EXPECT_FALSE(last.metrics.noise_floor.has_value());
  const CellResult all = without("but:nothing");
  ExpectVerdict(all, Verdict::kPass, "");
  EXPECT_EQ(all.reason, "");
}

TEST(Chain, TheKeyHasAllThatTheChainDependsOn) {
  const auto spec = Resolved(kLayer);
  reference::Tensor input{{2, 3}, {1, 2, 3, 4, 5, 6}};
  reference::RunRequest base;
  base.steps = spec->steps;
  base.first_layer = base.last_layer = 0;
  base.input = &input;
  base.wanted = {"L0.attn.q"};
  base.given["L0.router.ids"] = {{1, 2}, {0, 3}};
  const std::string first = KeyOfChain(*spec, base);
  EXPECT_EQ(KeyOfChain(*spec, base), first);
  std::set<std::string> keys{first};
  const auto other = [&](const char* what, auto change) {
    reference::RunRequest request = base;
    change(&request);
    EXPECT_TRUE(keys.insert(KeyOfChain(*spec, request)).second) << what;
  };
  using Request = reference::RunRequest;
  other("another tap", [](Request* r) { r->wanted = {"L0.attn.k"}; });
  other("one tap more", [](Request* r) { r->wanted.push_back("L0.attn.k"); });
  other("from another layer", [](Request* r) { r->first_layer = -1; });
  other("to another layer", [](Request* r) { r->last_layer = 1; });
  other("no input", [](Request* r) { r->input = nullptr; });
  other("a token", [](Request* r) { r->steps[0].tokens[0] ^= 1; });
  other("a position", [](Request* r) { r->steps[0].first_position += 1; });
  other("ranks", [](Request* r) { r->parallel = {2, 1}; });
  other("a given value", [](Request* r) { r->given.begin()->second.data[1] = 4; });
  other("a given shape", [](Request* r) { r->given.begin()->second.shape = {2, 1}; });
  reference::Tensor changed = input;
  changed.data[5] = 7;
  other("an input's value", [&](Request* r) { r->input = &changed; });
}

// In this cell every op is right on its inputs, and what accumulated before layer 2's router turns
// one of its choices, which is clear on either side: other experts are no accumulated error.
TEST(Chain, AChoiceThatDriftTurnedIsFollowed) {
  const CellRun run = ExecuteCell(
      *ParseProblem("model model=k2-mini tp=8 attn_tp=4 tier=avx512 limit=0.01 tokens=33 "
                    "seed=67032"),
      &Models(), CellLimits());
  EXPECT_EQ(run.result.verdict, Verdict::kPass) << run.result.reason;
  EXPECT_EQ(run.result.metrics.floor_runs, 59);
}

}  // namespace
}  // namespace assay::run
