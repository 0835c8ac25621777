// GGUF files of the families with experts say what their safetensors twins say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

ModelConfig Opened(const std::string& path) {
  const auto checkpoint = Checkpoint::Open(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  return checkpoint.ok() ? (*checkpoint)->config() : ModelConfig();
}

// Layers with experts, however the config says which.
std::vector<bool> MoeOf(const ModelConfig& config) {
  std::vector<bool> moe;
  for (int64_t i = 0; i < config.layers; ++i) moe.push_back(config.is_moe(i));
  return moe;
}

TEST(GgufFamilies, TheSameConfigAsTheirTwins) {
  for (const char* model : {"k3-mini", "m3-mini"}) {
    SCOPED_TRACE(model);
    const ModelConfig a = Opened(fmt::format("goldens/checkpoints/{}", model));
    const ModelConfig b = Opened(fmt::format("goldens/checkpoints/{}/{}.gguf", model, model));
    EXPECT_EQ(b.container, Container::kGguf);
    EXPECT_EQ(b.family, a.family);
    EXPECT_EQ(b.why_unknown, "");
    EXPECT_EQ(b.lm_head, "output.weight");
    EXPECT_EQ(std::tie(b.hidden, b.layers, b.heads, b.kv_heads, b.head_dim, b.intermediate),
              std::tie(a.hidden, a.layers, a.heads, a.kv_heads, a.head_dim, a.intermediate));
    EXPECT_EQ(std::tie(b.vocab, b.max_position, b.tied, b.hidden_act, b.act_limit),
              std::tie(a.vocab, a.max_position, a.tied, a.hidden_act, a.act_limit));
    EXPECT_EQ(std::tie(b.qkv_bias, b.o_bias, b.qk_norm), std::tie(a.qkv_bias, a.o_bias, a.qk_norm));
    EXPECT_EQ(std::tie(b.q_lora, b.kv_lora, b.qk_nope, b.qk_rope, b.v_dim),
              std::tie(a.q_lora, a.kv_lora, a.qk_nope, a.qk_rope, a.v_dim));
    EXPECT_EQ(std::tie(b.experts, b.top_k, b.moe_intermediate, b.shared_experts, b.groups),
              std::tie(a.experts, a.top_k, a.moe_intermediate, a.shared_experts, a.groups));
    EXPECT_EQ(std::tie(b.norm_topk, b.routed_scaling, b.scoring, b.topk_method),
              std::tie(a.norm_topk, a.routed_scaling, a.scoring, a.topk_method));
    EXPECT_EQ(std::tie(b.kda_layers, b.kda_heads, b.kda_head_dim, b.kda_conv, b.kda_full_gate),
              std::tie(a.kda_layers, a.kda_heads, a.kda_head_dim, a.kda_conv, a.kda_full_gate));
    EXPECT_EQ(
        std::tie(b.mla_gate, b.latent, b.latent_norm, b.attn_res_block, b.shared_intermediate),
        std::tie(a.mla_gate, a.latent, a.latent_norm, a.attn_res_block, a.shared_intermediate));
    EXPECT_EQ(std::tie(b.situ_beta, b.situ_linear_beta), std::tie(a.situ_beta, a.situ_linear_beta));
    EXPECT_EQ(MoeOf(b), MoeOf(a));
    EXPECT_EQ(b.rms_norm_eps, static_cast<double>(static_cast<float>(a.rms_norm_eps)));
  }
}

class Changed {
 public:
  explicit Changed(const char* model)
      : bytes_(ReadBytes(fmt::format("goldens/checkpoints/{}/{}.gguf", model, model))) {}
  // The value of a key of 32 bits; of an array its first element.
  Changed&& Set(const std::string& key, uint32_t value) {
    const size_t at = bytes_.find(key);
    EXPECT_NE(at, std::string::npos) << key;
    const size_t type = at + key.size();
    const size_t skip = bytes_[type] == 9 ? 4 + 4 + 8 : 4;
    std::memcpy(bytes_.data() + type + skip, &value, sizeof(value));
    return std::move(*this);
  }
  // Another text of the same length in place of the first one.
  Changed&& Rename(const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    const size_t at = bytes_.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes_.replace(at, from.size(), to);
    return std::move(*this);
  }
  Result<std::unique_ptr<Checkpoint>> Open() {
    return Checkpoint::Open(folder_.Write("m.gguf", bytes_));
  }

 private:
  TempFolder folder_;
  std::string bytes_;
};

TEST(GgufFamilies, WhatIsNotKnownIsSaid) {
  const auto why = [](Changed&& changed) {
    const auto checkpoint = changed.Open();
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    if (!checkpoint.ok()) return std::string();
    EXPECT_EQ((*checkpoint)->config().family, Family::kUnknown);
    return (*checkpoint)->config().why_unknown;
  };
  EXPECT_EQ(why(Changed("k3-mini").Set("kimi-k3.expert_gating_func", 1)),
            "'kimi-k3.expert_gating_func' 1 is not known");
  EXPECT_EQ(why(Changed("k3-mini").Rename("kimi-k3.expert_latent_length",
                                          "kimi-k3.expert_latent_lengtx")),
            "key 'kimi-k3.expert_latent_lengtx' is not known");
  EXPECT_EQ(why(Changed("m3-mini").Set("minimax-m3.expert_gating_func", 3)),
            "'minimax-m3.expert_gating_func' 3 is not known");
  EXPECT_EQ(why(Changed("m3-mini").Rename("minimax-m3.expert_weights_norm",
                                          "minimax-m3.expert_weights_norx")),
            "'minimax-m3.expert_weights_norm' false is not known");
}

TEST(GgufFamilies, WhatDoesNotFitIsOneClearError) {
  const auto refused = [](Changed&& changed, std::initializer_list<std::string_view> says,
                          ErrorKind kind = ErrorKind::kBadInput) {
    const auto checkpoint = changed.Open();
    ASSERT_FALSE(checkpoint.ok());
    EXPECT_TRUE(Says(checkpoint.error(), says));
    EXPECT_EQ(checkpoint.error().kind, kind);
  };
  refused(Changed("k3-mini").Set("kimi-k3.attention.head_count_kv", 3),
          {"head_count_kv", "each of 6 layers"});
  refused(Changed("k3-mini").Set("kimi-k3.block_count", 5), {"head_count_kv", "each of 5 layers"});
  refused(Changed("k3-mini").Set("kimi-k3.attention.key_length", 33), {"key_length", "33", "32"});
  refused(Changed("k3-mini").Set("kimi-k3.rope.dimension_count", 24), {"key_length_mla"});
  refused(Changed("k3-mini").Set("kimi-k3.kda.head_dim", 0), {"head_dim", "0"});
  refused(Changed("k3-mini").Set("kimi-k3.expert_used_count", 7), {"num_experts_per_tok", "7"});
  refused(Changed("k3-mini").Set("kimi-k3.attn_res.block_size", 0), {"attn_res_block_size"});
  refused(Changed("m3-mini").Set("minimax-m3.leading_dense_block_count", 5),
          {"leading_dense_block_count", "5 of 4"});
  refused(Changed("m3-mini").Rename("minimax-m3.attention.indexer.top_k",
                                    "minimax-m3.attention.indexer.top_x"),
          {"indexer.top_k", "missing"});
  // A tensor that nothing of that layer uses.
  refused(Changed("k3-mini").Rename("blk.0.ssm_norm.weight", "blk.0.ssm_norx.weight"),
          {"'blk.0.ssm_norx.weight'", "nothing of"}, ErrorKind::kUnsupported);
  refused(Changed("k3-mini").Rename("blk.1.ssm_a", "blk.3.ssm_a"), {"'blk.3.ssm_a'"},
          ErrorKind::kUnsupported);
  refused(Changed("m3-mini").Rename("blk.1.indexer.q_norm", "blk.0.indexer.q_norm"),
          {"'blk.0.indexer.q_norm.weight'"}, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace assay
