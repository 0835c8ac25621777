// Audits of whole checkpoints: the shipped ones are clean and known figures come out; what is
// unknown is said to be.
#include "harness/audit/audit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>

#include "harness/audit/testing/fixture.h"
#include "harness/shard/plan.h"

namespace assay::audit {
namespace {

using testing::AuditOf;
using testing::Lines;
namespace fs = std::filesystem;

const Placement& At(const Report& report, const std::string& tensor, int tp) {
  static const Placement kNone;
  const auto row = std::find_if(report.tensors.begin(), report.tensors.end(),
                                [&](const TensorRow& each) { return each.name == tensor; });
  EXPECT_NE(row, report.tensors.end()) << tensor;
  if (row == report.tensors.end()) return kNone;
  const auto d = std::find(report.degrees.begin(), report.degrees.end(), tp);
  return report.placements[row->placement][static_cast<size_t>(d - report.degrees.begin())];
}

std::string MethodOf(const Report& report, const std::string& tensor) {
  for (const TensorRow& row : report.tensors) {
    if (row.name == tensor) return report.methods[row.method].id;
  }
  return "not there";
}

const DegreeRow& Degree(const Report& report, int tp) {
  return *std::find_if(report.tps.begin(), report.tps.end(),
                       [&](const DegreeRow& row) { return row.tp == tp; });
}

bool Hides(const Report& report, const std::string& kind, int tp, const std::string& text) {
  return std::any_of(report.hidden.begin(), report.hidden.end(), [&](const Hidden& row) {
    return row.kind == kind && row.tp == tp && row.text.starts_with(text);
  });
}

TEST(Audit, EveryShippedCheckpointIsClean) {
  size_t count = 0;
  for (const char* room : {"goldens/checkpoints", "goldens/quantised"}) {
    for (const auto& entry : fs::directory_iterator(room)) {
      if (!fs::exists(entry.path() / "config.json")) continue;
      const Report report = AuditOf(entry.path().string());
      EXPECT_TRUE(report.findings.empty()) << entry.path() << Lines(report);
      EXPECT_TRUE(report.known) << entry.path();
      EXPECT_EQ(report.speed.bytes, report.bytes) << entry.path();
      const int64_t sum =
          std::accumulate(report.methods.begin(), report.methods.end(), int64_t{0},
                          [](int64_t all, const MethodRow& row) { return all + row.bytes; });
      EXPECT_EQ(sum, report.bytes) << entry.path();
      ++count;
    }
  }
  EXPECT_GE(count, 14u);
}

TEST(Audit, KimiK2sKindInInt4) {
  const Report report = AuditOf("goldens/quantised/k2-mini-int4-g32");
  EXPECT_EQ(report.model, "DeepseekV3ForCausalLM");
  EXPECT_EQ(report.largest_legal_tp, 8);
  EXPECT_EQ(report.legal_degrees, (std::vector<int>{1, 2, 4, 8}));
  const std::string down = "model.layers.1.mlp.experts.5.down_proj.";
  EXPECT_EQ(At(report, down + "weight_packed", 2).plan, "k[tp] g32 u4x8");
  EXPECT_EQ(At(report, down + "weight_shape", 2).plan, "checked, not loaded");
  EXPECT_EQ(MethodOf(report, down + "weight_packed"), "ct-int4-g32");
  EXPECT_EQ(MethodOf(report, down + "weight_scale"), "ct-int4-g32");
  EXPECT_EQ(MethodOf(report, "model.norm.weight"), "bf16");
  // I = 256 is 8 groups: at TP 8 a rank's width is the group size.
  EXPECT_TRUE(Hides(report, "K03", 8, "a rank has one group"));
  EXPECT_FALSE(Hides(report, "K03", 4, "a rank has one group"));
}

// What ranks hold together is the checkpoint once, and what is whole on each of them.
TEST(Audit, BytesOfRanksAddUp) {
  const Report report = AuditOf(testing::SmallLayer("bytes"));
  const auto sum = [](const DegreeRow& row) {
    return std::accumulate(row.bytes.begin(), row.bytes.end(), int64_t{0});
  };
  // At TP 1 everything but weight_shape; 192 rows of vocabulary are a multiple of 64.
  EXPECT_EQ(sum(Degree(report, 1)), report.bytes - 4 * 3 * 16);
  int64_t whole = 0;
  for (const TensorRow& row : report.tensors) {
    if (report.placements[row.placement][1].plan.starts_with("whole")) whole += row.bytes;
  }
  const DegreeRow& two = Degree(report, 2);
  ASSERT_EQ(two.bytes.size(), 2u);
  // 192 rows over two ranks are padded to 256, in the embedding and in the head.
  const int64_t padding = 2 * (shard::PaddedVocab(192, 2) - 192) * 64 * 2;
  EXPECT_EQ(sum(two), sum(Degree(report, 1)) + whole + padding);
}

TEST(Audit, RefusalsSayWhatAndWhy) {
  const Report report = AuditOf("goldens/quantised/gptoss-mini-mxfp4");
  EXPECT_EQ(report.largest_legal_tp, 1);
  const Placement& scales = At(report, "model.layers.0.mlp.experts.down_proj_scales", 2);
  EXPECT_EQ(scales.legal, false);
  EXPECT_NE(scales.why.find("9 groups (288 elements)"), std::string::npos) << scales.why;
  EXPECT_NE(scales.why.find("split=ceil pads it"), std::string::npos) << scales.why;
  EXPECT_TRUE(Degree(report, 2).bytes.empty());
  EXPECT_FALSE(Degree(report, 1).bytes.empty());
  EXPECT_EQ(At(report, "model.layers.0.mlp.router.weight", 2).legal, true);
  // What is refused hides nothing.
  EXPECT_TRUE(Hides(report, "K18", 1, "nothing is padded"));
  EXPECT_FALSE(Hides(report, "K18", 2, "nothing is padded"));
}

TEST(Audit, WhatIsUnknownIsInventoried) {
  const Report report = AuditOf(testing::Gptq("unknown", testing::Identity()));
  EXPECT_TRUE(report.findings.empty()) << Lines(report);
  EXPECT_FALSE(report.known);
  EXPECT_FALSE(report.largest_legal_tp.has_value());
  EXPECT_EQ(MethodOf(report, "model.layers.0.mlp.up_proj.qweight"), "gptq-int4-g16-asym-actorder");
  EXPECT_EQ(At(report, "model.layers.0.mlp.up_proj.qweight", 2).legal, std::nullopt);
  EXPECT_NE(Degree(report, 2).why.find("Other"), std::string::npos) << Degree(report, 2).why;
}

TEST(Audit, GgufFilesToo) {
  const Report report = AuditOf("goldens/checkpoints/k3-mini/k3-mini.gguf");
  EXPECT_TRUE(report.findings.empty()) << Lines(report);
  EXPECT_GT(report.tensors.size(), 100u);
}

TEST(Audit, NoCheckpointIsAnError) {
  EXPECT_FALSE(Audit("goldens/none", {}).ok());
  EXPECT_FALSE(Audit(testing::Fresh("nothing"), {}).ok());
}

TEST(Audit, TheEstimateComesBeforeTheBytes) {
  bool estimated = false, read = false;
  AuditOptions options;
  options.on_estimate = [&](const Estimate& estimate) {
    EXPECT_FALSE(read);
    estimated = true;
    EXPECT_GT(estimate.bytes, 0);
    EXPECT_GT(estimate.memory, 0);
  };
  options.on_progress = [&](const StreamProgress&) { read = true; };
  ASSERT_TRUE(Audit("goldens/quantised/k2-mini-int4-g32", options).ok());
  EXPECT_TRUE(estimated);
  EXPECT_TRUE(read);
}

}  // namespace
}  // namespace assay::audit
