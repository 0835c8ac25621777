// The oracle's slices of single layers in eight formats against what a real engine's ranks hold
// (goldens/shards/linear-*), degrees that it refuses layer by layer, and four parameters that it
// loads wrongly.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/checkpoint/safetensors.h"
#include "reference/engine_shards_support.h"

namespace assay::reference {
namespace {

using testing_support::Blake2b16;
using testing_support::Block;
using testing_support::BlockOf;
using testing_support::EngineParameters;
using Json = nlohmann::json;

constexpr int64_t kHidden = 128, kIntermediate = 256, kHeads = 8, kKvHeads = 2, kHeadDim = 16;
constexpr std::string_view kLayer = "model.layers.0.";

std::string_view PlaceOf(std::string_view module) {
  const bool mlp =
      module.starts_with("gate") || module.starts_with("up") || module.starts_with("down");
  return mlp ? "mlp." : "self_attn.";
}

// The file's "q_proj.weight" where a model has it, and norms, which the file has not.
MemorySource OneLayer(const TensorSource& file) {
  MemorySource source;
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
    source.Put(std::string(kLayer) + norm + ".weight", DType::kBF16, {kHidden},
               std::vector<std::byte>(2 * kHidden));
  }
  for (const std::string& name : file.Names()) {
    const TensorView& view = *file.Find(name);
    source.Put(std::string(kLayer) + std::string(PlaceOf(name)) + name, view.dtype, view.shape,
               {view.bytes.begin(), view.bytes.end()});
  }
  return source;
}

struct Format {
  const char* folder;
  const char* method;
  int hashes;   // parameters of all degrees
  int refused;  // layers at some degree
};
constexpr Format kFormats[] = {
    {"linear-awq-int4-g32", "awq-int4-g32-asym", 144, 1},
    {"linear-ct-int4-channel", "ct-int4-channel", 112, 0},
    {"linear-ct-int4-g32-asym", "ct-int4-g32-asym", 144, 1},
    {"linear-ct-int4-g32-sym", "ct-int4-g32", 96, 1},
    {"linear-ct-w8a8-channel", "ct-w8a8-channel", 112, 0},
    {"linear-fp8-block16", "deepseek-fp8-block16", 112, 0},
    {"linear-fp8-block32", "deepseek-fp8-block32", 68, 4},
    {"linear-gptq-int4-g32", "gptq-int4-g32", 144, 1},
};

QuantConfig QuantOf(std::string_view folder) {
  QuantConfig quant;
  quant.bits = 4;
  quant.group_size = 32;
  quant.weight_type = "int";
  quant.strategy = "group";
  quant.symmetric = folder.find("asym") == std::string_view::npos;
  quant.targets = {"Linear"};
  if (folder.find("gptq") != std::string_view::npos) {
    quant.method = "gptq";
  } else if (folder.find("awq") != std::string_view::npos) {
    quant.method = "awq";
    quant.symmetric = false;
  } else if (folder.find("fp8") != std::string_view::npos) {
    quant.method = "fp8";
    quant.bits = 8;
    quant.weight_type = "float";
    quant.strategy = "block";
    quant.group_size = 0;
    quant.block_n = quant.block_k = folder.ends_with("16") ? 16 : 32;
  } else {
    quant.method = "compressed-tensors";
    quant.format = "pack-quantized";
    if (folder.find("channel") != std::string_view::npos) {
      quant.strategy = "channel";
      quant.group_size = 0;
    }
    if (folder.find("w8a8") != std::string_view::npos) {
      quant.format = "int-quantized";
      quant.bits = 8;
    }
  }
  return quant;
}

struct Layer {
  std::unique_ptr<SafetensorsFile> file;
  std::unique_ptr<MemorySource> source;
  std::unique_ptr<Oracle> oracle;
};

Layer OpenLayer(const std::string& folder) {
  Layer layer;
  auto file = SafetensorsFile::Open("goldens/shards/" + folder + "/checkpoint.safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  layer.file = std::move(*file);
  layer.source = std::make_unique<MemorySource>(OneLayer(*layer.file));
  ModelConfig config;
  config.family = Family::kLlama;
  config.architecture = "LlamaForCausalLM";
  config.prefix = "model.";
  config.hidden_act = "silu";
  config.hidden = kHidden;
  config.intermediate = kIntermediate;
  config.heads = kHeads;
  config.kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  config.layers = 1;
  config.vocab = 64;
  config.max_position = 64;
  config.rms_norm_eps = 1e-6;
  config.quant = QuantOf(folder);
  auto oracle = Oracle::Create(config, *layer.source);
  if (!oracle) {
    ADD_FAILURE() << folder << ": " << oracle.error().message;
    std::abort();
  }
  layer.oracle = std::move(*oracle);
  return layer;
}

// The modules of one of the engine's: "qkv_proj" -> q, k, v.
std::vector<std::string> PartsOf(const std::string& module) {
  if (module == "qkv_proj") return {"attn.q", "attn.k", "attn.v"};
  if (module == "gate_up_proj") return {"mlp.gate", "mlp.up"};
  return {module == "o_proj" ? "attn.out" : "mlp.down"};
}
std::string SuffixOf(const std::string& file_suffix) {
  if (file_suffix.find("zero") != std::string::npos) return ".zero";
  return file_suffix.find("scale") != std::string::npos ? ".scale" : ".weight";
}

// The engine's parameter "qkv_proj.weight_packed" from the oracle's slices.
Result<Block> Assemble(const Oracle& oracle, const std::string& parameter, const Where& where) {
  const size_t dot = parameter.find('.');
  const std::string suffix = parameter.substr(dot + 1);
  std::vector<Block> blocks;
  for (const std::string& part : PartsOf(parameter.substr(0, dot))) {
    const auto slice = oracle.ExpectedSlice("L0." + part + SuffixOf(suffix), where);
    if (!slice) return slice.error();
    blocks.push_back(BlockOf(*slice));
  }
  return EngineParameters::Join(suffix, std::move(blocks));
}

TEST(EngineLinear, EveryFormatIsCutAsTheEngineCutsIt) {
  for (const Format& format : kFormats) {
    const Layer layer = OpenLayer(format.folder);
    int hashes = 0, refused = 0;
    std::set<std::string> faulty;
    for (const int tp : {2, 4, 8}) {
      const std::string run =
          "goldens/shards/" + std::string(format.folder) + "/tp" + std::to_string(tp) + ".json";
      const Json json = Json::parse(std::ifstream(run));
      for (const auto& [module, why] : json.at("refused").items()) {
        bool refuses = false;
        for (const std::string& part : PartsOf(module)) {
          const auto slice = layer.oracle->ExpectedSlice("L0." + part + ".weight", {{tp, tp}, 0});
          refuses = refuses || (!slice && slice.error().kind == ErrorKind::kRefused);
        }
        EXPECT_TRUE(refuses) << run << " " << module << ": " << why;
        ++refused;
      }
      for (const auto& [key, facts] : json.at("parameters").items()) {
        if (key.ends_with("weight_shape")) continue;
        const int rank = std::stoi(key.substr(4, key.find('.') - 4));
        const std::string parameter = key.substr(key.find('.') + 1);
        const auto mine = Assemble(*layer.oracle, parameter, {{tp, tp}, rank});
        if (!mine) {  // the engine loaded what cannot be cut so
          EXPECT_EQ(mine.error().kind, ErrorKind::kRefused) << mine.error().message;
          faulty.insert("tp" + std::to_string(tp) + "/" + key);
          continue;
        }
        EXPECT_EQ(Blake2b16(mine->bytes), facts.at("blake2b16").get<std::string>())
            << run << " " << key;
        ++hashes;
      }
    }
    EXPECT_EQ(hashes, format.hashes) << format.folder;
    EXPECT_EQ(refused, format.refused) << format.folder;
    // Of one layer at one degree the engine filled four ranks before it ran out of range.
    std::set<std::string> expected;
    if (std::string_view(format.folder) == "linear-fp8-block32") {
      for (int rank = 0; rank < 4; ++rank) {
        for (const char* suffix : {"weight", "weight_scale_inv"}) {
          expected.insert("tp8/rank" + std::to_string(rank) + ".qkv_proj." + suffix);
        }
      }
    }
    EXPECT_EQ(faulty, expected) << format.folder;
  }
}

TEST(EngineLinear, TheMethodIsKnownFromFileAndConfig) {
  for (const Format& format : kFormats) {
    const Layer layer = OpenLayer(format.folder);
    for (const char* part : {"L0.attn.q", "L0.attn.out.scale", "L0.mlp.down.weight"}) {
      const auto method = layer.oracle->MethodOf(part);
      ASSERT_TRUE(method.ok()) << method.error().message;
      EXPECT_EQ(*method, format.method) << part;
    }
    EXPECT_EQ(*layer.oracle->MethodOf("L0.input_norm"), "bf16");
    EXPECT_FALSE(layer.oracle->MethodOf("L0.attn.other").ok());
    for (const UnusedTensor& unused : layer.oracle->Unused()) {
      EXPECT_TRUE(unused.tensor.ends_with("weight_shape")) << unused.tensor;
      EXPECT_NE(unused.reason, "") << unused.tensor;
    }
  }
}

// What the engine holds in those four scales is not what its rows need: rank r has sixteen rows of
// q, half of block r / 2, and holds block r; and v's block stands where k's must be, because both
// are half a block and the second was written over the first.
TEST(EngineLinear, TheFourScalesAreTheEnginesFault) {
  const Layer layer = OpenLayer("linear-fp8-block32");
  const auto full = SafetensorsFile::Open("goldens/shards/linear-fp8-block32/tp8.safetensors");
  ASSERT_TRUE(full.ok()) << full.error().message;
  const auto block_row = [&](const char* module, int64_t row) {
    const TensorView* view = layer.file->Find(std::string(module) + ".weight_scale_inv");
    const size_t size = static_cast<size_t>(view->shape[1]) * sizeof(float);
    return view->bytes.subspan(static_cast<size_t>(row) * size, size);
  };
  const auto same = [](std::span<const std::byte> a, std::span<const std::byte> b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  };
  int shown = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string key = "rank" + std::to_string(rank) + ".qkv_proj.weight_scale_inv";
    const auto slice = layer.oracle->ExpectedSlice("L0.attn.k.scale", {{8, 8}, rank});
    ASSERT_FALSE(slice.ok());
    EXPECT_EQ(slice.error().kind, ErrorKind::kRefused);
    const TensorView* held = (*full)->Find(key);
    if (held == nullptr) continue;
    const size_t row = held->bytes.size() / 2;
    EXPECT_TRUE(same(held->bytes.first(row), block_row("q_proj", rank))) << key;
    EXPECT_EQ(same(held->bytes.first(row), block_row("q_proj", rank / 2)), rank == 0) << key;
    EXPECT_TRUE(same(held->bytes.last(row), block_row("v_proj", 0))) << key;
    EXPECT_FALSE(same(held->bytes.last(row), block_row("k_proj", 0))) << key;
    ++shown;
  }
  EXPECT_GE(shown, 2);
}

// The control: scales of a layer that is cut along K differ from rank to rank.
TEST(EngineLinear, AnotherRanksScalesHashOtherwise) {
  for (const char* folder : {"linear-gptq-int4-g32", "linear-awq-int4-g32", "linear-fp8-block16"}) {
    const Layer layer = OpenLayer(folder);
    const auto zero = layer.oracle->ExpectedSlice("L0.mlp.down.scale", {{2, 2}, 0});
    const auto one = layer.oracle->ExpectedSlice("L0.mlp.down.scale", {{2, 2}, 1});
    ASSERT_TRUE(zero.ok() && one.ok());
    EXPECT_NE(Blake2b16(zero->bytes), Blake2b16(one->bytes));
  }
}

}  // namespace
}  // namespace assay::reference
