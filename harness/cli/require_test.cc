// --require: what must really have been executed.
#include "harness/cli/require.h"

#include <gtest/gtest.h>

namespace assay::cli {
namespace {

CellResult Cell(const std::string& problem, Verdict verdict, const std::string& tier = "",
                const std::string& how = "hardware") {
  CellResult cell;
  cell.problem = problem;
  cell.verdict = verdict;
  if (!tier.empty()) {
    cell.executed = Executed{};
    cell.executed->tier = tier;
    cell.executed->how = how;
  }
  return cell;
}

Requirement Parse(const std::string& text) {
  auto requirement = ParseRequirement(text);
  if (requirement) return *requirement;
  ADD_FAILURE() << requirement.error().message;
  return {};
}

std::vector<std::string> Check(const std::string& requirement,
                               const std::vector<CellResult>& cells) {
  return Unmet({Parse(requirement)}, cells);
}

const CellResult kAmx = Cell("load model=k2-mini tp=4 tier=amx_int8", Verdict::kPass, "amx_int8");
const CellResult kAvx = Cell("load model=k2-mini tp=2 tier=avx2", Verdict::kPass, "avx2");

TEST(Require, ReadsKeysOfProblemStringsKindAndHow) {
  EXPECT_EQ(Parse("tier=amx"), (Requirement{{"tier", "amx"}}));
  EXPECT_EQ(Parse("tier=amx,how=emulated,kind=moe"),
            (Requirement{{"tier", "amx"}, {"how", "emulated"}, {"kind", "moe"}}));
  for (const char* wrong : {"", ",", "tier", "tier=", "teir=avx2", "=avx2", "tier=avx2,x"}) {
    const auto requirement = ParseRequirement(wrong);
    ASSERT_FALSE(requirement.ok()) << wrong;
    EXPECT_NE(requirement.error().message.find("--require"), std::string::npos);
  }
  EXPECT_FALSE(ParseRequirement("tier=avx2,tier=amx_int8").ok()) << "one of the two would be lost";
}

TEST(Require, IsMetByACellThatRan) {
  EXPECT_EQ(Check("tier=amx", {kAmx, kAvx}), std::vector<std::string>{});
  EXPECT_EQ(Check("tier=avx2,tp=2", {kAmx, kAvx}), std::vector<std::string>{});
  EXPECT_EQ(Check("kind=load", {kAvx}), std::vector<std::string>{});
  EXPECT_EQ(Check("attn_tp=2", {kAvx}), std::vector<std::string>{});
}

TEST(Require, NobodyAskedForIt) {
  const auto lines = Check("tier=amx", {kAvx});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("tier=amx"), std::string::npos);
  EXPECT_NE(lines[0].find("no cell was executed so (0 asked"), std::string::npos);
  EXPECT_EQ(Check("kind=moe", {kAvx}).size(), 1u);
  EXPECT_EQ(Check("tier=avx2,tp=8", {kAmx, kAvx}).size(), 1u);
  EXPECT_EQ(Check("tier=amx", {}).size(), 1u);
}

TEST(Require, WhatWasNotExecutedDoesNotMeetIt) {
  for (const Verdict verdict : {Verdict::kNotExecuted, Verdict::kSkipped, Verdict::kInfra}) {
    EXPECT_EQ(Check("tier=amx", {Cell(kAmx.problem, verdict)}).size(), 1u);
    // Nor where another cell met it.
    const auto lines = Check("tier=amx", {kAmx, Cell(kAmx.problem + " seed=2", verdict)});
    ASSERT_EQ(lines.size(), 1u) << NameOf(verdict);
    EXPECT_NE(lines[0].find("1 of 2 cells"), std::string::npos) << lines[0];
  }
  EXPECT_EQ(Check("tier=amx", {Cell(kAmx.problem, Verdict::kFail, "amx_int8")}).size(), 0u);
  EXPECT_EQ(Check("tier=amx", {Cell(kAmx.problem, Verdict::kMistrusted, "amx_int8")}).size(), 0u);
}

TEST(Require, RefusalsDoNotCountAgainstIt) {
  const CellResult refused = Cell("load model=k2-mini tp=3 tier=amx_int8", Verdict::kRefused);
  EXPECT_EQ(Check("tier=amx", {kAmx, refused}).size(), 0u);
  EXPECT_EQ(Check("tier=amx", {refused}).size(), 1u) << "but nothing was executed";
}

TEST(Require, ATierWantsHardwareUnlessHowIsNamed) {
  const CellResult emulated =
      Cell(kAmx.problem, Verdict::kPass, "amx_int8", "emulated (portable intrinsics)");
  EXPECT_EQ(Check("tier=amx", {emulated}).size(), 1u);
  EXPECT_EQ(Check("tier=amx,how=emulated", {emulated}).size(), 0u);
  EXPECT_EQ(Check("tier=amx,how=emulated", {kAmx}).size(), 0u) << "hardware is more than asked for";
  EXPECT_EQ(Check("how=emulated", {kAmx}).size(), 1u) << "here emulation itself is asked for";
  EXPECT_EQ(Check("tier=amx,how=emulated (Bochs 3.0)", {kAmx}).size(), 1u);
  EXPECT_EQ(Check("kind=load", {emulated}).size(), 0u);
}

TEST(Require, TheTierThatRanCountsNotTheOneAskedFor) {
  EXPECT_EQ(Check("tier=amx", {Cell(kAmx.problem, Verdict::kFail, "avx2")}).size(), 1u);
}

TEST(Require, EachIsCheckedByItself) {
  EXPECT_EQ(Unmet({Parse("tier=amx"), Parse("tier=avx2"), Parse("tier=scalar"), Parse("tp=9")},
                  {kAmx, kAvx})
                .size(),
            2u);
}

}  // namespace
}  // namespace assay::cli
