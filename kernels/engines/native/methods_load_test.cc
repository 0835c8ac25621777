// Quantised weights in memory: what the file has, in whatever layout; and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "harness/shard/executor.h"
#include "harness/shard/plan.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/engines/native/test_model.h"
#include "kernels/methods/methods.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

const char* BestTier() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

TEST(Methods, ExportsAreTheFilesBytes) {
  for (int tp : {1, 3}) {
    for (const char* tier : {"scalar", BestTier()}) {
      const Tensors setup = Tiny();
      Loaded loaded(setup, tp, tier, "");
      const auto plan = shard::PlanModel(loaded.config, setup.source, {tp, 0}, shard::Selection{});
      ASSERT_TRUE(plan.ok() && plan->plan.has_value());
      // Both of the tied tensor are there.
      ASSERT_NE(plan->plan->Find("embed.weight"), nullptr);
      ASSERT_NE(plan->plan->Find("logits.weight"), nullptr);
      for (const shard::ComponentPlan& component : plan->plan->components) {
        for (int rank = 0; rank < tp; ++rank) {
          const shard::ShardShape shape = shard::ShapeOf(component, rank);
          std::vector<std::byte> expected(static_cast<size_t>(
              shape.rows * shape.columns * SizeOf(component.component.dtype).count()));
          const TensorView* view = setup.source.Find(component.component.source);
          ASSERT_TRUE(shard::CopyShard(component, rank, *view, expected).ok());
          const std::string& name = component.component.name;
          assay_shard out;
          ASSERT_EQ(loaded.driver.Export(rank, name, &out), ASSAY_OK);
          const std::string method =
              component.component.dtype == DType::kQ8_0 ? "gguf-q8_0" : "gguf-q4_1";
          EXPECT_EQ(RowMajor(out, method, "weight"), expected) << name << " on rank " << rank;
        }
      }
    }
  }
}

// Wishes for a kernel bind the session's method; the head keeps its own.
TEST(Methods, AWishBindsItsMethodAlone) {
  const Tensors setup = Tiny();
  Driver driver(NativeEngine());
  Wishes wishes;
  wishes.tier = BestTier();
  wishes.kernel = std::string(RowOf("linear_q4_1_a8g32_row_scalar").name);
  EXPECT_EQ(driver.Open(setup.config, wishes),
            std::string(BestTier()) == "scalar" ? ASSAY_OK : ASSAY_UNSUPPORTED);
  driver.Close();
  wishes.tier = "scalar";
  wishes.layout = "row";
  ASSERT_EQ(driver.Open(setup.config, wishes), ASSAY_OK) << driver.error().message;
  ASSERT_EQ(driver.Load(0, setup.source, setup.source.Names()), ASSAY_OK);
  driver.Logits(kTokens, 0, 200);
  EXPECT_EQ((driver.ran[{"L0.mlp.up", 0}].kernel), wishes.kernel);
  EXPECT_EQ((driver.ran[{"L0.mlp.up", 0}].act), "a8g32");
  EXPECT_EQ((driver.ran[{"logits", 0}].act), "a16");
  EXPECT_NE((driver.ran[{"logits", 0}].kernel.find("q8_0")), std::string::npos);
  // A named kernel and another activation type contradict each other.
  driver.Close();
  wishes.act = "a8row";
  EXPECT_EQ(driver.Open(setup.config, wishes), ASSAY_UNSUPPORTED);
}

// The embedding's rows are its blocks' values, rounded to what the contract says.
TEST(Methods, AQuantisedEmbeddingIsLookedUp) {
  Tensors setup = Tiny();
  Loaded loaded(setup, 3, "scalar", "");
  const TensorView& table = *setup.source.Find("token_embd.weight");
  std::vector<float> values(200 * 96);
  FindMethod("gguf-q8_0")->decode(table.bytes.data(), nullptr, 200, 96, values.data());
  const Values embed = ValuesOf(loaded.driver, "embed", 2);
  int rounded = 0;
  for (size_t t = 0; t < kTokens.size(); ++t) {
    for (size_t c = 0; c < 96; ++c) {
      const float exact = values[static_cast<size_t>(kTokens[t]) * 96 + c];
      EXPECT_EQ(embed.at[t * 96 + c], FloatFromBf16(Bf16FromFloat(exact)));
      rounded += embed.at[t * 96 + c] != exact ? 1 : 0;
    }
  }
  EXPECT_GT(rounded, 100);
}

