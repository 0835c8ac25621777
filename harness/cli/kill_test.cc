// A run that is killed at any moment goes on where it was: nothing recorded is lost or recorded
// twice, and in the end it is as a run that nobody disturbed.
//
// ASSAY_KILL_MATRIX names the matrix of the twenty kills, ASSAY_KILL_FILTER a filter; without them
// it is a small one.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <sstream>

#include "harness/cli/testing/program.h"
#include "harness/store/results.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::AwaitOrphans;
using testing::CellsOf;
using testing::Ended;
using testing::Fresh;
using testing::Invoke;
using Words = std::vector<std::string>;

// Passing, refused, failing and unexecuted cells, and one that is skipped.
constexpr const char* kSmall =
    R"({"rows": [)"
    R"({"name": "a", "kind": "load", "cross": {"model": ["llama-mini"], "tp": [1, 2, 3],)"
    R"( "tier": ["scalar"]}, "legal": 2},)"
    R"({"name": "b", "kind": "moe", "cross": {"model": ["k2-mini-int4-g32"], "layer": [1],)"
    R"( "tp": [4], "tier": ["scalar"], "fault": ["none", "K03/rank0"]}, "legal": 2},)"
    R"({"name": "c", "kind": "load", "cross": {"model": ["llama-mini"], "tp": [1, 3],)"
    R"( "tier": ["amx_int8"]}, "legal": 2}],)"
    R"( "skips": [{"cells": ["tier=amx_int8", "tp=3"], "reason": "one of them will do"}]})";

std::string SmallMatrix() {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/small.json";
  std::ofstream(path, std::ios::trunc) << kSmall;
  return path;
}

std::map<std::string, std::string> Disturbed(const std::string& how, long at) {
  return {{"LD_PRELOAD", fs::current_path() / "harness/cli/testing/libfaulty_files.so"},
          {"ASSAY_TEST_FILES", how + ":" + std::to_string(at)}};
}

struct Calls {
  long all = 0;           // that change a file
  long folder_syncs = 0;  // the last of them, one after another
};

// The calls that the program makes; `how` decides which count, none comes to pass.
Calls CallsOf(const Words& words, const std::string& how) {
  const std::string count = Fresh("count");
  auto environment = Disturbed(how, std::numeric_limits<long>::max());
  environment["ASSAY_TEST_COUNT"] = count;
  Invoke(words, environment);
  Calls calls;
  std::istringstream(testing::ReadAll(count)) >> calls.all >> calls.folder_syncs;
  return calls;
}

// Whatever happened: what can be read is whole lines, and no cell is there twice.
std::set<std::string> Recorded(const std::string& dir) {
  std::set<std::string> problems;
  if (!HasRecord(dir)) return problems;
  const auto record = ReadResults(dir);
  EXPECT_TRUE(record.ok()) << record.error().message;
  if (!record.ok()) return problems;
  for (const CellResult& cell : record->cells) {
    EXPECT_TRUE(problems.insert(cell.problem).second) << "twice: " << cell.problem;
  }
  return problems;
}

struct Whole {
  int code = -1;
  long calls = 0, folder_syncs = 0;
  std::vector<std::string> cells;
};

Whole Undisturbed(const Words& selection, const std::string& how = "none") {
  Words words{"run", "--out", Fresh("whole")};
  words.insert(words.end(), selection.begin(), selection.end());
  Whole whole;
  const Calls calls = CallsOf(words, how);
  whole.calls = calls.all;
  whole.folder_syncs = calls.folder_syncs;
  whole.cells = CellsOf(words[2]);
  whole.code = Invoke({"run", "--resume", words[2]}).code;
  return whole;
}

constexpr const char* kWays[] = {"kill-before", "kill-within", "kill-after"};

// Kills and resumes until the run is through, at moments that `random` picks; returns the kills.
int KillUntilFinished(const Words& selection, const Whole& whole, std::mt19937* random,
                      const std::string& dir) {
  Words words{"run", "--resume", dir};
  words.insert(words.end(), selection.begin(), selection.end());
  std::set<std::string> before;
  for (int kills = 0;; ++kills) {
    const char* how = kWays[(*random)() % std::size(kWays)];
    const auto at = static_cast<long>((*random)() % static_cast<unsigned>(whole.calls + 1));
    const Ended ended = Invoke(words, Disturbed(how, at));
    const std::set<std::string> after = Recorded(dir);
    for (const std::string& problem : before) {
      EXPECT_TRUE(after.count(problem)) << "lost after " << how << " " << at << ": " << problem;
    }
    before = after;
    if (ended.code == -SIGKILL) continue;
    EXPECT_EQ(ended.code, whole.code) << ended.out << ended.error;
    return kills;
  }
}

// The seeds are tried until there were twenty kills.
TEST(Kill, TwentyTimesAtRandomIsAsNotAtAll) {
  const char* matrix = std::getenv("ASSAY_KILL_MATRIX");
  const char* filter = std::getenv("ASSAY_KILL_FILTER");
  Words selection{"--matrix", matrix != nullptr ? matrix : SmallMatrix()};
  if (filter != nullptr) selection.push_back(filter);
  const Whole whole = Undisturbed(selection);
  ASSERT_FALSE(whole.cells.empty());
  ASSERT_GT(whole.calls, static_cast<long>(whole.cells.size()));
  int kills = 0;
  for (unsigned seed = 1; kills < 20; ++seed) {
    ASSERT_LT(seed, 200u) << "hardly anything is killed";
    std::mt19937 random(seed);
    const std::string dir = Fresh("killed");
    kills += KillUntilFinished(selection, whole, &random, dir);
    EXPECT_EQ(CellsOf(dir), whole.cells) << "seed " << seed;
    EXPECT_EQ(AwaitOrphans(), 0);
  }
  std::printf("%d kills, %zu cells, %ld moments\n", kills, whole.cells.size(), whole.calls);
}

