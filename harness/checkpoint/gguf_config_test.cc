// A GGUF file as a checkpoint: its config, its names, what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

using Values = std::map<std::string, uint32_t>;  // "block_count" ...

GgufTensor Zeros(std::string name, DType dtype, std::vector<int64_t> shape) {
  const size_t bytes = static_cast<size_t>(StoredBytes(dtype, shape)->count());
  return {std::move(name), dtype, std::move(shape), std::vector<std::byte>(bytes)};
}

// A llama of two layers, hidden 64, 4 heads of 16, 2 KV heads, 96, vocabulary 100. A value of 0
// leaves the key out.
GgufWriter Model(std::string_view arch, const Values& changed = {}) {
  Values values = {{"block_count", 2},          {"context_length", 512},
                   {"embedding_length", 64},    {"feed_forward_length", 96},
                   {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
  for (const auto& [key, value] : changed) values[key] = value;
  GgufWriter writer;
  writer.PutText("general.architecture", arch);
  for (const auto& [key, value] : values) {
    if (value != 0) writer.PutU32(fmt::format("{}.{}", arch, key), value);
  }
  writer.PutF32(fmt::format("{}.attention.layer_norm_rms_epsilon", arch), 1e-5f);
  writer.PutTensor(Zeros("token_embd.weight", DType::kQ8_0, {100, 2}));
  writer.PutTensor(Zeros("output_norm.weight", DType::kF32, {64}));
  for (int i = 0; i < 2; ++i) {
    const auto layer = [&](const char* name, DType dtype, std::vector<int64_t> shape) {
      writer.PutTensor(Zeros(fmt::format("blk.{}.{}.weight", i, name), dtype, std::move(shape)));
    };
    for (const char* norm : {"attn_norm", "ffn_norm"}) layer(norm, DType::kF32, {64});
    for (const char* name : {"attn_q", "attn_output"}) layer(name, DType::kQ4_1, {64, 2});
    for (const char* name : {"attn_k", "attn_v"}) layer(name, DType::kQ4_1, {32, 2});
    for (const char* name : {"ffn_gate", "ffn_up"}) layer(name, DType::kQ4_1, {96, 2});
    layer("ffn_down", DType::kQ4_1, {64, 3});
  }
  return writer;
}

using CheckpointResult = Result<std::unique_ptr<Checkpoint>>;

CheckpointResult Open(const TempFolder& folder, const GgufWriter& writer) {
  return Checkpoint::Open(folder.Write("m.gguf", writer.Bytes()));
}

ModelConfig ConfigOf(const GgufWriter& writer) {
  const TempFolder folder;
  const auto checkpoint = Open(folder, writer);
  EXPECT_TRUE(checkpoint.ok()) << (checkpoint.ok() ? "" : checkpoint.error().message);
  if (!checkpoint.ok()) return {};
  // What engines get reads back to what the harness has.
  const auto again = ParseModelConfig((*checkpoint)->config_json(), "config");
  EXPECT_TRUE(again.ok());
  const ModelConfig& config = (*checkpoint)->config();
  EXPECT_EQ(again->container, Container::kGguf);
  EXPECT_EQ(again->rope_interleave, config.rope_interleave);
  EXPECT_EQ(again->lm_head, config.lm_head);
  EXPECT_EQ(again->rms_norm_eps, config.rms_norm_eps);
  EXPECT_EQ(again->why_unknown, config.why_unknown);
  return config;
}

TEST(GgufConfig, OfALlama) {
  const ModelConfig c = ConfigOf(Model("llama"));
  EXPECT_EQ(c.family, Family::kLlama);
  EXPECT_EQ(c.container, Container::kGguf);
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.hidden, 64);
  EXPECT_EQ(c.layers, 2);
  EXPECT_EQ(c.heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.intermediate, 96);
  EXPECT_EQ(c.vocab, 100);
  EXPECT_EQ(c.max_position, 512);
  EXPECT_EQ(c.rms_norm_eps, static_cast<double>(1e-5f));
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.lm_head, "token_embd.weight");
  EXPECT_EQ(c.prefix, "");
  EXPECT_TRUE(c.rope_interleave);
  EXPECT_FALSE(c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
}

TEST(GgufConfig, HeadOfItsOwnHeadDimAndTheta) {
  GgufWriter writer =
      Model("llama", {{"attention.key_length", 16}, {"attention.value_length", 16}});
  writer.PutF32("llama.rope.freq_base", 500000.0f);
  writer.PutU32("llama.rope.dimension_count", 16);
  writer.PutTensor(Zeros("output.weight", DType::kQ6K, {100, 1}));
  writer.Tensor("token_embd.weight") = Zeros("token_embd.weight", DType::kF16, {100, 64});
  const ModelConfig c = ConfigOf(writer);
  EXPECT_EQ(c.why_unknown, "");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.rope.theta, 500000.0);
  EXPECT_FALSE(c.tied);
  EXPECT_EQ(c.lm_head, "output.weight");
}

