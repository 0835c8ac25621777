#include "kernels/bench/rows.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "kernels/bench/peaks.h"

namespace assay::kernels::bench {
namespace {

// Sizes so small that a row takes no time; its figures are not looked at, only what they are of.
BenchOptions Small() {
  BenchOptions options;
  options.shapes = {{40, 64}};
  options.m = {1, 3};
  options.threads = {1};
  options.seconds = 1e-4;
  options.working_set = 1 << 20;
  return options;
}

TEST(RunBench, MeasuresEveryRowThatTheHostCanRun) {
  BenchOptions options = Small();
  options.m = {1};
  int calls = 0;
  options.progress = [&](const std::string&, int index, int) { EXPECT_EQ(index, calls++); };
  const BenchReport report = RunBench(options);
  EXPECT_EQ(report.rows.size() + report.skipped.size(), LinearKernels().size());
  EXPECT_EQ(calls, static_cast<int>(report.rows.size()));
  const Peaks& peaks = report.peaks.at(1);
  EXPECT_GT(peaks.read_gb_s, 0);
  EXPECT_GT(peaks.fma_gflops, 0);
  EXPECT_GT(peaks.int8_gflops, 0);
  std::set<std::string> seen;
  for (const BenchRow& row : report.rows) {
    EXPECT_TRUE(seen.insert(row.kernel + row.how).second) << row.kernel;
    EXPECT_EQ(row.op, "linear");
    EXPECT_GT(row.gb_s, 0) << row.kernel;
    EXPECT_DOUBLE_EQ(row.fraction_of_bandwidth, row.gb_s / peaks.read_gb_s);
    const bool floats = row.act == "a16" || row.act == "amxfp8";
    const double peak = floats ? peaks.fma_gflops : peaks.int8_gflops;
    EXPECT_DOUBLE_EQ(row.fraction_of_peak, row.gflops / peak) << row.kernel;
  }
}

TEST(RunBench, CountsTheLayoutsBytesAndTwoOperationsAProduct) {
  BenchOptions options = Small();
  options.kernels = {"linear_bf16_row_scalar", "linear_q8_0_row_scalar"};
  options.m = {3};
  const BenchReport report = RunBench(options);
  ASSERT_EQ(report.rows.size(), 2u);
  // The same seconds stand under both figures: bytes of a copy and operations of a call.
  const double bf16 = 40 * 64 * 2, q8_0 = 40 * 64 / 32 * 34, operations = 2.0 * 3 * 40 * 64;
  EXPECT_FLOAT_EQ(static_cast<float>(report.rows[0].gb_s / report.rows[0].gflops),
                  static_cast<float>(bf16 / operations));
  EXPECT_FLOAT_EQ(static_cast<float>(report.rows[1].gb_s / report.rows[1].gflops),
                  static_cast<float>(q8_0 / operations));
}

TEST(RunBench, SelectsByAllKeysAndMeasuresNothingForNothing) {
  BenchOptions options = Small();
  options.tiers = {"scalar"};
  options.methods = {"gguf"};
  options.acts = {"a16", "a8row"};
  const BenchReport report = RunBench(options);
  EXPECT_EQ(report.rows.size(), 8u);  // two methods, two acts, two m
  for (const BenchRow& row : report.rows) {
    EXPECT_EQ(row.tier, "scalar");
    EXPECT_TRUE(row.method.starts_with("gguf"));
    EXPECT_NE(row.act, "a8g32");
  }
  options.kernels = {"no_such_kernel"};
  const BenchReport nothing = RunBench(options);
  EXPECT_TRUE(nothing.rows.empty());
  EXPECT_TRUE(nothing.peaks.empty());
  EXPECT_FALSE(nothing.tiers.empty());
}

TEST(RunBench, SaysWhichRowsTheHostLacks) {
  ASSERT_EQ(setenv("ASSAY_FAKE_TIERS", "scalar", 1), 0);
  BenchOptions options = Small();
  options.tiers = {"avx2"};
  const BenchReport report = RunBench(options);
  unsetenv("ASSAY_FAKE_TIERS");
  EXPECT_TRUE(report.rows.empty());
  ASSERT_FALSE(report.skipped.empty());
  EXPECT_NE(report.skipped[0].find("this host has no avx2"), std::string::npos);
}

TEST(RunBench, SkipsSizesThatARowCannotTakeAndSaysWhy) {
  BenchOptions options;
  options.kernels = {"q8_0_a8g32_row_scalar"};
  options.m = {1};
  options.seconds = 1e-4;
  options.working_set = 1 << 16;
  options.shapes = {{16, 33}, {1 << 20, 1 << 20}, {16, 64}};
  const BenchReport report = RunBench(options);
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].k, 64);
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_NE(report.skipped[0].find("16x33: K is no multiple of 32"), std::string::npos);
  EXPECT_NE(report.skipped[1].find("more than 4 GiB"), std::string::npos);
  options.m = {1 << 20};
  options.shapes = {{1 << 20, 32}};
  EXPECT_TRUE(RunBench(options).rows.empty());
}

TEST(Peaks, LoopsCountWhatTheyDo) {
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    if (!HostHas(tier)) continue;
    float sink[16] = {};
    EXPECT_GT(FmaLoop(tier)(sink), 0) << NameOf(tier);
    EXPECT_NE(sink[0], 0) << NameOf(tier);
    EXPECT_GT(Int8Loop(tier)(sink), 0) << NameOf(tier);
  }
}

}  // namespace
}  // namespace assay::kernels::bench
