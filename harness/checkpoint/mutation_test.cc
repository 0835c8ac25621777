// Thousands of damaged files: each opens or is refused with one printable line, and never crashes.
// Under ASan and UBSan this also means that nothing is read outside the file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/scan.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

using Random = std::mt19937_64;

size_t Below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

// One damage of the first `reach` bytes: structure lies at the front of a safetensors file.
std::string Mutate(std::string bytes, size_t reach, Random& random) {
  static constexpr std::string_view kTokens[] = {"{",
                                                 "}",
                                                 "[",
                                                 "]",
                                                 ",",
                                                 ":",
                                                 "\"",
                                                 "-",
                                                 "0",
                                                 "9",
                                                 "e",
                                                 ".",
                                                 "null",
                                                 "true",
                                                 "-1",
                                                 "1e308",
                                                 "9223372036854775807",
                                                 "18446744073709551615",
                                                 "99999999999999999999999",
                                                 "\\u0000",
                                                 "\xff",
                                                 "\"\"",
                                                 "[[[[[[[[[[",
                                                 "\"dtype\"",
                                                 "\"shape\"",
                                                 "\"F64\"",
                                                 "__metadata__"};
  reach = std::min(reach, bytes.size());
  const size_t at = Below(random, reach);
  switch (random() % 7) {
    case 0:  // one bit
      if (reach > 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
      break;
    case 1:  // one byte
      if (reach > 0) bytes[at] = static_cast<char>(random());
      break;
    case 2:  // cut
      bytes.resize(random() % 2 == 0 ? at : Below(random, bytes.size() + 1));
      break;
    case 3:  // a part taken away
      bytes.erase(at, 1 + Below(random, 16));
      break;
    case 4:  // a part twice
      bytes.insert(at, bytes.substr(Below(random, reach), 1 + Below(random, 60)));
      break;
    case 5: {  // a token in place of what is there
      const std::string_view token = kTokens[Below(random, std::size(kTokens))];
      bytes.replace(at, std::min(token.size(), bytes.size() - at), token);
      break;
    }
    default:  // a token between
      bytes.insert(at, kTokens[Below(random, std::size(kTokens))]);
  }
  return bytes;
}

std::string Damaged(const std::string& good, size_t reach, Random& random) {
  std::string bytes = good;
  for (size_t i = 0, count = 1 + Below(random, 3); i < count; ++i) {
    bytes = Mutate(std::move(bytes), reach, random);
  }
  return bytes;
}

struct Outcome {
  int opened = 0, refused = 0;
};

// Damage where a binary header hurts: numbers of 4 and 8 bytes, extreme or off by a little.
std::string MutateNumber(std::string bytes, size_t reach, Random& random) {
  static constexpr uint64_t kNumbers[] = {0,
                                          1,
                                          2,
                                          3,
                                          8,
                                          9,
                                          31,
                                          33,
                                          255,
                                          65536,
                                          0x7FFFFFFF,
                                          0xFFFFFFFF,
                                          uint64_t{1} << 32,
                                          uint64_t{1} << 62,
                                          INT64_MAX,
                                          uint64_t{1} << 63,
                                          ~uint64_t{0} - 31,
                                          ~uint64_t{0}};
  const size_t width = random() % 2 == 0 ? 4 : 8;
  reach = std::min(reach, bytes.size());
  if (reach < width) return bytes;
  const size_t at = Below(random, reach - width + 1);
  uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, width);
  number =
      random() % 2 == 0 ? kNumbers[Below(random, std::size(kNumbers))] : number + random() % 5 - 2;
  std::memcpy(bytes.data() + at, &number, width);
  return bytes;
}

// Reads every byte that the views promise.
uint64_t SumOf(const TensorSource& source) {
  uint64_t sum = 0;
  for (const std::string& name : source.Names()) {
    const TensorView* view = source.Find(name);
    EXPECT_NE(view, nullptr);
    EXPECT_EQ(StoredBytes(view->dtype, view->shape),
              Bytes(static_cast<int64_t>(view->bytes.size())));
    for (const std::byte byte : view->bytes) sum += static_cast<uint8_t>(byte);
  }
  return sum;
}

