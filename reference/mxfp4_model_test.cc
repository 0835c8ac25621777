// MXFP4 inside a model: two parts that are cut together, and scales that are refused where they are
// read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "reference/quantisers/variants.h"
#include "reference/test_support.h"
#include "reference/tiny_gguf.h"

namespace assay::reference {
namespace {

using testing_support::Mix;
using testing_support::RandomTensor;
using testing_support::TinyGguf;

constexpr int64_t kRows = TinyGguf::kHidden, kColumns = TinyGguf::kWidth;
const Contract kExact = Contract::Exact();
// Two sums of a row's products in different orders.
constexpr double kSumRoundings = 2 * kColumns * 0x1p-53;

// One layer without embedding and head, its down projection in MXFP4.
struct Tiny {
  ModelConfig config = TinyGguf().config;
  MemorySource source;
  std::vector<std::byte> codes, scales;
  Tiny() {
    config.container = Container::kSafetensors;
    const std::string layer = "model.layers.0.";
    Plain(layer + "self_attn.q_proj.weight", 128, 128);
    Plain(layer + "self_attn.k_proj.weight", 64, 128);
    Plain(layer + "self_attn.v_proj.weight", 64, 128);
    Plain(layer + "self_attn.o_proj.weight", 128, 128);
    Plain(layer + "mlp.gate_proj.weight", kColumns, 128);
    Plain(layer + "mlp.up_proj.weight", kColumns, 128);
    Plain(layer + "input_layernorm.weight", 128, 0);
    Plain(layer + "post_attention_layernorm.weight", 128, 0);
    config.prefix = "model.";
    for (uint64_t i = 0; i < kRows * kColumns / 2; ++i) {
      codes.push_back(static_cast<std::byte>(Mix(i)));
    }
    for (uint64_t i = 0; i < kRows * kColumns / 32; ++i) {
      scales.push_back(static_cast<std::byte>(120 + Mix(~i) % 8));
    }
    Put();
  }
  void Put() {
    source.Put("model.layers.0.mlp.down_proj.weight", DType::kI8, {kRows, kColumns / 2}, codes);
    source.Put("model.layers.0.mlp.down_proj.scale", DType::kF8E8M0, {kRows, kColumns / 32},
               scales);
  }
  std::unique_ptr<Oracle> MakeOracle() const {
    auto oracle = Oracle::Create(config, source);
    if (!oracle) {
      ADD_FAILURE() << oracle.error().message;
      std::abort();
    }
    return std::move(*oracle);
  }

