// Loading through the C ABI: what lies in memory is what the plan says, and what is wrong is
// refused.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "harness/shard/executor.h"
#include "harness/shard/plan.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/layouts/layouts.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";
constexpr const char* kGate0 = "model.layers.1.mlp.experts.0.gate_proj";

struct Case {
  const char* path;
  Wishes wishes;
};

Wishes At(int tp, int attn_tp, const char* tier) {
  Wishes wishes;
  wishes.tp = tp;
  wishes.attn_tp = attn_tp;
  wishes.tier = tier;
  return wishes;
}

// The exported component, back in the checkpoint's row-major order.
std::vector<std::byte> RowMajor(const assay_shard& shard, const std::string& component) {
  const StoredShape shape{static_cast<DType>(shard.dtype), shard.total_rows, shard.columns};
  const size_t row = static_cast<size_t>(shard.columns * SizeOf(shape.dtype).count());
  std::vector<std::byte> whole(row * static_cast<size_t>(shard.total_rows));
  const auto* data = static_cast<const std::byte*>(shard.data);
  if (std::string_view(shard.layout) == "row") {
    EXPECT_EQ(shard.bytes, whole.size()) << component;
    whole.assign(data, data + shard.bytes);
  } else {
    const std::string_view part = component.ends_with(".scale") ? "scale" : "weight";
    const Layout* layout = FindLayout(shard.layout, "ct-int4-g32", part);
    EXPECT_NE(layout, nullptr) << shard.layout;
    EXPECT_EQ(static_cast<int64_t>(shard.bytes), layout->bytes(shape));
    layout->unpack(shape, data, whole.data());
  }
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(row) * shard.first_row;
  return {begin, begin + static_cast<std::ptrdiff_t>(row) * shard.rows};
}

class Shards : public testing::TestWithParam<Case> {};