// A scan finds something where the strict reader does, and what it calls whole lies in the file.
void CheckScan(const std::string& path, bool strict) {
  const auto scan = ScanCheckpoint(path);
  ASSERT_TRUE(scan.ok()) << scan.error().message;
  bool broken = false;
  for (const ScanFinding& finding : scan->findings) {
    broken = broken || (finding.kind != "empty" && finding.kind != "config");
    EXPECT_TRUE(Says(Error{finding.detail}, {}));
    EXPECT_FALSE(finding.detail.empty());
  }
  EXPECT_EQ(broken, !strict);
  EXPECT_LT(scan->findings.size(), 300u);
  for (const ScanTensor& tensor : scan->tensors) {
    const auto bytes = StoredBytes(tensor.view.dtype, tensor.view.shape);
    ASSERT_TRUE(bytes.has_value());
    EXPECT_LE(tensor.offset, scan->file_bytes);
    EXPECT_LE(static_cast<uint64_t>(bytes->count()), scan->file_bytes - tensor.offset);
  }
}

template <class T>
void Count(const Result<T>& result, Outcome& outcome) {
  if (result.ok()) {
    ++outcome.opened;
    return;
  }
  ++outcome.refused;
  EXPECT_TRUE(Says(result.error(), {": "}));
  EXPECT_LT(result.error().message.size(), 2000u);
}

TEST(Mutations, OfASafetensorsFile) {
  const std::string good = ReadBytes("goldens/checkpoints/qwen3-mini/model.safetensors");
  const auto original =
      RawSafetensors("{" + ByteEntry("a.weight", 0, 20) + "," + ByteEntry("b.scale", 20, 12) +
                         R"(,"__metadata__":{"format":"pt"}})",
                     std::string(32, 'x'));
  TempFolder folder;
  Random random(20240607);
  Outcome outcome;
  uint64_t sum = 0;
  for (int round = 0; round < 6000; ++round) {
    // Mostly a tiny file, where most damage hits structure; now and then the real one.
    const bool real = round % 60 == 0;
    const std::string bytes = real ? Damaged(good, 3800, random) : Damaged(original, 200, random);
    const std::string path = folder.Write("m.safetensors", bytes);
    const auto file = SafetensorsFile::Open(path);
    Count(file, outcome);
    CheckScan(path, file.ok());
    if (file.ok()) sum += SumOf(**file);
  }
  // The negative control: the driver both hurts files and leaves some whole.
  EXPECT_GT(outcome.refused, 3000);
  EXPECT_GT(outcome.opened, 50);
  EXPECT_GT(sum, 0u);
}

// A model that opens, small enough that most damage hits structure.
GgufWriter SmallLlama() {
  GgufWriter writer;
  const std::pair<const char*, uint32_t> counts[] = {{"block_count", 1},
                                                     {"context_length", 64},
                                                     {"embedding_length", 32},
                                                     {"feed_forward_length", 32},
                                                     {"attention.head_count", 2}};
  writer.PutText("general.architecture", "llama");
  for (const auto& [key, value] : counts) writer.PutU32(fmt::format("llama.{}", key), value);
  writer.PutF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer.PutBool("tokenizer.ggml.add_bos_token", true);
  writer.PutTexts("tokenizer.ggml.tokens", {"a", "b", "c"});
  writer.PutI32s("tokenizer.ggml.token_type", {1, 1, 3});
  const auto bytes = [](size_t count) { return std::vector<std::byte>(count, std::byte{7}); };
  writer.PutTensor({"token_embd.weight", DType::kQ8_0, {3, 1}, bytes(3 * 34)});
  writer.PutTensor({"output_norm.weight", DType::kF32, {32}, bytes(128)});
  writer.PutTensor({"blk.0.attn_q.weight", DType::kQ4_1, {32, 1}, bytes(32 * 20)});
  writer.PutTensor({"blk.0.ffn_norm.weight", DType::kF32, {32}, bytes(128)});
  return writer;
}

