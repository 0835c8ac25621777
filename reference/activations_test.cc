// Products on 8-bit activations, minima as terms of their own, and the limit of the activation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/ops/ops.h"
#include "reference/test_support.h"
#include "reference/tiny_gguf.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::RandomTensor;
using testing_support::TinyGguf;

const Contract kExact = Contract::Exact();
// Two evaluations of the same few operations, in another order: that many roundings at most.
constexpr double kUnit = 0x1p-53;
constexpr double kFewRoundings = 16 * kUnit;
// Two sums of a row of products and of their factors.
constexpr double kSumRoundings = 2 * (TinyGguf::kHidden + 3) * kUnit;
const Step kThree = {{1, 2, 3}, 0};

Contract With(const std::string& act) {
  Contract contract;
  contract.act = act;
  return contract;
}
Evaluation Of(const Oracle& oracle, const std::string& tap, const Input& x,
              const Contract& contract, const Where& where = {}) {
  const std::vector<Input> inputs = {x};
  auto e = oracle.Evaluate(*oracle.FindNode(tap), inputs, where, kThree, contract);
  if (!e) {
    ADD_FAILURE() << tap << ": " << e.error().message;
    std::abort();
  }
  return std::move(*e);
}
Tensor Product(const Tensor& codes, const Tensor& scales) {
  Tensor x = codes;
  const size_t group = codes.data.size() / scales.data.size();
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] *= scales.data[i / group];
  return x;
}

TEST(Codes, AProductIsEvaluatedOnCodeTimesScale) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = RandomTensor(3, {3, TinyGguf::kHidden});
  Tensor codes = x, scales = RandomTensor(4, {3, 4});
  for (double& code : codes.data) code = std::round(100 * code);
  const Codes shown = {&codes, &scales, 32};
  const Tensor product = Product(codes, scales);
  const Evaluation e = Of(*oracle, "L0.mlp.up", {&x, nullptr, &shown}, kExact);
  const Evaluation expected = Of(*oracle, "L0.mlp.up", {&product, nullptr}, kExact);
  EXPECT_EQ(e.value.data, expected.value.data);
  EXPECT_EQ(e.magnitude.data, expected.magnitude.data);
  EXPECT_TRUE(e.propagated.data.empty());  // codes are what they are
  EXPECT_NE(e.value.data, Of(*oracle, "L0.mlp.up", {&x, nullptr}, kExact).value.data);
  // One scale a row.
  const Tensor one = RandomTensor(5, {3, 1});
  const Codes row = {&codes, &one, 0};
  const Tensor row_product = Product(codes, one);
  EXPECT_EQ(Of(*oracle, "L0.mlp.up", {&x, nullptr, &row}, kExact).value.data,
            Of(*oracle, "L0.mlp.up", {&row_product, nullptr}, kExact).value.data);
}

TEST(Codes, OtherShapesAreErrorsAndPlainWeightsDoNotLookAtThem) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = RandomTensor(3, {3, TinyGguf::kHidden}), scales = RandomTensor(4, {3, 4}),
               few = RandomTensor(4, {3, 3});
  for (const Codes& bad : {Codes{&x, &few, 32}, Codes{&scales, &scales, 32}, Codes{&x, &scales, 0},
                           Codes{&x, nullptr, 32}, Codes{&x, &scales, 48}}) {
    const std::vector<Input> inputs = {{&x, nullptr, &bad}};
    const auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.up"), inputs, {}, kThree, kExact);
    ASSERT_FALSE(e.ok());
    EXPECT_NE(e.error().message.find("L0.mlp.up"), std::string::npos);
  }
  // bf16 weights keep 16-bit activations.
  const Opened llama = OpenModel("llama-mini");
  const Tensor wide = RandomTensor(3, {3, 144}), zero = ops::Zeros({3, 144}),
               one = RandomTensor(1, {3, 1});
  const Codes shown = {&zero, &one, 0};
  const auto plain = Of(*llama.oracle, "L0.mlp.up", {&wide, nullptr}, kExact);
  EXPECT_EQ(Of(*llama.oracle, "L0.mlp.up", {&wide, nullptr, &shown}, kExact).value.data,
            plain.value.data);
  EXPECT_EQ(Of(*llama.oracle, "L0.mlp.up", {&wide, nullptr}, With("a8row")).value.data,
            plain.value.data);
}