TEST_P(Shards, ExportEqualsThePlansSlice) {
  const auto checkpoint = OpenCheckpoint(GetParam().path);
  Driver driver(NativeEngine());
  ASSERT_EQ(driver.Open(checkpoint->config_json(), GetParam().wishes), ASSAY_OK);
  ASSERT_EQ(driver.LoadAll(*checkpoint), ASSAY_OK) << driver.error().message;
  const Wishes& w = GetParam().wishes;
  const auto plan =
      shard::PlanModel(checkpoint->config(), *checkpoint, {w.tp, w.attn_tp}, shard::Selection{});
  ASSERT_TRUE(plan.ok() && plan->plan.has_value());
  int compared = 0, merged = 0;
  for (const shard::ComponentPlan& component : plan->plan->components) {
    for (int rank = 0; rank < w.tp; ++rank) {
      const std::string& name = component.component.name;
      const shard::ShardShape shape = shard::ShapeOf(component, rank);
      std::vector<std::byte> expected(static_cast<size_t>(
          shape.rows * shape.columns * SizeOf(component.component.dtype).count()));
      ASSERT_TRUE(
          shard::CopyShard(component, rank, *checkpoint->Find(component.component.source), expected)
              .ok());
      assay_shard shard;
      ASSERT_EQ(driver.Export(rank, name, &shard), ASSAY_OK) << driver.error().message;
      EXPECT_EQ(shard.rows, shape.rows) << name;
      EXPECT_EQ(RowMajor(shard, name), expected) << name << " on rank " << rank;
      merged += shard.total_rows != shard.rows ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_EQ(compared, static_cast<int>(plan->plan->components.size()) * w.tp);
  EXPECT_GT(merged, 0);  // gate|up and q|k|v lie in one matrix
}

INSTANTIATE_TEST_SUITE_P(
    Models, Shards,
    testing::Values(Case{kInt4, At(1, 0, "scalar")}, Case{kInt4, At(2, 0, "avx2")},
                    Case{kInt4, At(4, 0, "avx2")}, Case{kInt4, At(8, 0, "avx2")},
                    Case{kInt4, At(8, 0, "scalar")}, Case{kInt4, At(8, 2, "avx2")},
                    Case{"goldens/checkpoints/k2-mini", At(8, 0, "avx2")},
                    Case{"goldens/checkpoints/dsv3-mini", At(2, 0, "scalar")},
                    Case{"goldens/checkpoints/llama-mini", At(3, 0, "scalar")},
                    Case{"goldens/checkpoints/qwen2-mini", At(1, 0, "scalar")},
                    Case{"goldens/checkpoints/qwen3-mini", At(8, 2, "scalar")}),
    [](const auto& info) { return "case" + std::to_string(info.index); });

class Loading : public testing::Test {
 protected:
  Loading() : checkpoint_(OpenCheckpoint(kInt4)), driver_(NativeEngine()) {}
  void Open(int tp) {
    ASSERT_EQ(driver_.Open(checkpoint_->config_json(), At(tp, 0, "scalar")), ASSAY_OK);
  }
  // The whole checkpoint but one tensor, which is replaced, or left out where dtype is absent.
  int LoadChanged(const std::string& name, const TensorView* replacement) {
    MemorySource source;
    std::vector<std::string> names;
    for (const std::string& each : checkpoint_->Names()) {
      const TensorView* view = each == name ? replacement : checkpoint_->Find(each);
      if (view == nullptr) continue;
      source.Put(each, view->dtype, view->shape, {view->bytes.begin(), view->bytes.end()});
      names.push_back(each);
    }
    return driver_.Load(0, source, names);
  }
  // The tensor with another shape, filled with zeros.
  int LoadShaped(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    TensorView view;
    view.dtype = dtype;
    view.shape = shape;
    const std::vector<std::byte> bytes(static_cast<size_t>(StoredBytes(dtype, shape)->count()));
    view.bytes = bytes;
    return LoadChanged(name, &view);
  }
  std::string message() const { return driver_.error().message; }

  std::unique_ptr<Checkpoint> checkpoint_;
  Driver driver_;
};

TEST_F(Loading, AMissingTensorIsNamed) {
  for (const std::string& name :
       {std::string("model.layers.2.mlp.experts.3.down_proj.weight_scale"),
        std::string("model.layers.1.mlp.gate.e_score_correction_bias"),
        std::string("model.layers.0.post_attention_layernorm.weight"),
        std::string("lm_head.weight")}) {
    Driver fresh(NativeEngine());
    driver_.Close();
    Open(1);
    EXPECT_EQ(LoadChanged(name, nullptr), ASSAY_REFUSED);
    EXPECT_EQ(driver_.error().tensor, name);
    EXPECT_NE(message().find(name), std::string::npos);
  }
}

TEST_F(Loading, AWholeExpertMayNotBeMissingFromAWholeModel) {
  Open(1);
  std::vector<std::string> names;
  for (const std::string& name : checkpoint_->Names()) {
    if (name.find("layers.2.mlp.experts.4.") == std::string::npos) names.push_back(name);
  }
  EXPECT_EQ(driver_.Load(0, *checkpoint_, names), ASSAY_REFUSED);
  EXPECT_NE(message().find("layers.2.mlp.experts.4.gate_proj"), std::string::npos) << message();
}

// One kind of block may be loaded alone, of every layer; with another layer's MLP it is a model
// that lacks some.
TEST_F(Loading, AttentionAloneIsNoWholeModel) {
  Open(1);
  std::vector<std::string> names;
  for (const std::string& name : checkpoint_->Names()) {
    const bool mlp =
        name.find(".mlp.") != std::string::npos || name.find("post_attention") != std::string::npos;
    if (!mlp) names.push_back(name);
  }
  EXPECT_EQ(driver_.Load(0, *checkpoint_, names), ASSAY_OK) << message();
  names.push_back("model.layers.2.post_attention_layernorm.weight");
  EXPECT_EQ(driver_.Load(0, *checkpoint_, names), ASSAY_REFUSED);
  EXPECT_NE(message().find("layers.0."), std::string::npos) << message();
}

TEST_F(Loading, WrongShapesAreToldInTheirUnits) {
  Open(1);
  const std::string packed = std::string(kGate0) + ".weight_packed";
  EXPECT_EQ(LoadShaped(packed, DType::kI32, {256, 13}), ASSAY_REFUSED);
  EXPECT_EQ(driver_.error().tensor, packed);
  EXPECT_STREQ(driver_.error().axis, "k");
  EXPECT_STREQ(driver_.error().got_unit, "word");
  EXPECT_EQ(driver_.error().got, 13);
  EXPECT_EQ(driver_.error().expected, 12);

  EXPECT_EQ(LoadShaped(packed, DType::kI32, {255, 12}), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().axis, "n");
  EXPECT_EQ(driver_.error().got, 255);

  const std::string scale = std::string(kGate0) + ".weight_scale";
  EXPECT_EQ(LoadShaped(scale, DType::kBF16, {256, 6}), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().expected_unit, "group");
  EXPECT_EQ(driver_.error().expected, 3);

  // The same bytes as what no method has.
  EXPECT_EQ(LoadShaped(packed, DType::kU8, {256, 48}), ASSAY_UNSUPPORTED);
  EXPECT_EQ(driver_.error().tensor, packed);
  EXPECT_NE(message().find("stored as U8"), std::string::npos) << message();

  EXPECT_EQ(LoadShaped("model.norm.weight", DType::kBF16, {1, 96}), ASSAY_REFUSED);
  EXPECT_EQ(LoadShaped("model.norm.weight", DType::kI32, {96}), ASSAY_UNSUPPORTED);
  EXPECT_EQ(driver_.error().tensor, std::string("model.norm.weight"));
}

// Loaded and given back, but nothing runs it, and the answer names the method.
TEST_F(Loading, WhatHasNoKernelIsLoadedAndNotRun) {
  Open(1);
  ASSERT_EQ(LoadShaped("lm_head.weight", DType::kF32, {261, 96}), ASSAY_OK) << message();
  assay_shard shard;
  ASSERT_EQ(driver_.Export(0, "logits.weight", &shard), ASSAY_OK);
  EXPECT_EQ(shard.dtype, static_cast<uint32_t>(ASSAY_F32));
  EXPECT_STREQ(shard.method, "f32");
  EXPECT_STREQ(shard.kernel, "");
  std::vector<float> out;
  EXPECT_EQ(driver_.Run("model", -1, {1}, 0, {}, &out, {1, 261}), ASSAY_UNSUPPORTED);
  EXPECT_NE(message().find("logits: f32 by dense"), std::string::npos) << message();
}

TEST_F(Loading, AStatedShapeThatLiesIsRefused) {
  Open(1);
  const std::string name = std::string(kGate0) + ".weight_shape";
  TensorView view = *checkpoint_->Find(name);
  const int64_t lie[2] = {256, 97};
  view.bytes = std::as_bytes(std::span(lie));
  EXPECT_EQ(LoadChanged(name, &view), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().axis, "k");
  EXPECT_EQ(driver_.error().got, 97);
}

TEST_F(Loading, AStatedShapeOf32BitsIsReadToo) {
  Open(1);
  const std::string name = std::string(kGate0) + ".weight_shape";
  TensorView view = *checkpoint_->Find(name);
  view.dtype = DType::kI32;
  for (const int32_t k : {96, 97}) {
    const int32_t stated[2] = {256, k};
    view.bytes = std::as_bytes(std::span(stated));
    EXPECT_EQ(LoadChanged(name, &view), k == 96 ? ASSAY_OK : ASSAY_REFUSED);
  }
  EXPECT_EQ(driver_.error().got, 97);
}

TEST_F(Loading, TensorsThatNothingTakesAreRefusedOrKnown) {
  Open(1);
  const TensorView* norm = checkpoint_->Find("model.norm.weight");
  const auto load_with = [&](const std::string& extra) {
    MemorySource source;
    std::vector<std::string> names = NamesWith(*checkpoint_, "layers.0.self_attn");
    for (const std::string& name : names) {
      const TensorView* view = checkpoint_->Find(name);
      source.Put(name, view->dtype, view->shape, {view->bytes.begin(), view->bytes.end()});
    }
    source.Put(extra, norm->dtype, norm->shape, {norm->bytes.begin(), norm->bytes.end()});
    names.push_back(extra);
    driver_.Close();
    Open(1);
    return driver_.Load(0, source, names);
  };
  EXPECT_EQ(load_with("model.layers.0.self_attn.q_b_proj.bias"), ASSAY_REFUSED);
  EXPECT_NE(message().find("q_b_proj.bias"), std::string::npos);
  EXPECT_EQ(load_with("model.layers.0.self_attn.rotary_emb.inv_freq"), ASSAY_OK) << message();
  EXPECT_EQ(load_with("model.layers.3.self_attn.q_b_proj.weight"), ASSAY_OK) << message();
}

// Before every rank was loaded; afterwards it is a reload.
TEST_F(Loading, TwiceIsRefused) {
  Open(2);
  const std::vector<std::string> router = NamesWith(*checkpoint_, "layers.1.mlp.gate.");
  ASSERT_EQ(driver_.Load(0, *checkpoint_, router), ASSAY_OK) << message();
  EXPECT_EQ(driver_.Load(0, *checkpoint_, router), ASSAY_FAILED);
  EXPECT_NE(message().find("L1.router.logits is loaded twice"), std::string::npos) << message();
  std::vector<std::string> doubled = NamesWith(*checkpoint_, "layers.2.mlp.gate.");
  doubled.push_back(doubled.front());
  EXPECT_EQ(driver_.Load(0, *checkpoint_, doubled), ASSAY_REFUSED);
  EXPECT_EQ(driver_.error().tensor, doubled.front());
}

TEST_F(Loading, OneLayerAndSomeExpertsAreEnough) {
  Open(4);
  std::vector<std::string> names = NamesWith(*checkpoint_, "layers.1.mlp.experts.2.");
  const auto more = NamesWith(*checkpoint_, "layers.1.mlp.experts.5.");
  names.insert(names.end(), more.begin(), more.end());
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(driver_.Load(rank, *checkpoint_, names, 1), ASSAY_OK) << message();
  }
  assay_shard shard;
  EXPECT_EQ(driver_.Export(3, "L1.moe.e5.up.scale", &shard), ASSAY_OK);
  EXPECT_EQ(shard.first_row, 64);
  EXPECT_EQ(driver_.Export(3, "L1.moe.e4.up.scale", &shard), ASSAY_FAILED);
  EXPECT_NE(message().find("L1.moe.e4.up.scale"), std::string::npos);
  EXPECT_EQ(driver_.Export(3, "L1.moe.e5.up.zero", &shard), ASSAY_FAILED);
  // A scale without its codes is no parameter.
  EXPECT_EQ(driver_.Load(0, *checkpoint_, {"model.layers.2.mlp.experts.0.up_proj.weight_scale"}, 2),
            ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().tensor, "model.layers.2.mlp.experts.0.up_proj.weight");
}

TEST_F(Loading, WhatThePlanNamesMustBeThere) {
  Open(1);
  const auto names = NamesWith(*checkpoint_, "layers.1.mlp.experts.2.");
  EXPECT_EQ(driver_.Load(0, *checkpoint_, names, 1,
                         "L1.moe.e2.down.scale k[tp] g32 <- x\nL1.moe.e3.up.weight n[tp] <- y\n"),
            ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().tensor, "y");
}

TEST_F(Loading, IllegalDegreesAreRefusedWithThePlannersWords) {
  Open(16);
  EXPECT_EQ(driver_.LoadAll(*checkpoint_), ASSAY_REFUSED);
  const auto plan =
      shard::PlanModel(checkpoint_->config(), *checkpoint_, {16, 0}, shard::Selection{});
  ASSERT_TRUE(plan.ok() && plan->refusal.has_value());
  EXPECT_EQ(message(), plan->refusal->Message());
  EXPECT_EQ(driver_.error().tensor, plan->refusal->tensor);
  EXPECT_EQ(driver_.error().got, plan->refusal->extent);
  EXPECT_EQ(driver_.error().expected, plan->refusal->parts);
  // The experts alone do not divide either: 8 groups.
  driver_.Close();
  Open(16);
  EXPECT_EQ(driver_.Load(0, *checkpoint_, NamesWith(*checkpoint_, "layers.1.mlp.experts.2."), 1),
            ASSAY_REFUSED);
  EXPECT_NE(message().find("experts.2.down_proj"), std::string::npos) << message();
}

// 6 ranks of 2 KV heads: three ranks have the same one.
TEST(LoadingOthers, KvHeadsAreReplicated) {
  const auto checkpoint = OpenCheckpoint("goldens/checkpoints/qwen3-mini");
  std::vector<std::string> names = NamesWith(*checkpoint, "layers.1.self_attn");
  const TensorView& k = *checkpoint->Find("model.layers.1.self_attn.k_proj.weight");
  Driver driver(NativeEngine());
  ASSERT_EQ(driver.Open(checkpoint->config_json(), At(6, 0, "scalar")), ASSAY_OK);
  for (int rank = 0; rank < 6; ++rank) {
    ASSERT_EQ(driver.Load(rank, *checkpoint, names, 1), ASSAY_OK) << driver.error().message;
    assay_shard shard;
    ASSERT_EQ(driver.Export(rank, "L1.attn.k.weight", &shard), ASSAY_OK);
    const size_t head = k.bytes.size() / 2;
    const auto expected = k.bytes.subspan(static_cast<size_t>(rank / 3) * head, head);
    EXPECT_EQ(RowMajor(shard, "L1.attn.k.weight"),
              std::vector<std::byte>(expected.begin(), expected.end()));
  }
}

TEST(LoadingOthers, APrefixIsReadOffTheNames) {
  const auto checkpoint = OpenCheckpoint("goldens/checkpoints/qwen3-mini");
  MemorySource renamed;
  for (const std::string& name : checkpoint->Names()) {
    const TensorView* view = checkpoint->Find(name);
    renamed.Put("language_model." + name, view->dtype, view->shape,
                {view->bytes.begin(), view->bytes.end()});
  }
  Driver plain(NativeEngine()), nested(NativeEngine());
  ASSERT_EQ(plain.Open(checkpoint->config_json(), {}), ASSAY_OK);
  ASSERT_EQ(nested.Open(checkpoint->config_json(), {}), ASSAY_OK);
  ASSERT_EQ(plain.LoadAll(*checkpoint), ASSAY_OK);
  ASSERT_EQ(nested.Load(0, renamed, renamed.Names()), ASSAY_OK) << nested.error().message;
  EXPECT_EQ(plain.Logits({1, 2, 3}, 0, 261), nested.Logits({1, 2, 3}, 0, 261));
}

}  // namespace
}  // namespace assay::kernels::native
