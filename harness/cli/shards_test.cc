// Runs in shards, merged; runs that are gone on with; folders that are not that run's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/cli/testing/program.h"
#include "harness/store/results.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::CellsOf;
using testing::Ended;
using testing::Fresh;
using testing::Invoke;
using Words = std::vector<std::string>;

constexpr const char* kMatrix =
    R"({"rows": [{"name": "a", "kind": "load", "cross": {"model": ["llama-mini"],)"
    R"( "tp": [1, 2, 3], "tier": ["scalar"], "seed": [1, 2, 3]}, "legal": 6}],)"
    R"( "skips": [{"cells": ["tp=3", "seed=3"], "reason": "two of them will do"}]})";

std::string Matrix() {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/a b.json";
  std::ofstream(path, std::ios::trunc) << kMatrix;
  return path;
}

std::string Shard(const std::string& shard, const Words& more = {}) {
  std::string name = "shard" + shard;
  std::replace(name.begin(), name.end(), '/', 'o');
  const std::string dir = Fresh(name);
  Words words{"run", "--matrix", Matrix(), "--shard", shard, "--out", dir};
  words.insert(words.end(), more.begin(), more.end());
  const Ended ended = Invoke(words);
  EXPECT_EQ(ended.code, 0) << ended.error;
  return dir;
}

// Exit 2, nothing on standard output, one line that says all of it.
void ExpectRefused(const Words& words, const Words& says) {
  const Ended ended = Invoke(words);
  EXPECT_EQ(ended.code, 2) << ended.out << ended.error;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 1) << ended.error;
  for (const std::string& text : says) {
    EXPECT_NE(ended.error.find(text), std::string::npos)
        << "'" << text << "' not in " << ended.error;
  }
}

TEST(Shards, MergedAreTheWholeRun) {
  const Words shards{Shard("1/3"), Shard("2/3"), Shard("3/3")};
  const std::string whole = Fresh("whole"), merged = Fresh("merged");
  ASSERT_EQ(Invoke({"run", "--matrix", Matrix(), "--out", whole}).code, 0);
  const Ended ended = Invoke({"report", "merge", shards[2], shards[0], shards[1], "--out", merged});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.error;
  EXPECT_NE(ended.out.find("registered 9 = collected 9"), std::string::npos) << ended.out;
  EXPECT_EQ(CellsOf(merged), CellsOf(whole));
  EXPECT_EQ(CellsOf(merged).size(), 9u);
  for (const char* file : {"report.html", "report.md", "junit.xml"}) {
    EXPECT_GT(fs::file_size(merged + "/" + file), 0u) << file;
  }
  // Merged again it is what it was; and the folder is taken.
  ExpectRefused({"report", "merge", shards[0], "--out", merged}, {"merged", "not empty"});
  ExpectRefused({"report", "merge", shards[0]}, {"--out DIR is missing"});
  ExpectRefused({"report", "merge", "/no/such", "--out", Fresh("m")},
                {"/no/such", "results.jsonl"});
}

TEST(Shards, WhatIsMissingTwiceOrForeignIsRed) {
  const Words shards{Shard("1/2"), Shard("2/2")};
  const auto red = [](Words words, const std::string& says) {
    const std::string out = Fresh("red");
    words.insert(words.begin(), {"report", "merge"});
    words.insert(words.end(), {"--out", out});
    const Ended ended = Invoke(words);
    EXPECT_EQ(ended.code, 1) << ended.out << ended.error;
    EXPECT_NE(ended.out.find(says), std::string::npos) << ended.out;
    EXPECT_TRUE(fs::exists(out + "/report.html"));
  };
  red({shards[0]}, "shard 2/2 is missing");
  red({shards[0], shards[1], shards[1]}, "shard 2/2 again");
  const std::string foreign = Shard("1/1", {"seed=2"});
  red({shards[0], shards[1], foreign}, foreign + ": a shard of another run");
}

TEST(Shards, AreCountedFromOne) {
  for (const char* shard : {"0/4", "5/4"}) {
    ExpectRefused({"run", "--shard", shard}, {shard, "counts shards from 1", "1/4 to 4/4"});
  }
  ExpectRefused({"run", "--shard", "1/0"}, {"1/0", "at least 1"});
  ExpectRefused({"run", "--shard", "one"}, {"one", "2/4"});
}