TEST(OwnCodes, AreMadeOfTheRanksOwnInput) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Where where = {{3, 1}, 1};
  const Tensor x = RandomTensor(9, {3, TinyGguf::kWidth / 3});
  for (const char* act : {"a8g32", "a8row"}) {
    const auto quantiser = *With(act).QuantiserOf(act);
    const auto made = Quantise(x, quantiser);
    ASSERT_TRUE(made.ok());
    const Codes codes = {&made->codes, &made->scales, quantiser.group};
    const Evaluation own = Of(*oracle, "L0.mlp.down", {&x, nullptr}, With(act), where);
    const Evaluation shown = Of(*oracle, "L0.mlp.down", {&x, nullptr, &codes}, With(act), where);
    EXPECT_EQ(own.value.data, shown.value.data) << act;
    EXPECT_TRUE(own.propagated.data.empty()) << act;  // no code is near a tie
  }
  const std::vector<Input> inputs = {{&x, nullptr}};
  const auto odd =
      oracle->Evaluate(*oracle->FindNode("L0.mlp.down"), inputs, where, kThree, With("a8g128"));
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("groups of 128"), std::string::npos) << odd.error().message;
}

TEST(OwnCodes, OneNearATieEntersAsAnErrorOfOneStep) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  Tensor x = ops::Zeros({3, TinyGguf::kHidden});
  x.data[0] = 127;
  x.data[7] = 2.5;  // the scale is 1
  const Evaluation e = Of(*oracle, "L0.mlp.up", {&x, nullptr}, With("a8row"));
  const Tensor w = tiny.Dequantised("blk.0.ffn_up.weight");
  ASSERT_FALSE(e.propagated.data.empty());
  for (size_t n = 0; n < TinyGguf::kWidth; ++n) {
    const double* row = w.data.data() + n * TinyGguf::kHidden;
    EXPECT_EQ(e.value.data[n], 127 * row[0] + 2 * row[7]);
    EXPECT_EQ(e.propagated.data[n], std::fabs(row[7]));
    EXPECT_EQ(e.propagated.data[TinyGguf::kWidth + n], 0);  // the next token has none
  }
  x.data[7] = 2.25;
  EXPECT_TRUE(Of(*oracle, "L0.mlp.up", {&x, nullptr}, With("a8row")).propagated.data.empty());
  // An error of the input: itself, what it makes of the scale, and a step.
  Tensor error = ops::Zeros(x.shape);
  error.data[7] = 0.5;
  const Evaluation wrong = Of(*oracle, "L0.mlp.up", {&x, &error}, With("a8row"));
  for (size_t n = 0; n < TinyGguf::kWidth; ++n) {
    const double* row = w.data.data() + n * TinyGguf::kHidden;
    const double expected =
        std::fabs(row[0]) * (0.5 / 127 * 127) + std::fabs(row[7]) * (0.5 + 0.5 / 127 * 2 + 1);
    EXPECT_NEAR(wrong.propagated.data[n], expected, kFewRoundings * expected);
  }
}

TEST(OwnCodes, OfAnUnknownActIsAnError) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = RandomTensor(3, {3, TinyGguf::kHidden});
  const std::vector<Input> inputs = {{&x, nullptr}};
  const auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.up"), inputs, {}, kThree, With("q8_1"));
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.error().kind, ErrorKind::kUnsupported);
}

