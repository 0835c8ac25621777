// What the words after a verb select.
#include "harness/cli/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

namespace assay::cli {
namespace {

run::ModelStore& Models() {
  static run::ModelStore models;
  return models;
}

Selection Of(const std::vector<std::string>& words, const std::string& matrix = "",
             const std::string& engine = "") {
  auto selection = Select(words, matrix, engine, &Models());
  if (selection) return std::move(*selection);
  ADD_FAILURE() << selection.error().message;
  return {};
}

std::string ErrorOf(const std::vector<std::string>& words, const std::string& matrix = "") {
  const auto selection = Select(words, matrix, "", &Models());
  if (!selection) return selection.error().message;
  ADD_FAILURE() << "selected " << selection->text;
  return "";
}

void ExpectSays(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

std::string Write(const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/m.json";
  std::ofstream(path, std::ios::trunc) << text;
  return path;
}

std::set<std::string> Printed(const Selection& selection) {
  std::set<std::string> printed;
  for (const run::Problem& problem : selection.problems) {
    EXPECT_TRUE(printed.insert(run::PrintCanonical(problem)).second);
  }
  return printed;
}

TEST(Selection, NothingIsTheWholeDefaultMatrix) {
  const Selection selection = Of({});
  EXPECT_TRUE(selection.whole_matrix);
  EXPECT_FALSE(selection.single);
  EXPECT_GE(selection.problems.size(), 400u);
  EXPECT_EQ(selection.cells.size(), selection.problems.size());
  EXPECT_EQ(selection.text, "");
}

TEST(Selection, AProblemInOneWordOrMany) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"load model=k2-mini tp=2"},
        std::vector<std::string>{"load", "tp=2", "model=k2-mini"}}) {
    const Selection selection = Of(words);
    EXPECT_TRUE(selection.single);
    ASSERT_EQ(selection.problems.size(), 1u);
    EXPECT_EQ(selection.problems[0].Get("method"), "bf16");  // resolved
    EXPECT_NE(selection.problems[0].Get("tier"), "");
    EXPECT_EQ(selection.text, "load model=k2-mini tp=2");
  }
}

TEST(Selection, FiltersAreAnded) {
  const Selection selection = Of({"kind=load", "tp=2,4", "tier=avx"});
  EXPECT_FALSE(selection.whole_matrix);
  EXPECT_EQ(selection.text, "kind=load tp=2,4 tier=avx");
  ASSERT_FALSE(selection.problems.empty());
  for (const run::Problem& problem : selection.problems) {
    EXPECT_EQ(problem.kind, "load");
    EXPECT_TRUE(problem.Get("tp") == "2" || problem.Get("tp") == "4");
    EXPECT_TRUE(problem.Get("tier").starts_with("avx")) << "a tier matches by prefix";
  }
  EXPECT_EQ(selection.problems.size(), Of({"tier=avx", "tp=4,2", "kind=load"}).problems.size());
}

TEST(Selection, ProblemsThatCannotRunHereAreStillSelected) {
  const Selection missing = Of({"model model=k9-mini"});
  ASSERT_EQ(missing.problems.size(), 1u);
  EXPECT_EQ(Of({"load model=llama-mini tp=2"}).problems.size(), 1u);  // illegal: to be refused
  EXPECT_EQ(Of({"model model=llama-mini chunk=2"}).problems.size(), 1u);
}

TEST(Selection, WordsThatAreWrong) {
  ExpectSays(ErrorOf({"laod"}), {"laod", "neither a kind", "load", "key=value"});
  ExpectSays(ErrorOf({"teir=avx2"}), {"teir", "did you mean tier?"});
  ExpectSays(ErrorOf({"tp=77"}), {"no cell of the matrix has tp=77", "its cells have 1, "});
  ExpectSays(ErrorOf({"load model=k2-mini tp=x"}), {"tp=x"});
  ExpectSays(ErrorOf({"load model=k2-mini layer=99"}), {"layer=99"});
  ExpectSays(ErrorOf({"load model=k2-mini tp=99999"}), {"tp=99999", "1 to 1024"});
  ExpectSays(ErrorOf({"load", "model=k2-mini", "--json"}), {"--json"});
  ExpectSays(ErrorOf({"kind=load"}, "/no/such.json"), {"/no/such.json"});
}

