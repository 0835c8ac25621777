// Judged by a real engine: every parameter of every rank as vLLM's own loader leaves it, compared
// by hash with what our plan copies and joins (goldens/shards/README.md).
#include "harness/shard/engine_shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/checkpoint/checkpoint.h"

namespace assay::shard {
namespace {

struct File {
  const char* model;
  const char* file;
  // What our refusal names, where the engine refuses and so do we; "" where we must not.
  const char* refusal_axis = "";
  // The engine refuses the degree only because its vocabulary is padded to 64, where ours is padded
  // to lcm(64, tp), or only for want of a KV head a rank: its other refusals come later, so that
  // file says nothing about them.
  bool refused_for_another_reason = false;
  // The engine refuses what is beside the experts, and the file has them alone.
  bool experts_only = false;
};

void PrintTo(const File& file, std::ostream* os) { *os << file.model << "/" << file.file; }

std::string PathOf(const std::string& model) {
  bool quantised = false;
  for (const char* method : {"int4", "mxfp4", "fp8"}) {
    quantised = quantised || model.find(method) != std::string::npos;
  }
  return (quantised ? "goldens/quantised/" : "goldens/checkpoints/") + model;
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
      {"attn.qkv_proj", {{"attn.q", "attn.k", "attn.v"}}},
      {"attn.sinks", {{"attn.sinks"}}},
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
      {"attn.o_proj", {{"attn.out"}}},
      {"mlp.gate_up_proj", {{"mlp.gate", "mlp.up"}}},
      {"mlp.down_proj", {{"mlp.down"}}},
      {"mlp.gate", {{"router.logits"}}},
      {"mlp.router", {{"router.logits"}}},
      {"mlp.shared_experts.gate_up_proj", {{"shared.gate", "shared.up"}}},
      {"mlp.shared_experts.down_proj", {{"shared.down"}}},
      {"mlp.experts.routed_experts.w13", {{"gate", "up"}, true}},
      {"mlp.experts.routed_experts.w2", {{"down"}, true}},
  };
  return kParameters;
}

// One row of matrices for each expert, or a single one.
using Rows = std::vector<std::vector<std::string>>;

// Our components of an engine's parameter, in the order of its rows.
Rows ComponentsOf(const std::string& parameter, int64_t experts) {
  if (parameter == "model.embed_tokens.weight") return {{"embed.weight"}};
  if (parameter == "model.embedding.weight") return {{"embed.weight"}};
  if (parameter == "model.norm.weight") return {{"final_norm.weight"}};
  if (parameter == "lm_head.weight") return {{"logits.weight"}};
  const std::string prefix = "model.layers.";
  const size_t dot = parameter.find('.', prefix.size());
  const std::string layer = "L" + parameter.substr(prefix.size(), dot - prefix.size()) + ".";
  const std::string rest = parameter.substr(dot + 1);
  if (rest == "mlp.gate.e_score_correction_bias") return {{layer + "router.scores.bias"}};
  for (const auto& [name, joined] : LayerParameters()) {
    const std::string suffix = rest.starts_with(name) ? rest.substr(name.size()) : " ";
    if (!suffix.empty() && suffix[0] != '.' && suffix[0] != '_') continue;
    if (joined.experts != (suffix.starts_with("_"))) continue;
    const std::string ours = suffix.ends_with("bias")                    ? ".bias"
                             : suffix.find("scale") != std::string::npos ? ".scale"
                                                                         : ".weight";
    Rows rows;
    for (int64_t e = 0; e < (joined.experts ? experts : 1); ++e) {
      rows.emplace_back();
      for (const std::string& member : joined.members) {
        rows.back().push_back(
            layer + (joined.experts ? fmt::format("moe.e{}.{}", e, member) : member) + ours);
      }
    }
    return rows;
  }
  return {};
}

// How one engine holds what another holds otherwise.
struct Habits {
  bool alternate = false;  // gpt-oss: the experts' gate and up by turns
  bool turned = false;     // SGLang: the experts' matrices transposed
};

// Compares one parameter of one rank; marks the components that it consists of as seen.
void Compare(const ModelPlan& plan, const Checkpoint& checkpoint, const EngineTensor& expected,
             const Habits& habits, std::set<std::string>* seen) {
  const Rows rows = ComponentsOf(expected.name, checkpoint.config().experts);
  ASSERT_FALSE(rows.empty()) << "no component for " << expected.name;
  std::vector<Grid> grids;
  size_t bytes = 0;
  for (const std::vector<std::string>& names : rows) {
    std::vector<Grid> members;
    for (const std::string& name : names) {
      const ComponentPlan* component = plan.Find(name);
      ASSERT_NE(component, nullptr) << name;
      members.push_back(ShardOf(*component, expected.rank, checkpoint));
      // What counts once, the engine's experts hold once: the other ranks' are zero.
      const bool once = component->owner.value_or(expected.rank) != expected.rank;
      if (once && rows.size() > 1) {
        std::fill(members.back().bytes.begin(), members.back().bytes.end(), std::byte{0});
      }
      seen->insert(name);
    }
    const bool pair = members.size() == 2 && rows.size() > 1;
    Grid grid =
        pair && habits.alternate ? Alternate(members[0], members[1]) : Join(members, Along::kN);
    // A kernel's padding, where the file has more: [experts, rows, columns].
    if (rows.size() > 1 && expected.shape.size() > 1 && !habits.turned) {
      grid = Padded(grid, expected.shape[1], expected.shape.size() > 2 ? expected.shape[2] : 1);
    }
    grids.push_back(habits.turned ? Transposed(grid) : std::move(grid));
    bytes += grids.back().bytes.size();
  }
  EXPECT_EQ(bytes, expected.bytes()) << "rank " << expected.rank << " " << expected.name;
  EXPECT_EQ(HashOf(grids), expected.hash) << "rank " << expected.rank << " " << expected.name;
}

class Engine : public testing::TestWithParam<File> {};

TEST_P(Engine, HoldsTheSameBytesOrRefusesToo) {
  const File& file = GetParam();
  const auto checkpoint = Checkpoint::Open(PathOf(file.model));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const ModelConfig& config = (*checkpoint)->config();
  const EngineFile engine =
      ReadEngineFile(fmt::format("goldens/shards/{}/{}.json", file.model, file.file));
  Degrees degrees{engine.tp};
  // The engine's experts of this format alone are padded to whole blocks.
  const bool blocks = std::string(file.model) == "gptoss-mini-mxfp4";
  if (blocks) degrees.split = Split::kCeil;
  Selection selection;
  if (file.experts_only) {
    selection.attention = false;
    selection.layer = 0;
  }
  const auto result = PlanModel(config, **checkpoint, degrees, selection);
  ASSERT_TRUE(result.ok()) << result.error().message;
  if (engine.refused && !file.refused_for_another_reason) {
    ASSERT_TRUE(result->refusal.has_value());
  }
  EXPECT_EQ(result->refusal ? result->refusal->axis : "", file.refusal_axis);
  if (!result->plan) return;
  const Habits habits{config.family == Family::kGptOss, false};
  std::set<std::string> seen;
  for (const EngineTensor& expected : engine.tensors) {
    if (file.experts_only && !expected.name.starts_with("model.layers.0.")) continue;
    Compare(*result->plan, **checkpoint, expected, habits, &seen);
  }
  if (engine.refused) return;
  for (const ComponentPlan& component : result->plan->components) {
    const std::string& name = component.component.name;
    if (file.experts_only && name.find(".moe.") == std::string::npos) continue;
    const bool tied = name == "logits.weight" && config.tied;
    EXPECT_EQ(seen.contains(name), !tied) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vllm, Engine,
    testing::Values(
        File{"k2-mini", "tp2"}, File{"k2-mini", "tp3", "heads"}, File{"k2-mini", "tp4"},
        File{"k2-mini", "tp8"}, File{"k2-mini-int4-g32", "tp2"},
        File{"k2-mini-int4-g32", "tp3", "heads"}, File{"k2-mini-int4-g32", "tp4"},
        File{"k2-mini-int4-g32", "tp8"}, File{"dsv3-mini", "tp2"},
        File{"dsv3-mini", "tp3-padded-vocab", "n"}, File{"dsv3-mini", "tp8", "heads"},
        File{"llama-mini", "tp2", "heads"}, File{"llama-mini", "tp3", "", true},
        File{"llama-mini", "tp3-padded-vocab"}, File{"llama-mini", "tp4", "heads"},
        File{"qwen2-mini", "tp2", "heads"}, File{"qwen2-mini", "tp4", "heads"},
        File{"qwen2-mini", "tp7", "n", true}, File{"qwen2-mini", "tp7-padded-vocab", "n"},
        File{"qwen3-mini", "tp2"}, File{"qwen3-mini", "tp3", "kv_heads", true},
        File{"qwen3-mini", "tp4", "heads"}, File{"gptoss-mini", "tp2"},
        File{"gptoss-mini-mxfp4", "tp2"}, File{"gptoss-mini-mxfp4", "tp2-marlin-padding"},
        File{"gptoss-mini-mxfp4", "tp4", "", true}, File{"gptoss-mini-mxfp4", "tp4-no-attention"},
        File{"gptoss-mini-mxfp4", "tp8", "", true}, File{"gptoss-mini-mxfp4", "tp8-no-attention"},
        File{"qwen3moe-mini", "tp2"}, File{"qwen3moe-mini", "tp4"},
        File{"qwen3moe-mini", "tp8", "heads"}, File{"qwen3moe-mini-fp8", "tp2", "n"},
        File{"qwen3moe-mini-fp8", "tp2-experts", "", false, true},
        File{"qwen3moe-mini-fp8", "tp4", "n"},
        File{"qwen3moe-mini-fp8", "tp4-experts", "n", false, true},
        File{"kimilinear-mini", "tp2", "heads"}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}", info.param.model, info.param.file);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// SGLang holds the experts' integers with the inputs first.
TEST(Sglang, HoldsTheSameIntegersTransposed) {
  std::ifstream in("goldens/shards/sglang.json");
  const auto json = nlohmann::json::parse(in, nullptr, false);
  ASSERT_TRUE(json.is_object());
  const std::string model = "k2-mini-int4-g32";
  const auto checkpoint = Checkpoint::Open(PathOf(model));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  int compared = 0;
  std::set<std::string> seen;
  for (const int tp : {2, 4, 8}) {
    const auto result = PlanModel((*checkpoint)->config(), **checkpoint, Degrees{tp}, {});
    ASSERT_TRUE(result.ok() && result->plan);
    const std::string start = fmt::format("{}/tp{}/rank", model, tp);
    for (const auto& [key, entry] : json["k_first"].items()) {
      if (!key.starts_with(start)) continue;
      EngineTensor expected;
      const size_t dot = key.find('.');
      expected.rank = std::stoi(key.substr(start.size(), dot - start.size()));
      expected.name = key.substr(key.find('.', start.size()) + 1);
      expected.dtype = entry["dtype"];
      expected.shape = entry["shape"].get<std::vector<int64_t>>();
      expected.hash = entry["blake2b16"];
      Compare(*result->plan, **checkpoint, expected, {false, true}, &seen);
      ++compared;
    }
  }
  EXPECT_EQ(compared, static_cast<int>(json["k_first"].size()));
  EXPECT_EQ(compared, 56);
}

// The comparison itself: one rank's bytes under another rank's hash, and gate and up swapped.
TEST(EngineControl, AnotherRanksHashIsNotEqual) {
  const auto checkpoint = Checkpoint::Open(PathOf("k2-mini-int4-g32"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const auto result = PlanModel((*checkpoint)->config(), **checkpoint, {2}, {});
  ASSERT_TRUE(result.ok() && result->plan);
  const EngineFile engine = ReadEngineFile("goldens/shards/k2-mini-int4-g32/tp2.json");
  const auto expected = [&](int rank, const std::string& name) {
    for (const EngineTensor& tensor : engine.tensors) {
      if (tensor.rank == rank && tensor.name == name) return tensor.hash;
    }
    return std::string("none");
  };
  const auto hash = [&](int rank, const std::vector<std::string>& names) {
    std::vector<Grid> grids;
    for (const std::string& name : names) {
      grids.push_back(ShardOf(*result->plan->Find(name), rank, **checkpoint));
    }
    return HashOf(grids);
  };
  const std::string parameter = "model.layers.1.mlp.experts.routed_experts.w2_weight_scale";
  std::vector<std::string> scales;
  for (const auto& row : ComponentsOf(parameter, 6)) scales.push_back(row.at(0));
  ASSERT_EQ(scales.size(), 6u);
  EXPECT_EQ(hash(1, scales), expected(1, parameter));
  EXPECT_NE(hash(0, scales), expected(1, parameter));
  const std::string gate_up = expected(0, "model.layers.0.mlp.gate_up_proj.weight");
  EXPECT_EQ(hash(0, {"L0.mlp.gate.weight", "L0.mlp.up.weight"}), gate_up);
  EXPECT_NE(hash(0, {"L0.mlp.up.weight", "L0.mlp.gate.weight"}), gate_up);
}

}  // namespace
}  // namespace assay::shard