TEST(Threads, ALargeProductIsItsRowsEachByItself) {
  // 600 · 128 · 192 multiply-adds are shared by threads where the host has them; one row is not.
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  constexpr int64_t kMany = 600;
  const Node& node = *oracle->FindNode("L0.mlp.up");
  const Tensor x = RandomTensor(8, {kMany, TinyGguf::kHidden});
  const std::vector<Input> all = {{&x, nullptr}};
  const Step many = {std::vector<int32_t>(kMany, 1), 0};
  const auto whole = oracle->Evaluate(node, all, {}, many, kExact);
  ASSERT_TRUE(whole.ok());
  for (size_t t = 0; t < kMany; t += 37) {
    Tensor row = ops::Zeros({1, TinyGguf::kHidden});
    std::copy_n(x.data.begin() + static_cast<int64_t>(t) * TinyGguf::kHidden, TinyGguf::kHidden,
                row.data.begin());
    const std::vector<Input> one = {{&row, nullptr}};
    const auto e = oracle->Evaluate(node, one, {}, {{1}, 0}, kExact);
    ASSERT_TRUE(e.ok());
    for (size_t n = 0; n < TinyGguf::kWidth; ++n) {
      ASSERT_EQ(whole->value.data[t * TinyGguf::kWidth + n], e->value.data[n]);
      ASSERT_EQ(whole->magnitude.data[t * TinyGguf::kWidth + n], e->magnitude.data[n]);
    }
  }
}

TEST(Minima, CountInTheMagnitude) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = RandomTensor(3, {3, TinyGguf::kHidden});
  const Tensor w = tiny.Dequantised("blk.0.ffn_up.weight"),
               m = tiny.Dequantised("blk.0.ffn_up.weight", true);
  const Evaluation e = Of(*oracle, "L0.mlp.up", {&x, nullptr}, kExact);
  Contract rounded = kExact;
  rounded.dequant = DType::kF32;  // d·q + m is one value before the product
  const Evaluation one = Of(*oracle, "L0.mlp.up", {&x, nullptr}, rounded);
  for (size_t n = 0; n < TinyGguf::kWidth; ++n) {
    double both = 0, single = 0;
    for (size_t k = 0; k < TinyGguf::kHidden; ++k) {
      const size_t at = n * TinyGguf::kHidden + k;
      both += std::fabs(x.data[k]) * (std::fabs(w.data[at] - m.data[at]) + std::fabs(m.data[at]));
      single += std::fabs(x.data[k] * w.data[at]);
    }
    EXPECT_NEAR(e.magnitude.data[n], both, kSumRoundings * both);
    EXPECT_NEAR(one.magnitude.data[n], single, kSumRoundings * single);
    EXPECT_GT(both, 1.2 * single);
  }
}

TEST(Minima, CountForExactness) {
  // Codes of 1 with d = m = 1: weights of 2. One block of row 1 has a minimum of 2^-14, and its
  // terms lie on a finer grid.
  TinyGguf tiny;
  std::vector<std::byte> bytes(TinyGguf::kWidth * 4 * 20, std::byte{0x11});
  const auto put = [&](size_t block, int d, int m) {
    const uint16_t halves[2] = {testing_support::HalfOf(d, 0), testing_support::HalfOf(m, 0)};
    std::memcpy(bytes.data() + block * 20, halves, 4);
  };
  for (size_t block = 0; block < TinyGguf::kWidth * 4; ++block) put(block, 0, 0);
  put(4, 0, -14);
  tiny.source.Put("blk.0.ffn_up.weight", DType::kQ4_1, {TinyGguf::kWidth, 4}, bytes);
  const auto oracle = tiny.MakeOracle();
  Tensor x = ops::Zeros({3, TinyGguf::kHidden});
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = i % 2 == 0 ? 17 : -3;
  const Evaluation e = Of(*oracle, "L0.mlp.up", {&x, nullptr}, kExact);
  EXPECT_EQ(e.exact[0], 1);
  EXPECT_EQ(e.exact[1], 0);
  EXPECT_EQ(e.exact[2], 1);
  // d and m that cancel: weights of 0, but terms that a kernel adds one by one.
  for (size_t block = 0; block < 4; ++block) {
    const uint16_t halves[2] = {testing_support::HalfOf(15, 0),
                                static_cast<uint16_t>(0x8000u | testing_support::HalfOf(15, 0))};
    std::memcpy(bytes.data() + block * 20, halves, 4);
  }
  tiny.source.Put("blk.0.ffn_up.weight", DType::kQ4_1, {TinyGguf::kWidth, 4}, bytes);
  x.data[0] = 17 + 0x1p-20;
  const auto cancelling = tiny.MakeOracle();
  const Evaluation zero = Of(*cancelling, "L0.mlp.up", {&x, nullptr}, kExact);
  EXPECT_EQ(zero.value.data[0], 0);
  EXPECT_GT(zero.magnitude.data[0], 0x1p24);
  EXPECT_EQ(zero.exact[0], 0);
}

