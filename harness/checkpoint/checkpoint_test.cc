#include "harness/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file whose tensors are these names, one byte each.
std::string FileOf(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i == 0 ? "" : ",") + ByteEntry(names[i], static_cast<int>(i), 1);
  }
  return RawSafetensors(header + "}", std::string(names.size(), 'x'));
}

std::string IndexOf(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string json = R"({"metadata":{"total_size":1},"weight_map":{)";
  for (size_t i = 0; i < entries.size(); ++i) {
    json += fmt::format("{}\"{}\":\"{}\"", i == 0 ? "" : ",", entries[i].first, entries[i].second);
  }
  return json + "}}";
}

// config.json and two shards: a.safetensors with a1, a2 and b.safetensors with b1.
void WriteShards(const TempFolder& folder) {
  folder.Write("config.json", LlamaJson());
  folder.Write("a.safetensors", FileOf({"a1", "a2"}));
  folder.Write("b.safetensors", FileOf({"b1"}));
}

void ExpectRefused(const std::string& path, std::initializer_list<std::string_view> texts) {
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_FALSE(checkpoint.ok()) << path;
  EXPECT_TRUE(Says(checkpoint.error(), texts));
}

TEST(Checkpoint, OpensShardsThroughTheIndex) {
  TempFolder folder;
  WriteShards(folder);
  folder.Write(
      kIndex, IndexOf({{"a1", "a.safetensors"}, {"a2", "a.safetensors"}, {"b1", "b.safetensors"}}));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->Names(), (std::vector<std::string>{"a1", "a2", "b1"}));
  EXPECT_EQ((*checkpoint)->Find("b1")->file, folder.Path("b.safetensors"));
  EXPECT_EQ((*checkpoint)->Find("c"), nullptr);
  EXPECT_EQ((*checkpoint)->config().family, Family::kLlama);
  EXPECT_EQ((*checkpoint)->config_json(), LlamaJson());
  EXPECT_EQ((*checkpoint)->path(), folder.path());
}

// ModelSlim's description is a file beside config.json; engines and the planner get one text.
TEST(Checkpoint, ADescriptionBesideTheConfigIsPartOfIt) {
  const char* kName = "quant_model_description.json";
  TempFolder folder;
  folder.Write("config.json", LlamaJson());
  folder.Write("model.safetensors", FileOf({"a1"}));
  folder.Write(kName, R"({"a1": "W4A8_DYNAMIC", "a2": "FLOAT", "group_size": 256})");
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const QuantConfig& quant = (*checkpoint)->config().quant;
  EXPECT_EQ(quant.method, "ascend");
  EXPECT_EQ(quant.description.at("a1"), "W4A8_DYNAMIC");
  EXPECT_EQ(quant.group_size, 256);
  const auto again = ParseModelConfig((*checkpoint)->config_json(), "engine");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->quant.description, quant.description);
  folder.Write(kName, "[1]");
  ExpectRefused(folder.path(), {kName});
  folder.Write(kName, "{");
  ExpectRefused(folder.path(), {kName});
  folder.Write(kName, "{}");
  std::string other = LlamaJson();
  other.insert(other.find('{') + 1, R"("quantization_config": {"quant_method": "fp8"},)");
  folder.Write("config.json", other);
  ExpectRefused(folder.path(), {kName, "another producer"});
  other = LlamaJson();
  other.insert(other.find('{') + 1, R"("quantization_config": {"quant_method": 7},)");
  folder.Write("config.json", other);
  ExpectRefused(folder.path(), {kName});
}

