#include "harness/cli/estimate.h"

#include <gtest/gtest.h>

#include "harness/judge/floor.h"

namespace assay::cli {
namespace {

double SecondsOf(const std::string& text) {
  run::ModelStore models;
  auto problem = run::ParseProblem(text);
  EXPECT_TRUE(problem.ok()) << problem.error().message;
  return problem.ok() ? EstimateRun({*problem}, 1, &models).seconds : 0;
}

// A cell's own part is that of a cell without a single multiply-add.
TEST(Estimate, SmallModelsHaveAllTheChainsOfTheirFloor) {
  const double fixed = SecondsOf("model model=no-such-model tokens=1");
  const double one = SecondsOf("model model=k2-mini tokens=1") - fixed;
  const double many = SecondsOf("model model=k2-mini tokens=4") - fixed;
  EXPECT_GT(one, 0);
  EXPECT_NEAR(many / one, 4, 1e-6) << "as many chains, four times as long";
  // A budget that 59 chains do not fit makes a token cheaper: 8 passes instead of 62.
  const int fewer = judge::RunsWithin(3'000'000'000, 32'000'000'000);
  EXPECT_LT(fewer, judge::RunsWithin(1'000'000, 32'000'000'000));
  const double huge = SecondsOf("model model=k2-mini tokens=100000") - fixed;
  EXPECT_LT(huge / 100000, one / 2);
}

TEST(Estimate, ALayerIsAPartOfItsModel) {
  const double fixed = SecondsOf("model model=no-such-model tokens=1");
  const double layer = SecondsOf("layer model=k2-mini layer=1 tokens=4") - fixed;
  const double model = SecondsOf("model model=k2-mini tokens=4") - fixed;
  EXPECT_GT(layer, 0);
  EXPECT_LT(layer, model);
}

TEST(Estimate, NothingTakesNoLine) {
  run::ModelStore models;
  EXPECT_EQ(EstimateLine({}, 2, &models), "");
}

}  // namespace
}  // namespace assay::cli
