// Every family's parameters, of real files: each tensor belongs to a component or is passed over
// for a reason, each value to one component, and shards go together again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/checkpoint/checkpoint.h"
#include "harness/shard/executor.h"
#include "harness/shard/unplanned.h"

namespace assay::shard {
namespace {

struct File {
  const char* path;
  std::vector<Degrees> legal;
  std::vector<std::string> passed = {};  // what the names of tensors that nobody takes contain
  bool unplanned = false;
  int64_t spare = 0;  // values of taken tensors that no component has
};

void PrintTo(const File& file, std::ostream* os) { *os << file.path; }

struct Model {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelConfig config;
};

Model Open(const std::string& path) {
  Model model;
  auto checkpoint = Checkpoint::Open("goldens/" + path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  if (!checkpoint.ok()) return model;
  model.checkpoint = std::move(*checkpoint);
  model.config = model.checkpoint->config();
  return model;
}

ModelPlan PlanOf(const Model& model, const Degrees& degrees, const Selection& selection = {}) {
  const auto result = PlanModel(model.config, *model.checkpoint, degrees, selection);
  if (!result.ok() || !result->plan) {
    ADD_FAILURE() << (result.ok() ? result->refusal->Message() : result.error().message);
    return {};
  }
  return *result->plan;
}

// Counts how often each value of each tensor belongs to a component.
using Taken = std::map<std::string, std::vector<int>, std::less<>>;
void Take(const Component& c, const TensorView& tensor, Taken* taken) {
  const auto values = tensor.bytes.size() / static_cast<size_t>(SizeOf(tensor.dtype).count());
  auto& counts = taken->emplace(tensor.name, std::vector<int>(values)).first->second;
  const int64_t step = c.row_step == 0 ? c.columns : c.row_step;
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t column = 0; column < c.columns; ++column) {
      const auto at = static_cast<size_t>(c.first + row * step + column * c.column_step);
      ASSERT_LT(at, values) << c.name;
      ++counts[at];
    }
  }
}

class FamilyFiles : public testing::TestWithParam<File> {};

TEST_P(FamilyFiles, EveryTensorIsTakenOnceOrPassedOver) {
  const Model model = Open(GetParam().path);
  const auto& checkpoint = model.checkpoint;
  ASSERT_NE(checkpoint, nullptr);
  Taken taken;
  for (const ComponentPlan& plan : PlanOf(model, {1}).components) {
    if (plan.component.name == "logits.weight" && model.config.tied) continue;
    EXPECT_FALSE(plan.component.method.empty()) << plan.component.name;
    Take(plan.component, *checkpoint->Find(plan.component.source), &taken);
  }
  int64_t spare = 0;
  for (const auto& [name, counts] : taken) {
    spare += std::count(counts.begin(), counts.end(), 0);
    EXPECT_LE(*std::max_element(counts.begin(), counts.end()), 1) << name;
  }
  EXPECT_EQ(spare, GetParam().spare);
  std::map<std::string, const Passed*, std::less<>> reasons;
  const std::vector<Passed> passed = Unplanned(model.config, *checkpoint);
  for (const Passed& one : passed) reasons[one.name] = &one;
  for (const std::string& name : checkpoint->Names()) {
    const auto reason = reasons.find(name);
    EXPECT_NE(taken.count(name) > 0, reason != reasons.end()) << name;
    if (reason == reasons.end()) continue;
    EXPECT_TRUE(std::ranges::any_of(GetParam().passed, [&](const std::string& part) {
      return name.find(part) != std::string::npos;
    })) << name;
    EXPECT_EQ(reason->second->unplanned, GetParam().unplanned);
  }
  EXPECT_EQ(passed.empty(), GetParam().passed.empty());
}

TEST_P(FamilyFiles, ShardsGoTogetherAgain) {
  const Model model = Open(GetParam().path);
  const auto& checkpoint = model.checkpoint;
  ASSERT_NE(checkpoint, nullptr);
  ASSERT_FALSE(GetParam().legal.empty());
  const size_t count = PlanOf(model, {1}).components.size();
  for (const Degrees& degrees : GetParam().legal) {
    const ModelPlan plan = PlanOf(model, degrees);
    ASSERT_EQ(plan.components.size(), count);
    for (const ComponentPlan& component : plan.components) {
      const TensorView& tensor = *checkpoint->Find(component.component.source);
      const auto size = static_cast<size_t>(SizeOf(tensor.dtype).count());
      std::vector<std::vector<std::byte>> shards;
      for (int rank = 0; rank < degrees.tp; ++rank) {
        const ShardShape shape = ShapeOf(component, rank);
        shards.emplace_back(static_cast<size_t>(shape.rows * shape.columns) * size);
        const Status copied = CopyShard(component, rank, tensor, shards.back());
        ASSERT_TRUE(copied.ok()) << copied.error().message;
      }
      const Component& c = component.component;
      std::vector<std::byte> joined(static_cast<size_t>(c.rows * c.columns) * size);
      const Status status = Reassemble(component, {shards.begin(), shards.end()}, joined);
      ASSERT_TRUE(status.ok()) << status.error().message;
      std::vector<std::byte> due;
      const int64_t step = c.row_step == 0 ? c.columns : c.row_step;
      for (int64_t value = 0; value < c.rows * c.columns; ++value) {
        const int64_t at = c.first + value / c.columns * step + value % c.columns * c.column_step;
        const auto from = tensor.bytes.begin() + at * static_cast<int64_t>(size);
        due.insert(due.end(), from, from + static_cast<int64_t>(size));
      }
      ASSERT_EQ(joined, due) << c.name;
    }
  }
}

Degrees Dp(int tp, int dp) {
  Degrees degrees{tp};
  degrees.dp = dp;
  return degrees;
}
Degrees Ep(int tp, int ep, int dp = 1) {
  Degrees degrees{tp};
  degrees.ep = ep;
  degrees.dp = dp;
  return degrees;
}
Degrees Ceil(int tp) {
  Degrees degrees{tp};
  degrees.split = Split::kCeil;
  return degrees;
}

INSTANTIATE_TEST_SUITE_P(
    Files, FamilyFiles,
    testing::Values(
        File{"checkpoints/qwen3moe-mini", {{2}, {4}, Ep(4, 1), Dp(4, 2)}},
        File{"checkpoints/gptoss-mini", {{2}, {4}, {8}, Dp(8, 4)}},
        File{"quantised/gptoss-mini-mxfp4", {{1}, Ceil(2), Ceil(4), Ceil(8)}},
        File{"quantised/qwen3moe-mini-fp8", {{1}, Dp(2, 2)}},
        // Attention is not planned yet.
        File{"checkpoints/v4-mini", {{2}, {3}, {8}, Ep(5, 5, 5)}, {".attn."}, true},
        File{"checkpoints/kimilinear-mini", {{2, 1}, {4, 1}, Dp(4, 4)}},
        // A_log has 8 values for 6 heads, in four layers.
        File{"checkpoints/k3-mini", {{2}, Dp(4, 2), Dp(6, 3), Ep(6, 3, 3)}, {}, false, 8},
        File{"checkpoints/k3-mini/k3-mini.gguf", {{2}, Dp(6, 3)}},
        File{"checkpoints/m3-mini", {{2}, {4, 2}, Dp(2, 2)}, {"index_"}, true},
        File{"checkpoints/m3-mini/m3-mini.gguf", {{2}, {4, 2}}, {"indexer."}, true},
        File{"checkpoints/k2-mini", {{2}, {8}, Ep(4, 2)}},
        File{"checkpoints/qwen2-mini", {{4, 1}}}),
    [](const auto& info) {
      std::string name = info.param.path;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

// "attn.q n[attn_tp]" of one layer, "L1." left out; of the experts only the first.
std::vector<std::string> Lines(const std::string& path, int64_t layer, const Degrees& degrees,
                               bool mlp = true) {
  const Model model = Open(path);
  std::vector<std::string> lines;
  if (model.checkpoint == nullptr) return lines;
  Selection selection;
  selection.layer = layer;
  selection.mlp = mlp;
  for (const ComponentPlan& plan : PlanOf(model, degrees, selection).components) {
    const std::string& name = plan.component.name;
    const size_t expert = name.find(".moe.e");
    if (expert != std::string::npos && name.compare(expert, 8, ".moe.e0.") != 0) continue;
    lines.push_back(name.substr(name.find('.') + 1) + " " + plan.Print());
  }
  return lines;
}

TEST(Families, KimiK3) {
  EXPECT_EQ(
      Lines("checkpoints/k3-mini", 1, {2}),
      (std::vector<std::string>{"attn_res.norm.weight whole",    "attn_res.proj.weight whole",
                                "input_norm.weight whole",       "attn.q.weight n[attn_tp]",
                                "attn.q_conv.weight n[attn_tp]", "attn.k.weight n[attn_tp]",
                                "attn.k_conv.weight n[attn_tp]", "attn.v.weight n[attn_tp]",
                                "attn.v_conv.weight n[attn_tp]", "attn.f_a.weight whole",
                                "attn.f_b.weight n[attn_tp]",    "attn.dt_bias.weight n[attn_tp]",
                                "attn.a_log.weight n[attn_tp]",  "attn.b.weight n[attn_tp]",
                                "attn.g.weight n[attn_tp]",      "attn.o_norm.weight whole",
                                "attn.out.weight k[attn_tp]",    "mlp_res.norm.weight whole",
                                "mlp_res.proj.weight whole",     "post_norm.weight whole",
                                "router.logits.weight whole",    "router.scores.bias whole",
                                "moe.latent_down.weight whole",  "moe.e0.gate.weight n[tp]",
                                "moe.e0.up.weight n[tp]",        "moe.e0.down.weight k[tp]",
                                "moe.latent_norm.weight whole",  "moe.latent_up.weight whole",
                                "shared.gate.weight n[tp]",      "shared.up.weight n[tp]",
                                "shared.down.weight k[tp]"}));
  const auto mla = Lines("checkpoints/k3-mini", 3, {2});
  ASSERT_GE(mla.size(), 11u);
  EXPECT_EQ(
      (std::vector<std::string>{mla.begin() + 3, mla.begin() + 11}),
      (std::vector<std::string>{"attn.q_a.weight whole", "attn.q_a_norm.weight whole",
                                "attn.q.weight n[attn_tp]", "attn.kv_a.weight whole",
                                "attn.kv_a_norm.weight whole", "attn.kv_b.weight n[attn_tp]",
                                "attn.gate.weight n[attn_tp]", "attn.out.weight k[attn_tp]"}));
}

// GGUF keeps kv_b in two halves, whole on every rank, and the residuals' products.
TEST(Families, KimiK3OfGguf) {
  const auto mla = Lines("checkpoints/k3-mini/k3-mini.gguf", 3, {2});
  ASSERT_GE(mla.size(), 13u);
  EXPECT_EQ((std::vector<std::string>{mla.begin(), mla.begin() + 13}),
            (std::vector<std::string>{
                "attn_res.score.weight whole", "input_norm.weight whole", "attn.q_a.weight whole",
                "attn.q_a_norm.weight whole", "attn.q.weight n[attn_tp]", "attn.kv_a.weight whole",
                "attn.kv_a_norm.weight whole", "attn.k_b.weight whole", "attn.v_b.weight whole",
                "attn.gate.weight n[attn_tp]", "attn.out.weight k[attn_tp]",
                "mlp_res.score.weight whole", "post_norm.weight whole"}));
}

TEST(Families, KimiLinearHasALowRankGate) {
  const auto lines = Lines("checkpoints/kimilinear-mini", 0, {5}, false);
  ASSERT_GE(lines.size(), 16u);
  EXPECT_EQ((std::vector<std::string>{lines.begin() + 12, lines.begin() + 16}),
            (std::vector<std::string>{"attn.g_a.weight whole", "attn.g_b.weight n[attn_tp]",
                                      "attn.o_norm.weight whole", "attn.out.weight k[attn_tp]"}));
}

TEST(Families, GptOss) {
  EXPECT_EQ(Lines("quantised/gptoss-mini-mxfp4", 0, Ceil(2)),
            (std::vector<std::string>{"input_norm.weight whole",
                                      "attn.q.weight n[attn_tp]",
                                      "attn.q.bias n[attn_tp]",
                                      "attn.k.weight n[attn_tp]",
                                      "attn.k.bias n[attn_tp]",
                                      "attn.v.weight n[attn_tp]",
                                      "attn.v.bias n[attn_tp]",
                                      "attn.sinks.weight n[attn_tp]",
                                      "attn.out.weight k[attn_tp]",
                                      "attn.out.bias whole, added by rank 0",
                                      "post_norm.weight whole",
                                      "router.logits.weight whole",
                                      "router.logits.bias whole",
                                      "moe.e0.gate.weight n[tp] g32 u4x2 pad 32",
                                      "moe.e0.gate.scale n[tp] g32 pad 32",
                                      "moe.e0.gate.bias n[tp] pad 32",
                                      "moe.e0.up.weight n[tp] g32 u4x2 pad 32",
                                      "moe.e0.up.scale n[tp] g32 pad 32",
                                      "moe.e0.up.bias n[tp] pad 32",
                                      "moe.e0.down.weight k[tp] g32 u4x2 pad 16",
                                      "moe.e0.down.scale k[tp] g32 pad 1",
                                      "moe.e0.down.bias whole, added by rank 0"}));
}

TEST(Families, DeepseekV4WithoutItsAttention) {
  EXPECT_EQ(Lines("checkpoints/v4-mini", 0, {2}),
            (std::vector<std::string>{
                "attn_hc.fn.weight whole", "attn_hc.base.weight whole",
                "attn_hc.scale.weight whole", "input_norm.weight whole", "ffn_hc.fn.weight whole",
                "ffn_hc.base.weight whole", "ffn_hc.scale.weight whole", "post_norm.weight whole",
                "router.logits.weight whole", "router.table.weight whole",
                "moe.e0.gate.weight n[tp]", "moe.e0.up.weight n[tp]", "moe.e0.down.weight k[tp]",
                "shared.gate.weight n[tp]", "shared.up.weight n[tp]", "shared.down.weight k[tp]"}));
  const auto lines = Lines("checkpoints/v4-mini", 1, {2});
  ASSERT_GE(lines.size(), 10u);
  EXPECT_EQ(lines.at(9), "router.scores.bias whole");
}

// The control of "every tensor": a name that nobody knows is no one's.
TEST(Families, AStrayNameIsNotPassedOver) {
  for (const char* path : {"checkpoints/k3-mini", "checkpoints/v4-mini", "checkpoints/m3-mini",
                           "checkpoints/k3-mini/k3-mini.gguf"}) {
    const Model model = Open(path);
    ASSERT_NE(model.checkpoint, nullptr);
    const ModelConfig& config = model.config;
    const bool gguf = config.container == Container::kGguf;
    const std::string layer = gguf ? "blk.1." : config.prefix + "layers.1.";
    EXPECT_EQ(WhyPassed(config, layer + "self_attn.stray.weight"), "") << path;
    EXPECT_EQ(WhyPassed(config, layer + "mlp.stray"), "") << path;
    EXPECT_NE(WhyPassed(config, (gguf ? "blk.99." : config.prefix + "layers.99.") +
                                    std::string("self_attn.q_proj.weight")),
              "")
        << path;
  }
}

}  // namespace
}  // namespace assay::shard
