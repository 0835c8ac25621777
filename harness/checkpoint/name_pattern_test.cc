#include "harness/checkpoint/name_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace assay {
namespace {

constexpr char kUp[] = "model.layers.3.mlp.up_proj";

TEST(NamePattern, ExpressionsOfReleasedConfigs) {
  EXPECT_TRUE(MatchesRegex(".*self_attn.*", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(MatchesRegex(".*self_attn.*", kUp));
  const char kDense[] = R"(.*mlp\.(gate|up|gate_up|down)_proj.*)";
  EXPECT_TRUE(MatchesRegex(kDense, kUp));
  EXPECT_TRUE(MatchesRegex(kDense, "model.layers.3.mlp.gate_up_proj"));
  EXPECT_FALSE(MatchesRegex(kDense, "model.layers.3.mlp.experts.0.up_proj"));
  EXPECT_FALSE(MatchesRegex(kDense, "model.layers.3.mlpxup_proj"));
  EXPECT_TRUE(MatchesRegex(R"(model\.layers\.\d+\.mlp)", kUp));
  EXPECT_TRUE(MatchesRegex("vision_tower.*", "vision_tower.encoder"));
  // As re.match: from the beginning, and not to the end.
  EXPECT_FALSE(MatchesRegex("layers", kUp));
  EXPECT_TRUE(MatchesRegex("model", kUp));
  EXPECT_FALSE(MatchesRegex("model$", kUp));
  EXPECT_TRUE(MatchesRegex("^model.*proj$", kUp));
}

TEST(NamePattern, Pieces) {
  EXPECT_TRUE(MatchesRegex("[a-c]+x?[^0-9]", "abz"));
  EXPECT_FALSE(MatchesRegex("[a-c]+x?[^0-9]$", "ab7"));
  EXPECT_TRUE(MatchesRegex("(a|b)*c", "ababc"));
  EXPECT_TRUE(MatchesRegex("a??b", "b"));
  EXPECT_TRUE(MatchesRegex("", "anything"));
  EXPECT_TRUE(MatchesRegex("a|", "b"));
  EXPECT_TRUE(MatchesRegex(R"(\w+\.\w+)", "a.b"));
  EXPECT_FALSE(MatchesRegex(R"(\W)", "a"));
}

TEST(NamePattern, Counts) {
  EXPECT_TRUE(MatchesRegex("a{3}$", "aaa"));
  EXPECT_FALSE(MatchesRegex("a{3}$", "aa"));
  EXPECT_FALSE(MatchesRegex("a{3}$", "aaaa"));
  EXPECT_TRUE(MatchesRegex(R"(layers\.[0-9]{1,2}\.mlp$)", "layers.42.mlp"));
  EXPECT_FALSE(MatchesRegex(R"(layers\.[0-9]{1,2}\.mlp$)", "layers.042.mlp"));
  EXPECT_TRUE(MatchesRegex("(ab){2,}c", "abababc"));
  EXPECT_FALSE(MatchesRegex("(ab){2,}c", "abc"));
  EXPECT_TRUE(MatchesRegex("a{0}b", "b"));
  EXPECT_TRUE(MatchesRegex("(a|b{2}){2}$", "abb"));
  // Counts of counts would be millions of states.
  EXPECT_FALSE(IsRegex("((((a{100}){100}){100}){100}){100}"));
  for (const char* pattern : {"a{101}", "a{2,1}", "a{", "a{2", "a{,2}", "a{x}", "{2}"}) {
    EXPECT_FALSE(IsRegex(pattern)) << pattern;
  }
}

TEST(NamePattern, WhatIsNotKnownMatchesNothing) {
  for (const char* pattern : {"(?!x).*", "(a", "a)", "[a", R"(\1)", "*a", "a\\", R"(\b)"}) {
    EXPECT_FALSE(MatchesRegex(pattern, "a")) << pattern;
    EXPECT_FALSE(IsRegex(pattern)) << pattern;
  }
  EXPECT_TRUE(IsRegex(".*mlp.*"));
  EXPECT_FALSE(MatchesRegex(std::string(5000, 'a'), std::string(5000, 'a')));
  EXPECT_FALSE(MatchesRegex(std::string(100, '(') + "a" + std::string(100, ')'), "a"));
}

// A backtracking matcher would not come back from this.
TEST(NamePattern, TakesTimeProportionalToItsInputs) {
  EXPECT_FALSE(MatchesRegex("(a*)*(a*)*(a*)*b", std::string(2000, 'a')));
  EXPECT_FALSE(MatchesPrefix("*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST(NamePattern, Prefixes) {
  EXPECT_TRUE(MatchesPrefix("model.layers.3.mlp", kUp));
  EXPECT_TRUE(MatchesPrefix(kUp, kUp));
  EXPECT_TRUE(MatchesPrefix("model.layers.*.mlp", kUp));
  EXPECT_TRUE(MatchesPrefix("*mlp*", kUp));
  EXPECT_FALSE(MatchesPrefix("model.layers.3.mlp.up", kUp));
  EXPECT_FALSE(MatchesPrefix("model.layers.*.self_attn", kUp));
  EXPECT_FALSE(MatchesPrefix("layers.3", kUp));
  EXPECT_FALSE(MatchesPrefix("model.layers.3.mlp.up_proj.weight", kUp));
}

}  // namespace
}  // namespace assay