TEST(GgufConfig, KvHeadsMayBeAbsentOrListedForEachLayer) {
  EXPECT_EQ(ConfigOf(Model("qwen3", {{"attention.head_count_kv", 0}})).kv_heads, 4);
  GgufWriter same = Model("qwen3", {{"attention.head_count_kv", 0}});
  same.PutI32s("qwen3.attention.head_count_kv", {2, 2});
  EXPECT_EQ(ConfigOf(same).kv_heads, 2);
  GgufWriter differ = Model("qwen3", {{"attention.head_count_kv", 0}});
  differ.PutI32s("qwen3.attention.head_count_kv", {2, 4});
  EXPECT_EQ(ConfigOf(differ).family, Family::kUnknown);
  EXPECT_NE(ConfigOf(differ).why_unknown.find("layer to layer"), std::string::npos);
}

// Every number of a converted checkpoint is the original's.
TEST(GgufConfig, ConvertedCheckpointsHaveTheSameConfig) {
  for (const char* model : {"llama-mini", "qwen2-mini", "qwen3-mini"}) {
    SCOPED_TRACE(model);
    const auto original = Checkpoint::Open(fmt::format("goldens/checkpoints/{}", model));
    ASSERT_TRUE(original.ok());
    const ModelConfig& a = (*original)->config();
    const auto writer = ConvertToGguf(**original, {.exact_eps = true});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const ModelConfig b = ConfigOf(*writer);
    EXPECT_EQ(b.family, a.family);
    EXPECT_EQ(b.why_unknown, "");
    EXPECT_EQ(b.architecture, a.architecture);
    EXPECT_EQ(std::tie(b.hidden, b.layers, b.heads, b.kv_heads, b.head_dim, b.intermediate),
              std::tie(a.hidden, a.layers, a.heads, a.kv_heads, a.head_dim, a.intermediate));
    EXPECT_EQ(std::tie(b.vocab, b.max_position, b.rms_norm_eps, b.tied, b.rope.theta),
              std::tie(a.vocab, a.max_position, a.rms_norm_eps, a.tied, a.rope.theta));
    EXPECT_EQ(std::tie(b.qkv_bias, b.o_bias, b.mlp_bias, b.qk_norm),
              std::tie(a.qkv_bias, a.o_bias, a.mlp_bias, a.qk_norm));
    EXPECT_EQ(b.rope_interleave, a.family == Family::kLlama);
    const ModelConfig rounded = ConfigOf(*ConvertToGguf(**original, {}));
    EXPECT_EQ(rounded.rms_norm_eps, static_cast<double>(static_cast<float>(a.rms_norm_eps)));
    EXPECT_NE(rounded.rms_norm_eps, a.rms_norm_eps);
  }
}