TEST(Mutations, OfAGgufFile) {
  const std::string small = SmallLlama().Bytes();
  const std::string real = ReadBytes("goldens/formats/formats.gguf");
  TempFolder folder;
  Random random(20250302);
  Outcome outcome, models;
  uint64_t sum = 0;
  for (int round = 0; round < 12000; ++round) {
    const bool large = round % 20 == 0;
    const std::string& good = large ? real : small;
    const size_t reach = large ? 1270 : 760;  // their headers
    std::string bytes = good;
    for (size_t i = 0, count = 1 + Below(random, 3); i < count; ++i) {
      bytes = random() % 2 == 0 ? MutateNumber(std::move(bytes), reach, random)
                                : Mutate(std::move(bytes), reach, random);
    }
    const std::string path = folder.Write("m.gguf", bytes);
    const auto file = GgufFile::Open(path);
    Count(file, outcome);
    CheckScan(path, file.ok());
    if (!file.ok()) continue;
    sum += SumOf(**file);
    const auto checkpoint = Checkpoint::Open(path);
    Count(checkpoint, models);
    if (!checkpoint.ok()) continue;
    // What engines get must be readable again, whatever the metadata says.
    EXPECT_TRUE(ParseModelConfig((*checkpoint)->config_json(), "config").ok());
  }
  // The negative control: the driver hurts files, leaves some whole, and some of those are models.
  EXPECT_GT(outcome.refused, 6000);
  EXPECT_GT(outcome.opened, 1000);
  EXPECT_GT(models.refused, 200);
  EXPECT_GT(models.opened, 200);
  EXPECT_GT(sum, 0u);
}

// Metadata of the families with experts: a config that reads again, or one clear error.
TEST(Mutations, OfAGgufFileOfAFamily) {
  TempFolder folder;
  Random random(97);
  Outcome models;
  for (const char* model : {"k3-mini", "m3-mini"}) {
    const std::string whole =
        ReadBytes(fmt::format("goldens/checkpoints/{}/{}.gguf", model, model));
    for (int round = 0; round < 150; ++round) {
      const std::string path = folder.Write("m.gguf", MutateNumber(whole, 1600, random));
      const auto checkpoint = Checkpoint::Open(path);
      Count(checkpoint, models);
      if (!checkpoint.ok()) continue;
      const auto again = ParseModelConfig((*checkpoint)->config_json(), "config");
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->family, (*checkpoint)->config().family);
    }
  }
  EXPECT_GT(models.refused, 50);
  EXPECT_GT(models.opened, 20);
}

TEST(Mutations, OfAConfig) {
  Random random(7);
  Outcome outcome;
  for (const char* model :
       {"checkpoints/k2-mini", "checkpoints/llama-mini", "checkpoints/m3-mini",
        "checkpoints/k3-mini", "checkpoints/kimilinear-mini", "checkpoints/v4-mini",
        "checkpoints/qwen3moe-mini", "checkpoints/gptoss-mini", "quantised/k2-mini-int4-g32",
        "quantised/gptoss-mini-mxfp4", "quantised/qwen3moe-mini-fp8"}) {
    const std::string good = ReadBytes(fmt::format("goldens/{}/config.json", model));
    for (int round = 0; round < 1500; ++round) {
      const auto config = ParseModelConfig(Damaged(good, good.size(), random), "config.json");
      Count(config, outcome);
      if (!config.ok() || config->family == Family::kUnknown) continue;
      // What callers divide by or loop over.
      EXPECT_GE(config->heads, 1);
      EXPECT_GE(config->kv_heads, 1);
      EXPECT_GE(config->layers, 1);
      EXPECT_GE(config->head_dim, 1);
      EXPECT_EQ(config->heads % config->kv_heads, 0);
      EXPECT_GE(config->moe_layer_freq, 1);
      // Lists have an entry for each layer, and may be asked for it.
      int64_t moe = 0, kda = 0;
      for (int64_t layer = 0; layer < config->layers; ++layer) {
        moe += config->is_moe(layer) ? 1 : 0;
        kda += config->is_kda(layer) ? 1 : 0;
      }
      EXPECT_TRUE(moe == 0 || config->experts > 0);
      EXPECT_TRUE(kda == 0 || config->kda_heads > 0);
      EXPECT_LE(config->hash_layers, config->layers);
      config->quant.For("model.layers.1.mlp.experts.0.down_proj");
    }
  }
  EXPECT_GT(outcome.refused, 2000);
  EXPECT_GT(outcome.opened, 200);
}