// Every moment once, in a run of few cells.
TEST(Kill, AtEveryMoment) {
  const Words selection{"model=llama-mini", "--matrix", SmallMatrix()};
  const Whole whole = Undisturbed(selection);
  ASSERT_EQ(whole.cells.size(), 5u);
  ASSERT_GT(whole.calls, static_cast<long>(whole.cells.size()));
  for (long at = 1; at <= whole.calls; ++at) {
    const std::string dir = Fresh("every");
    Words words{"run", "--resume", dir};
    words.insert(words.end(), selection.begin(), selection.end());
    const char* how = kWays[at % 3];
    ASSERT_EQ(Invoke(words, Disturbed(how, at)).code, -SIGKILL) << how << " " << at;
    const size_t had = Recorded(dir).size();
    const Ended resumed = Invoke(words);
    EXPECT_EQ(resumed.code, whole.code) << how << " " << at << ": " << resumed.error;
    EXPECT_EQ(CellsOf(dir), whole.cells) << how << " " << at;
    EXPECT_GE(Recorded(dir).size(), had);
    for (const auto& entry : fs::directory_iterator(dir)) {
      EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
    }
    for (const char* file : {"report.html", "report.md", "junit.xml"}) {
      EXPECT_TRUE(fs::exists(dir + "/" + file)) << file << " after " << how << " " << at;
    }
    EXPECT_EQ(AwaitOrphans(), 0);
  }
}

// The control: a record that lost a cell, or has one of another value, is not equal.
TEST(Kill, ALostOrAChangedCellIsSeen) {
  const Words selection{"model=llama-mini", "--matrix", SmallMatrix()};
  const Whole whole = Undisturbed(selection);
  const std::string dir = Fresh("whole") + "-changed";
  fs::remove_all(dir);
  Words words{"run", "--out", dir};
  words.insert(words.end(), selection.begin(), selection.end());
  Invoke(words);
  EXPECT_EQ(CellsOf(dir), whole.cells);
  std::string text = testing::ReadAll(dir + "/results.jsonl");
  const size_t at = text.find("NOT_EXECUTED");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 12, "SKIPPED");
  std::ofstream(dir + "/results.jsonl", std::ios::trunc) << text;
  EXPECT_NE(CellsOf(dir), whole.cells);
}

// The disk is full, or becomes unwritable, from the k-th call on: one line, exit 2, what was
// recorded is intact, no half-written file, and with room again the run goes on.
void ExpectIntact(const char* how, const char* says) {
  const Words selection{"model=llama-mini", "--matrix", SmallMatrix()};
  const Whole whole = Undisturbed(selection, how);
  const auto cells = static_cast<long>(whole.cells.size());
  ASSERT_GT(whole.calls, cells);
  long failures = 0;
  for (long at = 1; at <= whole.calls; ++at) {
    const std::string dir = Fresh("disk");
    Words words{"run", "--resume", dir};
    words.insert(words.end(), selection.begin(), selection.end());
    const Ended ended = Invoke(words, Disturbed(how, at));
    // A folder's own fsync may fail: where nothing comes after it, everything is written.
    if (at > whole.calls - whole.folder_syncs) {
      EXPECT_EQ(ended.code, whole.code) << how << " " << at << ended.error;
      EXPECT_EQ(CellsOf(dir), whole.cells);
      continue;
    }
    ++failures;
    EXPECT_EQ(ended.code, 2) << how << " " << at << ended.error;
    const size_t line = ended.error.find("assay: ");
    ASSERT_NE(line, std::string::npos) << ended.error;
    EXPECT_NE(ended.error.find(says, line), std::string::npos) << ended.error;
    EXPECT_EQ(ended.error.find('\n', line), ended.error.size() - 1) << ended.error;
    if (fs::exists(dir) && !HasRecord(dir)) {
      EXPECT_TRUE(fs::is_empty(dir)) << how << " " << at;
    }
    Recorded(dir);
    EXPECT_EQ(Invoke(words).code, whole.code) << how << " " << at;
    EXPECT_EQ(CellsOf(dir), whole.cells) << how << " " << at;
  }
  EXPECT_GE(failures, cells);
}

TEST(Disk, FullAtEveryMoment) { ExpectIntact("full", "No space left on device"); }

TEST(Disk, UnwritableFromTheStart) {
  const std::string dir = Fresh("unwritable");
  const Ended ended =
      Invoke({"run", "load model=llama-mini", "--out", dir}, Disturbed("read-only", 1));
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.error, "assay: cannot make the folder " + dir + ": Read-only file system\n");
  EXPECT_FALSE(fs::exists(dir));
  fs::create_directories(dir);
  const Ended file =
      Invoke({"run", "load model=llama-mini", "--out", dir}, Disturbed("read-only", 1));
  EXPECT_EQ(file.code, 2);
  EXPECT_EQ(file.error, "assay: cannot write " + dir + "/results.jsonl: Read-only file system\n");
  EXPECT_TRUE(fs::is_empty(dir));
}

}  // namespace
}  // namespace assay::cli
