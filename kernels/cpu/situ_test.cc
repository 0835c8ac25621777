// SiTU and SiTUv2 of each tier against double, within bounds that follow from the stated ulps of
// tanh and sigmoid (u = 2^-24, one rounding).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/testing/guarded.h"
#include "kernels/cpu/testing/random.h"
#include "kernels/cpu/testing/tables.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using testing::Guard;
using testing::Guarded;
using testing::RunnableTables;

constexpr double kU = 0x1p-24;
constexpr double kSmallest = 0x1p-149;  // of the subnormals
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kCounts[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 100, 257};

struct Parameters {
  float beta, beta_l, limit;
};
// Kimi-K3's; the first version; with a limit; others, of which none divides by a power of two.
constexpr Parameters kParameters[] = {
    {4, 25, kInf}, {4, kInf, kInf}, {4, 25, 7}, {1.7F, 3.3F, kInf}, {30, kInf, 0.5F}};

double SigmoidOf(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

double SituOf(double gate, double up, const Parameters& p) {
  const double g = std::min<double>(gate, p.limit);
  double u = std::clamp<double>(up, -p.limit, p.limit);
  if (p.beta_l < kInf) u = p.beta_l * std::tanh(u / p.beta_l);
  return p.beta * std::tanh(g / p.beta) * SigmoidOf(g) * u;
}

// Of beta·tanh(x/beta) three roundings (a relative change of x changes tanh by no more) and tanh's
// ulps (2u each); sigmoid's; the product of the three. The first order, and a little for the rest.
double RoundingsOf(const ElementwiseKernels& ops, const Parameters& p) {
  const double bounded = 2 + 2 * ops.tanh_ulp;
  const double once = bounded + 2 * ops.sigmoid_ulp + 2;
  const double all = p.beta_l < kInf ? once + bounded : once;
  return all / (1 - all * kU);
}

std::vector<float> Normals(uint64_t seed, int64_t count, double scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * testing::Normal(seed, i));
  }
  return values;
}

// Empty, or the first element that is wrong.
std::string Mistake(const ElementwiseKernels& ops, const std::vector<float>& gate,
                    const std::vector<float>& up, const Parameters& p) {
  const size_t n = gate.size();
  Guarded g(4 * n, Guard::kBehind, 0xFF), u(4 * n, Guard::kBehind, 0xFF);
  Guarded y(4 * n, Guard::kBehind, 0xFF);
  if (n > 0) {
    std::memcpy(g.data(), gate.data(), 4 * n);
    std::memcpy(u.data(), up.data(), 4 * n);
  }
  ops.situ(g.as<float>(), u.as<float>(), p.beta, p.beta_l, p.limit, static_cast<int64_t>(n),
           y.as<float>());
  for (size_t i = 0; i < n; ++i) {
    const double want = SituOf(gate[i], up[i], p), got = y.as<float>()[i];
    const double bound = RoundingsOf(ops, p) * kU * std::fabs(want) + kSmallest;
    if (std::fabs(got - want) <= bound) continue;
    char text[200];
    std::snprintf(text, sizeof text, "gate %g up %g beta %g beta_l %g limit %g: %g, not %g ± %g",
                  gate[i], up[i], p.beta, p.beta_l, p.limit, got, want, bound);
    return text;
  }
  return "";
}

std::string Mistake(const ElementwiseKernels& ops) {
  for (const Parameters& p : kParameters) {
    for (const int64_t n : kCounts) {
      // Small, where tanh is x; ordinary; beyond every bound and clamp; where sigmoid is subnormal.
      for (const double scale : {1e-3, 1.0, 18.0, 60.0}) {
        const std::string text = Mistake(ops, Normals(1, n, scale), Normals(2, n, scale * 2), p);
        if (!text.empty()) return text;
      }
    }
  }
  return "";
}

class Situ : public ::testing::TestWithParam<ElementwiseKernels> {};

TEST_P(Situ, IsWithinTheBoundOfItsFunctions) { EXPECT_EQ(Mistake(GetParam()), ""); }

