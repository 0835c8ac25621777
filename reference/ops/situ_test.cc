// SiTU and SiTUv2: against long double, against recorded layers of a model, and what a config says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/checkpoint/safetensors.h"
#include "reference/golden_file.h"
#include "reference/methods/method.h"
#include "reference/ops/ops.h"
#include "reference/test_support.h"
#include "reference/tiny_gguf.h"

namespace assay::reference {
namespace {

using testing_support::RandomTensor;
using testing_support::TinyGguf;

constexpr double kBeta = 4, kLinearBeta = 25;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kUnit = 0x1p-53;
// Roundings of one evaluation, functions' included (each at most one unit in the last place): two
// quotients, two tanh, exp, 1 + exp, its reciprocal, four products.
constexpr double kRoundings = 16;
constexpr ops::SituParameters kSitu = {kBeta, std::nullopt, kInfinity};
constexpr ops::SituParameters kSituV2 = {kBeta, kLinearBeta, kInfinity};

Tensor Column(std::vector<double> values) {
  Tensor x;
  x.shape = {static_cast<int64_t>(values.size()), 1};
  x.data = std::move(values);
  return x;
}
long double Bent(long double x, long double beta) { return beta * std::tanh(x / beta); }
long double Situ(long double g, long double u) { return Bent(g, kBeta) / (1 + std::exp(-g)) * u; }
long double SituV2(long double g, long double u) { return Situ(g, Bent(u, kLinearBeta)); }
Evaluation Of(const Tensor& gate, const Tensor& up, const ops::SituParameters& parameters) {
  return ops::Situ({&gate, nullptr}, {&up, nullptr}, parameters, true);
}
double At(double g, double u, const ops::SituParameters& parameters) {
  return Of(Column({g}), Column({u}), parameters).value.data[0];
}

TEST(Situ, ByHand) {
  // tanh(1) = 0.76159415595576488812, sigmoid(4) = 0.98201379003790844197, from tables.
  constexpr double kTanh1 = 0.76159415595576488812, kSigmoid4 = 0.98201379003790844197;
  const double gate = kBeta * kTanh1 * kSigmoid4;
  EXPECT_NEAR(At(4, 3, kSitu), gate * 3, kRoundings * kUnit * gate * 3);
  const double up = kLinearBeta * kTanh1;
  EXPECT_NEAR(At(4, 25, kSituV2), gate * up, kRoundings * kUnit * gate * up);
  EXPECT_NEAR(At(4, -25, kSituV2), -gate * up, kRoundings * kUnit * gate * up);
  EXPECT_EQ(At(0, 7, kSituV2), 0);
  EXPECT_EQ(At(1000, 1e9, kSituV2), kBeta * kLinearBeta);  // bounded by the product of both
  EXPECT_EQ(At(-INFINITY, 2, kSitu), 0);
  EXPECT_TRUE(std::isnan(At(NAN, 1, kSituV2)));
  EXPECT_TRUE(std::isnan(At(1, NAN, kSituV2)));
}

TEST(Situ, EqualsLongDoubleOverItsRange) {
  Tensor gate = RandomTensor(1, {1, 2000}), up = RandomTensor(2, {1, 2000});
  for (size_t i = 0; i < gate.data.size(); ++i) {
    const double scale = std::exp2(static_cast<double>(i % 24) - 16);  // to 128
    gate.data[i] *= scale;
    up.data[i] *= scale;
  }
  const Evaluation one = Of(gate, up, kSitu), two = Of(gate, up, kSituV2);
  for (size_t i = 0; i < gate.data.size(); ++i) {
    const auto want1 = static_cast<double>(Situ(gate.data[i], up.data[i]));
    const auto want2 = static_cast<double>(SituV2(gate.data[i], up.data[i]));
    EXPECT_NEAR(one.value.data[i], want1, kRoundings * kUnit * std::fabs(want1));
    EXPECT_NEAR(two.value.data[i], want2, kRoundings * kUnit * std::fabs(want2));
    EXPECT_EQ(two.function.data[i], std::fabs(two.value.data[i]));
  }
}

TEST(Situ, ForgottenParametersAreOtherFunctions) {
  const double right = At(3, 20, kSituV2);
  const Tensor g = Column({3}), u = Column({20});
  const double silu = ops::Activation({&g, nullptr}, {&u, nullptr}, kInfinity, false).value.data[0];
  for (const double wrong :
       {At(3, 20, kSitu), At(3, 20, {1, kLinearBeta}), At(3, 20, {kLinearBeta, kBeta}), silu}) {
    EXPECT_GT(std::fabs(wrong - right), 0.1 * right);
  }
  // A large beta is no bend at all: tanh is off by a third of (20 / 2^40)², and that is SiLU.
  EXPECT_NEAR(At(3, 20, {0x1p40, 0x1p40}), silu, kRoundings * kUnit * silu);
}

TEST(Situ, LimitsClampBeforeTheBend) {
  const ops::SituParameters limited = {kBeta, kLinearBeta, 7};
  EXPECT_EQ(At(10, 30, limited), At(7, 7, kSituV2));
  EXPECT_EQ(At(10, -30, limited), At(7, -7, kSituV2));
  EXPECT_EQ(At(-10, 2, limited), At(-10, 2, kSituV2));
  EXPECT_NE(At(10, 30, limited), At(10, 30, kSituV2));
}

// Propagated errors against difference quotients of long double.
TEST(Situ, DerivativesAreThoseOfTheFunction) {
  constexpr double kStep = 0x1p-20;  // central quotients are off by step² times a third derivative
  for (const double g : {-6.0, -1.0, 0.0, 0.5, 3.0, 9.0}) {
    for (const double u : {-40.0, -2.0, 0.25, 30.0}) {
      const Tensor gate = Column({g}), up = Column({u}), small = Column({kStep}),
                   none = Column({0});
      const auto error = [&](const Tensor& dg, const Tensor& du) {
        return ops::Situ({&gate, &dg}, {&up, &du}, kSituV2, true).propagated.data[0];
      };
      const auto of_g = static_cast<double>(SituV2(g + kStep, u) - SituV2(g - kStep, u)) / 2;
      const auto of_u = static_cast<double>(SituV2(g, u + kStep) - SituV2(g, u - kStep)) / 2;
      const double allowed = kStep * kStep * kStep * kLinearBeta;
      EXPECT_NEAR(error(small, none), std::fabs(of_g), allowed) << g << " " << u;
      EXPECT_NEAR(error(none, small), std::fabs(of_u), allowed) << g << " " << u;
      EXPECT_GE(error(small, small), error(small, none));
    }
  }
  const Tensor far = Column({10}), two = Column({2}), half = Column({0.5});
  const ops::SituParameters limited = {kBeta, kLinearBeta, 7};
  EXPECT_EQ(ops::Situ({&far, &half}, {&two, nullptr}, limited, true).propagated.data[0], 0);
}

// A recorded dense layer: mlp_norm in, mlp_out out, in float64 by another program.
struct Matrix {
  int64_t rows, columns;
  std::vector<double> data;
};
Matrix Weight(const TensorSource& source, const std::string& name) {
  const TensorView* view =
      source.Find("language_model.model.layers.0.mlp." + name + "_proj.weight");
  Matrix matrix = {view->shape[0], view->shape[1], {}};
  matrix.data.resize(static_cast<size_t>(matrix.rows * matrix.columns));
  DecodeFloats(*view, 0, matrix.rows * matrix.columns, matrix.data.data());
  return matrix;
}
// x Wᵀ in long double, and how far one in double may be from it: terms and errors of x.
void Multiply(const Tensor& x, const Tensor* x_error, const Matrix& w, Tensor* y, Tensor* error) {
  *y = *error = ops::Zeros({x.rows(), w.rows});
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t n = 0; n < w.rows; ++n) {
      long double sum = 0, sizes = 0, carried = 0;
      for (int64_t k = 0; k < w.columns; ++k) {
        const auto at = static_cast<size_t>(t * w.columns + k);
        const long double weight = w.data[static_cast<size_t>(n * w.columns + k)];
        sum += x.data[at] * weight;
        sizes += std::fabs(x.data[at] * weight);
        if (x_error != nullptr) carried += x_error->data[at] * std::fabs(weight);
      }
      const auto to = static_cast<size_t>(t * w.rows + n);
      y->data[to] = static_cast<double>(sum);
      error->data[to] = static_cast<double>((w.columns + 1) * kUnit * sizes + carried);
    }
  }
}

