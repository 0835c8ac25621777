// The verb as a script sees it: a checkpoint in another method, which every other verb takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "harness/cli/testing/program.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::Ended;
using testing::Fresh;
using testing::Invoke;

TEST(Quantise, WritesWhatTheLoadersAndTheAuditTake) {
  for (const char* method : {"gptq-int4-g32-actorder", "ct-nvfp4", "modelslim-w8a8"}) {
    const std::string out = Fresh(std::string("quantised-") + method);
    const Ended made = Invoke({"quantise", "k2-mini", "--method", method, "--out", out});
    ASSERT_EQ(made.code, 0) << made.error;
    EXPECT_NE(made.out.find(method), std::string::npos);
    const Ended audit = Invoke({"audit", out});
    EXPECT_EQ(audit.code, 0) << audit.out << audit.error;
    EXPECT_NE(audit.out.find(method), std::string::npos) << audit.out;
    const Ended loaded = Invoke({"run", "load model=" + out + " tp=2", "--out", Fresh("loaded")});
    EXPECT_EQ(loaded.code, 0) << loaded.out << loaded.error;
    // Twice into the same folder: what is there is kept.
    const Ended again = Invoke({"quantise", "k2-mini", "--method", method, "--out", out});
    EXPECT_EQ(again.code, 2);
    EXPECT_NE(again.error.find(out), std::string::npos) << again.error;
  }
}

TEST(Quantise, WhatCannotBeDoneIsOneLine) {
  const std::string quantised = "goldens/quantised/k2-mini-int4-g32";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"quantise"},
        {"quantise", "k2-mini"},
        {"quantise", "k2-mini", "--method", "ct-int4-g32"},
        {"quantise", "k2-mini", "--method", "ct-int4-g23x", "--out", Fresh("q1")},
        {"quantise", "no-such", "--method", "ct-int4-g32", "--out", Fresh("q2")},
        {"quantise", quantised, "--method", "ct-int4-g32", "--out", Fresh("q3")},
        {"quantise", "k2-mini", "--method", "gguf-q4_0", "--out", Fresh("q4")},
        {"quantise", "qwen3-mini", "--method", "ct-int4-g64", "--out", Fresh("q5")}}) {
    const Ended ran = Invoke(words);
    EXPECT_EQ(ran.code, 2) << words.back() << ran.out << ran.error;
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
    EXPECT_FALSE(fs::exists(words.back()) && !fs::is_empty(words.back())) << words.back();
  }
}

}  // namespace
}  // namespace assay::cli
