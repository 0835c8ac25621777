#include <gtest/gtest.h>

#include "harness/judge/testing/test_model.h"
#include "harness/locate/locate.h"

namespace assay::locate {
namespace {

using assay::testing::TestModel;

Divergence Explain(const ShapeError& error) {
  const TestModel model(1);
  auto d = ExplainRefusal(model, error, model.Components(-1));
  EXPECT_TRUE(d.ok());
  return *d;
}

TEST(ExplainRefusal, TwoExtentsInAMessageThatFitOneComponent) {
  // down is 64 elements wide: 8 words, 32 bytes.
  ShapeError error;
  error.message = "The size of tensor a (32) must match the size of tensor b (64) at dimension 1";
  const Divergence d = Explain(error);
  EXPECT_EQ(d.cls, "loader");
  EXPECT_EQ(d.tensor, "L1.moe.e0.down.weight");
  EXPECT_EQ(d.op, "down");
  EXPECT_EQ(d.layer, 1);
  EXPECT_EQ(d.expert, 0);
  EXPECT_EQ(d.got, 32);
  EXPECT_EQ(d.expected, 64);
  EXPECT_EQ(d.signature.id, "packed-against-unpacked");
  EXPECT_EQ(d.signature.text,
            "axis k of L1.moe.e0.down.weight: 32 bytes (packed) where 64 elements (unpacked) were "
            "due");
  EXPECT_NE(d.signature.evidence.find("4 components"), std::string::npos);
}

TEST(ExplainRefusal, TheOrderOfTheExtentsDoesNotMatter) {
  ShapeError error;
  error.message = "expected 64, have 32";
  EXPECT_EQ(Explain(error).signature.id, "packed-against-unpacked");
}

TEST(ExplainRefusal, AStructuredErrorIsTakenAsItIs) {
  ShapeError error{"cannot copy", "model.L1.moe.e3.down.weight", "k", "byte", "element", 32, 64};
  const Divergence d = Explain(error);
  EXPECT_EQ(d.tensor, "L1.moe.e3.down.weight");
  EXPECT_EQ(d.expert, 3);
  EXPECT_EQ(d.unit, "element");
  EXPECT_EQ(d.signature.text,
            "axis k of L1.moe.e3.down.weight: 32 bytes (packed) where 64 elements (unpacked) were "
            "due");
  // A parameter that is not packed at all, met by packed bytes.
  error.tensor = "L1.attn.q.weight";
  error.got = 16;
  error.expected = 32;
  EXPECT_EQ(Explain(error).signature.text,
            "axis k of L1.attn.q.weight: 16 bytes (packed) where 32 elements (unpacked) were due");
}

TEST(ExplainRefusal, AnEnginesOwnWordsForItsUnitsAreQuoted) {
  const ShapeError error{
      "no", "L1.moe.e3.down.weight", "k", "packed bytes (u4x2)", "unpacked elements", 32, 64};
  const Divergence d = Explain(error);
  EXPECT_EQ(d.unit, "element");
  EXPECT_EQ(d.signature.id, "packed-against-unpacked");
  EXPECT_EQ(d.signature.text,
            "axis k of L1.moe.e3.down.weight: 32 packed bytes (u4x2) where 64 unpacked elements "
            "were due");
}

TEST(ExplainRefusal, WhatFitsNothingIsNotExplainedAway) {
  for (const char* message : {"", "out of memory", "1000 must match 2000", "layer 64 of L32"}) {
    ShapeError error;
    error.message = message;
    const Divergence d = Explain(error);
    EXPECT_EQ(d.signature.id, "refused") << message;
    EXPECT_EQ(d.tensor, "") << message;
  }
}

}  // namespace
}  // namespace assay::locate
