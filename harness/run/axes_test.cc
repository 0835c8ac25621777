// What the keys of a cell change, seen in whole cells: methods, collectives, reloads, limits,
// tiers, chains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/judge/floor.h"
#include "harness/run/testing/cells.h"

namespace assay::run {
namespace {

TEST(Axes, WeightsOfOtherMethodsAreMade) {
  for (const char* method : {"gguf-q4_1", "gguf-q8_0", "deepseek-v4-mxfp4", "ct-int4-g32"}) {
    for (const char* rest : {"fill=exact", "fill=lognormal", "fill=extreme", "fill=exact act=a8g32",
                             "fill=lognormal act=a8row tp=4"}) {
      const CellResult cell = Execute(fmt::format(
          "linear model=k2-mini layer=1 expert=2 op=moe.down method={} {}", method, rest));
      ExpectVerdict(cell, Verdict::kPass, "");
      EXPECT_NE(cell.problem.find(fmt::format(" method={} ", method)), std::string::npos);
      EXPECT_NE(cell.executed->act, "") << cell.problem;
    }
  }
  EXPECT_EQ(Execute("linear model=k2-mini layer=0 op=mlp.up method=gguf-q4_1 fill=exact").mode,
            "exact");
  // Five groups over two ranks.
  ExpectVerdict(Execute("linear model=k2-mini layer=0 op=mlp.down method=gguf-q4_1 tp=2"),
                Verdict::kRefused, "block");
}

TEST(Axes, CollectivesAlone) {
  for (const char* rest :
       {"layer=1 op=moe.out tp=3 reduce=ring:bf16", "layer=1 op=attn.out tp=8 reduce=tree:bf16",
        "layer=1 op=moe.out tp=8 collective=reduce_scatter reduce=ring:bf16 fill=exact",
        "layer=1 op=moe.out tp=3 collective=reduce_scatter reduce=sequential:bf16",
        "layer=1 op=moe.out tp=1 collective=reduce_scatter", "tp=4 collective=gather tokens=3"}) {
    const CellResult cell = Execute(std::string("collective model=k2-mini tier=scalar ") + rest);
    ExpectVerdict(cell, Verdict::kPass, "");
    EXPECT_NE(cell.mode, "bounded") << rest;
  }
  ExpectVerdict(Execute("collective model=k2-mini layer=1 tp=4 reduce=ring:int8"),
                Verdict::kNotExecuted, "ring:int8");
}

TEST(Axes, ALoadAfterAnotherReplacesIt) {
  ExpectVerdict(Execute("load model=k2-mini-int4-g32 reload=1 tp=2"), Verdict::kPass, "");
  ExpectVerdict(Execute("moe model=k2-mini-int4-g32 layer=1 reload=1"), Verdict::kPass, "");
  ExpectVerdict(
      Execute(std::string("load model=k2-mini layer=0 reload=1 tier=scalar engine=") + kExample),
      Verdict::kNotExecuted, "reload=1");
}

TEST(Axes, ALimitIsTheOraclesToo) {
  ExpectVerdict(Execute("act model=llama-mini layer=0 limit=0.5"), Verdict::kPass, "");
  ExpectVerdict(Execute("layer model=k2-mini layer=1 limit=0.5 tp=2"), Verdict::kPass, "");
  const CellResult dropped =
      Execute("moe model=k2-mini layer=1 limit=0.05 fault=K40/none tier=scalar");
  EXPECT_EQ(NameOf(dropped.verdict), "FAIL") << dropped.reason;
}

TEST(Axes, HowATierRanIsItsRecords) {
  const std::string text = "moe model=k2-mini layer=1 tier=avx512";
  setenv("ASSAY_FAKE_TIERS", "scalar,avx2", 1);
  const CellResult emulated = Execute(text);
  ExpectVerdict(emulated, Verdict::kPass, "");
  EXPECT_EQ(emulated.executed->how, "emulated (portable intrinsics)");
  EXPECT_EQ(emulated.executed->tier, "avx512");
  const auto run = [](const std::string& cell, const char* emulate) {
    CellLimits limits;
    limits.emulate = emulate;
    return ExecuteCell(*ParseProblem(cell), &Models(), limits).result;
  };
  ExpectVerdict(run(text, "never"), Verdict::kNotExecuted, "avx512");
  unsetenv("ASSAY_FAKE_TIERS");
  EXPECT_EQ(run(text, "always").executed->how, "emulated (portable intrinsics)");
  ExpectVerdict(run("moe model=k2-mini layer=1 tier=scalar", "always"), Verdict::kNotExecuted,
                "does not emulate");
  EXPECT_EQ(run("moe model=k2-mini layer=1 tier=scalar", "never").executed->how, "hardware");
}

TEST(Axes, ChainsHaveANoiseFloor) {
  const CellResult cell = Execute("model model=llama-mini prompt=t5");
  ExpectVerdict(cell, Verdict::kPass, "");
  EXPECT_EQ(cell.metrics.floor_runs, judge::kDecidingRuns);
  ASSERT_TRUE(cell.metrics.noise_floor && cell.metrics.rel_l2);
  EXPECT_GT(*cell.metrics.noise_floor, 0);
  EXPECT_LE(*cell.metrics.rel_l2, judge::kFloorFactor * *cell.metrics.noise_floor);
  // The same cell again, and of another tier: the same chain and floor.
  const CellResult other = Execute("model model=llama-mini prompt=t5 tier=scalar");
  EXPECT_EQ(other.metrics.noise_floor, cell.metrics.noise_floor);
}

// Of an engine that shows logits alone no op can be judged by itself: what accumulated decides.
TEST(Axes, LogitsAloneAreDecidedByTheFloor) {
  const std::string text =
      std::string("model model=llama-mini prompt=t5 tier=scalar engine=") + kQuiet;
  const CellResult cell = Execute(text);
  ExpectVerdict(cell, Verdict::kPass, "by its accumulated error alone");
  setenv("QUIET_ENGINE", "scaled", 1);
  const CellResult scaled = Execute(text);
  unsetenv("QUIET_ENGINE");
  ExpectVerdict(scaled, Verdict::kFail, "noise floor");
  ExpectSignature(scaled, "kernel", "accumulation");
  EXPECT_EQ(scaled.divergences[0].tap, "");
  ASSERT_FALSE(scaled.ops.empty());
  EXPECT_GT(scaled.ops.back().accumulated.value_or(0), scaled.ops.back().floor.value_or(1));
}

}  // namespace
}  // namespace assay::run