Tensor Column(std::vector<double> values) {
  Tensor x;
  x.shape = {static_cast<int64_t>(values.size()), 1};
  x.data = std::move(values);
  return x;
}
double Silu(double g) { return g * (1 / (1 + std::exp(-g))); }

TEST(Limit, ClampsTheGateAboveAndTheUpOnBothSides) {
  const Tensor gate = Column({10, 7, -10, 3, 3, NAN}), up = Column({1, 1, 1, 9, -9, 1});
  const Evaluation e = ops::Activation({&gate, nullptr}, {&up, nullptr}, 7, true);
  EXPECT_EQ(e.value.data[0], Silu(7));
  EXPECT_EQ(e.value.data[1], Silu(7));
  EXPECT_EQ(e.value.data[2], Silu(-10));
  EXPECT_EQ(e.value.data[3], 7 * Silu(3));
  EXPECT_EQ(e.value.data[4], -7 * Silu(3));
  EXPECT_TRUE(std::isnan(e.value.data[5]));
  EXPECT_EQ(e.function.data[4], 7 * Silu(3));
  const Evaluation none = ops::Activation({&gate, nullptr}, {&up, nullptr}, INFINITY, false);
  EXPECT_EQ(none.value.data[0], Silu(10));
  EXPECT_EQ(none.value.data[4], -9 * Silu(3));
}

TEST(Limit, ErrorsBeyondTheClampHaveNoEffect) {
  const Tensor gate = Column({10, 7.25, 7, 10, 3}), up = Column({2, 2, 2, -9, -7.25});
  const Tensor half = Column({0.5, 0.5, 0.5, 0.5, 0.5}), none = Column({0, 0, 0, 0, 0});
  const Evaluation g = ops::Activation({&gate, &half}, {&up, &none}, 7, true);
  const double sigmoid = 1 / (1 + std::exp(-7.0)), slope = sigmoid * (1 + 7 * (1 - sigmoid));
  EXPECT_EQ(g.propagated.data[0], 0);
  EXPECT_NEAR(g.propagated.data[1], 2 * slope * 0.25, kFewRoundings);
  EXPECT_NEAR(g.propagated.data[2], 2 * slope * 0.5, 2 * kFewRoundings);  // at the clamp: all of it
  const Evaluation u = ops::Activation({&gate, &none}, {&up, &half}, 7, true);
  EXPECT_NEAR(u.propagated.data[0], Silu(7) * 0.5, 4 * kFewRoundings);
  EXPECT_EQ(u.propagated.data[3], 0);
  EXPECT_NEAR(u.propagated.data[4], Silu(3) * 0.25, kFewRoundings);
}

TEST(Limit, IsTheConfigs) {
  TinyGguf tiny;
  const Tensor gate = Column({10, 10, 10}), up = Column({1, 1, 1});
  std::vector<Tensor> wide;
  for (const Tensor* from : {&gate, &up}) {
    Tensor to = ops::Zeros({3, TinyGguf::kWidth});
    for (double& value : to.data) value = from->data[0];
    wide.push_back(std::move(to));
  }
  const std::vector<Input> inputs = {{&wide[0], nullptr}, {&wide[1], nullptr}};
  for (const double limit : {2.5, double{INFINITY}}) {
    tiny.config.act_limit = limit;
    const auto oracle = tiny.MakeOracle();
    const auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.act"), inputs, {}, kThree, kExact);
    ASSERT_TRUE(e.ok());
    EXPECT_EQ(e->value.data[0], std::min(limit, 1.0) * Silu(std::min(limit, 10.0)));
  }
  for (const double bad : {0.0, -1.0, double{NAN}}) {
    tiny.config.act_limit = bad;
    EXPECT_FALSE(Oracle::Create(tiny.config, tiny.source).ok());
  }
}

}  // namespace
}  // namespace assay::reference
