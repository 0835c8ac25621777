#include "harness/abi/describe.h"

#include <gtest/gtest.h>

namespace assay::abi {
namespace {

TEST(Describe, ReadsAllThatIsSaid) {
  const auto facts = ParseDescribe(R"({
      "methods": ["bf16", "ct-int4-g32"], "tiers": ["scalar"], "layouts": ["row"],
      "scopes": ["op", "moe"], "families": ["llama"], "ops": [], "acts": ["a16"], "tp": [1, 2, 4],
      "contract": {"lanes": 8, "rounding": {"default": "BF16"}},
      "kernels": [{"name": "gemv", "op": "linear", "method": "bf16", "tier": "scalar",
                   "layout": "row", "act": "a16", "lanes": 16, "extra": 1,
                   "arithmetic_class": "zmm"}, {"name": "other"}]})");
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(*facts->methods, (std::vector<std::string>{"bf16", "ct-int4-g32"}));
  EXPECT_EQ(*facts->tiers, std::vector<std::string>{"scalar"});
  EXPECT_EQ(*facts->layouts, std::vector<std::string>{"row"});
  EXPECT_EQ(*facts->scopes, (std::vector<std::string>{"op", "moe"}));
  EXPECT_EQ(*facts->families, std::vector<std::string>{"llama"});
  ASSERT_TRUE(facts->ops.has_value());
  EXPECT_TRUE(facts->ops->empty());
  EXPECT_EQ(*facts->acts, std::vector<std::string>{"a16"});
  EXPECT_EQ(*facts->tp, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(facts->contract->lanes, 8);
  EXPECT_EQ(facts->contract->RoundingOf("attn.q", "linear"), DType::kBF16);
  ASSERT_EQ(facts->kernels.size(), 2u);
  const DescribedKernel* kernel = facts->FindKernel("gemv");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->op, "linear");
  EXPECT_EQ(kernel->method, "bf16");
  EXPECT_EQ(kernel->tier, "scalar");
  EXPECT_EQ(kernel->layout, "row");
  EXPECT_EQ(kernel->act, "a16");
  EXPECT_EQ(kernel->arithmetic_class, "zmm");
  EXPECT_EQ(kernel->lanes, 16);
  EXPECT_EQ(kernel->extra, 1);
  EXPECT_EQ(facts->FindKernel("none"), nullptr);
  EXPECT_TRUE(facts->unknown_keys.empty());
}

TEST(Describe, WhatIsNotSaidIsNotRuledOut) {
  for (const char* text : {"", "{}"}) {
    const auto facts = ParseDescribe(text);
    ASSERT_TRUE(facts.ok());
    EXPECT_FALSE(facts->methods.has_value());
    EXPECT_FALSE(facts->contract.has_value());
    EXPECT_TRUE(MayHave(facts->methods, "bf16"));
  }
  EXPECT_TRUE(MayHave(Said({"bf16"}), "bf16"));
  EXPECT_FALSE(MayHave(Said({"bf16"}), "ct-int4-g32"));
  EXPECT_FALSE(MayHave(Said(std::vector<std::string>{}), "bf16"));
}

TEST(Describe, UnknownKeysAreKeptForTheReport) {
  const auto facts = ParseDescribe(
      R"({"tires": ["avx2"], "kernels": [{"name": "a", "lane": 1}, {"name": "b", "lane": 2}]})");
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->unknown_keys, (std::vector<std::string>{"tires", "kernels.lane"}));
}

struct Bad {
  const char* json;
  const char* named;
};

TEST(Describe, WrongTypesAreErrorsThatNameThem) {
  for (const Bad& bad :
       {Bad{"nonsense", "not JSON"}, Bad{"[]", "object"}, Bad{R"({"methods": "bf16"})", "methods"},
        Bad{R"({"tiers": [1]})", "tiers"}, Bad{R"({"layouts": [""]})", "layouts"},
        Bad{R"({"tiers": [], "tiers": []})", "twice"}, Bad{R"({"tp": 4})", "tp"},
        Bad{R"({"tp": [0]})", "tp"}, Bad{R"({"tp": [1.5]})", "tp"},
        Bad{R"({"contract": 1})", "contract"}, Bad{R"({"contract": {"lanse": 1}})", "lanse"},
        Bad{R"({"kernels": {}})", "kernels"}, Bad{R"({"kernels": [1]})", "kernels[0]"},
        Bad{R"({"kernels": [{"name": "a"}, {"op": "linear"}]})", "kernels[1]"},
        Bad{R"({"kernels": [{"name": 1}]})", "name"},
        Bad{R"({"kernels": [{"name": "a", "lanes": -1}]})", "lanes"}}) {
    const auto facts = ParseDescribe(bad.json);
    ASSERT_FALSE(facts.ok()) << bad.json;
    EXPECT_NE(facts.error().message.find(bad.named), std::string::npos) << facts.error().message;
    EXPECT_EQ(facts.error().message.find("describe"), 0u) << facts.error().message;
  }
}

TEST(Describe, WhatAnEnginePromisesOfSumsTiersAndLoads) {
  const auto facts = ParseDescribe(
      R"({"reduces": ["sequential:fp32", "ring:bf16"], "emulates": ["avx512"], "reloads": true})");
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(*facts->reduces, (std::vector<std::string>{"sequential:fp32", "ring:bf16"}));
  EXPECT_EQ(*facts->emulates, std::vector<std::string>{"avx512"});
  EXPECT_TRUE(facts->reloads);
  EXPECT_TRUE(facts->unknown_keys.empty());
  const auto silent = ParseDescribe("{}");
  ASSERT_TRUE(silent.ok());
  EXPECT_FALSE(silent->reduces.has_value());
  EXPECT_FALSE(silent->reloads);
  EXPECT_FALSE(ParseDescribe(R"({"reloads": "yes"})").ok());
}

}  // namespace
}  // namespace assay::abi