 private:
  void Plain(const std::string& name, int64_t rows, int64_t columns) {
    const bool vector = columns == 0;
    std::vector<float> values(static_cast<size_t>(rows * (vector ? 1 : columns)), 0.5f);
    source.Put(name, DType::kF32,
               vector ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, columns},
               testing_support::FloatBytes(values));
  }
};

TEST(Mxfp4Model, CodesAndScalesAreComponentsThatAreCutTogether) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const auto components = oracle->Components(0);
  const auto weight = std::find(components.begin(), components.end(), "L0.mlp.down.weight");
  ASSERT_NE(weight, components.end());
  ASSERT_NE(weight + 1, components.end());
  EXPECT_EQ(*(weight + 1), "L0.mlp.down.scale");
  for (int rank = 0; rank < 3; ++rank) {
    const auto codes = oracle->ExpectedSlice("L0.mlp.down.weight", {{3, 1}, rank});
    const auto scales = oracle->ExpectedSlice("L0.mlp.down.scale", {{3, 1}, rank});
    ASSERT_TRUE(codes.ok() && scales.ok());
    EXPECT_EQ(codes->unit, "word");
    EXPECT_EQ(codes->elements_per_column, 2);
    EXPECT_EQ(codes->columns.front(), 32 * rank);
    EXPECT_EQ(codes->columns.size(), 32u);
    EXPECT_EQ(scales->unit, "group");
    EXPECT_EQ(scales->dtype, DType::kF8E8M0);
    EXPECT_EQ(scales->columns, (std::vector<int64_t>{2 * rank, 2 * rank + 1}));
    for (size_t n = 0; n < kRows; ++n) {
      EXPECT_EQ(scales->bytes[2 * n], tiny.scales[6 * n + static_cast<size_t>(2 * rank)]);
      EXPECT_EQ(codes->bytes[32 * n], tiny.codes[96 * n + static_cast<size_t>(32 * rank)]);
    }
  }
  // 48 elements would be whole bytes, but one group and a half.
  const auto refused = oracle->ExpectedSlice("L0.mlp.down.weight", {{4, 1}, 0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  EXPECT_NE(refused.error().message.find("group"), std::string::npos) << refused.error().message;
}

TEST(Mxfp4Model, RanksMakeTheWholeAndReadTheirShards) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const Node& node = *oracle->FindNode("L0.mlp.down");
  const Step step = {{1, 2}, 0};
  const Tensor x = RandomTensor(6, {2, kColumns});
  const std::vector<Input> whole_input = {{&x, nullptr}};
  const auto whole = oracle->Evaluate(node, whole_input, {}, step, kExact);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  std::vector<double> sum(whole->value.data.size(), 0.0);
  for (int rank = 0; rank < 3; ++rank) {
    const Where where = {{3, 1}, rank};
    Tensor part;
    part.shape = {2, 64};
    for (size_t t = 0; t < 2; ++t) {
      const auto at = x.data.begin() + static_cast<int64_t>(t) * kColumns + 64 * rank;
      part.data.insert(part.data.end(), at, at + 64);
    }
    const std::vector<Input> inputs = {{&part, nullptr}};
    MemorySource shard;
    for (const char* component : {"L0.mlp.down.weight", "L0.mlp.down.scale"}) {
      const auto slice = oracle->ExpectedSlice(component, where);
      ASSERT_TRUE(slice.ok());
      shard.Put(
          component, slice->dtype,
          {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
          slice->bytes);
    }
    const auto own = oracle->Evaluate(node, inputs, where, step, kExact);
    const auto shown = oracle->Evaluate(node, inputs, where, step, kExact, &shard);
    ASSERT_TRUE(own.ok() && shown.ok());
    EXPECT_EQ(own->value.data, shown->value.data);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own->value.data[i];
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(sum[i], whole->value.data[i], kSumRoundings * whole->magnitude.data[i]);
  }
}

TEST(Mxfp4Model, AScaleThatIsNanIsRefusedWhereItIsRead) {
  Tiny tiny;
  tiny.scales[6 * 5 + 3] = std::byte{255};
  tiny.Put();
  // Headers are right, and slices are bytes.
  const auto oracle = tiny.MakeOracle();
  EXPECT_TRUE(oracle->ExpectedSlice("L0.mlp.down.scale", {{3, 1}, 1}).ok());
  const Tensor x = RandomTensor(6, {2, kColumns});
  const std::vector<Input> inputs = {{&x, nullptr}};
  const auto e =
      oracle->Evaluate(*oracle->FindNode("L0.mlp.down"), inputs, {}, {{1, 2}, 0}, kExact);
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.error().kind, ErrorKind::kRefused);
  for (const char* part : {"model.layers.0.mlp.down_proj.scale", "row 5, group 3", "255"}) {
    EXPECT_NE(e.error().message.find(part), std::string::npos) << e.error().message;
  }
}

// Activations of the down projection, hard ones: sizes over many powers of two, a group of zeros,
// one below every scale.
Tensor Awkward() {
  Tensor x = RandomTensor(11, {3, kColumns});
  for (size_t i = 0; i < x.data.size(); ++i) {
    const size_t group = i / 32;
    const double scale = group % 6 == 4 ? 0 : group % 6 == 5 ? 0x1p-126 : 1;
    x.data[i] *= scale * std::exp2(static_cast<double>(i % 7) - 3);
    x.data[i] = RoundTo(x.data[i], DType::kBF16);
  }
  return x;
}
Contract Named(std::string_view act, std::string_view name) {
  Contract contract = kExact;
  contract.act = act;
  contract.variants[std::string(act)] = name;
  return contract;
}
const Step kThree = {{1, 2, 3}, 0};
Evaluation Down(const Oracle& oracle, const Tensor& x, const Contract& contract,
                const Tensor* error = nullptr, const char* tap = "L0.mlp.down") {
  const std::vector<Input> inputs = {{&x, error}};
  auto e = oracle.Evaluate(*oracle.FindNode(tap), inputs, {}, kThree, contract);
  if (!e) {
    ADD_FAILURE() << e.error().message;
    std::abort();
  }
  return std::move(*e);
}

TEST(MxActivations, AProductIsThatOfTheVariantsValues) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = Awkward();
  const Evaluation plain = Down(*oracle, x, kExact);
  std::set<std::vector<double>> different;
  int variants = 0;
  for (const ActVariant& variant : ActVariants()) {
    if (variant.act.empty()) continue;
    const auto made = QuantiseAs(x, DType::kBF16, variant);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Evaluation e = Down(*oracle, x, Named(variant.act, variant.name));
    const Evaluation expected = Down(*oracle, made->values, kExact);
    EXPECT_EQ(e.value.data, expected.value.data) << variant.name;
    EXPECT_EQ(e.magnitude.data, expected.magnitude.data) << variant.name;
    EXPECT_TRUE(e.propagated.data.empty());
    EXPECT_NE(e.value.data, plain.value.data) << variant.name;
    different.insert(e.value.data);
    ++variants;
  }
  EXPECT_EQ(variants, 20);
  // Not all of these activations tell each from each; most they do.
  EXPECT_GE(different.size(), 12u);
  Contract unstated = kExact;
  unstated.act = "amxfp4";
  EXPECT_EQ(Down(*oracle, x, unstated).value.data,
            Down(*oracle, x, Named("amxfp4", "mxfp4-rceil-aiter")).value.data);
}

