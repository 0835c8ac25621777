// The ops against vectors made by Hugging Face's code at real models' sizes, and against arithmetic
// done by hand.
#include "reference/ops/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/checkpoint/safetensors.h"
#include "reference/golden_file.h"
#include "reference/model.h"
#include "reference/ops/attention.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::RandomTensor;

constexpr double kUnit = 0x1p-53;

RopeConfig ConfigOf(const nlohmann::json& p) {
  RopeConfig c;
  c.type = p.at("rope_type");
  c.theta = p.at("rope_theta");
  c.factor = p.value("factor", c.factor);
  c.original_max_position = p.value("original_max_position_embeddings", int64_t{0});
  c.beta_fast = p.value("beta_fast", c.beta_fast);
  c.beta_slow = p.value("beta_slow", c.beta_slow);
  c.truncate = p.value("truncate", c.truncate);
  c.low_freq_factor = p.value("low_freq_factor", c.low_freq_factor);
  c.high_freq_factor = p.value("high_freq_factor", c.high_freq_factor);
  if (p.contains("mscale")) c.mscale = p.at("mscale").get<double>();
  if (p.contains("mscale_all_dim")) c.mscale_all_dim = p.at("mscale_all_dim").get<double>();
  if (p.contains("attention_factor")) c.attention_factor = p.at("attention_factor").get<double>();
  return c;
}

// Sixteen roundings: eight in each of the two evaluations (pow, division, YaRN's mix).
void ExpectFrequencies(const ops::RopeTable& table, const Tensor& golden, const std::string& name) {
  ASSERT_EQ(table.inverse_frequency.size(), golden.data.size()) << name;
  for (size_t i = 0; i < golden.data.size(); ++i) {
    EXPECT_NEAR(table.inverse_frequency[i], golden.data[i], 16 * kUnit * golden.data[i])
        << name << " pair " << i;
  }
}

void ExpectAngles(const ops::RopeTable& table, const GoldenTensors& golden,
                  const std::string& name) {
  const Tensor& positions = golden.at("positions").value;
  const auto pairs = static_cast<int64_t>(table.inverse_frequency.size());
  Tensor x = ops::Zeros({1, 2 * pairs});
  std::fill_n(x.data.begin(), pairs, 1.0);  // rotating (1, 0) gives (cos, sin)
  for (size_t p = 0; p < positions.data.size(); ++p) {
    const Evaluation e = ops::Rope({&x, nullptr}, table, {2 * pairs, false},
                                   static_cast<int64_t>(positions.data[p]), DType::kF64, false);
    for (int64_t i = 0; i < pairs; ++i) {
      const auto at = p * static_cast<size_t>(pairs) + static_cast<size_t>(i);
      const double angle = positions.data[p] * table.inverse_frequency[static_cast<size_t>(i)];
      const double bound = (16 * std::fabs(angle) + 16) * kUnit * table.factor;
      EXPECT_NEAR(e.value.data[static_cast<size_t>(i)], golden.at(name + ".cos").value.data[at],
                  bound);
      EXPECT_NEAR(e.value.data[static_cast<size_t>(i + pairs)],
                  golden.at(name + ".sin").value.data[at], bound);
    }
  }
}

TEST(Rope, EqualsHuggingFaceAtRealModelsSizes) {
  const std::string path = "goldens/ops/rope.safetensors";
  const auto golden = ReadGoldenTensors(path);
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto cases = nlohmann::json::parse((*file)->metadata().at("cases"));
  int scales = 0;
  for (const auto& [name, facts] : cases.items()) {
    ModelConfig config;
    config.rope = ConfigOf(facts.at("rope_parameters"));
    const Tensor& frequencies = golden->at(name + ".inv_freq").value;
    const auto table =
        ops::MakeRopeTable(config.rope, 2 * static_cast<int64_t>(frequencies.data.size()), 0);
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_NEAR(table->factor, facts.at("cos_sin_factor").get<double>(), 4 * kUnit) << name;
    ExpectFrequencies(*table, frequencies, name);
    ExpectAngles(*table, *golden, name);
    if (!facts.contains("softmax_scale")) continue;
    ++scales;
    config.kv_lora = 512;
    config.qk_nope = 128;
    config.qk_rope = 64;
    EXPECT_NEAR(SoftmaxScale(config), facts.at("softmax_scale").get<double>(), 8 * kUnit) << name;
  }
  EXPECT_EQ(cases.size(), 8u);
  EXPECT_EQ(scales, 3);
}