class RecordedLayer : public ::testing::Test {
 protected:
  RecordedLayer() {
    auto source = SafetensorsFile::Open("goldens/checkpoints/k3-mini/model.safetensors");
    auto taps = ReadGoldenTensors("goldens/goldens/k3-mini/taps-t5.safetensors");
    if (!source || !taps) {
      ADD_FAILURE();
      std::abort();
    }
    const Tensor& x = taps->at("layers.0.mlp_norm").value;
    Multiply(x, nullptr, Weight(**source, "gate"), &gate_, &gate_error_);
    Multiply(x, nullptr, Weight(**source, "up"), &up_, &up_error_);
    down_ = Weight(**source, "down");
    recorded_ = taps->at("layers.0.mlp_out").value;
  }
  // The largest |difference| over what is allowed.
  double Ratio(const Evaluation& act) const {
    Tensor act_error = act.propagated, out, error;
    for (size_t i = 0; i < act_error.data.size(); ++i) {
      act_error.data[i] += kRoundings * kUnit * act.function.data[i];
    }
    Multiply(act.value, &act_error, down_, &out, &error);
    double ratio = 0;
    for (size_t i = 0; i < out.data.size(); ++i) {
      // Both sides' errors.
      const double off = std::fabs(out.data[i] - recorded_.data[i]);
      ratio = std::max(ratio, off / (2 * error.data[i]));
    }
    return ratio;
  }
  Input gate() const { return {&gate_, &gate_error_}; }
  Input up() const { return {&up_, &up_error_}; }