TEST(MxActivations, EnterProductsOfQuantisedWeightsOnly) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = RandomTensor(3, {3, 128});
  EXPECT_EQ(Down(*oracle, x, Named("amxfp4", "mxfp4-gguf"), nullptr, "L0.mlp.gate").value.data,
            Down(*oracle, x, kExact, nullptr, "L0.mlp.gate").value.data);
}

TEST(MxActivations, ErrorsOfTheInputMoveCodesAndExponents) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = Awkward();
  int beyond_plain = 0;
  for (const ActVariant& variant : ActVariants()) {
    if (variant.act.empty()) continue;
    const Contract contract = Named(variant.act, variant.name);
    for (const double relative : {0x1p-20, 0x1p-8, 0x1p-3}) {
      Tensor error = x, moved = x;
      for (size_t i = 0; i < x.data.size(); ++i) {
        error.data[i] = i % 5 == 0 ? 0 : std::fabs(x.data[i]) * relative;
        moved.data[i] += (Mix(i) & 1u) != 0 ? error.data[i] : -error.data[i];
        moved.data[i] = RoundTo(moved.data[i], DType::kF32);
        error.data[i] = std::max(error.data[i], std::fabs(moved.data[i] - x.data[i]));
      }
      const Evaluation at = Down(*oracle, x, contract, &error);
      const Evaluation there = Down(*oracle, moved, contract);
      const Evaluation plain = Down(*oracle, x, kExact, &error);
      for (size_t i = 0; i < at.value.data.size(); ++i) {
        const double off = std::fabs(at.value.data[i] - there.value.data[i]);
        const double sums = kSumRoundings * (at.magnitude.data[i] + there.magnitude.data[i]);
        EXPECT_LE(off, at.propagated.data[i] + sums) << variant.name << " " << relative;
        beyond_plain += off > plain.propagated.data[i] + sums;
      }
    }
  }
  // Without what codes add, the bound would not hold.
  EXPECT_GT(beyond_plain, 100);
}

TEST(MxActivations, AGroupThatIsNotFiniteIsNan) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  Tensor x = Awkward();
  x.data[kColumns + 3] = INFINITY;
  const Evaluation e = Down(*oracle, x, Named("amxfp8", "mxfp8-rceil-vllm"));
  for (int64_t n = 0; n < kRows; ++n) {
    EXPECT_TRUE(std::isfinite(e.value.data[static_cast<size_t>(n)]));
    EXPECT_TRUE(std::isnan(e.value.data[static_cast<size_t>(kRows + n)]));
  }
}

TEST(MxActivations, WhatTheOracleDoesNotHaveIsRefused) {
  const Tiny tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor x = Awkward();
  const std::vector<Input> inputs = {{&x, nullptr}};
  const auto e = oracle->Evaluate(*oracle->FindNode("L0.mlp.down"), inputs, {}, kThree,
                                  Named("amxfp4", "mxfp4-mine"));
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(e.error().message.find("mxfp4-mine"), std::string::npos);
}

}  // namespace
}  // namespace assay::reference
