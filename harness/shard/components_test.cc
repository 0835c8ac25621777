// What is listed, in which order, and every way in which a checkpoint can disagree with its config.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <span>

#include "harness/shard/plan.h"
#include "harness/shard/test_model.h"

namespace assay::shard {
namespace {

std::vector<std::string> NamesOf(const std::vector<Component>& components) {
  std::vector<std::string> names;
  for (const Component& c : components) names.push_back(c.name);
  return names;
}

// The error's text; fails the test where there is none or it is of another kind.
std::string ErrorOf(const TestModel& model, ErrorKind kind = ErrorKind::kBadInput,
                    const Selection& selection = {}) {
  const auto listed = ListComponents(model.config, model.source, selection);
  if (listed.ok()) {
    ADD_FAILURE() << "listed without an error";
    return "";
  }
  EXPECT_EQ(listed.error().kind, kind) << listed.error().message;
  return listed.error().message;
}

TEST(ListComponents, DataFlowOrderOfAGqaModel) {
  const TestModel model = GqaModel({.qkv_bias = true, .o_bias = true, .qk_norm = true});
  const auto listed = ListComponents(model.config, model.source, {});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(NamesOf(*listed),
            (std::vector<std::string>{
                "embed.weight", "L0.input_norm.weight", "L0.attn.q.weight", "L0.attn.q.bias",
                "L0.attn.k.weight", "L0.attn.k.bias", "L0.attn.v.weight", "L0.attn.v.bias",
                "L0.attn.q_norm.weight", "L0.attn.k_norm.weight", "L0.attn.out.weight",
                "L0.attn.out.bias", "L0.post_norm.weight", "L0.mlp.gate.weight", "L0.mlp.up.weight",
                "L0.mlp.down.weight", "final_norm.weight", "logits.weight"}));
}

TEST(ListComponents, DataFlowOrderOfAnMlaModel) {
  const TestModel model = MlaModel({.experts = 2});
  const auto listed = ListComponents(model.config, model.source, {.layer = 1, .experts = {1}});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(NamesOf(*listed),
            (std::vector<std::string>{
                "L1.input_norm.weight",    "L1.attn.q_a.weight",    "L1.attn.q_a_norm.weight",
                "L1.attn.q.weight",        "L1.attn.kv_a.weight",   "L1.attn.kv_a_norm.weight",
                "L1.attn.kv_b.weight",     "L1.attn.out.weight",    "L1.post_norm.weight",
                "L1.router.logits.weight", "L1.router.scores.bias", "L1.moe.e1.gate.weight",
                "L1.moe.e1.gate.scale",    "L1.moe.e1.up.weight",   "L1.moe.e1.up.scale",
                "L1.moe.e1.down.weight",   "L1.moe.e1.down.scale",  "L1.shared.gate.weight",
                "L1.shared.up.weight",     "L1.shared.down.weight"}));
}

TEST(ListComponents, UnitsOfInt4) {
  const TestModel model = MlaModel({});
  const auto listed =
      ListComponents(model.config, model.source, {.layer = 1, .attention = false, .experts = {2}});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  const Component& weight = (*listed)[7];
  ASSERT_EQ(weight.name, "L1.moe.e2.down.weight");
  EXPECT_EQ(weight.source, "model.layers.1.mlp.experts.2.down_proj.weight_packed");
  EXPECT_EQ(weight.dtype, DType::kI32);
  EXPECT_EQ(weight.rows, 64);
  EXPECT_EQ(weight.columns, 32);
  EXPECT_EQ(weight.unit, "word");
  EXPECT_EQ(weight.column_elements, Elements(8));
  EXPECT_EQ(weight.row_elements, Elements(256));
  const Component& scale = (*listed)[8];
  EXPECT_EQ(scale.unit, "group");
  EXPECT_EQ(scale.columns, 8);
  EXPECT_EQ(scale.column_elements, Elements(32));
}

TEST(ListComponents, EveryGroupSizeAndOneScaleARow) {
  for (int64_t group : {32, 64, 128}) {
    const TestModel model = MlaModel({.hidden = 128, .group = group});
    const auto listed = ListComponents(model.config, model.source, {});
    ASSERT_TRUE(listed.ok()) << listed.error().message;
  }
  TestModel channel = MlaModel({.experts = 1, .group = 32});
  channel.config.quant.strategy = "channel";
  channel.config.quant.group_size = 0;
  const std::string expert = "model.layers.1.mlp.experts.0.";
  PutInt4(&channel.source, expert + "gate_proj", 256, 64, 0);
  PutInt4(&channel.source, expert + "up_proj", 256, 64, 0);
  PutInt4(&channel.source, expert + "down_proj", 64, 256, 0);
  const auto listed = ListComponents(channel.config, channel.source, {});
  EXPECT_TRUE(listed.ok()) << listed.error().message;
}

TEST(ListComponents, GroupIsReadOffTheScaleWhereTheConfigStatesNone) {
  TestModel model = MlaModel({.hidden = 128, .group = 64});
  model.config.quant = {};
  const auto listed = ListComponents(model.config, model.source, {.layer = 1, .attention = false});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ((*listed)[3].group, Elements(64));
}

TEST(ListComponents, NoRoutedExpertsWhereNoneAreAskedFor) {
  const TestModel model = MlaModel({});
  const auto listed = ListComponents(model.config, model.source,
                                     {.layer = 1, .attention = false, .routed_experts = false});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(NamesOf(*listed),
            (std::vector<std::string>{"L1.post_norm.weight", "L1.router.logits.weight",
                                      "L1.router.scores.bias", "L1.shared.gate.weight",
                                      "L1.shared.up.weight", "L1.shared.down.weight"}));
}

TEST(ListComponents, StatedShapesAreReadOnlyWhereMoreThanHeadersIsAskedFor) {
  TestModel model = MlaModel({});
  PutShape(&model.source, "model.layers.1.mlp.experts.1.down_proj", 64, 248);
  EXPECT_TRUE(ListComponents(model.config, model.source, {.headers_only = true}).ok());
  EXPECT_TRUE(ListComponents(model.config, model.source, {.layer = 1, .experts = {0, 2}}).ok());
  EXPECT_NE(ErrorOf(model).find("248 elements"), std::string::npos);
}

TEST(ListComponents, StatedShapesOf32BitsAreReadToo) {
  TestModel model = MlaModel({});
  for (const int32_t k : {256, 248}) {
    const int32_t stated[2] = {64, k};
    const auto bytes = std::as_bytes(std::span(stated));
    model.source.Put("model.layers.1.mlp.experts.1.down_proj.weight_shape", DType::kI32, {2},
                     {bytes.begin(), bytes.end()});
    if (k == 256) {
      EXPECT_TRUE(ListComponents(model.config, model.source, {}).ok());
    } else {
      EXPECT_NE(ErrorOf(model).find("248 elements"), std::string::npos);
    }
  }
}

TEST(ListComponents, DenseTypesPassThrough) {
  TestModel model = GqaModel({});
  PutTensor(&model.source, "model.norm.weight", DType::kF32, {32});
  PutTensor(&model.source, "lm_head.weight", DType::kF16, {261, 32});
  const auto listed = ListComponents(model.config, model.source, {});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ((*listed)[listed->size() - 2].dtype, DType::kF32);
  EXPECT_EQ(listed->back().dtype, DType::kF16);
}

struct Mistake {
  const char* name;
  std::function<void(TestModel*)> make;
  ErrorKind kind;
  std::vector<std::string> says;
};

void PrintTo(const Mistake& mistake, std::ostream* os) { *os << mistake.name; }

class Checkpoints : public testing::TestWithParam<Mistake> {};

constexpr char kDown[] = "model.layers.1.mlp.experts.1.down_proj";

TEST_P(Checkpoints, MistakeIsNamed) {
  TestModel model = MlaModel({});
  const auto before = ListComponents(model.config, model.source, {});
  ASSERT_TRUE(before.ok()) << before.error().message;
  GetParam().make(&model);
  const std::string message = ErrorOf(model, GetParam().kind);
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

void Replace(TestModel* m, const std::string& suffix, DType dtype, std::vector<int64_t> shape) {
  PutTensor(&m->source, kDown + suffix, dtype, std::move(shape));
}

INSTANTIATE_TEST_SUITE_P(
    All, Checkpoints,
    testing::Values(
        Mistake{"LyingK",
                [](TestModel* m) { PutShape(&m->source, kDown, 64, 248); },
                ErrorKind::kBadInput,
                {"down_proj.weight_shape", "axis k", "248 elements", "256 elements"}},
        Mistake{"LyingN",
                [](TestModel* m) { PutShape(&m->source, kDown, -1, 256); },
                ErrorKind::kBadInput,
                {"weight_shape", "axis n", "-1 elements", "64 elements"}},
        Mistake{"ShapeOfOneNumber",
                [](TestModel* m) { Replace(m, ".weight_shape", DType::kI64, {1}); },
                ErrorKind::kBadInput,
                {"weight_shape", "axis n", "1 element", "2 elements"}},
        Mistake{"PackedTooWide",
                [](TestModel* m) {
                  Replace(m, ".weight_packed", DType::kI32, {64, 64});
                },
                ErrorKind::kBadInput,
                {"weight_packed", "axis k", "64 words", "32 words"}},
        Mistake{"PackedTooShort",
                [](TestModel* m) {
                  Replace(m, ".weight_packed", DType::kI32, {63, 32});
                },
                ErrorKind::kBadInput,
                {"weight_packed", "axis n", "63 elements", "64 elements"}},
        Mistake{"PackedInBytes",
                [](TestModel* m) {
                  Replace(m, ".weight_packed", DType::kU8, {64, 128});
                },
                ErrorKind::kUnsupported,
                {"weight_packed", "U8", "I32"}},
        Mistake{
            "ScaleOfAnotherGroup",
            [](TestModel* m) {
              Replace(m, ".weight_scale", DType::kBF16, {64, 4});
            },
            ErrorKind::kBadInput,
            {"weight_scale", "axis k", "4 groups", "8 groups", "group_size 32", "256 elements"}},
        Mistake{"ScaleTransposed",
                [](TestModel* m) {
                  Replace(m, ".weight_scale", DType::kBF16, {8, 64});
                },
                ErrorKind::kBadInput,
                {"weight_scale", "axis k", "64 groups", "8 groups"}},
        Mistake{"ScaleFlat",
                [](TestModel* m) { Replace(m, ".weight_scale", DType::kBF16, {64 * 8}); },
                ErrorKind::kBadInput,
                {"weight_scale", "1 axes", "expected 2"}},
        Mistake{"ScaleOfIntegers",
                [](TestModel* m) {
                  Replace(m, ".weight_scale", DType::kI16, {64, 8});
                },
                ErrorKind::kBadInput,
                {"weight_scale", "I16", "BF16"}},
        Mistake{"ZeroPoints",
                [](TestModel* m) {
                  Replace(m, ".weight_zero_point", DType::kI32, {8, 8});
                },
                ErrorKind::kBadInput,
                {"weight_zero_point", "symmetric: true"}},
        Mistake{"ActivationOrder",
                [](TestModel* m) { Replace(m, ".weight_g_idx", DType::kI32, {256}); },
                ErrorKind::kBadInput,
                {"weight_g_idx", "actorder is none"}},
        Mistake{"StoredTwice",
                [](TestModel* m) {
                  Replace(m, ".weight", DType::kBF16, {64, 256});
                },
                ErrorKind::kBadInput,
                {"down_proj.weight", "twice", "weight_packed"}},
        Mistake{"AsymmetricWithoutZeroPoints",
                [](TestModel* m) { m->config.quant.symmetric = false; },
                ErrorKind::kBadInput,
                {"symmetric", "weight_zero_point", "missing"}},
        Mistake{"ThreeBits",
                [](TestModel* m) { m->config.quant.bits = 3; },
                ErrorKind::kBadInput,
                {"axis k has 8 words", "num_bits 3 over 64 elements", "6 words"}},
        Mistake{"GroupOf16",
                [](TestModel* m) { m->config.quant.group_size = 16; },
                ErrorKind::kBadInput,
                {"weight_scale", "2 groups", "group_size 16 over 64 elements", "4 groups"}},
        Mistake{"GroupOf64ByConfigOnly",
                [](TestModel* m) { m->config.quant.group_size = 64; },
                ErrorKind::kBadInput,
                {"weight_scale", "axis k", "2 groups", "1 groups", "group_size 64"}},
        Mistake{"DenseWrongShape",
                [](TestModel* m) {
                  PutTensor(&m->source, "model.layers.0.self_attn.o_proj.weight", DType::kBF16,
                            {64, 47});
                },
                ErrorKind::kBadInput,
                {"o_proj.weight", "axis k", "47 elements", "48 elements"}},
        Mistake{
            "Fp8",
            [](TestModel* m) {
              PutTensor(&m->source, "model.layers.0.mlp.up_proj.weight", DType::kF8E4M3, {96, 64});
            },
            ErrorKind::kUnsupported,
            {"up_proj.weight", "F8_E4M3", "BF16"}},
        Mistake{"GptqBesideDense",
                [](TestModel* m) {
                  PutTensor(&m->source, "model.layers.0.mlp.up_proj.qweight", DType::kI32, {8, 96});
                },
                ErrorKind::kBadInput,
                {"up_proj.qweight", "stored twice"}},
        Mistake{"BiasThatTheConfigDenies",
                [](TestModel* m) {
                  PutTensor(&m->source, "model.layers.0.mlp.up_proj.bias", DType::kBF16, {96});
                },
                ErrorKind::kBadInput,
                {"up_proj.bias", "no bias"}},
        Mistake{"MixedSegment",
                [](TestModel* m) {
                  PutTensor(&m->source, "model.layers.0.mlp.up_proj.weight", DType::kF16, {96, 64});
                },
                ErrorKind::kBadInput,
                {"up_proj.weight", "F16", "gate_proj.weight", "BF16", "L0.mlp.gate_up"}}),
    [](const auto& info) { return std::string(info.param.name); });

// A source that lacks one tensor of another one.
class Without : public TensorSource {
 public:
  Without(const TensorSource* whole, std::string gone) : whole_(whole), gone_(std::move(gone)) {}
  const TensorView* Find(std::string_view name) const override {
    return name == gone_ ? nullptr : whole_->Find(name);
  }
  std::vector<std::string> Names() const override { return whole_->Names(); }

 private:
  const TensorSource* whole_;
  std::string gone_;
};

TEST(ListComponents, EveryTensorIsNeeded) {
  const TestModel model = MlaModel({});
  int checked = 0;
  for (const std::string& name : model.source.Names()) {
    const Without source(&model.source, name);
    const auto listed = ListComponents(model.config, source, {});
    ASSERT_FALSE(listed.ok()) << name;
    // A packed tensor's absence shows as a method without its weight.
    if (name.ends_with(".weight_packed")) {
      EXPECT_NE(listed.error().message.find("weight_scale"), std::string::npos);
    } else {
      EXPECT_NE(listed.error().message.find(name + ": missing"), std::string::npos)
          << listed.error().message;
    }
    ++checked;
  }
  EXPECT_EQ(checked, 56);
}

TEST(ListComponents, CorrectionBiasIsNeededOnlyWhereTheConfigSaysSo) {
  TestModel model = MlaModel({});
  model.config.topk_method = "greedy";
  const Without source(&model.source, "model.layers.1.mlp.gate.e_score_correction_bias");
  const auto listed = ListComponents(model.config, source, {});
  EXPECT_TRUE(listed.ok()) << listed.error().message;
}

// A view whose shape promises more than its bytes.
class Lying : public Without {
 public:
  Lying(const TensorSource* whole, TensorView view)
      : Without(whole, view.name), view_(std::move(view)) {}
  const TensorView* Find(std::string_view name) const override {
    return name == view_.name ? &view_ : Without::Find(name);
  }

 private:
  TensorView view_;
};

TEST(ListComponents, BytesFewerThanTheShape) {
  const TestModel model = GqaModel({});
  TensorView view = *model.source.Find("model.embed_tokens.weight");
  view.bytes = view.bytes.first(view.bytes.size() - 1);
  const auto listed = ListComponents(model.config, Lying(&model.source, view), {});
  ASSERT_FALSE(listed.ok());
  EXPECT_NE(listed.error().message.find("16703 bytes"), std::string::npos)
      << listed.error().message;
}

TEST(ListComponents, ExtentsWhoseProductOverflows) {
  TestModel model = GqaModel({});
  model.config.vocab = model.config.hidden = int64_t{1} << 40;
  TensorView view = *model.source.Find("model.embed_tokens.weight");
  view.shape = {model.config.vocab, model.config.hidden};
  const auto listed = ListComponents(model.config, Lying(&model.source, view), {});
  ASSERT_FALSE(listed.ok());
  EXPECT_NE(listed.error().message.find("more bytes than an int64"), std::string::npos)
      << listed.error().message;
}

TEST(ListComponents, HostileConfigs) {
  struct Case {
    std::function<void(ModelConfig*)> set;
    std::string says;
  };
  const int64_t huge = int64_t{1} << 62;
  const std::vector<Case> cases = {
      {[&](ModelConfig* c) { c->heads = huge; }, "num_attention_heads"},
      {[&](ModelConfig* c) { c->heads = 0; }, "num_attention_heads is 0"},
      {[&](ModelConfig* c) { c->hidden = -1; }, "hidden_size is -1"},
      {[&](ModelConfig* c) { c->vocab = huge; }, "vocab_size"},
      {[&](ModelConfig* c) { c->experts = huge; }, "n_routed_experts"},
      {[&](ModelConfig* c) { c->moe_layer_freq = 0; }, "moe_layer_freq is 0"},
      {[&](ModelConfig* c) { c->heads = c->qk_nope = int64_t{1} << 39; }, "q_b_proj's extent n"},
      {[&](ModelConfig* c) { c->shared_experts = int64_t{1} << 39; }, "the shared experts' width"},
      {[&](ModelConfig* c) { c->layers = int64_t{1} << 39; }, "layers.2.input_layernorm"},
      {[&](ModelConfig* c) { c->experts = 60000; }, "axis n has 3 elements, expected 60000"},
  };
  for (const Case& one : cases) {
    TestModel model = MlaModel({});
    one.set(&model.config);
    const std::string message = ErrorOf(model);
    EXPECT_NE(message.find(one.says), std::string::npos) << message;
  }
}

TEST(ListComponents, KvHeadsMustDivideHeads) {
  TestModel model = GqaModel({});
  model.config.kv_heads = 3;
  EXPECT_NE(ErrorOf(model).find("no multiple of num_key_value_heads 3"), std::string::npos);
}

TEST(ListComponents, UnknownArchitectureIsUnsupported) {
  TestModel model = GqaModel({});
  model.config.family = Family::kUnknown;
  model.config.architecture = "GptOssForCausalLM";
  EXPECT_NE(ErrorOf(model, ErrorKind::kUnsupported).find("GptOssForCausalLM"), std::string::npos);
}

TEST(ListComponents, SelectionOutsideTheModel) {
  const TestModel model = MlaModel({});
  EXPECT_NE(ErrorOf(model, ErrorKind::kBadInput, {.layer = 2}).find("layers 0 to 1"),
            std::string::npos);
  EXPECT_NE(ErrorOf(model, ErrorKind::kBadInput, {.layer = 1, .experts = {3}}).find("expert 3"),
            std::string::npos);
}

}  // namespace
}  // namespace assay::shard