TEST(Checkpoint, IndexAndFilesMustAgree) {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  const std::string a = "a.safetensors", b = "b.safetensors";
  const Entries good = {{"a1", a}, {"a2", a}, {"b1", b}};
  const auto expect = [&](Entries entries, std::initializer_list<std::string_view> texts) {
    TempFolder folder;
    WriteShards(folder);
    folder.Write(kIndex, IndexOf(entries));
    ExpectRefused(folder.path(), texts);
  };
  expect({{"a1", a}, {"a2", a}, {"b1", a}}, {kIndex, "tensor 'b1'", "no file has it"});
  expect({{"a1", a}, {"a2", b}, {"b1", b}}, {kIndex, "'a2'", "listed in 'b.safe", "lies in 'a.s"});
  expect({{"a1", a}, {"b1", b}}, {a, "tensor 'a2'", "must list every tensor"});
  expect({{"a1", a}, {"a2", a}, {"b1", b}, {"b2", b}}, {"tensor 'b2'", "no file has it"});
  expect({{"a1", a}, {"a2", a}, {"b1", b}, {"c", "c.safetensors"}},
         {"c.safetensors", "No such file", kIndex});
  expect({{"a1", a}, {"a1", a}}, {kIndex, "key 'a1'", "in 'weight_map'", "twice"});
  TempFolder folder;
  WriteShards(folder);
  folder.Write(kIndex, IndexOf(good));
  folder.Write("b.safetensors", FileOf({"b1", "a2"}));
  ExpectRefused(folder.path(),
                {"b.safetensors", "tensor 'a2'", "also in", "a.safetensors", "once"});
  folder.Write("b.safetensors", FileOf({"b1"}).substr(0, 20));
  ExpectRefused(folder.path(), {"b.safetensors", "truncated", kIndex});
  folder.Write("b.safetensors", FileOf({"b1"}));
  EXPECT_TRUE(Checkpoint::Open(folder.path()).ok());
}

TEST(Checkpoint, IndexCannotReachOtherFolders) {
  for (const char* name : {"../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..", ".",
                           "", ".safetensors", "a.bin", "sub\\\\a.safetensors",
                           "a\\u0000.safetensors", "\\u001b[2Ja.safetensors"}) {
    SCOPED_TRACE(name);
    TempFolder folder;
    WriteShards(folder);
    folder.Write(kIndex, IndexOf({{"a1", name}}));
    ExpectRefused(folder.path(), {kIndex, "tensor 'a1'", "plain name of a .safetensors file"});
  }
}

