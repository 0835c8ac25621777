// The other ops of each tier against double, within bounds that follow from their stated depth and
// ulps (u = 2^-24, one rounding).
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
constexpr int64_t kCounts[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257};

std::vector<float> Normals(uint64_t seed, int64_t count, double scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * testing::Normal(seed, i));
  }
  return values;
}

// A copy that ends at a forbidden page.
class Ending {
 public:
  explicit Ending(const std::vector<float>& values)
      : memory_(values.size() * sizeof(float), Guard::kBehind, 0xFF) {
    if (!values.empty()) std::memcpy(memory_.data(), values.data(), memory_.size());
  }
  explicit Ending(int64_t count)
      : memory_(static_cast<size_t>(count) * sizeof(float), Guard::kBehind, 0xFF) {}
  float* get() { return memory_.as<float>(); }
  float operator[](int64_t i) { return get()[i]; }

 private:
  Guarded memory_;
};

double SigmoidOf(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

// Bound of the relative error of a chain of roundings that together cost e to first order.
double Gamma(double e) { return e / (1 - e); }

// Depth of a sum of n products: ElementwiseKernels::lanes.
double Depth(const ElementwiseKernels& ops, int64_t n) {
  return std::ceil(static_cast<double>(n) / ops.lanes) + std::log2(ops.lanes) + 1;
}

class Ops : public ::testing::TestWithParam<ElementwiseKernels> {
 protected:
  const ElementwiseKernels& ops = GetParam();
};

void CheckRmsNorm(const ElementwiseKernels& ops) {
  for (const int64_t n : kCounts) {
    if (n == 0) continue;
    constexpr int64_t kRows = 3;
    const float norm_eps = 1e-6F;  // a model's, as in config.json
    const std::vector<float> x = Normals(1, kRows * n, n % 2 == 0 ? 1 : 1e-3);
    const std::vector<float> weights = Normals(2, n);
    Ending in(x), w(weights), y(kRows * n);
    ops.rms_norm(in.get(), w.get(), norm_eps, kRows, n, y.get());
    for (int64_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{x[row * n + i]} * x[row * n + i];
      const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + double{norm_eps});
      for (int64_t i = 0; i < n; ++i) {
        const double want = x[row * n + i] * scale * weights[i];
        // The sum's depth, the quotient and + norm_eps, halved by the root; an ulp is at most 2u;
        // two products.
        const double roundings = (Depth(ops, n) + 2) / 2 + 2 * ops.rsqrt_ulp + 2;
        ASSERT_NEAR(y[row * n + i], want, Gamma(roundings * kU) * std::fabs(want) + kSmallest)
            << "n=" << n << " row " << row << " element " << i;
      }
    }
  }
}

void CheckSwiGlu(const ElementwiseKernels& ops) {
  for (const int64_t n : kCounts) {
    for (const double scale : {1.0, 40.0}) {
      // Below, inside and beyond what the values reach; none.
      for (const float limit : {0.0F, 0.5F, 7.0F, 1e3F, kInf}) {
        const std::vector<float> gate = Normals(3, n, scale), up = Normals(4, n, 3);
        Ending g(gate), u(up), y(n);
        ops.swiglu(g.get(), u.get(), limit, n, y.get());
        for (int64_t i = 0; i < n; ++i) {
          const double most = std::min(gate[i], limit);
          const double want = most * SigmoidOf(most) * std::clamp(up[i], -limit, limit);
          // sigmoid's ulps (2u each), two products; below the normals half a step.
          const double roundings = 2 * ops.sigmoid_ulp + 2;
          ASSERT_NEAR(y[i], want, roundings * kU * std::fabs(want) + kSmallest)
              << gate[i] << " " << up[i] << " limit " << limit;
        }
      }
    }
  }
}

