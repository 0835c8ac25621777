// The oracle's slices against what a real engine's ranks hold after its own loading: hashes of all
// parameters, some in full (goldens/shards/README.md).
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
using testing_support::EngineParameters;
using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Transposed;
using Json = nlohmann::json;

// One recorded parameter: an object, or in older files an array of type, shape and hash.
struct Recorded {
  std::vector<int64_t> shape;
  std::string hash;
};
Recorded Read(const Json& facts) {
  if (facts.is_array()) return {facts.at(1), facts.at(2)};
  return {facts.at("shape"), facts.at("blake2b16")};
}

// "rank3.model.norm.weight" -> 3 and the rest.
std::pair<int, std::string> RankAndName(const std::string& key) {
  const size_t dot = key.find('.');
  return {std::stoi(key.substr(4, dot - 4)), key.substr(dot + 1)};
}

// The degrees of a run. gpt-oss's engine gives every rank the same number of blocks.
Parallel DegreesOf(const std::string& model, int tp) {
  Parallel degrees{tp, tp};
  if (model == "gptoss-mini-mxfp4") degrees.split = Split::kCeil;
  return degrees;
}

// Whether the oracle refuses some component that the file is about at this degree.
bool OracleRefuses(const Opened& model, const Parallel& degrees, bool experts_only) {
  for (const std::string& component : model.oracle->Components()) {
    if (experts_only && component.find(".moe.") == std::string::npos) continue;
    const auto slice = model.oracle->ExpectedSlice(component, {degrees, 0});
    if (!slice && slice.error().kind == ErrorKind::kRefused) return true;
    EXPECT_TRUE(slice.ok()) << slice.error().message;
  }
  return false;
}

// What the engine cannot do, though the checkpoint could be cut.
bool EnginesOwnLimit(const Json& refused) {
  const std::string message =
      refused.is_string() ? refused.get<std::string>() : refused.at("message").get<std::string>();
  // Its vocabulary padding of 64, and gpt-oss's attention with more ranks than key/value heads.
  return message.starts_with("320 is not divisible") || message == "integer modulo by zero";
}

struct Tally {
  int hashes = 0, in_full = 0, refused = 0;
  std::set<std::string> keys;  // "k2-mini/tp2/rank0.…": equal by hash
};

// Tensors stored in full: all of the parameter, or its first experts.
void CompareInFull(const SafetensorsFile* full, const std::string& key, const Block& mine,
                   Tally* tally) {
  const TensorView* view = full == nullptr ? nullptr : full->Find(key);
  if (view == nullptr) return;
  ASSERT_LE(view->bytes.size(), mine.bytes.size()) << key;
  EXPECT_TRUE(std::equal(view->bytes.begin(), view->bytes.end(), mine.bytes.begin())) << key;
  ++tally->in_full;
}

void Compare(const std::filesystem::path& path, const std::string& model_name, Tally* tally) {
  const Json json = Json::parse(std::ifstream(path));
  const bool quantised = std::filesystem::exists("goldens/quantised/" + model_name);
  const Opened model = OpenModel(model_name, quantised ? "quantised" : "checkpoints");
  const EngineParameters parameters(model);
  const Parallel degrees = DegreesOf(model_name, json.at("tp"));
  const std::string stem = path.stem().string();
  const bool experts_only = stem.ends_with("-experts");
  if (json.contains("refused")) {
    EXPECT_TRUE(EnginesOwnLimit(json.at("refused")) || OracleRefuses(model, degrees, experts_only))
        << path;
    ++tally->refused;
    return;
  }
  EXPECT_FALSE(OracleRefuses(model, degrees, experts_only)) << path;
  std::filesystem::path beside = path;
  beside.replace_extension(".safetensors");
  const auto full = SafetensorsFile::Open(beside.string());
  for (const auto& [key, facts] : json.at("parameters").items()) {
    const auto [rank, name] = RankAndName(key);
    if (name.ends_with("weight_shape")) continue;
    // Another padding than 64: the engine was made to take this degree.
    const bool vocabulary = name == "lm_head.weight" || name == "model.embed_tokens.weight";
    if (json.contains("vocab_padding") && vocabulary) continue;
    const Recorded recorded = Read(facts);
    auto mine = parameters.Assemble(name, {degrees, rank}, recorded.shape);
    ASSERT_TRUE(mine.ok()) << path << " " << key << ": " << mine.error().message;
    // The bias of a row-parallel layer counts once. Elsewhere the engine holds it on every rank and
    // adds it on rank 0; of experts it keeps rank 0's and zeros.
    if (name.ends_with("w2_bias") && rank > 0) {
      std::fill(mine->bytes.begin(), mine->bytes.end(), std::byte{0});
    }
    EXPECT_EQ(Blake2b16(mine->bytes), recorded.hash) << path << " " << key;
    CompareInFull(full.ok() ? full->get() : nullptr, key, *mine, tally);
    ++tally->hashes;
    tally->keys.insert(model_name + "/" + stem + "/" + key);
  }
}

const std::map<std::string, Tally>& AllCompared() {
  static const std::map<std::string, Tally> all = [] {
    std::map<std::string, Tally> tallies;
    for (const auto& folder : std::filesystem::directory_iterator("goldens/shards")) {
      const std::string name = folder.path().filename().string();
      if (!folder.is_directory() || name.starts_with("linear-")) continue;
      for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
        if (file.path().extension() == ".json") Compare(file.path(), name, &tallies[name]);
      }
    }
    return tallies;
  }();
  return all;
}