TEST(Rope, LinearDividesFrequenciesAndUnknownTypesAreRefused) {
  RopeConfig config;
  const auto plain = ops::MakeRopeTable(config, 8, 512);
  config.type = "linear";
  config.factor = 4;
  const auto linear = ops::MakeRopeTable(config, 8, 512);
  ASSERT_TRUE(plain.ok() && linear.ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(linear->inverse_frequency[i], plain->inverse_frequency[i] / 4);
  }
  config.type = "longrope";
  EXPECT_EQ(ops::MakeRopeTable(config, 8, 512).error().kind, ErrorKind::kUnsupported);
  config.type = "yarn";
  config.factor = 0;
  EXPECT_FALSE(ops::MakeRopeTable(config, 8, 512).ok());
  EXPECT_FALSE(ops::MakeRopeTable(RopeConfig{}, 7, 512).ok());
}

TEST(Rope, InterleavedAndHalfRotateTheSamePairsInOtherPlaces) {
  const auto table = ops::MakeRopeTable(RopeConfig{}, 4, 0);
  ASSERT_TRUE(table.ok());
  Tensor half = RandomTensor(1, {3, 6}), mixed = half;
  for (int64_t t = 0; t < 3; ++t) {  // block of 6: two columns pass through, then (a b | c d)
    const auto at = static_cast<size_t>(t * 6 + 2);
    mixed.data[at + 1] = half.data[at + 2];
    mixed.data[at + 2] = half.data[at + 1];
  }
  const Evaluation a = ops::Rope({&half, nullptr}, *table, {6, false}, 5, DType::kF64, true);
  const Evaluation b = ops::Rope({&mixed, nullptr}, *table, {6, true}, 5, DType::kF64, true);
  for (size_t row = 0; row < 18; row += 6) {
    EXPECT_EQ(a.value.data[row], half.data[row]);
    EXPECT_EQ(a.function.data[row], 0);
    EXPECT_EQ(a.value.data[row + 2], b.value.data[row + 2]);
    EXPECT_EQ(a.value.data[row + 3], b.value.data[row + 4]);
    EXPECT_EQ(a.value.data[row + 4], b.value.data[row + 3]);
    EXPECT_NE(a.value.data[row + 2], half.data[row + 2]);
  }
}

// Logits, ids and weights of a real router. The bound of a dot product of n terms in any order is
// n·u·Σ|x||w|, twice for the two evaluations.
void ExpectRouter(const std::string& name, const ops::Routing& routing) {
  const auto golden = ReadGoldenTensors("goldens/ops/" + name + ".safetensors");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const Tensor& x = golden->at("x").value;
  const Tensor& w = golden->at("weight").value;
  const Tensor& expected = golden->at("logits").value;
  const int64_t k = x.columns();
  Tensor logits = ops::Zeros(expected.shape);
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t e = 0; e < w.rows(); ++e) {
      const auto at = static_cast<size_t>(t * w.rows() + e);
      const double* row = x.data.data() + t * k;
      logits.data[at] = ops::Dot(row, w.data.data() + e * k, k);
      EXPECT_NEAR(logits.data[at], expected.data[at],
                  2 * static_cast<double>(k) * kUnit * ops::DotAbs(row, w.data.data() + e * k, k));
    }
  }
  const Evaluation scores = ops::RouterScores({&logits, nullptr}, true);
  const std::vector<double>& bias = golden->at("e_score_correction_bias").value.data;
  const Evaluation ids = ops::RouterIds({&scores.value, nullptr}, bias, routing, true);
  EXPECT_EQ(ids.value.data, golden->at("topk_ids").value.data);
  for (const double margin : ids.margin.data) EXPECT_GT(margin, 0);
  const Evaluation weights = ops::RouterWeights({&scores.value, nullptr}, ids.value, routing, true);
  const Tensor& golden_weights = golden->at("topk_weights").value;
  for (size_t i = 0; i < weights.value.data.size(); ++i) {
    EXPECT_NEAR(weights.value.data[i], golden_weights.data[i],
                64 * kUnit * golden_weights.data[i]);  // dot of 16, sigmoid, sum of 8, twice
  }
  // Without the bias other experts are chosen: the vectors can see it.
  const std::vector<double> none(bias.size(), 0.0);
  EXPECT_NE(ops::RouterIds({&scores.value, nullptr}, none, routing, false).value.data,
            ids.value.data);
}

