// Collectives alone: bit for bit where declared, by the bound where not.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/judge.h"
#include "harness/judge/testing/test_model.h"

namespace assay::judge {
namespace {

using assay::testing::Encode;
using assay::testing::TestModel;
using reference::Tensor;

struct Rig {
  TestModel model{3};
  CollectiveRequest request;
  std::vector<TapValue> outputs;

  explicit Rig(int ranks, std::vector<int64_t> shape = {3, 5}) {
    request.node = model.FindNode("L1.moe.out");
    request.contract.reduce_exact = true;
    for (int r = 0; r < ranks; ++r) {
      Tensor part{shape, {}};
      for (int64_t i = 0; i < part.rows() * part.columns(); ++i) {
        part.data.push_back(static_cast<float>(std::sin(1.7 * i + 11.3 * r) * std::exp2(i % 7)));
      }
      request.parts.push_back(std::move(part));
    }
  }

  // What a right engine gives: the model's result, as fp32.
  void MakeOutputs() {
    std::vector<const Tensor*> parts;
    for (const Tensor& part : request.parts) parts.push_back(&part);
    auto made = reference::ModelReduce(parts, request.kind, request.contract.reduce_order,
                                       request.contract.reduce_wire);
    ASSERT_TRUE(made.ok());
    outputs.clear();
    for (const Tensor& one : *made) {
      outputs.push_back({DType::kF32, one.shape, Encode(one.data, DType::kF32)});
    }
    Point();
  }
  void Point() {
    request.outputs.clear();
    for (const TapValue& output : outputs) request.outputs.push_back(&output);
  }
  void Set(size_t output, size_t at, double value) {
    Tensor t = ToTensor(outputs[output]);
    t.data[at] = value;
    outputs[output].bytes = Encode(t.data, DType::kF32);
  }
  std::vector<OpJudgement> Judge() {
    auto judged = JudgeCollective(request);
    EXPECT_TRUE(judged.ok()) << (judged.ok() ? "" : judged.error().message);
    return judged.ok() ? std::move(*judged) : std::vector<OpJudgement>{};
  }
};

TEST(JudgeCollective, EveryOrderWireAndNumberOfRanksIsBitwise) {
  for (const char* order : {"sequential", "ring", "tree"}) {
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      for (const int ranks : {1, 2, 3, 5, 8}) {
        for (const char* kind : {"all_reduce", "reduce_scatter"}) {
          Rig rig(ranks);
          rig.request.kind = kind;
          rig.request.contract.reduce_order = order;
          rig.request.contract.reduce_wire = wire;
          rig.MakeOutputs();
          for (const OpJudgement& j : rig.Judge()) {
            EXPECT_TRUE(j.pass) << order << ranks << kind << ": " << j.reason;
            EXPECT_TRUE(j.judged);
            EXPECT_TRUE(j.elements == 0 || j.mode == "bitwise") << j.mode;
          }
        }
      }
    }
  }
}

TEST(JudgeCollective, OneBitIsWrongWhereDeclaredAndWithinTheBoundElse) {
  Rig rig(4);
  rig.MakeOutputs();
  const double y = ToTensor(rig.outputs[0]).data[7];
  rig.Set(0, 7, std::nextafter(static_cast<float>(y), INFINITY));
  auto judged = rig.Judge();
  EXPECT_FALSE(judged[0].pass);
  EXPECT_EQ(judged[0].first, 7);
  EXPECT_EQ(judged[0].rank, -1);
  EXPECT_LE(judged[0].bound_ratio, 1);
  rig.request.contract.reduce_exact = false;
  EXPECT_TRUE(rig.Judge()[0].pass);
  rig.Set(0, 7, y * 1.01);
  EXPECT_FALSE(rig.Judge()[0].pass);
}

TEST(JudgeCollective, EachRankHasItsCopyOrItsChunk) {
  Rig rig(3);
  rig.MakeOutputs();
  rig.outputs.resize(3, rig.outputs[0]);
  rig.Set(2, 4, 99);
  rig.Point();
  auto judged = rig.Judge();
  ASSERT_EQ(judged.size(), 3u);
  EXPECT_TRUE(judged[0].pass && judged[1].pass);
  EXPECT_FALSE(judged[2].pass);
  EXPECT_EQ(judged[2].rank, 2);

  Rig chunks(4);  // 15 values: 4, 4, 4, 3
  chunks.request.kind = "reduce_scatter";
  chunks.MakeOutputs();
  chunks.Set(3, 2, 99);
  judged = chunks.Judge();
  ASSERT_EQ(judged.size(), 4u);
  EXPECT_TRUE(judged[2].pass);
  EXPECT_FALSE(judged[3].pass);
  EXPECT_EQ(judged[3].offset, 12);
  EXPECT_EQ(judged[3].first, 2);
  // Another rank's chunk.
  std::swap(chunks.outputs[0], chunks.outputs[1]);
  chunks.Point();
  EXPECT_FALSE(chunks.Judge()[0].pass);
}

TEST(JudgeCollective, MoreRanksThanValuesLeaveEmptyChunks) {
  Rig rig(5, {1, 3});
  rig.request.kind = "reduce_scatter";
  rig.MakeOutputs();
  for (const OpJudgement& j : rig.Judge()) EXPECT_TRUE(j.pass) << j.reason;
  rig.outputs[4] = rig.outputs[0];  // a value where none is due
  rig.Point();
  EXPECT_FALSE(rig.Judge()[4].pass);
}

TEST(JudgeCollective, EveryRankOfAScatterHasAnOutput) {
  Rig rig(4);
  rig.request.kind = "reduce_scatter";
  rig.MakeOutputs();
  EXPECT_TRUE(JudgeCollective(rig.request).ok());
  rig.request.outputs.pop_back();
  const auto fewer = JudgeCollective(rig.request);
  ASSERT_FALSE(fewer.ok());
  EXPECT_NE(fewer.error().message.find("3 outputs of 4 ranks"), std::string::npos);
  // An output that is asked for and not given is another thing: that one is not judged.
  rig.request.outputs.push_back(nullptr);
  const auto judged = rig.Judge();
  ASSERT_EQ(judged.size(), 4u);
  EXPECT_TRUE(judged[2].judged);
  EXPECT_FALSE(judged[3].judged);
}

TEST(JudgeCollective, AGatherJoinsColumnsAndCutsThePadding) {
  Rig rig(3, {2, 4});
  rig.request.kind = "gather";
  rig.request.node = rig.model.FindNode("logits");
  rig.request.columns = 10;
  Tensor whole{{2, 10}, {}};
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t c = 0; c < 10; ++c) {
      whole.data.push_back(rig.request.parts[c / 4].data[row * 4 + c % 4]);
    }
  }
  rig.outputs = {{DType::kF32, whole.shape, Encode(whole.data, DType::kF32)}};
  rig.Point();
  EXPECT_TRUE(rig.Judge()[0].pass);
  rig.Set(0, 11, whole.data[12]);
  const auto wrong = rig.Judge();
  EXPECT_FALSE(wrong[0].pass);
  EXPECT_EQ(wrong[0].first, 11);
  EXPECT_EQ(wrong[0].reason.rfind("gather", 0), 0u);
  // With the padding still there.
  rig.outputs = {{DType::kF32, {2, 12}, std::vector<std::byte>(96)}};
  rig.Point();
  EXPECT_FALSE(rig.Judge()[0].pass);
}

TEST(JudgeCollective, WhatCannotBeIsAnErrorAndWhatIsNotGivenIsNotJudged) {
  Rig rig(2);
  rig.MakeOutputs();
  rig.request.outputs = {nullptr};
  EXPECT_FALSE(rig.Judge()[0].judged);
  rig.request.kind = "broadcast";
  EXPECT_FALSE(JudgeCollective(rig.request).ok());
  rig.request.kind = "all_reduce";
  rig.request.parts[1].shape = {5, 3};
  EXPECT_FALSE(JudgeCollective(rig.request).ok());
  EXPECT_FALSE(JudgeCollective({}).ok());
}

}  // namespace
}  // namespace assay::judge