// Parameters of each model over all degrees, and degrees that are refused.
struct Expected {
  const char* model;
  int hashes, in_full, refused;
};
constexpr Expected kExpected[] = {
    {"dsv3-mini", 76, 0, 2},      {"gptoss-mini", 84, 0, 0},       {"gptoss-mini-mxfp4", 768, 0, 2},
    {"k2-mini", 574, 0, 1},       {"k2-mini-int4-g32", 630, 0, 1}, {"kimilinear-mini", 0, 0, 1},
    {"llama-mini", 75, 0, 3},     {"qwen2-mini", 0, 0, 4},         {"qwen3-mini", 54, 0, 2},
    {"qwen3moe-mini", 180, 0, 1}, {"qwen3moe-mini-fp8", 24, 0, 3},
};

TEST(EngineShards, EveryRanksParametersAreTheEnginesBytes) {
  const auto& compared = AllCompared();
  EXPECT_EQ(compared.size(), std::size(kExpected));
  for (const Expected& expected : kExpected) {
    const auto found = compared.find(expected.model);
    ASSERT_NE(found, compared.end()) << expected.model;
    const Tally& tally = found->second;
    EXPECT_EQ(tally.hashes, expected.hashes) << expected.model;
    EXPECT_EQ(tally.refused, expected.refused) << expected.model;
    if (tally.hashes > 0 && std::string(expected.model) != "llama-mini") {
      EXPECT_GT(tally.in_full, 0) << expected.model;
    }
  }
}

TEST(EngineShards, AnotherRanksBytesHashOtherwise) {  // the control
  const Opened model = OpenModel("llama-mini");
  const auto zero = model.oracle->ExpectedSlice("L0.mlp.up.weight", {{2, 2}, 0});
  const auto one = model.oracle->ExpectedSlice("L0.mlp.up.weight", {{2, 2}, 1});
  EXPECT_NE(Blake2b16(zero->bytes), Blake2b16(one->bytes));
}

// With the split that every other model has, gpt-oss's nine blocks do not fall into two parts; and
// gate rows before up rows are not what the engine holds.
TEST(EngineShards, TheSplitAndTheOrderOfRowsMatter) {  // the control
  const Opened model = OpenModel("gptoss-mini-mxfp4", "quantised");
  const auto even = model.oracle->ExpectedSlice("L0.moe.e0.down.weight", {{2, 2}, 0});
  ASSERT_FALSE(even.ok());
  EXPECT_EQ(even.error().kind, ErrorKind::kRefused);
  const Where where = {DegreesOf("gptoss-mini-mxfp4", 2), 0};
  const auto gate = model.oracle->ExpectedSlice("L0.moe.e0.gate.weight", where);
  const auto up = model.oracle->ExpectedSlice("L0.moe.e0.up.weight", where);
  ASSERT_TRUE(gate.ok() && up.ok());
  const Block a = testing_support::BlockOf(*gate), b = testing_support::BlockOf(*up);
  EXPECT_NE(testing_support::Below({a, b}).bytes, testing_support::Alternating(a, b).bytes);
}

// A second engine: the same bytes for these parameters, and int4 experts turned round.
TEST(EngineShards, ASecondEngineHoldsTheSame) {
  const Json json = Json::parse(std::ifstream("goldens/shards/sglang.json"));
  std::set<std::string> keys;
  for (const auto& [model, tally] : AllCompared()) {
    keys.insert(tally.keys.begin(), tally.keys.end());
  }
  int equal = 0, skipped = 0;
  for (const auto& [run, list] : json.at("equal_to_vllm").items()) {
    for (const auto& key : list) {
      const bool there = keys.contains(run + "/" + key.get<std::string>());
      const bool padded = run.ends_with("-padded-vocab") &&
                          key.get<std::string>().find("embed_tokens") != std::string::npos;
      EXPECT_TRUE(there || padded) << run << " " << key;
      (there ? equal : skipped) += 1;
    }
  }
  EXPECT_EQ(equal + skipped, 191);
  EXPECT_LE(skipped, 3);  // llama-mini's embedding, padded otherwise, on three ranks
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  const EngineParameters parameters(model);
  int turned = 0;
  for (const auto& [path, facts] : json.at("k_first").items()) {
    const size_t slash = path.find("/tp"), second = path.find('/', slash + 1);
    const int tp = std::stoi(path.substr(slash + 3, second - slash - 3));
    const auto [rank, name] = RankAndName(path.substr(second + 1));
    std::vector<std::byte> bytes, plain;
    bool a_column = false;
    for (int64_t e = 0; e < model.config().experts; ++e) {
      const auto block = parameters.Expert(name, e, {{tp, tp}, rank});
      ASSERT_TRUE(block.ok()) << block.error().message;
      const Block across = Transposed(*block);
      a_column = block->columns == 1;
      bytes.insert(bytes.end(), across.bytes.begin(), across.bytes.end());
      plain.insert(plain.end(), block->bytes.begin(), block->bytes.end());
    }
    EXPECT_EQ(Blake2b16(bytes), Read(facts).hash) << path;
    EXPECT_EQ(Blake2b16(plain) == Read(facts).hash, a_column) << path;
    ++turned;
  }
  EXPECT_EQ(turned, 56);
}

}  // namespace
}  // namespace assay::reference