TEST_P(Ops, SwiGluKeepsNanAndClampsInfinities) {
  const float gate[] = {NAN, 1, NAN, kInf, -kInf, 1, 1, kInf};
  const float up[] = {1, NAN, NAN, 2, 2, kInf, -kInf, 0};
  float y[8];
  ops.swiglu(gate, up, 7, 8, y);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  const double seven = 7 * SigmoidOf(7), one = SigmoidOf(1);
  const double bound = (2 * ops.sigmoid_ulp + 2) * kU;
  EXPECT_NEAR(y[3], seven * 2, bound * seven * 2);  // gate: 7, not infinity
  EXPECT_EQ(y[4], 0);
  EXPECT_NEAR(y[5], one * 7, bound * one * 7);
  EXPECT_NEAR(y[6], one * -7, bound * one * 7);
  EXPECT_EQ(y[7], 0);
  ops.swiglu(gate, up, kInf, 8, y);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_EQ(y[3], kInf);
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], -kInf);
}

void CheckRope(const ElementwiseKernels& ops) {
  for (const int64_t dim : {2, 4, 6, 8, 14, 16, 18, 32, 34, 64, 128}) {
    for (const bool interleaved : {false, true}) {
      constexpr int64_t kHeads = 3;
      const int64_t stride = dim + 5;
      const std::vector<float> x = Normals(5, (kHeads - 1) * stride + dim);
      std::vector<float> cos(static_cast<size_t>(dim / 2)), sin(cos.size());
      for (size_t i = 0; i < cos.size(); ++i) {
        cos[i] = static_cast<float>(std::cos(0.3 * static_cast<double>(i) + 1));
        sin[i] = static_cast<float>(std::sin(0.3 * static_cast<double>(i) + 1));
      }
      Ending y(x), c(cos), s(sin);
      ops.rope(y.get(), kHeads, stride, dim, c.get(), s.get(), interleaved);
      std::vector<bool> rotated(x.size());
      for (int64_t head = 0; head < kHeads; ++head) {
        for (int64_t i = 0; i < dim / 2; ++i) {
          const int64_t a = head * stride + (interleaved ? 2 * i : i);
          const int64_t b = head * stride + (interleaved ? 2 * i + 1 : i + dim / 2);
          rotated[a] = rotated[b] = true;
          const double bound = 2 * kU * (std::fabs(x[a]) + std::fabs(x[b]));
          ASSERT_NEAR(y[a], double{x[a]} * cos[i] - double{x[b]} * sin[i], bound) << dim;
          ASSERT_NEAR(y[b], double{x[b]} * cos[i] + double{x[a]} * sin[i], bound) << dim;
        }
      }
      for (size_t i = 0; i < x.size(); ++i) {
        if (rotated[i]) continue;
        ASSERT_EQ(y[i], x[i]) << "between heads";
      }
    }
  }
}

void CheckScores(const ElementwiseKernels& ops) {
  for (const int64_t dim : kCounts) {
    for (const int64_t keys : {1, 3, 4, 5, 9}) {
      const int64_t stride = dim + 3;
      const std::vector<float> q = Normals(6, dim), k = Normals(7, (keys - 1) * stride + dim);
      Ending in(q), cache(k), y(keys);
      const float scale = 0.088388F;
      ops.scores(in.get(), cache.get(), dim, stride, keys, scale, y.get());
      for (int64_t j = 0; j < keys; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < dim; ++i) {
          sum += double{q[i]} * k[j * stride + i];
          magnitude += std::fabs(double{q[i]} * k[j * stride + i]);
        }
        ASSERT_NEAR(y[j], sum * scale, (Depth(ops, dim) + 1) * kU * magnitude * scale + kSmallest);
      }
    }
  }
}

