// Under AddressSanitizer and UndefinedBehaviorSanitizer (sanitized.bzl).
#include <gtest/gtest.h>

#include "harness/checkpoint/checkpoint.h"
#include "harness/run/problem.h"
#include "harness/store/results.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

TEST(Mutations, Safetensors) { Drive("safetensors", FuzzSafetensors, 6000); }
TEST(Mutations, Gguf) { Drive("gguf", FuzzGguf, 6000); }
TEST(Mutations, Config) { Drive("config", FuzzConfig, 6000); }
TEST(Mutations, Problem) { Drive("problem", FuzzProblem, 20000); }
TEST(Mutations, Results) { Drive("results", FuzzResults, 3000); }
TEST(Mutations, Describe) { Drive("describe", FuzzDescribe, 10000); }

// The seeds are good inputs: damage to a bad one would reach little.
TEST(Seeds, AreRead) {
  const auto file = [](const char* name, const std::string& bytes) {
    return std::string(FileOf(name, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
  };
  for (const std::string& seed : SeedsOf("safetensors")) {
    const auto opened = SafetensorsFile::Open(file("x.safetensors", seed));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
  }
  for (const std::string& seed : SeedsOf("gguf")) {
    const auto opened = Checkpoint::Open(file("x.gguf", seed));
    EXPECT_TRUE(opened.ok()) << opened.error().message;
  }
  for (const std::string& seed : SeedsOf("config")) {
    const auto config = ParseModelConfig(seed, "seed");
    EXPECT_TRUE(config.ok()) << config.error().message;
  }
  for (const std::string& seed : SeedsOf("problem")) {
    const auto problem = run::ParseProblem(seed);
    EXPECT_TRUE(problem.ok()) << problem.error().message;
  }
  for (const std::string& seed : SeedsOf("results")) {
    const auto record = ReadResults(file("results.jsonl", seed));
    ASSERT_TRUE(record.ok()) << record.error().message;
    EXPECT_TRUE(record->finished());
  }
}

// The controls: what an entry must find ends the process, and the sanitizers are there.
TEST(ControlsDeathTest, BrokenPromisesEndTheProcess) {
  EXPECT_DEATH(RequireOneLine(Error{"two\nlines"}), "several lines");
  EXPECT_DEATH(RequireOneLine(Error{""}), "without a message");
  EXPECT_DEATH(RequireOneLine(Error{std::string(5000, 'x')}), "endless");
  RequireOneLine(Error{"one line"});
}

TEST(ControlsDeathTest, SanitizersAreThere) {
  EXPECT_DEATH(
      {
        volatile size_t outside = 8;
        const std::vector<char> bytes(outside);
        volatile char got = bytes.data()[outside];
        (void)got;
      },
      "heap-buffer-overflow");
  EXPECT_DEATH(
      {
        volatile int large = std::numeric_limits<int>::max();
        large = large + 1;
      },
      "signed integer overflow");
}

TEST(Mutate, IsAFunctionOfTheSeed) {
  std::mt19937_64 one(1), same(1), other(2);
  const std::string text(200, 'x');
  const std::string first = Mutate(text, text, {"token"}, &one);
  EXPECT_EQ(first, Mutate(text, text, {"token"}, &same));
  EXPECT_NE(first, Mutate(text, text, {"token"}, &other));
  int changed = 0;
  for (int i = 0; i < 100; ++i) changed += Mutate(text, "yyyy", {"token"}, &one) != text ? 1 : 0;
  EXPECT_GT(changed, 80);
}

}  // namespace
}  // namespace assay::fuzz