TEST(Selection, AnEngineReplacesThatOfEveryCell) {
  const Selection selection = Of({"kind=linear", "tp=1"}, "", "./mine.so");
  ASSERT_FALSE(selection.problems.empty());
  for (const run::Problem& problem : selection.problems) {
    EXPECT_EQ(problem.Get("engine"), "./mine.so");
    EXPECT_FALSE(problem.Has("kernel")) << "kernels are the native engine's";
  }
  // Cells that differed in their kernel alone are one cell of an engine that has none of them.
  EXPECT_EQ(Printed(selection).size(), selection.problems.size());
  EXPECT_LT(selection.problems.size(), Of({"kind=linear", "tp=1"}).problems.size() + 1);
}

TEST(Selection, AMatrixWhoseCountIsWrongIsNotRun) {
  const std::string path = Write(
      R"({"rows": [{"name": "a", "kind": "load", "cross": {"model": ["llama-mini"]}, "legal": 2}]})");
  ExpectSays(ErrorOf({}, path), {"m.json", "row a", "states 2", "finds 1"});
}

TEST(Selection, SkippedCellsAreKeptApart) {
  const std::string path = Write(
      R"({"rows": [{"name": "a", "kind": "load", "cross": {"model": ["llama-mini"], "tp": [1, 3]},)"
      R"( "legal": 2}], "skips": [{"cells": ["tp=3"], "reason": "known"}]})");
  const Selection selection = Of({}, path);
  ASSERT_EQ(selection.skipped.size(), 1u);
  EXPECT_EQ(selection.skipped[0].second, "known");
  EXPECT_EQ(selection.problems.size(), 1u);
  // One shard alone reports it.
  size_t reported = 0;
  for (const char* shard : {"1/2", "2/2"}) {
    Selection part = Of({}, path);
    ASSERT_TRUE(KeepShard(shard, &part).ok());
    reported += part.skipped.size();
  }
  EXPECT_EQ(reported, 1u);
}

TEST(Selection, PathsAreRecordedAsOneWord) {
  for (const char* path : {"a/b.json", "a b/c%20d\t.json", "%", "%4", "100%25", "\xc3\xa9.so"}) {
    const std::string text = RecordedPath(path);
    EXPECT_EQ(text.find_first_of(" \t\n"), std::string::npos) << text;
    EXPECT_EQ(PathFromRecord(text), path);
  }
}

TEST(Selection, ShardsPartition) {
  const std::set<std::string> whole = Printed(Of({"kind=load,moe"}));
  std::set<std::string> joined;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    Selection part = Of({"kind=load,moe"});
    ASSERT_TRUE(KeepShard(shard, &part).ok());
    EXPECT_EQ(part.cells.size(), part.problems.size());
    EXPECT_TRUE(part.text.ends_with(std::string(" --shard ") + shard)) << part.text;
    EXPECT_GE(part.problems.size(), whole.size() / 3);
    for (const std::string& problem : Printed(part)) {
      EXPECT_TRUE(joined.insert(problem).second) << problem << " is in two shards";
    }
  }
  EXPECT_EQ(joined, whole);
}

TEST(Selection, ShardsThatAreWrong) {
  for (const char* shard : {"", "1", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/3x", "1/", "/3", "1/ 3",
                            "1/99999999999999999999", "1/65537"}) {
    Selection selection = Of({"kind=load"});
    const Status kept = KeepShard(shard, &selection);
    ASSERT_FALSE(kept.ok()) << shard;
    ExpectSays(kept.error().message, {"--shard", "i/n"});
  }
}

}  // namespace
}  // namespace assay::cli
