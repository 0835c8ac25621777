#include "reports/curves.h"

#include <gtest/gtest.h>

#include <limits>

#include "reports/html_parts.h"
#include "reports/synthetic_run.h"

namespace assay::reports {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

OpRow Op(const char* tap, double local, double rel, double cosine) {
  OpRow row;
  row.tap = tap;
  row.local = local;
  row.rel_l2 = rel;
  row.cosine = cosine;
  return row;
}

TEST(Curves, OfSeveralLayersShowTheWorstOpOfEach) {
  const Curves curves = CurvesOf(FailingModel());
  EXPECT_TRUE(curves.layers);
  ASSERT_EQ(curves.places.size(), 30u);  // the logits belong to no layer
  EXPECT_EQ(curves.places[12], "12");
  EXPECT_EQ(curves.culprit, 12u);
  ASSERT_EQ(curves.charts.size(), 3u);
  const Chart& ratio = curves.charts[0];
  EXPECT_EQ(ratio.series[0].values[12], 512);
  EXPECT_EQ(ratio.series[0].values[11], 0.9);
  EXPECT_EQ(ratio.low, 0.1);
  EXPECT_EQ(ratio.high, 1000);
  EXPECT_EQ(ratio.limit, 1);
  const Chart& rel = curves.charts[1];
  ASSERT_EQ(rel.series.size(), 3u);
  EXPECT_EQ(rel.series[1].values[0], 1e-3);
  EXPECT_DOUBLE_EQ(*rel.series[2].values[0], 6e-3);  // three times the floor
  EXPECT_LT(*curves.charts[2].series[0].values[12], 0.92);
}

TEST(Curves, OfOneLayerGoAlongItsOps) {
  const Curves curves = CurvesOf(FailingExpert());
  EXPECT_FALSE(curves.layers);
  ASSERT_EQ(curves.places.size(), 10u);
  EXPECT_EQ(curves.places[2], "L1.moe.e5.gate");
  EXPECT_EQ(curves.culprit, 6u);  // of the tap's three ranks the one that is named
}

TEST(Curves, NeedTwoPlaces) {
  CellResult cell = FailingExpert();
  cell.ops.resize(1);
  EXPECT_TRUE(CurvesOf(cell).charts.empty());
  EXPECT_EQ(CurvesHtml(cell), "");
  cell.ops.clear();
  EXPECT_TRUE(CurvesOf(cell).charts.empty());
}

TEST(Curves, WhatIsNotANumberBreaksTheLineAndInfinityStandsAtTheTop) {
  CellResult cell;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  cell.ops = {Op("L0.a", kInf, 0, 1), Op("L1.a", nan, nan, nan), Op("L2.a", 0.5, 1e-3, -1)};
  const Curves curves = CurvesOf(cell);
  EXPECT_FALSE(curves.culprit.has_value());
  const Chart& ratio = curves.charts[0];
  EXPECT_EQ(ratio.Height(kInf), 1);
  EXPECT_EQ(ratio.Height(0), 0);
  EXPECT_FALSE(ratio.Height(nan).has_value());
  EXPECT_EQ(ratio.low, 0.1);
  EXPECT_EQ(curves.charts[2].low, -1);
  const std::string html = CurvesHtml(cell);
  EXPECT_NE(html.find("M166.7 0.0M833.3"), std::string::npos) << html;  // two pieces
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf"), std::string::npos);
}

TEST(Curves, TheMarkIsTheCulpritsPlaceAlone) {
  CellResult cell = FailingModel();
  EXPECT_NE(CurvesHtml(cell).find("class=\"mark\" x=\"400.0\""), std::string::npos);
  cell.divergences[0].layer = 13;
  EXPECT_NE(CurvesHtml(cell).find("class=\"mark\" x=\"433.3\""), std::string::npos);
  cell.divergences.clear();
  EXPECT_EQ(CurvesHtml(cell).find("class=\"mark\""), std::string::npos);
}

TEST(ErrorMaps, ShowEachWrongCellAndSayHowMany) {
  const CellResult cell = FailingExpert();
  const std::string html = ErrorMapHtml(cell.divergences[0]);
  EXPECT_NE(html.find("164 of 192 cells"), std::string::npos) << html;  // every seventh is right
  EXPECT_NE(html.find("L1.moe.e5.down.scale"), std::string::npos);
  EXPECT_NE(html.find("96 rows"), std::string::npos);
  EXPECT_NE(html.find("2 groups"), std::string::npos);
  Divergence right = cell.divergences[0];
  for (double& value : right.map->cells) value = 0;
  EXPECT_NE(ErrorMapHtml(right).find("0 of 192 cells"), std::string::npos);
  EXPECT_EQ(ErrorMapHtml(right).find("<rect class=\"q4\""), std::string::npos);
  right.map.reset();
  EXPECT_EQ(ErrorMapHtml(right), "");
}

TEST(ErrorMaps, OfRatiosHaveStepsOfTen) {
  Divergence divergence;
  divergence.tap = "L0.mlp.act";
  divergence.map = ErrorMap{1, 5, "token", "column", 1, 8, "ratio", {0.5, 5, 50, 500, kInf}};
  const std::string html = ErrorMapHtml(divergence);
  for (const char* step : {"q1", "q2", "q3", "q4"}) {
    EXPECT_NE(html.find(std::string("<rect class=\"") + step), std::string::npos) << step;
  }
  EXPECT_NE(html.find("4 of 5 cells"), std::string::npos);
  EXPECT_NE(html.find("40 columns, 8 a cell"), std::string::npos);
}

}  // namespace
}  // namespace assay::reports