TEST(Resume, AFinishedRunSaysSoAndExitsAsItDid) {
  const std::string dir = Fresh("finished");
  const Ended first =
      Invoke({"run", "load model=llama-mini", "--require", "tier=amx", "--out", dir});
  ASSERT_EQ(first.code, 1);
  const std::string record = testing::ReadAll(dir + "/results.jsonl");
  fs::remove(dir + "/report.html");
  const Ended again = Invoke({"run", "--resume", dir});
  EXPECT_EQ(again.code, 1) << again.error;
  EXPECT_NE(again.error.find("this run is finished"), std::string::npos) << again.error;
  EXPECT_NE(again.out.find("required tier=amx"), std::string::npos) << again.out;
  EXPECT_EQ(testing::ReadAll(dir + "/results.jsonl"), record);
  EXPECT_TRUE(fs::exists(dir + "/report.html"));
}

// A run that is not finished: its last line cut off.
std::string Unfinished(const Words& words) {
  const std::string dir = Fresh("unfinished");
  Words all{"run", "--out", dir};
  all.insert(all.end(), words.begin(), words.end());
  EXPECT_EQ(Invoke(all).code, 0);
  const std::string text = testing::ReadAll(dir + "/results.jsonl");
  std::ofstream(dir + "/results.jsonl", std::ios::trunc)
      << text.substr(0, text.find("{\"type\":\"summary\""));
  return dir;
}

TEST(Resume, TheSelectionMayBeRepeatedButNotChanged) {
  const std::string matrix = Matrix();
  const std::string dir = Unfinished({"--matrix", matrix, "tp=1"});
  const std::string record = testing::ReadAll(dir + "/results.jsonl");
  ExpectRefused({"run", "tp=2", "--matrix", matrix, "--resume", dir},
                {"selection", "tp=1", "tp=2"});
  ExpectRefused({"run", "--resume", dir, "--emulate", "never"}, {"--emulate", "auto", "never"});
  ExpectRefused({"run", "--resume", dir, "--require", "tp=1"}, {"--require", "tp=1"});
  ExpectRefused({"run", "--resume", dir, "--out", Fresh("o")}, {"--out", "--resume"});
  EXPECT_EQ(testing::ReadAll(dir + "/results.jsonl"), record) << "it was left as it was";
  EXPECT_EQ(Invoke({"run", "tp=1", "--matrix", matrix, "--resume", dir}).code, 0);
  EXPECT_EQ(CellsOf(dir).size(), 3u);
}

TEST(Resume, AnotherListOrRevisionIsNotGoneOnWith) {
  const std::string dir = Unfinished({"--matrix", Matrix(), "tp=1"});
  const std::string record = testing::ReadAll(dir + "/results.jsonl");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = record;
    EXPECT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
    std::ofstream(dir + "/results.jsonl", std::ios::trunc) << text;
  };
  with("\"revision\":\"unknown\"", "\"revision\":\"1a2b\"");
  ExpectRefused({"run", "--resume", dir}, {"revision", "1a2b"});
  with("\"xxh3_128\":\"", "\"xxh3_128\":\"0");
  ExpectRefused({"run", "--resume", dir}, {"3 cells", "the matrix, the engine or the machine"});
  with("seed=2 fault", "seed=7 fault");
  ExpectRefused({"run", "--resume", dir}, {"not of its list", "seed=7"});
  std::ofstream(dir + "/results.jsonl", std::ios::trunc)
      << record << record.substr(record.find('\n') + 1);
  ExpectRefused({"run", "--resume", dir}, {"twice"});
  std::ofstream(dir + "/results.jsonl", std::ios::trunc) << "{\"type\":\"cell\"}\n";
  ExpectRefused({"run", "load model=llama-mini", "--resume", dir}, {"not empty"});
}

TEST(Resume, AFolderInUseIsLeftAlone) {
  const std::string dir = Unfinished({"--matrix", Matrix(), "tp=1"});
  RunRecord record;
  const auto writer = ResultsWriter::Resume(dir, &record);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const std::string text = testing::ReadAll(dir + "/results.jsonl");
  ExpectRefused({"run", "--resume", dir}, {"another run is writing here"});
  EXPECT_EQ(testing::ReadAll(dir + "/results.jsonl"), text);
}

}  // namespace
}  // namespace assay::cli