TEST(GgufConfig, UnknownArchitecturesOpen) {
  const ModelConfig other = ConfigOf(Model("kimi-k4"));
  EXPECT_EQ(other.family, Family::kUnknown);
  EXPECT_EQ(other.architecture, "kimi-k4");
  EXPECT_NE(other.why_unknown.find("'kimi-k4' is not known"), std::string::npos);
  EXPECT_EQ(other.hidden, 64);
  const auto formats = Checkpoint::Open("goldens/formats/formats.gguf");
  ASSERT_TRUE(formats.ok()) << formats.error().message;
  EXPECT_EQ((*formats)->config().family, Family::kUnknown);
  // The name of an architecture is text from outside.
  const ModelConfig odd = ConfigOf(Model("x\\\xff"));
  EXPECT_EQ(odd.architecture, "x\\x5c\\xff");
}

TEST(GgufConfig, WhatAModelSaysBeyondWhatIsKnownMakesItUnknown) {
  using Change = std::function<void(GgufWriter&)>;
  const std::vector<std::pair<Change, std::string>> changes = {
      {[](auto& w) { w.PutU32("llama.expert_count", 8); }, "with experts"},
      {[](auto& w) { w.PutU32("llama.attention.sliding_window", 128); }, "sliding window"},
      {[](auto& w) { w.PutF32("llama.attention.scale", 0.1f); }, "'llama.attention.scale'"},
      {[](auto& w) { w.PutU32("llama.rope.dimension_count", 8); }, "8 of heads of 16"},
      {[](auto& w) { w.PutU32("llama.attention.value_length", 8); }, "beside keys of 16"},
      {[](auto& w) { w.PutText("llama.rope.scaling.type", "longrope"); }, "rope type 'longrope'"},
      {[](auto& w) { w.PutF32("llama.rope.scaling.attn_factor", 2); }, "attn_factor' 2"},
      {[](auto& w) { w.PutTensor(Zeros("blk.0.attn_output.bias", DType::kF32, {64})); },
       "'attn_output'"}};
  for (const auto& [change, why] : changes) {
    GgufWriter writer = Model("llama");
    change(writer);
    if (why.find("attn_factor") != why.npos) writer.PutText("llama.rope.scaling.type", "linear");
    writer.PutF32("llama.rope.scaling.factor", 4);
    const ModelConfig c = ConfigOf(writer);
    EXPECT_EQ(c.family, Family::kUnknown) << why;
    EXPECT_NE(c.why_unknown.find(why), std::string::npos) << c.why_unknown;
  }
}

TEST(GgufConfig, RopeScaling) {
  GgufWriter linear = Model("llama");
  linear.PutText("llama.rope.scaling.type", "linear");
  linear.PutF32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(ConfigOf(linear).rope.type, "linear");
  EXPECT_EQ(ConfigOf(linear).rope.factor, 4.0);
  GgufWriter alone = Model("llama");
  alone.PutF32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(ConfigOf(alone).rope.type, "linear");
  EXPECT_EQ(ConfigOf(alone).rope.factor, 4.0);
  GgufWriter zero = Model("llama");
  zero.PutF32("llama.rope.scaling.factor", 0);
  EXPECT_EQ(ConfigOf(zero).rope.type, "default");
  GgufWriter yarn = Model("qwen2");
  yarn.PutText("qwen2.rope.scaling.type", "yarn");
  yarn.PutF32("qwen2.rope.scaling.factor", 4);
  yarn.PutU32("qwen2.rope.scaling.original_context_length", 128);
  EXPECT_EQ(ConfigOf(yarn).rope.type, "yarn");
  EXPECT_EQ(ConfigOf(yarn).rope.original_max_position, 128);
  GgufWriter none = Model("llama");
  none.PutText("llama.rope.scaling.type", "none");
  EXPECT_EQ(ConfigOf(none).rope.type, "default");
}