// Every producer's, damaged: it is read, refused in one line, or has a scheme for each module.
TEST(Mutations, OfAQuantisationConfig) {
  const char* kGood[] = {
      R"j({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head",
        "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], "config_groups": {"group_0":
        {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
        "group_size": 32, "actorder": null}}, "group_1": {"format": "float-quantized", "targets":
        ["re:[a-z.0-9]{4,9}.*"], "weights": {"num_bits": 8, "strategy": "block", "block_structure":
        [128, 128]}}}})j",
      R"j({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": false,
        "checkpoint_format": "gptq_v2", "dynamic": {"-:.*gate.*": {}, "+:.*down.*": {"bits": 8}}})j",
      R"j({"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "zero_point": true,
        "version": "gemm", "modules_to_not_convert": ["gate"]})j",
      R"j({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 64], "scale_fmt":
        "ue8m0", "expert_dtype": "fp4", "ignored_layers": ["model.layers.*.self_attn"]})j",
      R"j({"quant_method": "quark", "exclude": ["*a*b*"], "global_quant_config": {"weight": {"dtype":
        "fp4", "group_size": 32}}, "layer_quant_config": {"*.down": {"weight": {"dtype": "int8",
        "qscheme": "per_channel"}}}})j",
      R"j({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a.b":
        {"quant_algo": "FP8"}, "a.c": {"quant_algo": "NVFP4", "group_size": 16}}})j",
      R"j({"quant_method": "ascend", "quant_description": {"a.weight": "W8A8", "group_size": 256}})j"};
  Random random(31);
  Outcome outcome;
  for (const std::string good : kGood) {
    for (int round = 0; round < 1500; ++round) {
      std::string text = LlamaJson();
      text.insert(text.find('{') + 1,
                  "\"quantization_config\": " + Damaged(good, good.size(), random) + ",");
      const auto config = ParseModelConfig(text, "config.json");
      Count(config, outcome);
      if (!config.ok()) continue;
      const QuantConfig own = config->quant.For("model.layers.1.mlp.down_proj");
      EXPECT_TRUE(own.groups.empty() && own.ignore.empty());
      EXPECT_GE(own.group_size, 0);
    }
  }
  EXPECT_GT(outcome.refused, 3000);
  EXPECT_GT(outcome.opened, 500);
}

TEST(Mutations, OfAnIndex) {
  TempFolder folder;
  folder.Write("config.json", LlamaJson());
  folder.Write("a.safetensors", RawSafetensors("{" + ByteEntry("a1", 0, 1) + "}", "x"));
  folder.Write("b.safetensors", RawSafetensors("{" + ByteEntry("b1", 0, 1) + "}", "x"));
  const std::string good = R"({"metadata": {"total_size": 2}, "weight_map": )"
                           R"({"a1": "a.safetensors", "b1": "b.safetensors"}})";
  Random random(11);
  Outcome outcome;
  for (int round = 0; round < 3000; ++round) {
    folder.Write("model.safetensors.index.json", Damaged(good, good.size(), random));
    const auto checkpoint = Checkpoint::Open(folder.path());
    Count(checkpoint, outcome);
    const auto scan = ScanCheckpoint(folder.path());
    ASSERT_TRUE(scan.ok());
    const bool silent =
        std::all_of(scan->findings.begin(), scan->findings.end(), [](const ScanFinding& finding) {
          return finding.kind == "total-size" || finding.kind == "extra-shard";
        });
    EXPECT_EQ(silent, checkpoint.ok());
    if (checkpoint.ok()) {
      EXPECT_EQ(SumOf(**checkpoint), 2u * 'x');
    }
  }
  EXPECT_GT(outcome.refused, 1000);
  EXPECT_GT(outcome.opened, 50);
}

}  // namespace
}  // namespace assay