TEST_P(Situ, KeepsNanAndBoundsInfinities) {
  const float gate[] = {NAN, 1, kInf, -kInf, 1, 1, kInf, 0, -0.0F};
  const float up[] = {1, NAN, 1, 1, kInf, -kInf, kInf, kInf, 1};
  float y[9];
  const Parameters p{4, 25, kInf};
  GetParam().situ(gate, up, p.beta, p.beta_l, p.limit, 9, y);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  const double bound = RoundingsOf(GetParam(), p) * kU;
  const auto near = [&](int i, double want) {
    EXPECT_NEAR(y[i], want, bound * std::fabs(want)) << i;
  };
  near(2, SituOf(1e9, 1, p));
  EXPECT_EQ(y[3], 0);
  near(4, SituOf(1, 1e9, p));
  near(5, SituOf(1, -1e9, p));
  near(6, 100);
  EXPECT_EQ(y[7], 0);
  EXPECT_TRUE(y[8] == 0 && std::signbit(y[8]));
  // Without beta_l nothing bounds up.
  GetParam().situ(gate, up, 4, kInf, kInf, 9, y);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], -kInf);
  GetParam().situ(gate, up, 4, kInf, 7, 9, y);
  near(4, SituOf(1, 7, {4, kInf, 7}));
}

INSTANTIATE_TEST_SUITE_P(Tier, Situ, ::testing::ValuesIn(RunnableTables()), [](const auto& test) {
  return testing::TestName(NameOf(test.param.tier), test.param.how);
});

// Controls: each of these is what an engine has computed in its place.
ElementwiseKernels With(decltype(ElementwiseKernels::situ) situ) {
  ElementwiseKernels table = *Elementwise(Tier::kScalar);
  table.situ = situ;
  return table;
}

const ElementwiseKernels& Honest() { return *Elementwise(Tier::kScalar); }

const ElementwiseKernels& PlainSilu() {  // beta forgotten
  static const ElementwiseKernels table =
      With([](const float* gate, const float* up, float, float, float limit, int64_t count,
              float* y) { Honest().swiglu(gate, up, limit, count, y); });
  return table;
}
const ElementwiseKernels& FirstVersion() {  // beta_l forgotten
  static const ElementwiseKernels table =
      With([](const float* gate, const float* up, float beta, float, float limit, int64_t count,
              float* y) { Honest().situ(gate, up, beta, kInf, limit, count, y); });
  return table;
}
const ElementwiseKernels& Unlimited() {
  static const ElementwiseKernels table =
      With([](const float* gate, const float* up, float beta, float beta_l, float, int64_t count,
              float* y) { Honest().situ(gate, up, beta, beta_l, kInf, count, y); });
  return table;
}
const ElementwiseKernels& Exchanged() {
  static const ElementwiseKernels table =
      With([](const float* gate, const float* up, float beta, float beta_l, float limit,
              int64_t count, float* y) { Honest().situ(up, gate, beta, beta_l, limit, count, y); });
  return table;
}
const ElementwiseKernels& SixteenUlpsOff() {
  static const ElementwiseKernels table =
      With([](const float* gate, const float* up, float beta, float beta_l, float limit,
              int64_t count, float* y) {
        Honest().situ(gate, up, beta, beta_l, limit, count, y);
        for (int64_t i = 0; i < count; ++i) y[i] *= 1 + 0x1p-19F;
      });
  return table;
}
const ElementwiseKernels& ShortByATail() {
  static const ElementwiseKernels table = With(
      [](const float* gate, const float* up, float beta, float beta_l, float limit, int64_t count,
         float* y) { Honest().situ(gate, up, beta, beta_l, limit, count / 8 * 8, y); });
  return table;
}

TEST(SituControl, EveryMistakeIsSeen) {
  EXPECT_EQ(Mistake(Honest()), "");
  EXPECT_NE(Mistake(PlainSilu()), "");
  EXPECT_NE(Mistake(FirstVersion()).find("beta_l 25"), std::string::npos);
  EXPECT_NE(Mistake(Unlimited()).find("limit 7"), std::string::npos);
  EXPECT_NE(Mistake(Exchanged()), "");
  EXPECT_NE(Mistake(SixteenUlpsOff()), "");
  EXPECT_NE(Mistake(ShortByATail()), "");
}

}  // namespace
}  // namespace assay::kernels
