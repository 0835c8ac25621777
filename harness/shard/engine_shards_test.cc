// Judged by a real engine: every parameter of every rank as vLLM's own loader leaves it, compared
// by hash with what our plan copies and joins (goldens/shards/README.md).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/checkpoint/checkpoint.h"
#include "harness/shard/executor.h"

namespace assay::shard {
namespace {

using Json = nlohmann::json;

struct File {
  const char* model;
  const char* file;
  // The engine refuses the degree only because its vocabulary is padded to 64, where ours is padded
  // to lcm(64, tp): its other refusals come later, so that file says nothing about them.
  bool refused_for_vocabulary = false;
  // What our refusal names, where the engine refuses and so do we; "" where we must not.
  const char* refusal_axis = "";
};

void PrintTo(const File& file, std::ostream* os) { *os << file.model << "/" << file.file; }

std::string PathOf(const std::string& model) {
  const bool quantised = model.find("int4") != std::string::npos;
  return (quantised ? "goldens/quantised/" : "goldens/checkpoints/") + model;
}

Json ReadJson(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  return Json::parse(in, nullptr, false);
}

// What the engine joins into one parameter, in its order: our components, for each expert if any.
struct Joined {
  std::vector<std::string> members;  // below "L1." or "L1.moe.e0."
  bool experts = false;
};

const std::vector<std::pair<std::string, Joined>>& LayerParameters() {
  static const std::vector<std::pair<std::string, Joined>> kParameters = {
      {"input_layernorm", {{"input_norm"}}},
      {"post_attention_layernorm", {{"post_norm"}}},
      {"self_attn.qkv_proj", {{"attn.q", "attn.k", "attn.v"}}},
      {"self_attn.q_norm", {{"attn.q_norm"}}},
      {"self_attn.k_norm", {{"attn.k_norm"}}},
      {"self_attn.fused_qkv_a_proj", {{"attn.q_a", "attn.kv_a"}}},
      {"self_attn.kv_a_proj_with_mqa", {{"attn.kv_a"}}},
      {"self_attn.q_a_layernorm", {{"attn.q_a_norm"}}},
      {"self_attn.kv_a_layernorm", {{"attn.kv_a_norm"}}},
      {"self_attn.q_b_proj", {{"attn.q"}}},
      {"self_attn.q_proj", {{"attn.q"}}},
      {"self_attn.kv_b_proj", {{"attn.kv_b"}}},
      {"self_attn.o_proj", {{"attn.out"}}},
      {"mlp.gate_up_proj", {{"mlp.gate", "mlp.up"}}},
      {"mlp.down_proj", {{"mlp.down"}}},
      {"mlp.gate", {{"router.logits"}}},
      {"mlp.shared_experts.gate_up_proj", {{"shared.gate", "shared.up"}}},
      {"mlp.shared_experts.down_proj", {{"shared.down"}}},
      {"mlp.experts.routed_experts.w13", {{"gate", "up"}, true}},
      {"mlp.experts.routed_experts.w2", {{"down"}, true}},
  };
  return kParameters;
}

// Our components of an engine's parameter (without "rank0."), in the order of its rows.
std::vector<std::string> ComponentsOf(const std::string& parameter, int64_t experts) {
  if (parameter == "model.embed_tokens.weight") return {"embed.weight"};
  if (parameter == "model.norm.weight") return {"final_norm.weight"};
  if (parameter == "lm_head.weight") return {"logits.weight"};
  const std::string prefix = "model.layers.";
  const size_t dot = parameter.find('.', prefix.size());
  const std::string layer = "L" + parameter.substr(prefix.size(), dot - prefix.size()) + ".";
  const std::string rest = parameter.substr(dot + 1);
  if (rest == "mlp.gate.e_score_correction_bias") return {layer + "router.scores.bias"};
  for (const auto& [name, joined] : LayerParameters()) {
    const std::string suffix = rest.starts_with(name) ? rest.substr(name.size()) : "";
    if (suffix.empty() || (suffix[0] != '.' && suffix[0] != '_')) continue;
    if (joined.experts != (suffix[0] == '_')) continue;
    const std::string ours = suffix.ends_with("bias")    ? ".bias"
                             : suffix.ends_with("scale") ? ".scale"
                                                         : ".weight";
    std::vector<std::string> components;
    for (int64_t e = 0; e < (joined.experts ? experts : 1); ++e) {
      for (const std::string& member : joined.members) {
        components.push_back(
            layer + (joined.experts ? fmt::format("moe.e{}.{}", e, member) : member) + ours);
      }
    }
    return components;
  }
  return {};
}

// BLAKE2b of 16 bytes, as hex, fed piece by piece.
class Hasher {
 public:
  Hasher() { crypto_generichash_init(&state_, nullptr, 0, kBytes); }
  void Feed(const std::vector<std::byte>& bytes) {
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()),
                              bytes.size());
    size_ += bytes.size();
  }
  size_t size() const { return size_; }
  std::string Hex() {
    std::array<unsigned char, kBytes> hash;
    crypto_generichash_final(&state_, hash.data(), hash.size());
    std::string text;
    for (unsigned char byte : hash) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  static constexpr size_t kBytes = 16;
  crypto_generichash_state state_;
  size_t size_ = 0;
};

size_t BytesOf(const Json& entry) {
  size_t bytes = entry[0] == "bfloat16" ? 2 : 4;  // float32, int32
  for (const Json& extent : entry[1]) bytes *= extent.get<size_t>();
  return bytes;
}

// Compares one parameter of one rank; marks the components that it consists of as seen.
void Compare(const ModelPlan& plan, const Checkpoint& checkpoint, int rank,
             const std::string& parameter, const Json& expected, std::set<std::string>* seen) {
  const auto components = ComponentsOf(parameter, checkpoint.config().experts);
  ASSERT_FALSE(components.empty()) << "no component for " << parameter;
  Hasher hasher;
  for (const std::string& name : components) {
    const ComponentPlan* component = plan.Find(name);
    ASSERT_NE(component, nullptr) << name;
    const ShardShape shape = ShapeOf(*component, rank);
    const int64_t size = SizeOf(component->component.dtype).count();
    std::vector<std::byte> shard(static_cast<size_t>(shape.rows * shape.columns * size));
    const TensorView* tensor = checkpoint.Find(component->component.source);
    ASSERT_NE(tensor, nullptr) << component->component.source;
    const Status copied = CopyShard(*component, rank, *tensor, shard);
    ASSERT_TRUE(copied.ok()) << copied.error().message;
    hasher.Feed(shard);
    seen->insert(name);
  }
  EXPECT_EQ(hasher.size(), BytesOf(expected)) << "rank " << rank << " " << parameter;
  EXPECT_EQ(hasher.Hex(), expected[2].get<std::string>()) << "rank " << rank << " " << parameter;
}

class Engine : public testing::TestWithParam<File> {};

TEST_P(Engine, HoldsTheSameBytesOrRefusesToo) {
  const File& file = GetParam();
  ASSERT_GE(sodium_init(), 0);
  const auto checkpoint = Checkpoint::Open(PathOf(file.model));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Json golden = ReadJson(fmt::format("goldens/shards/{}/{}.json", file.model, file.file));
  ASSERT_TRUE(golden.is_object());
  const Degrees degrees{golden["tp"].get<int>()};
  const auto result = PlanModel((*checkpoint)->config(), **checkpoint, degrees, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  if (golden.contains("refused") && !file.refused_for_vocabulary) {
    ASSERT_TRUE(result->refusal.has_value()) << golden["refused"];
  }
  EXPECT_EQ(result->refusal ? result->refusal->axis : "", file.refusal_axis);
  if (!result->plan) return;
  std::set<std::string> seen;
  for (const auto& [key, expected] : golden["parameters"].items()) {
    const size_t dot = key.find('.');
    const int rank = std::stoi(key.substr(4, dot - 4));  // "rank0.…"
    Compare(*result->plan, **checkpoint, rank, key.substr(dot + 1), expected, &seen);
  }
  if (golden.contains("refused")) return;
  for (const ComponentPlan& component : result->plan->components) {
    const bool tied = component.component.name == "logits.weight" && (*checkpoint)->config().tied;
    EXPECT_EQ(seen.contains(component.component.name), !tied) << component.component.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vllm, Engine,
    testing::Values(
        File{"k2-mini", "tp2"}, File{"k2-mini", "tp3", false, "heads"}, File{"k2-mini", "tp4"},
        File{"k2-mini", "tp8"}, File{"k2-mini-int4-g32", "tp2"},
        File{"k2-mini-int4-g32", "tp3", false, "heads"}, File{"k2-mini-int4-g32", "tp4"},
        File{"k2-mini-int4-g32", "tp8"}, File{"dsv3-mini", "tp2"},
        File{"dsv3-mini", "tp3-padded-vocab", false, "n"}, File{"dsv3-mini", "tp8", false, "heads"},
        File{"llama-mini", "tp2", false, "heads"}, File{"llama-mini", "tp3", true},
        File{"llama-mini", "tp3-padded-vocab"}, File{"llama-mini", "tp4", false, "heads"},
        File{"qwen2-mini", "tp2", false, "heads"}, File{"qwen2-mini", "tp4", false, "heads"},
        File{"qwen2-mini", "tp7", true, "n"}, File{"qwen2-mini", "tp7-padded-vocab", false, "n"},
        File{"qwen3-mini", "tp2"}, File{"qwen3-mini", "tp3", true, "kv_heads"},
        File{"qwen3-mini", "tp4", false, "heads"}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}", info.param.model, info.param.file);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// The comparison itself: one rank's bytes under another rank's hash, and gate and up swapped.
TEST(EngineControl, AnotherRanksHashIsNotEqual) {
  ASSERT_GE(sodium_init(), 0);
  const auto checkpoint = Checkpoint::Open(PathOf("k2-mini-int4-g32"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto result = PlanModel((*checkpoint)->config(), **checkpoint, {2}, {});
  ASSERT_TRUE(result.ok() && result->plan);
  const Json golden = ReadJson("goldens/shards/k2-mini-int4-g32/tp2.json");
  const std::string parameter = "model.layers.1.mlp.experts.routed_experts.w2_weight_scale";
  const auto hash = [&](int rank, std::vector<std::string> names) {
    Hasher hasher;
    for (const std::string& name : names) {
      const ComponentPlan* plan = result->plan->Find(name);
      const ShardShape shape = ShapeOf(*plan, rank);
      std::vector<std::byte> shard(static_cast<size_t>(shape.rows * shape.columns * 2));
      EXPECT_TRUE(CopyShard(*plan, rank, *(*checkpoint)->Find(plan->component.source), shard).ok());
      hasher.Feed(shard);
    }
    return hasher.Hex();
  };
  const auto scales = ComponentsOf(parameter, 6);
  ASSERT_EQ(scales.size(), 6u);
  EXPECT_EQ(hash(1, scales), golden["parameters"]["rank1." + parameter][2]);
  EXPECT_NE(hash(0, scales), golden["parameters"]["rank1." + parameter][2]);
  const auto& gate_up = golden["parameters"]["rank0.model.layers.0.mlp.gate_up_proj.weight"][2];
  EXPECT_EQ(hash(0, {"L0.mlp.gate.weight", "L0.mlp.up.weight"}), gate_up);
  EXPECT_NE(hash(0, {"L0.mlp.up.weight", "L0.mlp.gate.weight"}), gate_up);
}

}  // namespace
}  // namespace assay::shard
