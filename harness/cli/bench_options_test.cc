#include "harness/cli/bench_options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace assay::cli {
namespace {

using kernels::bench::BenchOptions;
using kernels::bench::BenchReport;

TEST(BenchWords, BecomeOptions) {
  const auto options =
      ParseBench({"method=gguf,bf16", "m=1,7", "shape=64x128", "tier=avx2", "how=hardware"});
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->methods, (std::vector<std::string>{"gguf", "bf16"}));
  EXPECT_EQ(options->m, (std::vector<int64_t>{1, 7}));
  ASSERT_EQ(options->shapes.size(), 1u);
  EXPECT_EQ(options->shapes[0].n, 64);
  EXPECT_EQ(options->shapes[0].k, 128);
  EXPECT_EQ(options->hows, std::vector<std::string>{"hardware"});
  const auto none = ParseBench({});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->m, BenchOptions().m);
  EXPECT_EQ(none->shapes.size(), BenchOptions().shapes.size());
}

TEST(BenchWords, ThatAreWrongAreNamed) {
  for (const auto& [word, says] : {std::pair("teir=avx2", "did you mean tier?"),
                                   {"avx2", "key=value"},
                                   {"m=0", "m=0"},
                                   {"m=x", "m=x"},
                                   {"shape=64", "NxK"},
                                   {"shape=0x4", "NxK"},
                                   {"shape=4x4x4", "NxK"},
                                   {"m=99999999999", "1 to 1048576"},
                                   {"kernel=", "key=value"}}) {
    const auto options = ParseBench({word});
    ASSERT_FALSE(options.ok()) << word;
    EXPECT_NE(options.error().message.find(says), std::string::npos) << options.error().message;
  }
}

BenchReport Report() {
  BenchReport report;
  report.cpu = "X";
  report.cores = 4;
  report.tiers = {"avx2", "scalar"};
  report.peaks[1] = {5, 10, 20};
  report.peaks[4] = {19.5, 38, 76};
  report.rows.push_back({"linear_int4_split16_avx2", "linear", "ct-int4-g32", "a16", "avx2",
                         "hardware", 4, 1, 2048, 7168, 9.75, 0.5, 19, 0.5});
  report.rows.push_back({"linear_deepseek_v4_mxfp4_a8g32_avx512", "linear", "deepseek-v4-mxfp4",
                         "a8g32", "avx512", "emulated (portable intrinsics)", 4, 32, 2048, 7168,
                         0.1, 0.005, 1.5, 0.02});
  report.skipped = {"linear_x_avx512: no avx512 here"};
  return report;
}

TEST(BenchTable, FitsEightyColumnsAndCutsNothing) {
  const std::string table = BenchTable(Report());
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* says : {"linear_int4_split16_avx2 ", "50%", "9.8", "2048x7168",
                           "linear_deepseek_v4_mxfp4_a8g32_avx512*", "portable intrinsics",
                           "19.5 GB/s", "not here: linear_x_avx512"}) {
    EXPECT_NE(table.find(says), std::string::npos) << "'" << says << "' not in\n" << table;
  }
}

TEST(BenchJson, HasThePromisedKeys) {
  const auto json = nlohmann::json::parse(BenchJson(Report()));
  EXPECT_EQ(json["machine"]["cpu"], "X");
  EXPECT_EQ(json["read_bandwidth_gb_s"], 19.5);
  EXPECT_EQ(json["peak_gflops"]["fma"], 38);
  EXPECT_EQ(json["peak_gflops"]["int8"], 76);
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const char* key : {"kernel", "op", "method", "act", "tier", "how", "threads", "m", "n", "k",
                          "gb_s", "fraction_of_bandwidth", "gflops", "fraction_of_peak"}) {
    EXPECT_TRUE(json["rows"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["rows"][1]["how"], "emulated (portable intrinsics)");
  EXPECT_EQ(json["peaks"].size(), 2u);
}

}  // namespace
}  // namespace assay::cli