// Softmax and weighted sum in double over the unmasked keys; bounds as they go.
void CheckContextOf(const ElementwiseKernels& ops, const std::vector<float>& scores,
                    const std::vector<float>& v, int64_t dim, int64_t stride) {
  const auto keys = static_cast<int64_t>(scores.size());
  const double depth = Depth(ops, keys);
  Ending s(scores), values(v), ctx(dim);
  ops.context(s.get(), values.get(), dim, stride, keys, ctx.get());
  const double max = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (const float score : scores) total += std::exp(score - max);
  std::vector<double> p(scores.size()), error(scores.size());
  double mean_shift = 0;  // error that the sum inherits from its terms
  for (int64_t j = 0; j < keys; ++j) {
    p[j] = std::exp(scores[j] - max) / total;
    // The difference is rounded (u of it, relative in p), then exp's ulps (2u each).
    error[j] = scores[j] == -kInf ? 0 : (max - scores[j]) * kU + 2 * ops.exp_ulp * kU;
    mean_shift += p[j] * error[j];
  }
  for (int64_t j = 0; j < keys; ++j) {
    // Own error, the sum's (inherited and its depth), the quotient.
    error[j] += mean_shift + (depth + 1) * kU;
    ASSERT_NEAR(s[j], p[j], Gamma(error[j]) * p[j] + 2 * kSmallest) << j << " of " << keys;
  }
  for (int64_t i = 0; i < dim; ++i) {
    double want = 0, bound = 0;
    for (int64_t j = 0; j < keys; ++j) {
      if (scores[j] == -kInf) continue;
      const double term = p[j] * v[j * stride + i];
      want += term;
      bound += std::fabs(term) * (Gamma(error[j]) + depth * kU) +
               2 * kSmallest * std::fabs(v[j * stride + i]);
    }
    ASSERT_NEAR(ctx[i], want, bound + kSmallest) << i << " of " << dim << ", keys " << keys;
  }
}

void CheckContext(const ElementwiseKernels& ops) {
  for (const int64_t keys : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 100}) {
    for (const int64_t dim : {1, 7, 8, 9, 16, 40, 64}) {
      for (const double spread : {1.0, 20.0}) {
        const int64_t stride = dim + 2;
        CheckContextOf(ops, Normals(8, keys, spread), Normals(9, (keys - 1) * stride + dim), dim,
                       stride);
      }
    }
  }
}

TEST_P(Ops, ContextNeverTouchesMaskedKeys) {
  for (const int64_t keys : {1, 2, 7, 8, 9, 17, 40}) {
    for (int64_t open = 1; open <= std::min<int64_t>(keys, 10); ++open) {
      constexpr int64_t kDim = 13;
      std::vector<float> scores = Normals(10, keys), v = Normals(11, keys * kDim);
      // The open keys are the last ones of every kind of position: masked ones lie before, behind.
      for (int64_t j = 0; j < keys; ++j) {
        if ((j * 7 + 3) % keys < open) continue;
        scores[j] = -kInf;
        for (int64_t i = 0; i < kDim; ++i) v[j * kDim + i] = NAN;
      }
      if (std::count(scores.begin(), scores.end(), -kInf) == keys) continue;
      CheckContextOf(ops, scores, v, kDim, kDim);
    }
  }
}

TEST_P(Ops, SoftmaxSurvivesLargeAndEqualScores) {
  for (const float value : {0.0F, 1e4F, -1e4F, 1e30F, -1e30F, 3e38F, -3e38F}) {
    const std::vector<float> v = Normals(12, 9 * 8);
    CheckContextOf(ops, std::vector<float>(9, value), v, 8, 8);
    std::vector<float> one(9, -3e38F);
    one[4] = value;
    CheckContextOf(ops, one, v, 8, 8);
  }
}

void CheckAddAndAxpy(const ElementwiseKernels& ops) {
  for (const int64_t n : kCounts) {
    const std::vector<float> a = Normals(13, n), b = Normals(14, n);
    Ending x(a), z(b), y(n), acc(b);
    ops.add(x.get(), z.get(), n, y.get());
    const float w = 0.37F;
    ops.axpy(w, x.get(), n, acc.get());
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(y[i], a[i] + b[i]);
      const double product = double{w} * a[i], want = b[i] + product;
      ASSERT_NEAR(acc[i], want, kU * (std::fabs(product) * (1 + kU) + std::fabs(want)));
    }
  }
}

