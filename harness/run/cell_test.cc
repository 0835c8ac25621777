// Each verdict, reached through whole cells: the native engine on the shipped models, the example
// engine and its mistakes, and engines with one oddity.
#include "harness/run/cell.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/run/testing/cells.h"

namespace assay::run {
namespace {

namespace fs = std::filesystem;

// An engine with the named oddity, as long as this lives.
class Odd {
 public:
  explicit Odd(const char* name) { setenv("ODD_ENGINE", name, 1); }
  ~Odd() { unsetenv("ODD_ENGINE"); }
  static std::string Cell(const std::string& rest = "op=mlp.up") {
    return std::string("linear model=k2-mini layer=0 tier=scalar engine=") + kOdd + " " + rest;
  }
};

TEST(Cell, TheNativeEnginePasses) {
  for (const char* text :
       {"load model=k2-mini-int4-g32 tp=4", "load model=qwen2-mini tp=1 layer=1",
        "linear model=k2-mini layer=1", "linear model=k2-mini-int4-g32 layer=1 expert=3 op=down",
        "linear model=k2-mini layer=0 op=mlp.up fill=exact tp=2 tokens=17",
        "linear model=k2-mini layer=1 op=moe.gate fill=extreme tokens=1",
        "linear model=k2-mini layer=1 op=moe.down routing=forced",
        "linear model=k2-mini layer=0 op=attn.q fill=real", "norm model=qwen3-mini layer=1",
        "act model=llama-mini layer=0 tp=3", "collective model=k2-mini layer=1 tp=8 fill=exact",
        "attn model=dsv3-mini layer=1 tokens=7+2", "route model=k2-mini layer=1 tokens=17",
        "moe model=k2-mini-int4-g32 layer=1 tp=4 routing=forced",
        "moe model=k2-mini layer=1 fill=exact", "layer model=qwen3-mini layer=0 tp=1",
        "model model=llama-mini tp=3 prompt=t5 tokens=3+2",
        "model model=k2-mini tp=2 attn_tp=1 prompt=t5"}) {
    const CellResult cell = Execute(text);
    EXPECT_EQ(NameOf(cell.verdict), "PASS") << text << "\n" << cell.reason;
    EXPECT_EQ(cell.reason, "") << text;
    ASSERT_TRUE(cell.executed.has_value()) << text;
    EXPECT_EQ(cell.executed->tier, Execute(text).executed->tier);
    EXPECT_FALSE(cell.model_hash.empty());
    EXPECT_TRUE(cell.divergences.empty());
    const auto back = CellFromJson(ToJson(cell), "here");
    EXPECT_TRUE(back.ok()) << (back.ok() ? "" : back.error().message);
  }
}

TEST(Cell, ExactFillIsJudgedBitForBit) {
  EXPECT_EQ(Execute("linear model=k2-mini layer=0 op=mlp.up fill=exact tp=2").mode, "exact");
  EXPECT_EQ(Execute("linear model=k2-mini layer=0 op=mlp.up fill=normal tp=2").mode, "bounded");
  EXPECT_EQ(Execute("load model=k2-mini layer=0").mode, "bitwise");
}

TEST(Cell, TheProblemIsResolvedAndItsReproReadsBack) {
  const CellResult cell = Execute("linear model=k2-mini layer=0 op=mlp.up");
  EXPECT_NE(cell.problem.find(" method=bf16 "), std::string::npos) << cell.problem;
  EXPECT_NE(cell.problem.find(" tier="), std::string::npos) << cell.problem;
  EXPECT_NE(cell.problem.find(" kernel="), std::string::npos) << cell.problem;
  // The tier is the host's and is kept; method and kernel follow from the rest.
  const std::string tier = cell.executed->tier;
  EXPECT_EQ(cell.repro, "./assay run 'linear model=k2-mini layer=0 op=mlp.up" +
                            (tier.empty() ? "" : " tier=" + tier) + "'");
}

TEST(Cell, IllegalDegreesAreRefusedForTheRightReason) {
  struct Row {
    const char* text;
    std::vector<std::string> says;
  };
  for (const Row& row : {Row{"model model=qwen2-mini tp=2", {"tp 2", "largest legal TP is 1"}},
                         Row{"model model=dsv3-mini tp=4", {"tp 4", "largest legal TP is 2"}},
                         Row{"load model=llama-mini tp=2", {"tp 2", "largest legal TP is 3"}},
                         Row{"collective model=k2-mini layer=1 tp=4 attn_tp=3", {"attn_tp"}},
                         Row{"load model=k2-mini tp=1024", {"1024", "largest legal TP is 8"}}}) {
    const CellResult cell = Execute(row.text);
    for (const std::string& part : row.says) ExpectVerdict(cell, Verdict::kRefused, part);
    EXPECT_FALSE(cell.executed.has_value());
    EXPECT_TRUE(cell.divergences.empty());
  }
}

TEST(Cell, WhatTheEngineOrTheHostLacksIsNotExecuted) {
  ExpectVerdict(Execute("linear model=k2-mini layer=1 tier=amx_int8"), Verdict::kNotExecuted,
                "amx_int8");
  ExpectVerdict(Execute("linear model=k2-mini layer=1 kernel=nobodys"), Verdict::kNotExecuted,
                "nobodys");
  ExpectVerdict(Execute("linear model=k2-mini layer=1 layout=nobodys"), Verdict::kNotExecuted,
                "nobodys");
  ExpectVerdict(Execute("linear model=k2-mini layer=1 act=a8row"), Verdict::kNotExecuted, "a8row");
  ExpectVerdict(Execute("model model=k9-mini"), Verdict::kNotExecuted, "not on this machine");
  ExpectVerdict(Execute("model model=k2-mini chunk=3"), Verdict::kNotExecuted, "chunk=3");
  setenv("ASSAY_FAKE_TIERS", "scalar", 1);
  ExpectVerdict(Execute("linear model=k2-mini layer=1 tier=avx2"), Verdict::kNotExecuted, "avx2");
  EXPECT_EQ(Execute("linear model=k2-mini layer=1").executed->tier, "scalar");
  unsetenv("ASSAY_FAKE_TIERS");
}

TEST(Cell, BadInputIsMarkedAsSuch) {
  const auto problem = ParseProblem("linear model=k2-mini layer=99");
  const CellRun run = ExecuteCell(*problem, &Models(), {});
  EXPECT_TRUE(run.bad_input);
  ExpectVerdict(run.result, Verdict::kInfra, "layer=99");
  EXPECT_FALSE(ExecuteCell(*ParseProblem("model model=k9-mini"), &Models(), {}).bad_input);
}

TEST(Cell, AnEngineFromALibraryPasses) {
  for (const char* tp : {"tp=1", "tp=2", "tp=4"}) {
    const CellResult cell = Execute(
        std::string("linear model=k2-mini layer=0 tier=scalar engine=") + kExample + " " + tp);
    ExpectVerdict(cell, Verdict::kPass, "");
    EXPECT_EQ(cell.executed->kernel, "dot_bf16");
    EXPECT_EQ(cell.executed->engine, "example@1");
  }
  const std::string demands =
      std::string("linear model=k2-mini layer=0 op=mlp.up tier=scalar engine=") + kExample;
  ExpectVerdict(Execute(demands + " layout=nobodys"), Verdict::kNotExecuted,
                "asked for layout nobodys, row ran");
  ExpectVerdict(Execute(demands + " act=a8row"), Verdict::kNotExecuted,
                "asked for act a8row, a16 ran");
  ExpectVerdict(Execute(demands + " kernel=nobodys"), Verdict::kNotExecuted,
                "asked for kernel nobodys, dot_bf16 ran");
}

TEST(Cell, AnEngineThatDropsATailIsLocated) {
  const CellResult cell = Execute(
      "linear model=k2-mini layer=0 op=mlp.up tp=2 tier=scalar "
      "engine=harness/abi/example/libexample_tail.so");
  ExpectVerdict(cell, Verdict::kFail, "the last 8 of K");
  ExpectSignature(cell, "kernel", "tail-dropped");
  EXPECT_EQ(cell.divergences[0].tap, "L0.mlp.up");
  EXPECT_EQ(cell.divergences[0].layer, 0);
  EXPECT_EQ(cell.divergences[0].rank, 0);
  EXPECT_EQ(cell.divergences[0].tensor, "");
  EXPECT_FALSE(cell.ops.empty());
}

TEST(Cell, AnEngineThatLoadsAnotherRanksPartIsLocated) {
  const CellResult cell = Execute(
      "linear model=k2-mini layer=0 op=mlp.down tp=4 tier=scalar "
      "engine=harness/abi/example/libexample_rank.so");
  ExpectVerdict(cell, Verdict::kFail, "rank 0 on rank 1");
  ExpectSignature(cell, "loader", "shard-of-another-rank");
  const Divergence& first = cell.divergences[0];
  EXPECT_EQ(first.rank, 1);
  EXPECT_EQ(first.local_index, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(first.bits.size(), 2u);
  EXPECT_NE(first.expected, first.got);
}

TEST(Cell, EnginesThatDie) {
  {
    const Odd odd("crash-load");
    const CellResult cell = Execute(Odd::Cell());
    ExpectVerdict(cell, Verdict::kFail, "died while load");
    ExpectSignature(cell, "loader", "crash");
  }
  {
    const Odd odd("crash-run");
    const CellResult cell = Execute(Odd::Cell());
    ExpectVerdict(cell, Verdict::kFail, "SIGSEGV");
    ExpectSignature(cell, "kernel", "crash");
  }
  {
    const Odd odd("exit");
    const CellResult cell = Execute(Odd::Cell());
    ExpectVerdict(cell, Verdict::kFail, "exit(0)");
    ExpectSignature(cell, "kernel", "crash");
  }
  ExpectVerdict(Execute(Odd::Cell()), Verdict::kPass, "");
}

TEST(Cell, AnEngineThatHangsIsInfra) {
  const Odd odd("hang");
  const CellResult cell = Execute(Odd::Cell(), 300);
  ExpectVerdict(cell, Verdict::kInfra, "still running after");
  EXPECT_FALSE(cell.executed.has_value());
}

TEST(Cell, EnginesThatSayNo) {
  {
    const Odd odd("fail");
    const CellResult cell = Execute(Odd::Cell());
    ExpectVerdict(cell, Verdict::kFail, "no luck");
    ExpectSignature(cell, "kernel", "engine-error");
  }
  for (const char* name : {"refuse-open", "refuse-load"}) {
    const Odd odd(name);
    const CellResult cell = Execute(Odd::Cell("op=mlp.up tp=2"));
    ExpectVerdict(cell, Verdict::kFail, "refused a legal configuration");
    ASSERT_FALSE(cell.divergences.empty());
  }
  {
    const Odd odd("unsupported");
    ExpectVerdict(Execute(Odd::Cell()), Verdict::kNotExecuted, "supports none of the 1 calls");
  }
}

TEST(Cell, IllegalDegreesAndOtherEngines) {
  const std::string illegal = std::string("load model=llama-mini tp=2 tier=scalar engine=") + kOdd;
  {
    const Odd odd("accept-all");
    const CellResult cell = Execute(illegal);
    ExpectVerdict(cell, Verdict::kFail, "loaded what the plan says is illegal");
    ExpectSignature(cell, "loader", "illegal-accepted");
  }
  {
    const Odd odd("refuse-heads");
    ExpectVerdict(Execute(illegal), Verdict::kRefused, "largest legal TP is 3");
  }
  {
    const Odd odd("refuse-open");  // its reason has nothing to do with heads
    const CellResult cell = Execute(illegal);
    ExpectVerdict(cell, Verdict::kFail, "refused for another reason");
    ExpectSignature(cell, "selection", "refused");
  }
  // It loads by the plan alone; of an illegal degree there is none, so that it can refuse nothing.
  ExpectVerdict(Execute(illegal), Verdict::kNotExecuted, "without a plan");
}

TEST(Cell, WhatRanIsWhatItSays) {
  {
    const Odd odd("other-tier");
    ExpectVerdict(Execute(Odd::Cell()), Verdict::kNotExecuted, "asked for tier scalar, avx2 ran");
  }
  {
    const Odd odd("silent");
    ExpectVerdict(Execute(Odd::Cell()), Verdict::kNotExecuted, "nothing that was recorded");
  }
}

TEST(Cell, ShardsThatCannotBeReadBack) {
  const std::string load = std::string("load model=k2-mini layer=0 tier=scalar engine=") + kOdd;
  {
    const Odd odd("own-layout");
    ExpectVerdict(Execute(Odd::Cell()), Verdict::kPass, "1 of 1 shards");
    ExpectVerdict(Execute(load), Verdict::kNotExecuted, "nothing that could be judged");
  }
  {
    const Odd odd("no-export");
    ExpectVerdict(Execute(Odd::Cell()), Verdict::kPass, "1 of 1 shards");
    ExpectVerdict(Execute(load), Verdict::kNotExecuted, "nothing that could be judged");
  }
  {
    const Odd odd("wrong-size");
    const CellResult cell = Execute(load);
    ExpectVerdict(cell, Verdict::kFail, "size is not its layout's");
    ExpectSignature(cell, "layout", "wrong-shape");
    EXPECT_FALSE(cell.divergences[0].tensor.empty());
  }
}

TEST(Cell, ALoadOfWhichOnlyAPartCanBeSeenIsNotAPass) {
  const CellResult cell =
      Execute(std::string("load model=k2-mini layer=0 tp=2 tier=scalar engine=") + kExample);
  ExpectVerdict(cell, Verdict::kNotExecuted, "shards were given back");  // it keeps no norms
}

TEST(Cell, EnginesAreNotAskedForScopesThatTheyDoNotOffer) {
  for (const char* cell : {"model model=llama-mini tp=2", "attn model=llama-mini layer=0 tp=2"}) {
    ExpectVerdict(Execute(std::string(cell) + " tier=scalar engine=" + kExample),
                  Verdict::kNotExecuted, "does not offer scope");
  }
}

TEST(Cell, ExpertsWithoutTokensAreLeftOut) {
  for (const char* cell : {"linear model=k2-mini layer=1 tokens=1", "act model=k2-mini layer=1",
                           "linear model=k2-mini layer=1 fill=real",
                           "linear model=k2-mini-int4-g32 layer=1 op=moe.down fill=real tp=2",
                           "act model=k2-mini layer=1 fill=real"}) {
    ExpectVerdict(Execute(cell), Verdict::kPass, "");
  }
}

TEST(Cell, ForcedRoutingWithDecodes) {
  ExpectVerdict(Execute("layer model=k2-mini layer=1 routing=forced tokens=3+2"), Verdict::kPass,
                "");
}

TEST(Cell, OtherThreadsThanAskedForAreNotAPass) {
  ExpectVerdict(Execute(std::string("linear model=k2-mini layer=0 op=mlp.up threads=7 tier=scalar "
                                    "engine=") +
                        kExample),
                Verdict::kNotExecuted, "asked for 7 threads, 1 ran");
}

TEST(Cell, WhatCannotBeHeldIsSaidBeforehand) {
  auto problem = ParseProblem("load model=k2-mini tp=2");
  ASSERT_TRUE(problem);
  ModelStore models;
  const CellLimits small{60000, int64_t{1} << 20};
  ExpectVerdict(ExecuteCell(*problem, &models, small).result, Verdict::kNotExecuted,
                "name a layer=, op= or expert=");
  EXPECT_EQ(ExecuteCell(*problem, &models, {}).result.verdict, Verdict::kPass);
}

TEST(Cell, ABrokenBufferRuleIsAFailure) {
  const Odd odd("write-input");
  const CellResult cell = Execute(Odd::Cell());
  EXPECT_EQ(NameOf(cell.verdict), "FAIL") << cell.reason;
  ASSERT_FALSE(cell.divergences.empty());
  EXPECT_EQ(cell.divergences[0].cls, "kernel");
}

// A copy of a shipped model whose every weight is zero.
std::string ZeroModel() {
  const fs::path to = fs::path(std::getenv("TEST_TMPDIR")) / "zero-mini";
  fs::remove_all(to);
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator("goldens/checkpoints/llama-mini")) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    std::string bytes = text.str();
    if (entry.path().extension() == ".safetensors") {
      uint64_t header = 0;
      std::memcpy(&header, bytes.data(), sizeof header);
      std::fill(bytes.begin() + static_cast<int64_t>(sizeof header + header), bytes.end(), '\0');
    }
    std::ofstream(to / entry.path().filename(), std::ios::binary) << bytes;
  }
  return to.string();
}

TEST(Cell, ZeroWeightsProveNothing) {
  for (const char* kind : {"linear layer=0 op=mlp.up", "layer layer=0", "model prompt=t5"}) {
    const std::string text = kind;
    const size_t space = text.find(' ');
    std::string problem = text.substr(0, space) + " model=" + ZeroModel() + text.substr(space);
    if (const size_t at = problem.find("prompt=t5"); at != std::string::npos) {
      problem.replace(at, 9, "tokens=5");
    }
    const CellResult cell = Execute(problem);
    EXPECT_EQ(NameOf(cell.verdict), "MISTRUSTED") << problem << "\n" << cell.reason;
    EXPECT_NE(cell.reason, "");
  }
}

TEST(Cell, HostileStringsEndInAVerdict) {
  for (const char* text :
       {"model model=%01%7F%FE", "model model=..", "model model=%2E%2E%2F%2E%2E", "model model=/",
        "model model=/dev/null", "model model=/proc/self/mem",
        "linear model=k2-mini layer=0 op=%25s", "linear model=k2-mini layer=0 kernel=%25n%25s",
        "linear model=k2-mini layer=0 layout=%0A", "load model=k2-mini tp=1024 attn_tp=1",
        "load model=k2-mini tp=1024 attn_tp=1023",
        "load model=k2-mini seed=2147483647 threads=1024 layer=0",
        "model model=llama-mini prompt=/etc", "model model=llama-mini prompt=%2E%2E",
        "attn model=llama-mini layer=0 tokens=1048575+1", "load model=k2-mini engine=/etc/passwd",
        "moe model=k2-mini layer=1 fault=K99/%FF", "route model=k2-mini layer=1 tokens=1"}) {
    const CellResult cell = Execute(text);
    EXPECT_LT(cell.ms, 5000) << text;
    EXPECT_TRUE(cell.verdict != Verdict::kFail && cell.verdict != Verdict::kMistrusted)
        << text << "\n"
        << cell.reason;
    EXPECT_TRUE(CellFromJson(ToJson(cell), "here").ok()) << text;
  }
}

}  // namespace
}  // namespace assay::run
