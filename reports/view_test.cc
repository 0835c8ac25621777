#include "reports/view.h"

#include <gtest/gtest.h>

#include "reports/heat.h"
#include "reports/synthetic_run.h"

namespace assay::reports {
namespace {

CellResult Cell(std::string problem, Verdict verdict, std::string reason = "") {
  CellResult cell;
  cell.problem = std::move(problem);
  cell.verdict = verdict;
  cell.reason = std::move(reason);
  return cell;
}

TEST(View, SentenceNamesTheCulprit) {
  EXPECT_EQ(Sentence(FailingExpert()),
            "FAIL moe k2-mini-int4-g32 tp=4 avx2 fault=K03/rank0: the first wrong op is "
            "L1.moe.e5.down on rank 1: loader: scales of rank 0 on rank 1");
  CellResult crash = Cell("model model=m tp=2 tier=avx2", Verdict::kFail, "died of signal 11");
  EXPECT_EQ(Sentence(crash), "FAIL model m tp=2 avx2: died of signal 11");
  crash.divergences.emplace_back();
  crash.divergences[0].cls = "kernel";
  EXPECT_EQ(Sentence(crash), "FAIL model m tp=2 avx2: kernel: died of signal 11");
  crash.divergences[0].tensor = "embed.weight";
  EXPECT_EQ(Sentence(crash),
            "FAIL model m tp=2 avx2: the first wrong tensor is embed.weight: kernel: died of "
            "signal 11");
}

TEST(View, LabelTellsNeighboursApart) {
  EXPECT_EQ(
      Label(Cell("moe model=/data/K%202 tp=8 attn_tp=1 tier=avx2 fault=none", Verdict::kPass)),
      "moe /data/K 2 tp=8 attn_tp=1 avx2");
  EXPECT_EQ(Label(Cell("", Verdict::kPass)), " ? tp=1");
}

TEST(View, PathGoesFromCoarseToFine) {
  using Steps = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(Path(FailingExpert().divergences[0]), (Steps{{"layer", "1"},
                                                         {"op", "moe.e5.down"},
                                                         {"rank", "1"},
                                                         {"expert", "5"},
                                                         {"group", "[17, 5]"}}));
  Divergence embed;
  embed.tap = "embed";
  embed.rank = -1;  // one value for all ranks
  embed.index = {3};
  EXPECT_EQ(Path(embed), (Steps{{"op", "embed"}, {"element", "[3]"}}));
}

TEST(View, HeadlineSaysWhatMattersFirst) {
  RunRecord record;
  record.summary.emplace();
  EXPECT_EQ(Headline(record), "Nothing was executed");
  const auto with = [&](std::vector<Verdict> verdicts) {
    RunRecord run;
    for (const Verdict verdict : verdicts) run.cells.push_back(Cell("load model=m", verdict));
    run.summary = Summary{run.Count(), 1};
    return run;
  };
  EXPECT_EQ(Headline(with({Verdict::kNotExecuted, Verdict::kSkipped})), "Nothing was executed");
  EXPECT_EQ(Headline(with({Verdict::kRefused})), "1 cell refused as expected, none executed");
  EXPECT_EQ(Headline(with({Verdict::kPass, Verdict::kRefused})), "1 cell executed, no finding");
  EXPECT_EQ(Headline(with({Verdict::kPass, Verdict::kFail, Verdict::kInfra})),
            "Of 3 cells, 1 failed, 1 broken by the machine");
  RunRecord lost = with({Verdict::kPass});
  lost.summary->totals.registered = 3;
  EXPECT_EQ(Headline(lost), "1 cell executed, no finding; 2 of 3 cells have no verdict");
  lost.summary.reset();
  EXPECT_EQ(Headline(lost), "1 cell executed, no finding (unfinished run)");
}

TEST(View, TotalsSayWhereTheyDoNotAddUp) {
  Totals totals = SyntheticRun().Count();
  for (const std::string& line : TotalsLines(totals)) {
    EXPECT_NE(line.find(" = "), std::string::npos) << line;
    EXPECT_EQ(line.find("is not"), std::string::npos) << line;
  }
  ++totals.registered, ++totals.refused, ++totals.pass;
  for (const std::string& line : TotalsLines(totals)) {
    EXPECT_NE(line.find(" is not "), std::string::npos) << line;
  }
}

TEST(View, OneMistakeSeenManyTimesIsOneGroup) {
  RunRecord record = SyntheticRun();
  const size_t before = GroupFindings(record).size();
  EXPECT_EQ(before, 4u);
  CellResult again = FailingExpert();
  again.problem += " tokens=1";
  again.divergences[0].rank = 3;
  record.cells.push_back(again);
  EXPECT_EQ(GroupFindings(record).size(), before);
  again.divergences[0].signature.id = "permutation";
  record.cells.push_back(again);
  const std::vector<Group> groups = GroupFindings(record);
  EXPECT_EQ(groups.size(), before + 1);
  for (size_t i = 1; i < groups.size(); ++i) {
    EXPECT_GE(Severity(groups[i - 1].cells[0]->verdict), Severity(groups[i].cells[0]->verdict));
  }
}

TEST(View, ReasonsAreGroupedTheMostFrequentFirst) {
  RunRecord record;
  record.cells = {
      Cell("load model=a", Verdict::kRefused, "x"), Cell("load model=b", Verdict::kRefused, "y"),
      Cell("load model=c", Verdict::kRefused, "y"), Cell("load model=d", Verdict::kSkipped, "y")};
  const std::vector<Reason> reasons = GroupByReason(record, Verdict::kRefused);
  ASSERT_EQ(reasons.size(), 2u);
  EXPECT_EQ(reasons[0].text, "y");
  EXPECT_EQ(reasons[0].cells.size(), 2u);
}

TEST(Heat, ASquareShowsTheWorstAndCountsAll) {
  const std::vector<CellResult> cells = {
      Cell("moe model=m method=bf16 tp=2 tier=avx2 tokens=1", Verdict::kPass),
      Cell("moe model=m method=bf16 tp=2 tier=avx2 tokens=2", Verdict::kMistrusted),
      Cell("moe model=m method=bf16 tp=2 tier=avx2 tokens=3", Verdict::kPass),
      Cell("load model=m method=bf16 tp=2 tier=avx2", Verdict::kRefused),
      Cell("moe model=m method=bf16 tp=8 attn_tp=1 tier=avx2", Verdict::kPass),
      Cell("moe model=m method=bf16 tp=8 tier=avx2", Verdict::kPass),
      Cell("moe model=m method=bf16 tp=x tier=scalar", Verdict::kPass),
      Cell("moe model=n method=bf16 tp=2 tier=avx2", Verdict::kFail),
  };
  const std::vector<HeatMap> maps = HeatMaps(cells);
  ASSERT_EQ(maps.size(), 2u);
  ASSERT_EQ(maps[0].rows.size(), 3u);
  EXPECT_EQ(maps[0].rows[0].tier, "avx2");
  EXPECT_EQ(maps[0].rows[1].tier, "scalar");
  EXPECT_EQ(maps[0].rows[2].kind, "load");
  ASSERT_EQ(maps[0].degrees.size(), 4u);
  EXPECT_EQ(maps[0].degrees[0].Text(), "TP 1");  // unreadable
  EXPECT_EQ(maps[0].degrees[2].Text(), "TP 8, attn 1");
  const Square& square = maps[0].rows[0].squares.at(Degree{2, 2});
  EXPECT_EQ(square.worst->verdict, Verdict::kMistrusted);
  EXPECT_EQ(square.CountsText(), "1 MISTRUSTED, 2 PASS");
  int64_t total = 0;
  for (const HeatMap& map : maps) {
    for (const HeatRow& row : map.rows) {
      for (const auto& [degree, one] : row.squares) total += one.total;
    }
  }
  EXPECT_EQ(total, static_cast<int64_t>(cells.size()));  // no cell is lost
}

}  // namespace
}  // namespace assay::reports
