// exp, sigmoid and rsqrt of each tier against double, over sweeps of float's range, within the ulps
// that its table states.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/testing/tables.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using testing::RunnableTables;

constexpr float kInf = std::numeric_limits<float>::infinity();

// |got − want| in units of the last place of `want` as a float.
double Ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  const double limit = 0x1.ffffffp127;  // from here on the nearest float is an infinity
  if (std::fabs(want) >= limit) return got == std::copysign(kInf, want) ? 0 : kInf;
  const int exponent = want == 0 ? -126 : std::max(std::ilogb(want), -126);
  return std::fabs(got - want) / std::ldexp(1, exponent - 23);
}

// Floats over the whole range of bit patterns, and all near some points.
std::vector<float> Sweep(const std::vector<float>& points) {
  std::vector<float> values = {0.0F, -0.0F, kInf, -kInf, NAN};
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const float point : points) {
    const auto middle = static_cast<int64_t>(std::bit_cast<uint32_t>(point));
    for (int64_t bits = middle - 3000; bits < middle + 3000; ++bits) {
      values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    }
  }
  for (int i = -1100000; i <= 1100000; ++i) values.push_back(static_cast<float>(i) * 1e-4F);
  return values;
}

using Function = void (*)(const float*, int64_t, float*);

double WorstUlps(Function f, double (*want)(double), const std::vector<float>& points) {
  const std::vector<float> x = Sweep(points);
  std::vector<float> y(x.size());
  f(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double ulps = Ulps(y[i], want(x[i]));
    if (!(ulps <= worst)) worst = ulps, at = x[i];
  }
  ::testing::Test::RecordProperty("worst_ulps", std::to_string(worst));
  std::printf("worst error %.4f ulp at %.9g\n", worst, at);
  return worst;
}

double SigmoidOf(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

class Functions : public ::testing::TestWithParam<ElementwiseKernels> {
 protected:
  const ElementwiseKernels& ops = GetParam();
};

TEST_P(Functions, ExpIsWithinItsStatedUlps) {
  const double worst = WorstUlps(ops.exp, [](double x) { return std::exp(x); },
                                 {88.7228394F, -87.3365479F, -103.278931F, -103.972084F, 1e-8F});
  EXPECT_LE(worst, ops.exp_ulp);
  EXPECT_GT(worst, ops.exp_ulp / 2) << "the stated error could be tighter";
}

TEST_P(Functions, SigmoidIsWithinItsStatedUlps) {
  const double worst = WorstUlps(ops.sigmoid, SigmoidOf, {-87.3365479F, -103.278931F, 17.0F});
  EXPECT_LE(worst, ops.sigmoid_ulp);
  EXPECT_GT(worst, ops.sigmoid_ulp / 2) << "the stated error could be tighter";
}

TEST_P(Functions, RsqrtIsWithinItsStatedUlps) {
  const double worst = WorstUlps(ops.rsqrt, [](double x) { return 1 / std::sqrt(x); },
                                 {1.0F, 1.17549435e-38F, 3.4e38F});
  EXPECT_LE(worst, ops.rsqrt_ulp);
  EXPECT_GT(worst, ops.rsqrt_ulp / 2) << "the stated error could be tighter";
}

TEST_P(Functions, TanhIsWithinItsStatedUlps) {
  // Beside 0 and 1, where 2x is a half of ln 2, and where 1 − tanh is lost.
  const double worst = WorstUlps(ops.tanh, [](double x) { return std::tanh(x); },
                                 {1e-38F, 1e-8F, 0.1732868F, 0.5198604F, 9.0109F, 10.0F});
  EXPECT_LE(worst, ops.tanh_ulp);
  EXPECT_GT(worst, ops.tanh_ulp / 2) << "the stated error could be tighter";
}

TEST_P(Functions, FunctionsHaveTheirLimits) {
  const float x[] = {-kInf, kInf, -1e30F, 1e30F, NAN, -0.0F};
  float y[6];
  ops.exp(x, 6, y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], kInf);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], kInf);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1);
  ops.sigmoid(x, 6, y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 1);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 0.5F);
  ops.tanh(x, 6, y);
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(y[1], 1);
  EXPECT_EQ(y[2], -1);
  EXPECT_EQ(y[3], 1);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(y[5] == 0 && std::signbit(y[5]));
  const float up[] = {2, 2, 2, 2, 2, 2};
  ops.swiglu(x, up, kInf, 6, y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], kInf);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 2e30F);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 0);
}

INSTANTIATE_TEST_SUITE_P(Tier, Functions, ::testing::ValuesIn(RunnableTables()),
                         [](const auto& test) {
                           return testing::TestName(NameOf(test.param.tier), test.param.how);
                         });

// The yardstick itself: it must tell the right float from its neighbours.
TEST(Ulps, TellsNeighboursApart) {
  EXPECT_EQ(Ulps(1.0F, 1.0), 0);
  EXPECT_EQ(Ulps(std::nextafter(1.0F, 2.0F), 1.0), 1);
  EXPECT_EQ(Ulps(0.0F, 0x1p-149), 1);
  EXPECT_EQ(Ulps(kInf, 3.0e38), kInf);
  EXPECT_EQ(Ulps(3.4e38F, 1e39), kInf);
  EXPECT_EQ(Ulps(kInf, 1e39), 0);
  EXPECT_EQ(Ulps(1.0F, NAN), kInf);
}

void ExpOfAPoorPolynomial(const float* x, int64_t count, float* y) {
  Elementwise(Tier::kScalar)->exp(x, count, y);
  for (int64_t i = 0; i < count; ++i) {
    if (y[i] > 0.5F && y[i] < 1) y[i] = std::nextafter(std::nextafter(y[i], 2.0F), 2.0F);
  }
}

TEST(Ulps, FindAnExpThatIsTwoUlpsOff) {
  EXPECT_GT(WorstUlps(ExpOfAPoorPolynomial, [](double x) { return std::exp(x); }, {}),
            std::max(Elementwise(Tier::kScalar)->exp_ulp, Elementwise(Tier::kAvx2)->exp_ulp));
}

}  // namespace
}  // namespace assay::kernels