class Refusals : public testing::Test {
 protected:
  int Load(const Tensors& setup, int tp) {
    Wishes wishes;
    wishes.tp = tp;
    wishes.method = setup.method;
    driver_.Close();
    EXPECT_EQ(driver_.Open(setup.config, wishes), ASSAY_OK) << driver_.error().message;
    return driver_.Load(0, setup.source, setup.source.Names());
  }
  std::string message() const { return driver_.error().message; }
  Driver driver_{NativeEngine()};
};

TEST_F(Refusals, AnExponentOf255) {
  Tensors setup = Experts("deepseek-v4-mxfp4");
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.scale";
  const TensorView view = *setup.source.Find(name);
  std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
  bytes[3 * 17 + 2] = std::byte{254};
  setup.source.Put(name, view.dtype, view.shape, bytes);
  EXPECT_EQ(Load(setup, 1), ASSAY_OK) << message();
  bytes[3 * 17 + 2] = std::byte{255};
  setup.source.Put(name, DType::kF8E8M0, {256, 3}, bytes);
  EXPECT_EQ(Load(setup, 1), ASSAY_REFUSED);
  EXPECT_EQ(driver_.error().tensor, name);
  EXPECT_NE(message().find("row 17, group 2"), std::string::npos) << message();
}

TEST_F(Refusals, AKThatNoBlockEndsWith) {
  // 192 columns over 4 ranks are one block and a half each; 96 of attention over 1 are legal.
  Tensors tiny = Tiny();
  Wishes wishes;
  wishes.tp = 4;
  wishes.attn_tp = 1;
  ASSERT_EQ(driver_.Open(tiny.config, wishes), ASSAY_OK);
  EXPECT_EQ(driver_.Load(0, tiny.source, tiny.source.Names()), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().tensor, "blk.0.ffn_down.weight");
  EXPECT_STREQ(driver_.error().axis, "k");
  EXPECT_STREQ(driver_.error().got_unit, "block");
  EXPECT_EQ(driver_.error().got, 6);
  // A whole K of 88.
  const auto qwen = OpenCheckpoint("goldens/checkpoints/qwen3-mini");
  Tensors setup{qwen->config_json(), {}, ""};
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  setup.source.Put(name, DType::kQ8_0, {96, 2}, std::vector<std::byte>(96 * 2 * 34));
  EXPECT_EQ(Load(setup, 1), ASSAY_REFUSED);
  EXPECT_EQ(driver_.error().tensor, name);
  EXPECT_STREQ(driver_.error().axis, "k");
  EXPECT_EQ(driver_.error().got, 88);
  EXPECT_STREQ(driver_.error().got_unit, "element");
}

// What is not named is cut by nobody: gate and up of 192 rows over 4 ranks, though down would end
// inside a block.
TEST_F(Refusals, NothingForWhatIsNotNamed) {
  const Tensors tiny = Tiny();
  Wishes wishes;
  wishes.tp = 4;
  wishes.attn_tp = 1;
  ASSERT_EQ(driver_.Open(tiny.config, wishes), ASSAY_OK);
  for (const char* name : {"blk.0.ffn_up.weight", "blk.0.ffn_gate.weight"}) {
    EXPECT_EQ(driver_.Load(0, tiny.source, {name}, 0), ASSAY_OK) << message();
  }
  EXPECT_EQ(driver_.Load(0, tiny.source, {"blk.0.ffn_down.weight"}, 0), ASSAY_REFUSED);
}

TEST_F(Refusals, BlocksWithoutAKernelRunNot) {
  Tensors setup = Tiny();
  setup.source.Put("blk.1.ffn_up.weight", DType::kQ5_0, {192, 3},
                   std::vector<std::byte>(192 * 3 * 22));
  EXPECT_EQ(Load(setup, 1), ASSAY_OK) << message();
  std::vector<float> out;
  EXPECT_EQ(driver_.Run("model", -1, {1}, 0, {}, &out, {1, 200}), ASSAY_UNSUPPORTED);
  EXPECT_NE(message().find("gguf-q5_0"), std::string::npos) << message();
}

TEST_F(Refusals, HalfATensorAndOneThatNothingTakes) {
  Tensors setup = Tiny();
  setup.source.Put("blk.1.ffn_up.weight", DType::kQ4_1, {192, 2},
                   std::vector<std::byte>(192 * 2 * 20));
  EXPECT_EQ(Load(setup, 1), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().got_unit, "block");
  EXPECT_EQ(driver_.error().expected, 3);
  setup = Tiny();
  setup.source.Put("blk.1.rope_freqs.weight", DType::kF32, {8}, std::vector<std::byte>(32));
  EXPECT_EQ(Load(setup, 1), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().tensor, "blk.1.rope_freqs.weight");
}

}  // namespace
}  // namespace assay::kernels::native