TEST(GgufConfig, BiasesByArchitectureAndByFile) {
  GgufWriter qwen2 = Model("qwen2");
  for (const char* name : {"blk.0.attn_q.bias", "blk.1.attn_k.bias"}) {
    qwen2.PutTensor(Zeros(name, DType::kF32, {64}));
  }
  EXPECT_TRUE(ConfigOf(qwen2).qkv_bias);
  EXPECT_FALSE(ConfigOf(qwen2).o_bias);
  EXPECT_FALSE(ConfigOf(qwen2).rope_interleave);
  GgufWriter llama = Model("llama");
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_gate.bias"}) {
    llama.PutTensor(Zeros(name, DType::kF32, {64}));
  }
  EXPECT_TRUE(ConfigOf(llama).qkv_bias && ConfigOf(llama).o_bias && ConfigOf(llama).mlp_bias);
  EXPECT_TRUE(ConfigOf(Model("qwen3")).qk_norm);
}

struct Refused {
  const char* what;
  std::function<void(GgufWriter&)> change;
  std::vector<std::string> says;
  ErrorKind kind = ErrorKind::kBadInput;
};

void ExpectRefused(const GgufWriter& good, const Refused& row) {
  SCOPED_TRACE(row.what);
  const TempFolder folder;
  GgufWriter writer = good;
  row.change(writer);
  const auto checkpoint = Open(folder, writer);
  ASSERT_FALSE(checkpoint.ok());
  EXPECT_EQ(checkpoint.error().kind, row.kind);
  EXPECT_TRUE(Says(checkpoint.error(), {"m.gguf"}));
  for (const std::string& text : row.says) EXPECT_TRUE(Says(checkpoint.error(), {text}));
}

TEST(GgufConfig, TensorsThatNothingUsesAreRefusedByName) {
  for (const std::string name :
       {"rope_freqs.weight", "blk.0.attn_qkv.weight", "blk.2.attn_q.weight", "blk.00.attn_q.weight",
        "blk.-1.attn_q.weight", "blk.0.attn_q.bias.weight", "blk.0.attn_q_norm.weight",
        "blk.1.attn_v.bias", "blk.x.attn_q.weight", "blk.0.", "token_embd_norm.weight",
        "blk.99999999999999999999.attn_q.weight", "model.norm.weight"}) {
    ExpectRefused(Model("llama"),
                  {name.c_str(),
                   [&](GgufWriter& w) { w.PutTensor(Zeros(name, DType::kF32, {64})); },
                   {"tensor '" + name + "'", "uses it", "2 layers"},
                   ErrorKind::kUnsupported});
  }
}