TEST_P(Ops, RmsNorm) { CheckRmsNorm(ops); }
TEST_P(Ops, SwiGlu) { CheckSwiGlu(ops); }
TEST_P(Ops, RopeInBothLayouts) { CheckRope(ops); }
TEST_P(Ops, Scores) { CheckScores(ops); }
TEST_P(Ops, Context) { CheckContext(ops); }
TEST_P(Ops, AddIsExactAndAxpyRoundsTwiceAtMost) { CheckAddAndAxpy(ops); }

INSTANTIATE_TEST_SUITE_P(Tier, Ops, ::testing::ValuesIn(RunnableTables()), [](const auto& test) {
  return testing::TestName(NameOf(test.param.tier), test.param.how);
});

// The scalar tier with one small mistake in each op: every check above must fail on it.
const ElementwiseKernels* Honest() { return Elementwise(Tier::kScalar); }

const ElementwiseKernels& Broken() {
  static const ElementwiseKernels broken = [] {
    ElementwiseKernels t = *Honest();
    // eps outside the mean: a part in a thousand on small rows.
    t.rms_norm = [](const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y) {
      Honest()->rms_norm(x, w, eps / static_cast<float>(n), rows, n, y);
    };
    t.swiglu = [](const float* gate, const float* up, float limit, int64_t count, float* y) {
      Honest()->swiglu(up, gate, limit, count, y);  // gate and up exchanged
    };
    t.rope = [](float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
                const float* sin, bool interleaved) {
      Honest()->rope(x, heads, head_stride, dim, sin, cos, interleaved);
    };
    t.scores = [](const float* q, const float* k, int64_t dim, int64_t k_stride, int64_t keys,
                  float scale, float* scores) {
      Honest()->scores(q, k, dim, k_stride, keys, scale * (1 + 0x1p-17F), scores);
    };
    t.context = [](float* scores, const float* v, int64_t dim, int64_t v_stride, int64_t keys,
                   float* ctx) {
      Honest()->context(scores, v, dim, v_stride, keys, ctx);
      for (int64_t i = 0; i < dim; ++i) ctx[i] *= 1 + 0x1p-17F;
    };
    t.axpy = [](float w, const float* x, int64_t count, float* y) {
      Honest()->axpy(w, x, count / 8 * 8, y);  // the tail forgotten
    };
    return t;
  }();
  return broken;
}

// Clamps gate and leaves up as it is.
const ElementwiseKernels& Unlimited() {
  static const ElementwiseKernels broken = [] {
    ElementwiseKernels t = *Honest();
    t.swiglu = [](const float* gate, const float* up, float limit, int64_t count, float* y) {
      for (int64_t i = 0; i < count; ++i) {
        const float g = std::min(gate[i], limit);
        Honest()->swiglu(&g, up + i, kInf, 1, y + i);
      }
    };
    return t;
  }();
  return broken;
}

TEST(BrokenOps, AreCaught) {
  EXPECT_FATAL_FAILURE(CheckRmsNorm(Broken()), "");
  EXPECT_FATAL_FAILURE(CheckSwiGlu(Broken()), "");
  EXPECT_FATAL_FAILURE(CheckSwiGlu(Unlimited()), "limit");
  EXPECT_FATAL_FAILURE(CheckRope(Broken()), "");
  EXPECT_FATAL_FAILURE(CheckScores(Broken()), "");
  // One case: the macro wants exactly one failure.
  static const std::vector<float> scores = Normals(15, 9), v = Normals(16, 9 * 8);
  EXPECT_FATAL_FAILURE(CheckContextOf(Broken(), scores, v, 8, 8), "");
  EXPECT_FATAL_FAILURE(CheckAddAndAxpy(Broken()), "");
}

}  // namespace
}  // namespace assay::kernels
