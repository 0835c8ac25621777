#include "reports/view.h"

#include <gtest/gtest.h>

#include <limits>

#include "reports/heat.h"
#include "reports/short_form.h"
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

TEST(View, AConfigKeyIsNotCalledAWrongTensor) {
  CellResult cell = Cell("load model=m tp=8", Verdict::kFail);
  cell.divergences.emplace_back();
  cell.divergences[0].cls = "loader";
  cell.divergences[0].tensor = "num_attention_heads";
  cell.divergences[0].signature.text = "an illegal shard was accepted";
  EXPECT_EQ(Finding(cell),
            "the first finding is about num_attention_heads: loader: an illegal shard was "
            "accepted");
  cell.divergences[0].tensor = "model.layers.1.mlp.gate_proj.weight";
  EXPECT_EQ(Finding(cell).rfind("the first wrong tensor is model.layers.1.mlp", 0), 0u);
}

TEST(View, AReasonIsToldOnce) {
  CellResult cell = FailingExpert();
  EXPECT_EQ(FurtherReason(cell), cell.reason);  // says something else
  cell.reason = "L1.moe.e5.down on rank 1: loader: scales of rank 0 on rank 1";
  EXPECT_EQ(FurtherReason(cell), "");
  cell.divergences[0].rank = -1;
  cell.reason = "L1.moe.e5.down on rank -1: loader: scales of rank 0 on rank 1";
  EXPECT_EQ(FurtherReason(cell), "");
  cell.reason = cell.divergences[0].signature.evidence;
  EXPECT_EQ(FurtherReason(cell), "");
  cell.reason = "the engine refused: " + cell.divergences[0].signature.evidence;
  EXPECT_EQ(FurtherReason(cell), "the engine refused");
  cell.divergences.clear();
  cell.reason = "timed out";  // the finding itself
  EXPECT_EQ(FurtherReason(cell), "");
  EXPECT_EQ(Finding(cell), "timed out");
}

TEST(View, EachFigureSaysWhatItIsOf) {
  CellResult cell = FailingExpert();
  cell.metrics.ambiguous = 2;
  EXPECT_EQ(MetricLines(cell),
            (std::vector<std::string>{"of the first wrong op: error / tolerance 31044, three-way "
                                      "ratio 812, condition of the worst element 5.2",
                                      "of the end result: cosine 0.9412, rel L2 0.3517, max abs "
                                      "error 1.204",
                                      "of the whole cell: ambiguous decisions 2"}));
  EXPECT_EQ(ToleranceLine(cell).rfind("of the first wrong op: c = 71, ", 0), 0u);
  // A later op is further off.
  cell.ops.back().local = cell.metrics.max_ratio = std::numeric_limits<double>::infinity();
  EXPECT_EQ(MetricLines(cell)[0].rfind(
                "of L1.moe.out, the furthest beyond its bound: error / tolerance inf (bits differ "
                "where they must be equal, or a value is not finite)",
                0),
            0u)
      << MetricLines(cell)[0];
  // A floor of too few runs decides nothing, and one of none is not passed over.
  cell = FailingExpert();
  EXPECT_EQ(MetricLines(cell).back().find("would decide"), std::string::npos);
  cell.metrics.noise_floor = 0.25;
  cell.metrics.floor_runs = 5;
  EXPECT_NE(MetricLines(cell).back().find("noise floor 0.25 (largest of 5 runs; 59 would decide)"),
            std::string::npos)
      << MetricLines(cell).back();
  cell.metrics.floor_runs = 59;
  EXPECT_NE(MetricLines(cell).back().find("noise floor 0.25 (largest of 59 runs)"),
            std::string::npos)
      << MetricLines(cell).back();
  cell.metrics.noise_floor.reset();
  cell.metrics.floor_runs = 0;
  EXPECT_NE(MetricLines(cell).back().find("noise floor none"), std::string::npos)
      << MetricLines(cell).back();
  // Not compared as a whole: all figures are the op's.
  cell = FailingExpert();
  cell.metrics.allclose_excess.reset();
  EXPECT_NE(MetricLines(cell)[0].find("cosine 0.9412"), std::string::npos);
  EXPECT_EQ(MetricLines(cell).back().find("of the end result"), std::string::npos);
  cell.verdict = Verdict::kPass;
  cell.divergences.clear();
  EXPECT_EQ(MetricLines(cell)[0].rfind("of the op with the largest error: ", 0), 0u);
  cell.metrics = Metrics();
  EXPECT_TRUE(MetricLines(cell).empty());
  EXPECT_EQ(ToleranceLine(cell), "");
}

std::string ShortText(const CellResult& cell, const Keys& varying) {
  std::string out;
  for (const ShortWord& word : ShortForm(cell, varying)) {
    out += word.emphasised ? "*" + word.text + "* " : word.text + " ";
  }
  return out;
}

TEST(ShortForm, NamesWhatDiffers) {
  const CellResult a = Cell("moe model=m layer=1 tp=2 attn_tp=2 tier=avx2 tokens=5", {});
  const CellResult b = Cell("moe model=m tp=4 attn_tp=4 tier=avx2 tokens=16", {});
  EXPECT_EQ(Difference(b, a), "tp=4 tokens=16 no layer");
  EXPECT_EQ(Difference(a, b), "layer=1 tp=2 tokens=5");
  EXPECT_EQ(Difference(a, a), Label(a));
  const CellResult c = Cell("load model=m layer=1 tp=2 attn_tp=2 tier=avx2 tokens=5", {});
  EXPECT_EQ(Difference(c, a), "load");
  EXPECT_EQ(ShortText(a, {}), "moe m tp=2 avx2 ");
  EXPECT_EQ(ShortText(b, DifferingKeys(a, b)), "moe m *tp=4* avx2 *tokens=16* *no layer* ");
  EXPECT_EQ(ShortText(c, VaryingKeys({&a, &c})), "*load* m tp=2 avx2 ");
  EXPECT_EQ(VaryingKeys({&a, &b, &c}), (Keys{"", "layer", "tokens", "tp"}));
  EXPECT_TRUE(VaryingKeys({&a}).empty());
  const CellResult whole = Cell("moe model=m layer=1 tp=2 attn_tp=1 tier=avx2 tokens=5", {});
  EXPECT_EQ(Difference(whole, a), "attn_tp=1");
  EXPECT_EQ(Difference(a, whole), "attn_tp=2");
  EXPECT_EQ(ShortText(whole, {"attn_tp"}), "moe m tp=2 *attn_tp=1* avx2 ");
  EXPECT_EQ(ShortText(a, {"attn_tp"}), "moe m tp=2 avx2 *attn_tp=2* ");
}

TEST(View, FactsOfTheMachineInTheirUnits) {
  bool found = false;
  for (const auto& [name, value] : RunFacts(SyntheticRun())) {
    EXPECT_NE(name, "memory bytes");
    found |= name == "memory" && value == "16.0 GiB";
  }
  EXPECT_TRUE(found);
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
  embed.step = 0;
  EXPECT_EQ(Path(embed), (Steps{{"op", "embed"}, {"element", "[3]"}}));
  embed.step = 3;
  EXPECT_EQ(Path(embed), (Steps{{"op", "embed"}, {"decode", "3"}, {"element", "[3]"}}));
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