TEST(GgufConfig, KeysThatAreMissingOrWrongAreNamed) {
  const std::vector<std::pair<Values, std::vector<std::string>>> absent = {
      {{{"block_count", 0}}, {"'llama.block_count'", "missing"}},
      {{{"embedding_length", 0}}, {"'llama.embedding_length'", "missing"}},
      {{{"feed_forward_length", 0}}, {"'llama.feed_forward_length'", "missing"}},
      {{{"attention.head_count", 0}}, {"'llama.attention.head_count'", "missing"}},
      {{{"attention.head_count_kv", 3}}, {"num_key_value_heads", "must divide"}},
      {{{"attention.head_count", 5}}, {"must divide"}},
      {{{"attention.key_length", 15}}, {"'head_dim'", "even"}},
      {{{"block_count", 4000000000}}, {"'num_hidden_layers'", "4000000000"}},
      {{{"vocab_size", 99}}, {"'llama.vocab_size'", "99 tokens", "100 rows"}}};
  for (const auto& [values, says] : absent) {
    ExpectRefused(Model("llama", values), {says[0].c_str(), [](GgufWriter&) {}, says});
  }
  const auto scaled = [](GgufWriter& w, const char* type) {
    w.PutText("llama.rope.scaling.type", type);
  };
  const std::vector<Refused> rows = {
      {"factor missing", [&](auto& w) { scaled(w, "linear"); }, {"rope.scaling.factor", "missing"}},
      {"original missing",
       [&](auto& w) {
         scaled(w, "yarn");
         w.PutF32("llama.rope.scaling.factor", 4);
       },
       {"original_context_length", "missing"}},
      {"theta not finite",
       [](auto& w) { w.PutF32("llama.rope.freq_base", 1e38f * 10); },
       {"'llama.rope.freq_base'", "finite"}},
      {"theta below 1", [](auto& w) { w.PutF32("llama.rope.freq_base", 0.5f); }, {"'rope_theta'"}},
      {"theta of another kind",
       [](auto& w) { w.PutU32("llama.rope.freq_base", 10000); },
       {"'llama.rope.freq_base'", "u32", "f32 or f64"}},
      {"tokens",
       [](auto& w) {
         w.PutTexts("tokenizer.ggml.tokens", {"a", "b"});
       },
       {"'tokenizer.ggml.tokens'", "2 tokens", "100 rows"}},
      {"no embedding",
       [](auto& w) { w.RemoveTensor("token_embd.weight"); },
       {"'token_embd.weight'", "missing"}},
      {"embedding of one extent",
       [](auto& w) {
         w.Tensor("token_embd.weight") = Zeros("token_embd.weight", DType::kF32, {64});
       },
       {"'token_embd.weight'", "two extents"}},
      {"one of several files",
       [](auto& w) { w.PutU32("split.count", 3); },
       {"'split.count'", "3"},
       ErrorKind::kUnsupported},
      {"older blocks",
       [](auto& w) { w.PutU32("general.quantization_version", 1); },
       {"'general.quantization_version'", "1", "version 2"},
       ErrorKind::kUnsupported},
  };
  for (const Refused& row : rows) ExpectRefused(Model("llama"), row);
  ExpectRefused(GgufWriter(),
                {"no architecture", [](GgufWriter&) {}, {"'general.architecture'", "missing"}});
  ExpectRefused(GgufWriter(), {"architecture of another kind",
                               [](auto& w) { w.PutU32("general.architecture", 1); },
                               {"'general.architecture'", "string"}});
  ExpectRefused(GgufWriter(), {"architecture without a name",
                               [](auto& w) { w.PutText("general.architecture", ""); },
                               {"1 to 64 bytes"}});
}

TEST(GgufCheckpoint, AFolderMayHoldOneFile) {
  const TempFolder folder;
  folder.Write("a.gguf", Model("llama").Bytes());
  const auto one = Checkpoint::Open(folder.path());
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_NE((*one)->gguf(), nullptr);
  EXPECT_EQ((*one)->path(), folder.path());
  folder.Write("b.gguf", "");
  const auto two = Checkpoint::Open(folder.path());
  ASSERT_FALSE(two.ok());
  EXPECT_TRUE(Says(two.error(), {"2 .gguf files", "'a.gguf'", "'b.gguf'"}));
  // With safetensors it is what it was: the others are not read.
  const auto mixed = Checkpoint::Open("goldens/checkpoints/k3-mini");
  ASSERT_TRUE(mixed.ok()) << mixed.error().message;
  EXPECT_EQ((*mixed)->gguf(), nullptr);
  EXPECT_EQ((*mixed)->config().container, Container::kSafetensors);
}

TEST(GgufCheckpoint, HashesSeeStructureAndContent) {
  const TempFolder folder;
  const auto first = Open(folder, Model("llama"));
  GgufWriter other_data = Model("llama");
  other_data.Tensor("blk.1.attn_k.weight").bytes[7] = std::byte{1};
  GgufWriter other_key = Model("llama");
  other_key.PutText("general.name", "x");
  const TempFolder data_folder, key_folder;
  const auto data = Open(data_folder, other_data), key = Open(key_folder, other_key);
  ASSERT_TRUE(first.ok() && data.ok() && key.ok());
  const std::vector<std::string> names = {"blk.1.attn_k.weight"};
  EXPECT_EQ((*first)->structure_hash(), (*data)->structure_hash());
  EXPECT_NE((*first)->structure_hash(), (*key)->structure_hash());
  EXPECT_NE((*first)->ContentHash(names), (*data)->ContentHash(names));
  EXPECT_EQ((*first)->ContentHash(names), (*key)->ContentHash(names));
}

}  // namespace
}  // namespace assay