  Tensor gate_, gate_error_, up_, up_error_, recorded_;
  Matrix down_;
};

TEST_F(RecordedLayer, IsSituV2WithTheConfigsBetas) {
  EXPECT_GT(*std::max_element(gate_.data.begin(), gate_.data.end()), kBeta);
  EXPECT_LE(Ratio(ops::Situ(gate(), up(), kSituV2, true)), 1);
}
TEST_F(RecordedLayer, IsNothingElse) {
  // The mildest is a linear_beta that is off by one percent.
  constexpr double kPlain = 1e6;
  EXPECT_GT(Ratio(ops::Situ(gate(), up(), kSitu, true)), kPlain);
  EXPECT_GT(Ratio(ops::Situ(gate(), up(), {1, kLinearBeta}, true)), kPlain);
  EXPECT_GT(Ratio(ops::Situ(gate(), up(), {kBeta, kLinearBeta * 1.01}, true)), kPlain);
  EXPECT_GT(Ratio(ops::Situ(up(), gate(), kSituV2, true)), kPlain);
  EXPECT_GT(Ratio(ops::Activation(gate(), up(), kInfinity, true)), kPlain);
}

TEST(SituOfAConfig, IsWhatItsActivationsAre) {
  TinyGguf tiny;
  Tensor gate = ops::Zeros({3, TinyGguf::kWidth}), up = gate;
  for (double& value : gate.data) value = 5;
  for (double& value : up.data) value = 40;
  const std::vector<Input> inputs = {{&gate, nullptr}, {&up, nullptr}};
  const auto act = [&] {
    const auto oracle = tiny.MakeOracle();
    const Node* node = oracle->FindNode("L0.mlp.act");
    const auto e = oracle->Evaluate(*node, inputs, {}, Step{{1, 2, 3}, 0}, Contract::Exact());
    EXPECT_TRUE(e.ok());
    return std::pair(node->tanhs, e->value.data[7]);
  };
  const double silu = 5 / (1 + std::exp(-5.0)) * 40;
  EXPECT_EQ(act().first, 0);
  EXPECT_NEAR(act().second, silu, kRoundings * kUnit * silu);
  tiny.config.hidden_act = "situ";
  tiny.config.situ_beta = kBeta;
  EXPECT_EQ(act(), std::pair(1, At(5, 40, kSitu)));
  tiny.config.situ_linear_beta = kLinearBeta;
  EXPECT_EQ(act(), std::pair(2, At(5, 40, kSituV2)));
  tiny.config.act_limit = 3;
  EXPECT_EQ(act(), std::pair(2, At(3, 3, kSituV2)));
}

TEST(SituOfAConfig, BetaIsNeverDefaulted) {
  TinyGguf tiny;
  const auto opens = [&] { return Oracle::Create(tiny.config, tiny.source).ok(); };
  EXPECT_TRUE(opens());
  tiny.config.hidden_act = "situ";
  const auto refused = Oracle::Create(tiny.config, tiny.source);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("beta"), std::string::npos);
  tiny.config.situ_linear_beta = kLinearBeta;
  EXPECT_FALSE(opens());
  tiny.config.situ_beta = kBeta;
  EXPECT_TRUE(opens());
  tiny.config.situ_beta = 0;
  EXPECT_FALSE(opens());
  tiny.config.situ_beta = kBeta;
  tiny.config.hidden_act = "silu";  // with a beta that it would leave out
  EXPECT_FALSE(opens());
  tiny.config.hidden_act = "gelu";
  EXPECT_FALSE(opens());
}

}  // namespace
}  // namespace assay::reference