TEST(Router, EqualsHuggingFaceKimiK2) { ExpectRouter("router-kimi-k2", {8, 1, 1, true, 2.827}); }
TEST(Router, EqualsHuggingFaceDeepseekV3) {
  ExpectRouter("router-deepseek-v3", {8, 8, 4, true, 2.5});
}

TEST(Router, MarginIsTheSmallerOfGroupsAndExperts) {
  // Groups {0.9, 0.1}, {0.6, 0.5}, {0.55, 0.35}: sums 1.0, 1.1, 0.9; two kept, gap 0.1. Of
  // 0.9, 0.6, 0.5, 0.1 the best two; gap 0.1 between 0.6 and 0.5.
  Tensor scores = ops::Zeros({1, 6});
  scores.data = {0.9, 0.1, 0.6, 0.5, 0.55, 0.35};
  const std::vector<double> none(6, 0.0);
  ops::Routing routing{2, 3, 2, true, 1};
  Evaluation e = ops::RouterIds({&scores, nullptr}, none, routing, true);
  EXPECT_EQ(e.value.data, (std::vector<double>{0, 2}));
  EXPECT_NEAR(e.margin.data[0], 0.1, 4 * kUnit);
  scores.data[5] = 0.449;  // third group 0.999: the groups decide by 0.001
  e = ops::RouterIds({&scores, nullptr}, none, routing, true);
  EXPECT_NEAR(e.margin.data[0], 0.001, 8 * kUnit);
  scores.data = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5};  // all tied: the lowest ids
  e = ops::RouterIds({&scores, nullptr}, none, routing, true);
  EXPECT_EQ(e.value.data, (std::vector<double>{0, 1}));
  EXPECT_EQ(e.margin.data[0], 0);
}

TEST(Router, ABiasChoosesButDoesNotWeigh) {
  Tensor scores = ops::Zeros({1, 3});
  scores.data = {0.5, 0.25, 0.125};
  const Evaluation ids = ops::RouterIds({&scores, nullptr}, {0, 0, 10}, {2, 1, 1, true, 3}, false);
  EXPECT_EQ(ids.value.data, (std::vector<double>{0, 2}));
  const Evaluation w = ops::RouterWeights({&scores, nullptr}, ids.value, {2, 1, 1, true, 3}, true);
  EXPECT_NEAR(w.value.data[0], 3 * 0.5 / 0.625, 8 * kUnit);
  EXPECT_NEAR(w.value.data[1], 3 * 0.125 / 0.625, 8 * kUnit);
  const Evaluation raw =
      ops::RouterWeights({&scores, nullptr}, ids.value, {2, 1, 1, false, 3}, true);
  EXPECT_EQ(raw.value.data, (std::vector<double>{1.5, 0.375}));
}

TEST(Softmax, MaskedEntriesWeighNothingAndLargeScoresDoNotOverflow) {
  const std::vector<double> scores = {1e4, 1e4, -INFINITY};
  std::vector<double> p(3);
  ops::Softmax(scores.data(), 3, DType::kF64, p.data());
  EXPECT_EQ(p, (std::vector<double>{0.5, 0.5, 0}));
}

TEST(Norm, UsesTheFirstColumnsOfAWiderInput) {
  Tensor x = ops::Zeros({1, 3});
  x.data = {3, 4, 1e9};
  const Evaluation e = ops::RmsNorm({&x, nullptr}, {1, 2}, 0, true);
  const double r = 1 / std::sqrt(12.5);
  ASSERT_EQ(e.value.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_NEAR(e.value.data[0], 3 * r, 4 * kUnit);
  EXPECT_NEAR(e.value.data[1], 8 * r, 8 * kUnit);
  EXPECT_EQ(e.terms, 2);
}

}  // namespace
}  // namespace assay::reference
