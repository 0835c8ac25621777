// Command lines of verbs: what is read, help, and one line for each mistake.
#include "harness/cli/options.h"

#include <gtest/gtest.h>

namespace assay::cli {
namespace {

struct Parsed {
  std::optional<int> code;
  std::string out, error;
  bool json = false;
  std::string dir;
  int64_t jobs = 3;
  std::vector<std::string> words;
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  Options options("frob", "Frobs a cell.", "./assay frob --jobs 2");
  options.Words("what", &parsed.words, "problem or filters");
  options.Flag("--json", &parsed.json, "print JSON");
  options.Value("--out", &parsed.dir, "a folder");
  options.Number("--jobs", &parsed.jobs, 0, 1024, "cells at a time");
  arguments.insert(arguments.begin(), "frob");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  parsed.code = options.Parse(static_cast<int>(argv.size()), argv.data());
  std::fflush(nullptr);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.error = testing::internal::GetCapturedStderr();
  return parsed;
}

// Exit 2, nothing on standard output, one line on standard error with each of the texts.
void ExpectUsage(const std::vector<std::string>& arguments, const std::vector<std::string>& says) {
  const Parsed parsed = Parse(arguments);
  ASSERT_TRUE(parsed.code.has_value()) << arguments[0];
  EXPECT_EQ(*parsed.code, 2);
  EXPECT_EQ(parsed.out, "");
  EXPECT_TRUE(parsed.error.starts_with("assay: ")) << parsed.error;
  EXPECT_EQ(parsed.error.find('\n'), parsed.error.size() - 1) << parsed.error;
  for (const std::string& text : says) {
    EXPECT_NE(parsed.error.find(text), std::string::npos)
        << "'" << text << "' not in: " << parsed.error;
  }
}

TEST(Options, ReadsAllSorts) {
  const Parsed parsed = Parse({"tp=2", "--json", "--jobs", "7", "kind=load", "--out=here"});
  EXPECT_FALSE(parsed.code.has_value()) << parsed.error;
  EXPECT_TRUE(parsed.json);
  EXPECT_EQ(parsed.jobs, 7);
  EXPECT_EQ(parsed.dir, "here");
  EXPECT_EQ(parsed.words, (std::vector<std::string>{"tp=2", "kind=load"}));
  EXPECT_EQ(parsed.out + parsed.error, "");
}

TEST(Options, NothingGivenLeavesTheDefaults) {
  const Parsed parsed = Parse({});
  EXPECT_FALSE(parsed.code.has_value());
  EXPECT_EQ(parsed.jobs, 3);
  EXPECT_FALSE(parsed.json);
  EXPECT_TRUE(parsed.words.empty());
}

TEST(Options, AProblemStringStaysOneWord) {
  const std::string problem = "moe model=a%20b layer=1 tp=2";
  EXPECT_EQ(Parse({problem}).words, (std::vector<std::string>{problem}));
}

TEST(Options, HelpHasEachOptionItsDefaultAndAnExample) {
  const Parsed parsed = Parse({"--help"});
  ASSERT_TRUE(parsed.code.has_value());
  EXPECT_EQ(*parsed.code, 0);
  EXPECT_EQ(parsed.error, "");
  for (const char* text : {"./assay frob", "Frobs a cell.", "--json", "--out", "--jobs", "3",
                           "print JSON", "problem or filters", "Example: ./assay frob --jobs 2"}) {
    EXPECT_NE(parsed.out.find(text), std::string::npos) << text << " not in:\n" << parsed.out;
  }
}

TEST(Options, UnknownOnesNameWhatIsAllowedAndTheNearest) {
  ExpectUsage({"--jsn"}, {"frob", "--jsn", "did you mean --json?", "--out", "--jobs"});
  ExpectUsage({"--jbos=4"}, {"--jbos=4", "did you mean --jobs?"});
  ExpectUsage({"--xyzzyplugh"}, {"--xyzzyplugh", "allowed options are", "--help"});
  ExpectUsage({"-q"}, {"-q"});
}

TEST(Options, ValuesThatAreWrong) {
  ExpectUsage({"--jobs", "-1"}, {"--jobs", "0", "1024"});
  ExpectUsage({"--jobs", "1025"}, {"--jobs", "1024"});
  ExpectUsage({"--jobs", "two"}, {"--jobs", "two"});
  ExpectUsage({"--jobs", "99999999999999999999"}, {"--jobs"});
  ExpectUsage({"--jobs", "1.5"}, {"--jobs"});
  ExpectUsage({"--jobs"}, {"--jobs"});
  ExpectUsage({"--out"}, {"--out"});
}

TEST(Options, AnEmptyValueIsNotAnOptionLeftOut) {
  ExpectUsage({"--out", ""}, {"--out", "empty value"});
  ExpectUsage({"--out="}, {"--out"});
  EXPECT_FALSE(Parse({"kind=load"}).code.has_value());
}

TEST(Options, BadUsageIsOneLineAndTwo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(BadUsage("what and why"), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "assay: what and why\n");
  ExpectUsage({"--x\x1b[31m\ny"}, {"--x\\x1b[31m\\x0ay"});
}

}  // namespace
}  // namespace assay::cli
