// GGUF's blocks and DeepSeek-V4's MXFP4: components, cuts at whole blocks and groups, refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "harness/shard/executor.h"
#include "harness/shard/plan.h"
#include "harness/shard/test_model.h"
#include "harness/units/dtype.h"

namespace assay::shard {
namespace {

// SmolLM2-135M's widths with one layer and a small vocabulary.
constexpr GqaSizes kSmol{.layers = 1,
                         .hidden = 576,
                         .heads = 9,
                         .kv_heads = 3,
                         .head_dim = 64,
                         .intermediate = 1536,
                         .vocab = 261,
                         .tied = true};

TestModel Smol() { return GgufModel(kSmol, DType::kQ4_1, DType::kQ8_0); }

ModelPlan LegalPlan(const TestModel& model, Degrees degrees) {
  const auto result = PlanModel(model.config, model.source, degrees, {});
  if (!result.ok() || !result->plan) {
    ADD_FAILURE() << (result.ok() ? result->refusal->Message() : result.error().message);
    return {};
  }
  return *result->plan;
}

Refusal RefusalOf(const TestModel& model, Degrees degrees) {
  const auto result = PlanModel(model.config, model.source, degrees, {});
  EXPECT_TRUE(result.ok() && result->refusal);
  return result.ok() ? result->refusal.value_or(Refusal{}) : Refusal{};
}

Error ErrorOf(const TestModel& model, const Selection& selection = {}) {
  const auto listed = ListComponents(model.config, model.source, selection);
  EXPECT_FALSE(listed.ok());
  return listed.ok() ? Error{} : listed.error();
}

void ExpectSays(const Error& error, ErrorKind kind, const std::vector<std::string>& texts) {
  EXPECT_EQ(error.kind, kind) << error.message;
  for (const std::string& text : texts) {
    EXPECT_NE(error.message.find(text), std::string::npos) << text << " not in " << error.message;
  }
}

// Copies every rank's shard of every component, and puts them together to the tensors again.
void ExpectIdentity(const TestModel& model, Degrees degrees) {
  for (const ComponentPlan& plan : LegalPlan(model, degrees).components) {
    const TensorView& tensor = *model.source.Find(plan.component.source);
    std::vector<std::vector<std::byte>> shards;
    for (int rank = 0; rank < degrees.tp; ++rank) {
      const ShardShape shape = ShapeOf(plan, rank);
      const int64_t size = SizeOf(plan.component.dtype).count();
      shards.emplace_back(static_cast<size_t>(shape.rows * shape.columns * size), std::byte{0xA5});
      const Status copied = CopyShard(plan, rank, tensor, shards.back());
      ASSERT_TRUE(copied.ok()) << copied.error().message;
    }
    std::vector<std::byte> whole(tensor.bytes.size());
    const Status joined = Reassemble(plan, {shards.begin(), shards.end()}, whole);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    ASSERT_TRUE(std::ranges::equal(whole, tensor.bytes)) << plan.component.name;
  }
}

TEST(Blocks, AreColumnsOfTheirOwnUnit) {
  const TestModel model = Smol();
  const ModelPlan plan = LegalPlan(model, {1});
  const Component& down = plan.Find("L0.mlp.down.weight")->component;
  EXPECT_EQ(down.source, "blk.0.ffn_down.weight");
  EXPECT_EQ(down.dtype, DType::kQ4_1);
  EXPECT_EQ(down.rows, 576);
  EXPECT_EQ(down.columns, 48);
  EXPECT_EQ(down.packing, (Packing{Elements(32), Bytes(20)}));
  EXPECT_EQ(down.unit, "block");
  EXPECT_EQ(down.column_elements, Elements(32));
  EXPECT_EQ(down.group, Elements(32));
  EXPECT_EQ(down.row_elements, Elements(1536));
  const Component& embed = plan.Find("embed.weight")->component;
  EXPECT_EQ(embed.dtype, DType::kQ8_0);
  EXPECT_EQ(embed.unit, "block");
  EXPECT_EQ(plan.Find("logits.weight")->component.source, "token_embd.weight");
  EXPECT_EQ(plan.Find("L0.input_norm.weight")->component.dtype, DType::kF32);
}

TEST(Blocks, EveryTypeIsPlannedInItsOwnSize) {
  for (uint32_t i = static_cast<uint32_t>(DType::kQ4_0);
       i <= static_cast<uint32_t>(DType::kNvfp4Block); ++i) {
    const auto dtype = static_cast<DType>(i);
    const TestModel model =
        GgufModel({.hidden = 256, .heads = 8, .head_dim = 64, .intermediate = 512}, dtype, dtype);
    const ModelPlan plan = LegalPlan(model, {2});
    const Component& up = plan.Find("L0.mlp.up.weight")->component;
    EXPECT_EQ(up.columns * ElementsOf(dtype).count(), 256) << NameOf(dtype);
    EXPECT_EQ(up.packing.bytes, SizeOf(dtype));
  }
}

TEST(Blocks, NamesOfEveryParameter) {
  GqaSizes sizes{.hidden = 64,
                 .heads = 4,
                 .head_dim = 16,
                 .qkv_bias = true,
                 .o_bias = true,
                 .mlp_bias = true,
                 .qk_norm = true};
  const ModelPlan plan = LegalPlan(GgufModel(sizes, DType::kQ8_0, DType::kF16), {2});
  EXPECT_EQ(plan.Print(),
            "embed.weight n[tp] pad 59 <- token_embd.weight\n"
            "L0.input_norm.weight whole <- blk.0.attn_norm.weight\n"
            "L0.attn.q.weight n[attn_tp] g32 q8_0 <- blk.0.attn_q.weight\n"
            "L0.attn.q.bias n[attn_tp] <- blk.0.attn_q.bias\n"
            "L0.attn.k.weight n[attn_tp] g32 q8_0 <- blk.0.attn_k.weight\n"
            "L0.attn.k.bias n[attn_tp] <- blk.0.attn_k.bias\n"
            "L0.attn.v.weight n[attn_tp] g32 q8_0 <- blk.0.attn_v.weight\n"
            "L0.attn.v.bias n[attn_tp] <- blk.0.attn_v.bias\n"
            "L0.attn.q_norm.weight whole <- blk.0.attn_q_norm.weight\n"
            "L0.attn.k_norm.weight whole <- blk.0.attn_k_norm.weight\n"
            "L0.attn.out.weight k[attn_tp] g32 q8_0 <- blk.0.attn_output.weight\n"
            "L0.attn.out.bias whole, added by rank 0 <- blk.0.attn_output.bias\n"
            "L0.post_norm.weight whole <- blk.0.ffn_norm.weight\n"
            "L0.mlp.gate.weight n[tp] g32 q8_0 <- blk.0.ffn_gate.weight\n"
            "L0.mlp.gate.bias n[tp] <- blk.0.ffn_gate.bias\n"
            "L0.mlp.up.weight n[tp] g32 q8_0 <- blk.0.ffn_up.weight\n"
            "L0.mlp.up.bias n[tp] <- blk.0.ffn_up.bias\n"
            "L0.mlp.down.weight k[tp] g32 q8_0 <- blk.0.ffn_down.weight\n"
            "L0.mlp.down.bias whole, added by rank 0 <- blk.0.ffn_down.bias\n"
            "final_norm.weight whole <- output_norm.weight\n"
            "logits.weight n[tp] pad 59 <- output.weight\n");
}

TEST(Blocks, AreCutBetweenBlocksOnly) {
  const ModelPlan plan = LegalPlan(Smol(), {3});
  const auto ranges = [&](const char* name) { return plan.Find(name)->ranks; };
  using Ranks = std::vector<std::vector<Range>>;
  EXPECT_EQ(ranges("L0.mlp.down.weight"), (Ranks{{{0, 16}}, {{16, 16}}, {{32, 16}}}));
  EXPECT_EQ(ranges("L0.attn.out.weight"), (Ranks{{{0, 6}}, {{6, 6}}, {{12, 6}}}));
  EXPECT_EQ(ranges("L0.attn.k.weight"), (Ranks{{{0, 64}}, {{64, 64}}, {{128, 64}}}));
  EXPECT_EQ(ranges("embed.weight"), (Ranks{{{0, 128}}, {{128, 128}}, {{256, 5}, {-1, 123}}}));
  EXPECT_EQ(plan.Find("L0.attn.k.weight")->segment_of, "L0.attn.qkv");
  EXPECT_EQ(plan.Find("L0.mlp.up.weight")->segment_of, "L0.mlp.gate_up");
  for (Degrees degrees : {Degrees{1}, Degrees{3}, Degrees{2, 1}, Degrees{4, 1}}) {
    ExpectIdentity(Smol(), degrees);
  }
}

TEST(Blocks, RefusalsSpeakOfBlocksAndElements) {
  EXPECT_EQ(
      RefusalOf(Smol(), {2}).Message(),
      "num_attention_heads (blk.0.attn_q.weight): axis heads has 9 heads, which do not divide "
      "by attn_tp 2; largest legal TP is 3 (legal degrees: 1, 3)");
  const Refusal r = RefusalOf(Smol(), {32, 1});
  EXPECT_EQ(r.unit, "block");
  EXPECT_EQ(r.extent, 48);
  EXPECT_EQ(r.elements, 1536);
  EXPECT_EQ(
      r.Message(),
      "blk.0.ffn_down.weight: axis k has 48 blocks (1536 elements), which do not divide by tp "
      "32; largest legal TP with attn_tp 1 is 48 (legal degrees: 1, 2, 3, 4, 6, 8, 12, 16, 24, "
      "48)");
  // 1536 elements divide by 64 dense columns, but are only six blocks of 256.
  const TestModel wide = GgufModel(
      {.hidden = 256, .heads = 4, .head_dim = 64, .intermediate = 1536}, DType::kQ4K, DType::kQ6K);
  EXPECT_EQ(RefusalOf(wide, {4, 1}).extent, 6);
  EXPECT_EQ(RefusalOf(wide, {4, 1}).legal_degrees, (std::vector<int>{1, 2, 3, 6}));
  // Heads that divide, but whose columns of o_proj end inside a block.
  const TestModel heads = GgufModel({.hidden = 64, .heads = 4, .kv_heads = 4, .head_dim = 16},
                                    DType::kQ4_1, DType::kQ8_0);
  EXPECT_EQ(RefusalOf(heads, {4}).tensor, "blk.0.attn_output.weight");
  EXPECT_EQ(RefusalOf(heads, {4}).unit, "block");
}

TEST(Blocks, MembersOfDifferentTypesStandAlone) {
  TestModel model = Smol();
  EXPECT_EQ(LegalPlan(model, {1}).Find("L0.attn.q.weight")->segment_of, "L0.attn.qkv");
  PutTensor(&model.source, "blk.0.attn_v.weight", DType::kQ8_0, {192, 18});
  const ModelPlan plan = LegalPlan(model, {3});
  for (const char* name : {"L0.attn.q.weight", "L0.attn.k.weight", "L0.attn.v.weight"}) {
    EXPECT_EQ(plan.Find(name)->segment_of, "") << name;
  }
  EXPECT_EQ(plan.Find("L0.mlp.gate.weight")->segment_of, "L0.mlp.gate_up");
}

TEST(Blocks, MistakesAreNamed) {
  TestModel extent = Smol();
  PutTensor(&extent.source, "blk.0.ffn_down.weight", DType::kQ4_1, {576, 47});
  ExpectSays(ErrorOf(extent), ErrorKind::kBadInput,
             {"blk.0.ffn_down.weight", "axis k has 47 blocks, expected 48 blocks"});
  TestModel rows = Smol();
  PutTensor(&rows.source, "token_embd.weight", DType::kQ8_0, {260, 18});
  ExpectSays(ErrorOf(rows), ErrorKind::kBadInput, {"token_embd.weight", "axis n has 260", "261"});
  TestModel part = GgufModel({.hidden = 48}, DType::kBF16, DType::kBF16);
  PutTensor(&part.source, "blk.0.attn_q.weight", DType::kQ4_1, {32, 2});
  ExpectSays(ErrorOf(part), ErrorKind::kBadInput,
             {"blk.0.attn_q.weight", "48 elements", "blocks of 32"});
  TestModel norm = Smol();
  PutTensor(&norm.source, "output_norm.weight", DType::kQ8_0, {18});
  ExpectSays(ErrorOf(norm), ErrorKind::kUnsupported, {"output_norm.weight", "Q8_0"});
  TestModel mla = MlaModel({});
  mla.config.container = Container::kGguf;
  ExpectSays(ErrorOf(mla), ErrorKind::kUnsupported, {"GGUF"});
}

TEST(Blocks, EveryTensorIsNeeded) {
  const TestModel whole = GgufModel(kSmol, DType::kQ4_1, DType::kQ8_0);
  for (const std::string& missing : whole.source.Names()) {
    TestModel model;
    model.config = whole.config;
    for (const std::string& name : whole.source.Names()) {
      const TensorView& view = *whole.source.Find(name);
      if (name != missing) {
        model.source.Put(name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
      }
    }
    ExpectSays(ErrorOf(model), ErrorKind::kBadInput, {missing, "missing"});
  }
}

constexpr MlaSizes kMx{.experts = 2, .moe_intermediate = 256, .mxfp4 = true};
constexpr char kDown[] = "model.layers.1.mlp.experts.1.down_proj";

TEST(Mxfp4, WordsOfTwoAndGroupsOf32) {
  const TestModel model = MlaModel(kMx);
  const ModelPlan plan = LegalPlan(model, {4});
  const ComponentPlan& weight = *plan.Find("L1.moe.e1.down.weight");
  EXPECT_EQ(weight.component.dtype, DType::kI8);
  EXPECT_EQ(weight.component.unit, "word");
  EXPECT_EQ(weight.component.columns, 128);
  EXPECT_EQ(weight.component.packing, (Packing{Elements(2), Bytes(1)}));
  EXPECT_EQ(weight.component.column_elements, Elements(2));
  EXPECT_EQ(weight.Print(), "k[tp] g32 u4x2");
  const ComponentPlan& scale = *plan.Find("L1.moe.e1.down.scale");
  EXPECT_EQ(scale.component.dtype, DType::kF8E8M0);
  EXPECT_EQ(scale.component.unit, "group");
  EXPECT_EQ(scale.component.columns, 8);
  EXPECT_EQ(scale.component.column_elements, Elements(32));
  EXPECT_EQ(scale.Print(), "k[tp] g32");
  EXPECT_EQ(weight.ranks[3], (std::vector<Range>{{96, 32}}));
  EXPECT_EQ(scale.ranks[3], (std::vector<Range>{{6, 2}}));
  EXPECT_EQ(plan.Find("L1.moe.e0.up.scale")->segment_of, "L1.moe.e0.gate_up");
  for (int tp : {1, 2, 4, 8}) ExpectIdentity(model, {tp});
}

TEST(Mxfp4, AGroupIsNotCut) {
  const Refusal r =
      RefusalOf(MlaModel({.intermediate = 192, .experts = 2, .mxfp4 = true}), {16, 8});
  EXPECT_EQ(r.tensor, "model.layers.1.mlp.experts.0.down_proj.scale");
  EXPECT_EQ(r.unit, "group");
  EXPECT_EQ(r.extent, 8);
  EXPECT_EQ(r.elements, 256);
}

TEST(Mxfp4, AScaleOf255IsRefusedWhereValuesAreRead) {
  TestModel model = MlaModel(kMx);
  const TensorView& good = *model.source.Find(std::string(kDown) + ".scale");
  std::vector<std::byte> bytes(good.bytes.begin(), good.bytes.end());
  bytes[8 * 5 + 3] = std::byte{0};
  bytes[8 * 7 + 3] = std::byte{254};
  model.source.Put(std::string(kDown) + ".scale", DType::kF8E8M0, good.shape, bytes);
  EXPECT_TRUE(ListComponents(model.config, model.source, {}).ok());
  bytes[8 * 5 + 3] = std::byte{255};
  model.source.Put(std::string(kDown) + ".scale", DType::kF8E8M0, {64, 8}, bytes);
  ExpectSays(ErrorOf(model), ErrorKind::kBadInput,
             {std::string(kDown) + ".scale", "row 5, group 3 is 255", "0 to 254"});
  EXPECT_TRUE(ListComponents(model.config, model.source, {.headers_only = true}).ok());
}

TEST(Mxfp4, MistakesAreNamed) {
  const std::string scale = std::string(kDown) + ".scale", weight = std::string(kDown) + ".weight";
  TestModel groups = MlaModel(kMx);
  PutTensor(&groups.source, scale, DType::kF8E8M0, {64, 4});
  ExpectSays(ErrorOf(groups), ErrorKind::kBadInput, {scale, "4 groups, expected 8 groups"});
  TestModel words = MlaModel(kMx);
  PutTensor(&words.source, weight, DType::kI8, {64, 256});
  ExpectSays(ErrorOf(words), ErrorKind::kBadInput, {weight, "256 words, expected 128 words"});
  TestModel fp8 = MlaModel(kMx);
  PutTensor(&fp8.source, weight, DType::kF8E4M3, {64, 256});
  ExpectSays(ErrorOf(fp8), ErrorKind::kBadInput, {scale, "states no weight_block_size"});
  TestModel floats = MlaModel(kMx);
  PutTensor(&floats.source, scale, DType::kF32, {64, 8});
  ExpectSays(ErrorOf(floats), ErrorKind::kUnsupported, {scale, "F32", "I8"});
  TestModel bare = MlaModel({.group = 0});
  PutTensor(&bare.source, weight, DType::kI8, {64, 128});
  ExpectSays(ErrorOf(bare), ErrorKind::kUnsupported, {weight, "I8"});
  const TestModel odd = MlaModel({.moe_intermediate = 48, .mxfp4 = true});
  ExpectSays(ErrorOf(odd), ErrorKind::kBadInput, {"48 elements", "groups of 32"});
}

}  // namespace
}  // namespace assay::shard
