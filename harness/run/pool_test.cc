// Workers: one that dies costs its cell alone, and how many there are changes nothing.
#include "harness/run/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace assay::run {
namespace {

constexpr const char* kOdd = "harness/run/libodd_engine.so";

Problem Parse(const std::string& text) {
  auto problem = ParseProblem(text);
  EXPECT_TRUE(problem.ok()) << text;
  return *problem;
}

std::vector<Problem> Cells() {
  std::vector<Problem> problems;
  for (const char* op : {"attn.q", "mlp.up", "mlp.down"}) {
    for (const char* tp : {"1", "2", "3", "4"}) {
      problems.push_back(Parse(std::string("linear model=k2-mini layer=0 op=") + op + " tp=" + tp));
    }
  }
  return problems;
}

using Results = std::map<size_t, CellResult>;

// Time is left out: all else is the same each time.
Results RunCells(const std::vector<Problem>& problems, int jobs) {
  ModelStore models;
  Results results;
  PoolOptions options;
  options.jobs = jobs;
  options.limits.time_ms = 20000;
  const auto collect = [&](size_t index, const CellResult& cell) {
    EXPECT_TRUE(results.emplace(index, cell).second) << index << " came twice";
    results[index].ms = 0;
    return Ok();
  };
  const Status ran = RunPool(problems, &models, options, collect);
  EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
  return results;
}

std::vector<std::string> Lines(const Results& results) {
  std::vector<std::string> lines;
  for (const auto& [index, cell] : results) lines.push_back(ToJson(cell));
  return lines;
}

TEST(Pool, HowManyWorkersChangesNothing) {
  const auto problems = Cells();
  const auto alone = Lines(RunCells(problems, 1));
  ASSERT_EQ(alone.size(), problems.size());
  EXPECT_EQ(Lines(RunCells(problems, 3)), alone);
  EXPECT_EQ(Lines(RunCells(problems, 100)), alone);  // more workers than cells
  // And as many as a single process finds without any pool.
  ModelStore models;
  CellResult cell = ExecuteCell(problems[5], &models, {}).result;
  cell.ms = 0;
  EXPECT_EQ(ToJson(cell), alone[5]);
}

TEST(Pool, OrderChangesNothing) {
  const auto problems = Cells();
  const std::vector<Problem> backwards(problems.rbegin(), problems.rend());
  auto there = Lines(RunCells(problems, 2)), back = Lines(RunCells(backwards, 2));
  std::reverse(back.begin(), back.end());
  EXPECT_EQ(there, back);
}

TEST(Pool, NoCells) { EXPECT_TRUE(RunCells({}, 4).empty()); }

// The engine of one cell kills the harness's worker above it, as the system does when memory runs
// out.
TEST(Pool, AWorkerThatIsKilledCostsItsCellAlone) {
  for (const int jobs : {1, 2}) {
    auto problems = Cells();
    const Problem killer =
        Parse(std::string("linear model=k2-mini layer=0 op=mlp.up tier=scalar engine=") + kOdd);
    problems.insert(problems.begin() + 4, killer);
    setenv("ODD_ENGINE", "kill-parent", 1);
    const Results results = RunCells(problems, jobs);
    unsetenv("ODD_ENGINE");
    ASSERT_EQ(results.size(), problems.size());
    for (const auto& [index, cell] : results) {
      if (index == 4) {
        EXPECT_EQ(NameOf(cell.verdict), "INFRA");
        EXPECT_NE(cell.reason.find("worker died"), std::string::npos) << cell.reason;
        EXPECT_EQ(cell.problem, PrintCanonical(killer));
        EXPECT_NE(cell.repro.find(PrintMinimal(killer)), std::string::npos);
      } else {
        const bool legal = problems[index].Get("tp") != "3";
        EXPECT_EQ(NameOf(cell.verdict), legal ? "PASS" : "REFUSED") << cell.reason;
      }
    }
  }
}

TEST(Pool, AnErrorOfTheReceiverEndsTheRun) {
  ModelStore models;
  size_t seen = 0;
  const Status ran = RunPool(Cells(), &models, {}, [&](size_t, const CellResult&) -> Status {
    if (++seen == 3) return Error{"the disk is full"};
    return Ok();
  });
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().message, "the disk is full");
  EXPECT_EQ(seen, 3u);
  // No worker is left behind.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Pool, AnEngineThatHangsDoesNotHoldTheOthersUp) {
  auto problems = Cells();
  problems.insert(
      problems.begin(),
      Parse(std::string("linear model=k2-mini layer=0 op=mlp.up tier=scalar engine=") + kOdd));
  ModelStore models;
  PoolOptions options;
  options.jobs = 2;
  options.limits.time_ms = 1000;
  setenv("ODD_ENGINE", "hang", 1);
  std::vector<size_t> order;
  std::map<size_t, Verdict> verdicts;
  const Status ran = RunPool(problems, &models, options, [&](size_t index, const CellResult& cell) {
    order.push_back(index);
    verdicts[index] = cell.verdict;
    return Ok();
  });
  unsetenv("ODD_ENGINE");
  ASSERT_TRUE(ran.ok());
  EXPECT_EQ(verdicts.size(), problems.size());
  EXPECT_EQ(NameOf(verdicts[0]), "INFRA");
  EXPECT_EQ(order.back(), 0u);
}

}  // namespace
}  // namespace assay::run
