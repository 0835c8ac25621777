// Whole models as the harness runs them: in a child process, between guard pages, twice under
// different poison, with the source tensors overwritten after the load.
#include <gtest/gtest.h>

#include <string>

#include "harness/abi/child.h"
#include "harness/checkpoint/checkpoint.h"
#include "kernels/engines/native/native.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

struct Case {
  const char* path;
  int tp, attn_tp;
  const char* tier;
};

class Guarded : public testing::TestWithParam<Case> {};

TEST_P(Guarded, PrefillAndDecodeFinishClean) {
  const auto opened = Checkpoint::Open(GetParam().path);
  ASSERT_TRUE(opened.ok());
  const Checkpoint& checkpoint = **opened;
  abi::Script script;
  script.engine = NativeEngine();
  script.config_json = checkpoint.config_json();
  script.tier = GetParam().tier;
  if (script.tier == "best") script.tier = HostHas(Tier::kAvx2) ? "avx2" : "scalar";
  script.tp = GetParam().tp;
  script.attn_tp = GetParam().attn_tp;
  script.threads = 2;
  for (const std::string& name : checkpoint.Names()) {
    const TensorView& view = *checkpoint.Find(name);
    script.tensors.push_back(
        {name, -1, view.dtype, view.shape, view.bytes.data(), view.bytes.size()});
  }
  script.exports = {{"embed.weight", 0}, {"L0.mlp.up.weight", script.tp - 1}};
  abi::RunCall prefill, decode;
  prefill.scope = decode.scope = "model";
  prefill.tokens = {256, 102, 111, 114, 32};
  decode.tokens = {105};
  decode.first_position = 5;
  script.runs = {prefill, decode};
  const abi::Outcome outcome = abi::RunInChild(script);
  EXPECT_EQ(outcome.ending, abi::Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.phase, abi::Phase::kDone);
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.trace.taps.count({1, "logits", -1}), 1u);
  EXPECT_EQ(outcome.trace.shards.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Models, Guarded,
                         testing::Values(Case{"goldens/quantised/k2-mini-int4-g32", 4, 2, "best"},
                                         Case{"goldens/quantised/k2-mini-int4-g32", 1, 1, "scalar"},
                                         Case{"goldens/checkpoints/dsv3-mini", 2, 2, "best"},
                                         Case{"goldens/checkpoints/llama-mini", 3, 3, "best"},
                                         Case{"goldens/checkpoints/qwen2-mini", 1, 1, "best"},
                                         Case{"goldens/checkpoints/qwen3-mini", 2, 2, "scalar"}),
                         [](const auto& info) { return "case" + std::to_string(info.index); });

}  // namespace
}  // namespace assay::kernels