TEST(Checkpoint, BadIndexesAreOneClearError) {
  const auto expect = [](std::string_view index, std::initializer_list<std::string_view> texts) {
    TempFolder folder;
    WriteShards(folder);
    folder.Write(kIndex, index);
    ExpectRefused(folder.path(), texts);
  };
  expect("", {kIndex, "not JSON"});
  expect("[]", {kIndex, "array of 0", "must be a JSON object"});
  expect("{}", {kIndex, "weight_map is missing"});
  expect(R"({"weight_map":3})", {kIndex, "weight_map is 3"});
  expect(R"({"weight_map":{}})", {kIndex, "weight_map is an object of 0"});
  expect(R"({"weight_map":{"a1":7}})", {kIndex, "tensor 'a1'", "7", "must be a string"});
  expect("{\"weight_map\":" + std::string(50'000, '{'), {kIndex, "not JSON"});
  expect("{\"weight_map\":" + std::string(50'000, '['), {kIndex, "nested deeper than 8"});
}

TEST(Checkpoint, FolderMustHoldExactlyOneModel) {
  TempFolder folder;
  ExpectRefused(folder.path(), {"no checkpoint", "model.safetensors"});
  ExpectRefused(folder.Path("nothing"), {"nothing", "no such file or folder"});
  ExpectRefused("", {"empty path"});
  ExpectRefused(folder.Write("weights.bin", "x"), {"not a .safetensors or .gguf file"});
  folder.Write("model.safetensors", FileOf({"lm_head.weight", "model.embed_tokens.weight"}));
  ExpectRefused(folder.path(), {"config.json", "No such file", "needs its config.json"});
  folder.Write("config.json", LlamaJson());
  EXPECT_TRUE(Checkpoint::Open(folder.path()).ok());
  EXPECT_TRUE(Checkpoint::Open(folder.Path("model.safetensors")).ok());
  folder.Write("a.safetensors", FileOf({"a1"}));
  folder.Write(kIndex, IndexOf({{"a1", "a.safetensors"}}));
  ExpectRefused(folder.path(), {kIndex, "model.safetensors", "only one"});
  folder.Write("config.json", std::string((16 << 20) + 1, ' '));
  ExpectRefused(folder.Path("a.safetensors"), {"config.json", "at most 16777216"});
}

struct Named {
  std::vector<std::string> tensors;
  bool tied;
  std::string prefix, head;
};

TEST(Checkpoint, FindsWhereTheDecoderIs) {
  const std::vector<Named> cases = {
      {{"model.embed_tokens.weight", "lm_head.weight"}, false, "model.", "lm_head.weight"},
      {{"model.embed_tokens.weight", "lm_head.weight"},
       true,
       "model.",
       "model.embed_tokens.weight"},
      {{"language_model.model.embed_tokens.weight", "language_model.lm_head.weight",
        "vision_tower.layers.0.weight"},
       false,
       "language_model.model.",
       "language_model.lm_head.weight"},
      {{"language_model.model.layers.0.mlp.up_proj.weight"},
       false,
       "language_model.model.",
       "language_model.lm_head.weight"},
      {{"model.language_model.embed_tokens.weight", "lm_head.weight"},
       false,
       "model.language_model.",
       "lm_head.weight"},
      {{"model.language_model.embed_tokens.weight", "model.language_model.lm_head.weight"},
       false,
       "model.language_model.",
       "model.language_model.lm_head.weight"},
      {{"embed_tokens.weight", "lm_head.weight"}, false, "", "lm_head.weight"},
      {{"embed.weight", "head.weight", "layers.0.attn.wq_a.weight"}, false, "", "head.weight"},
      {{"embed.weight", "layers.0.attn.wq_a.weight"}, true, "", "embed.weight"},
      {{"model.layers.3.mlp.up_proj.weight"}, false, "model.", "lm_head.weight"},
      {{"nothing.like.a.decoder"}, false, "model.", "lm_head.weight"},
  };
  for (const Named& c : cases) {
    SCOPED_TRACE(c.tensors.front());
    TempFolder folder;
    std::string config = LlamaJson();
    if (c.tied) config.replace(config.rfind("false"), 5, "true");
    folder.Write("config.json", config);
    const auto opened = Checkpoint::Open(folder.Write("x.safetensors", FileOf(c.tensors)));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->config().prefix, c.prefix);
    EXPECT_EQ((*opened)->config().lm_head, c.head);
  }
}

TEST(Checkpoint, TwoDecodersOrHeadsAreAmbiguous) {
  TempFolder folder;
  folder.Write("config.json", LlamaJson());
  const auto expect = [&](const std::vector<std::string>& tensors,
                          std::initializer_list<std::string_view> texts) {
    ExpectRefused(folder.Write("x.safetensors", FileOf(tensors)), texts);
  };
  expect({"model.embed_tokens.weight", "language_model.model.embed_tokens.weight"},
         {"x.safetensors", "'model.'", "'language_model.model.'", "must be one"});
  expect({"model.embed_tokens.weight", "lm_head.weight", "model.lm_head.weight"},
         {"x.safetensors", "'lm_head.weight'", "'model.lm_head.weight'", "must be one"});
}

TEST(Checkpoint, HashesSeeStructureAndContent) {
  TempFolder folder;
  folder.Write("config.json", LlamaJson());
  const std::string path = folder.Path("x.safetensors");
  const auto open = [&](std::string_view bytes) {
    folder.Write("x.safetensors", bytes);
    auto checkpoint = Checkpoint::Open(path);
    EXPECT_TRUE(checkpoint.ok());
    return std::move(*checkpoint);
  };
  const std::string header = "{" + ByteEntry("a", 0, 2) + "," + ByteEntry("b", 2, 1) + "}";
  const std::string renamed = "{" + ByteEntry("a", 0, 2) + "," + ByteEntry("c", 2, 1) + "}";
  // A mapping shows the file as it is now, so what is compared is taken before the next write.
  struct Hashes {
    std::string structure, a, ab, ba, missing;
  };
  const auto hashes = [&](std::string_view bytes) {
    const auto c = open(bytes);
    return Hashes{c->structure_hash(), c->ContentHash({"a"}), c->ContentHash({"a", "b"}),
                  c->ContentHash({"b", "a", "b"}), c->ContentHash({"a", "b", "no"})};
  };
  const Hashes one = hashes(RawSafetensors(header, "xyz"));
  const Hashes again = hashes(RawSafetensors(header, "xyz"));
  const Hashes last_byte = hashes(RawSafetensors(header, "xyw"));
  const Hashes other_name = hashes(RawSafetensors(renamed, "xyz"));
  EXPECT_EQ(one.structure.size(), 32u);
  EXPECT_EQ(one.structure.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(one.structure, again.structure);
  EXPECT_EQ(one.ab, again.ab);
  EXPECT_EQ(one.ab, one.ba);
  EXPECT_NE(one.ab, one.a);
  EXPECT_NE(one.ab, one.missing);
  EXPECT_EQ(last_byte.structure, one.structure);
  EXPECT_EQ(last_byte.a, one.a);
  EXPECT_NE(last_byte.ab, one.ab);
  EXPECT_NE(other_name.structure, one.structure);
  EXPECT_EQ(other_name.a, one.a);
  folder.Write("config.json", LlamaJson() + " ");
  EXPECT_NE(hashes(RawSafetensors(header, "xyz")).structure, one.structure);
}

TEST(Checkpoint, ManyTensorsInManyShards) {
  TempFolder folder;
  folder.Write("config.json", LlamaJson());
  std::vector<std::pair<std::string, std::string>> entries;
  constexpr int kShards = 61, kEach = 1000;
  for (int shard = 0; shard < kShards; ++shard) {
    std::string header = "{";
    const std::string file = fmt::format("model-{:05}-of-00061.safetensors", shard + 1);
    for (int i = 0; i < kEach; ++i) {
      std::string name = fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", shard, i);
      header += (i == 0 ? "" : ",") + ByteEntry(name, 0, 0);
      entries.emplace_back(std::move(name), file);
    }
    folder.Write(file, RawSafetensors(header + "}", ""));
  }
  folder.Write(kIndex, IndexOf(entries));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->Names().size(), static_cast<size_t>(kShards * kEach));
}

struct Shipped {
  const char* path;
  Family family;
  size_t tensors;
};

TEST(Checkpoint, EveryShippedOneOpens) {
  const std::vector<Shipped> all = {
      {"checkpoints/dsv3-mini", Family::kDeepseekV3, 91},
      {"checkpoints/gptoss-mini", Family::kGptOss, 54},
      {"checkpoints/k2-mini", Family::kDeepseekV3, 79},
      {"checkpoints/k3-mini", Family::kKimiK3, 246},
      {"checkpoints/kimilinear-mini", Family::kKimiLinear, 133},
      {"checkpoints/llama-mini", Family::kLlama, 38},
      {"checkpoints/m3-mini", Family::kMinimaxM3, 128},
      {"checkpoints/qwen2-mini", Family::kQwen2, 38},
      {"checkpoints/qwen3-mini", Family::kQwen3, 36},
      {"checkpoints/qwen3moe-mini", Family::kQwen3Moe, 93},
      {"checkpoints/v4-mini", Family::kDeepseekV4, 174},
      {"quantised/gptoss-mini-mxfp4", Family::kGptOss, 60},
      {"quantised/k2-mini-int4-g32", Family::kDeepseekV3, 151},
      {"quantised/qwen3moe-mini-fp8", Family::kQwen3Moe, 168},
  };
  size_t folders = 0;
  for (const char* parent : {"goldens/checkpoints", "goldens/quantised"}) {
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(parent)) ++folders;
  }
  EXPECT_EQ(folders, all.size()) << "a shipped checkpoint is not in this test's table";
  for (const Shipped& shipped : all) {
    const auto opened = Checkpoint::Open(fmt::format("goldens/{}", shipped.path));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Checkpoint& checkpoint = **opened;
    EXPECT_EQ(checkpoint.Names().size(), shipped.tensors) << shipped.path;
    EXPECT_EQ(checkpoint.config().family, shipped.family) << shipped.path;
    EXPECT_EQ(checkpoint.config().why_unknown.empty(), shipped.family != Family::kUnknown);
    EXPECT_NE(checkpoint.Find(checkpoint.config().lm_head), nullptr) << shipped.path;
  }
}

}  // namespace
}  // namespace assay
