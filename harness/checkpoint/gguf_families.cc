// GGUF's metadata of the families with experts, as llama.cpp's converter writes it.
#include <algorithm>
#include <array>

#include "harness/checkpoint/gguf_deriver.h"

namespace assay {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 31> kKimiK3Keys = {"activation.situ_beta",
                                                          "activation.situ_linear_beta",
                                                          "attention.head_count",
                                                          "attention.head_count_kv",
                                                          "attention.key_length",
                                                          "attention.key_length_mla",
                                                          "attention.kv_lora_rank",
                                                          "attention.layer_norm_rms_epsilon",
                                                          "attention.q_lora_rank",
                                                          "attention.value_length",
                                                          "attention.value_length_mla",
                                                          "attn_res.block_size",
                                                          "block_count",
                                                          "context_length",
                                                          "embedding_length",
                                                          "expert_count",
                                                          "expert_feed_forward_length",
                                                          "expert_gating_func",
                                                          "expert_latent_length",
                                                          "expert_shared_count",
                                                          "expert_used_count",
                                                          "expert_weights_norm",
                                                          "expert_weights_scale",
                                                          "feed_forward_length",
                                                          "kda.gate_lower_bound",
                                                          "kda.head_dim",
                                                          "leading_dense_block_count",
                                                          "rope.dimension_count",
                                                          "rope.freq_base",
                                                          "ssm.conv_kernel",
                                                          "vocab_size"};
constexpr std::array<std::string_view, 25> kMinimaxM3Keys = {"attention.head_count",
                                                             "attention.head_count_kv",
                                                             "attention.indexer.block_size",
                                                             "attention.indexer.head_count",
                                                             "attention.indexer.key_length",
                                                             "attention.indexer.local_blocks",
                                                             "attention.indexer.top_k",
                                                             "attention.key_length",
                                                             "attention.layer_norm_rms_epsilon",
                                                             "attention.value_length",
                                                             "block_count",
                                                             "context_length",
                                                             "embedding_length",
                                                             "expert_count",
                                                             "expert_feed_forward_length",
                                                             "expert_gating_func",
                                                             "expert_shared_count",
                                                             "expert_used_count",
                                                             "expert_weights_norm",
                                                             "expert_weights_scale",
                                                             "feed_forward_length",
                                                             "leading_dense_block_count",
                                                             "rope.dimension_count",
                                                             "rope.freq_base",
                                                             "vocab_size"};

void AddWeights(GgufNames& names, std::initializer_list<std::string_view> modules) {
  for (const std::string_view module : modules) names.insert(fmt::format("{}.weight", module));
}

}  // namespace

std::span<const std::string_view> GgufKimiK3Keys() { return kKimiK3Keys; }
std::span<const std::string_view> GgufMinimaxM3Keys() { return kMinimaxM3Keys; }

// What both call alike; how many are taken, how they are chosen, how wide they are.
void GgufDeriver::ReadExperts() {
  Put("num_experts", "expert_count", true);
  Put("num_experts_per_tok", "expert_used_count", true);
  Put("num_shared_experts", "expert_shared_count", false);
  PutNumber("routed_scaling_factor", "expert_weights_scale", 1.0);
  const bool renormalised = Take(file_.Bool(Key("expert_weights_norm"))).value_or(false);
  if (!renormalised) {
    MarkUnknown(fmt::format("{} false is not known", Quoted(Key("expert_weights_norm"))));
  }
  constexpr int64_t kSigmoid = 2;  // llama.cpp's number for it
  if (const auto gating = Count("expert_gating_func"); gating.value_or(0) != kSigmoid) {
    MarkUnknown(
        fmt::format("{} {} is not known", Quoted(Key("expert_gating_func")), gating.value_or(0)));
  }
}

// Keys' heads are an array: 0 in layers of delta attention, 1 where latent attention is one head.
void GgufDeriver::ReadDeltaLayers() {
  const std::string key = Key("attention.head_count_kv");
  const auto heads = Take(file_.Integers(key));
  const bool fits =
      heads && static_cast<int64_t>(heads->size()) == Layers() &&
      std::all_of(heads->begin(), heads->end(), [](int64_t one) { return one == 0 || one == 1; });
  if (!fits) {
    return Fail(
        fmt::format("key {}", Quoted(key)),
        fmt::format("it must have a 0 (delta attention) or a 1 for each of {} layers", Layers()));
  }
  json types = json::array();
  bool full_gate = false, output_gate = false;
  for (size_t i = 0; i < heads->size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    types.push_back((*heads)[i] == 0 ? "linear_attention" : "full_attention");
    full_gate = full_gate || LayerHas(layer, "ssm_g.weight");
    output_gate = output_gate || LayerHas(layer, "attn_gate.weight");
  }
  out_["layer_types"] = std::move(types);
  out_["mla_use_output_gate"] = output_gate;
  json linear = {{"num_heads", out_.value("num_attention_heads", int64_t{0})},
                 {"head_dim", RequiredCount("kda.head_dim")},
                 {"short_conv_kernel_size", RequiredCount("ssm.conv_kernel")},
                 {"use_full_rank_gate", full_gate}};
  std::swap(out_, linear);
  PutNumber("gate_lower_bound", "kda.gate_lower_bound", std::nullopt);
  std::swap(out_, linear);
  out_["linear_attn_config"] = std::move(linear);
}

// key_length and value_length are the latent's; the heads' own are "_mla".
void GgufDeriver::ReadLatentAttention() {
  Put("q_lora_rank", "attention.q_lora_rank", false);
  Put("kv_lora_rank", "attention.kv_lora_rank", true);
  const int64_t latent = out_.value("kv_lora_rank", int64_t{0});
  const int64_t rope = RequiredCount("rope.dimension_count");
  const int64_t key = RequiredCount("attention.key_length_mla");
  const std::pair<const char*, int64_t> expected[] = {{"attention.key_length", latent + rope},
                                                      {"attention.value_length", latent}};
  if (error_) return;
  if (rope < 1 || rope >= key || latent < 1) {
    return Fail(fmt::format("key {}", Quoted(Key("attention.key_length_mla"))),
                fmt::format("{}; it must be above {}, {}, and both positive", key,
                            Quoted(Key("rope.dimension_count")), rope));
  }
  for (const auto& [suffix, value] : expected) {
    const int64_t stated = Count(suffix).value_or(value);
    if (stated != value) {
      Fail(fmt::format("key {}", Quoted(Key(suffix))),
           fmt::format("{}; the latent's width makes it {}", stated, value));
    }
  }
  out_["qk_rope_head_dim"] = rope;
  out_["qk_nope_head_dim"] = key - rope;
  Put("v_head_dim", "attention.value_length_mla", true);
}

void GgufDeriver::ReadKimiK3() {
  ReadSizes();
  Put("intermediate_size", "feed_forward_length", true);
  Put("num_attention_heads", "attention.head_count", true);
  out_["num_key_value_heads"] = out_.value("num_attention_heads", int64_t{0});
  ReadLatentAttention();
  ReadDeltaLayers();
  ReadExperts();
  Put("moe_intermediate_size", "expert_feed_forward_length", true);
  Put("first_k_dense_replace", "leading_dense_block_count", true);
  Put("routed_expert_hidden_size", "expert_latent_length", false);
  Put("attn_res_block_size", "attn_res.block_size", false);
  const int64_t experts_at = out_.value("first_k_dense_replace", int64_t{0});
  out_["latent_moe_use_norm"] = LayerHas(experts_at, "ffn_routed_norm.weight");
  out_["topk_method"] = LayerHas(experts_at, "exp_probs_b.bias") ? "noaux_tc" : "";
  out_["moe_router_activation_func"] = "sigmoid";
  out_["moe_renormalize"] = true;
  const bool situ = file_.Value(Key("activation.situ_beta")) != nullptr;
  out_["hidden_act"] = situ ? "situ" : "silu";
  if (!situ) return;
  PutNumber("activation_situ_beta", "activation.situ_beta", std::nullopt);
  if (file_.Value(Key("activation.situ_linear_beta")) != nullptr) {
    PutNumber("activation_situ_linear_beta", "activation.situ_linear_beta", std::nullopt);
  }
}

void GgufDeriver::ReadIndexer() {
  json sparse = {{"use_sparse_attention", true}};
  std::swap(out_, sparse);
  Put("sparse_num_index_heads", "attention.indexer.head_count", true);
  Put("sparse_index_dim", "attention.indexer.key_length", true);
  Put("sparse_topk_blocks", "attention.indexer.top_k", true);
  Put("sparse_block_size", "attention.indexer.block_size", true);
  Put("sparse_local_block", "attention.indexer.local_blocks", false);
  std::swap(out_, sparse);
  out_["sparse_attention_config"] = std::move(sparse);
}

void GgufDeriver::ReadMinimaxM3() {
  ReadSizes();
  Put("num_attention_heads", "attention.head_count", true);
  Put("num_key_value_heads", "attention.head_count_kv", true);
  Put("head_dim", "attention.key_length", true);
  const int64_t head_dim = out_.value("head_dim", int64_t{0});
  if (Count("attention.value_length").value_or(head_dim) != head_dim) {
    MarkUnknown(fmt::format("{} beside keys of {} is not known",
                            Quoted(Key("attention.value_length")), head_dim));
  }
  Put("rotary_dim", "rope.dimension_count", true);
  PutNumber("rope_theta", "rope.freq_base", std::nullopt);
  ReadIndexer();
  ReadExperts();
  // Hugging Face calls the experts' width the model's.
  Put("intermediate_size", "expert_feed_forward_length", true);
  Put("dense_intermediate_size", "feed_forward_length", true);
  const int64_t dense = RequiredCount("leading_dense_block_count");
  if (dense < 0 || dense > Layers() || Layers() > 10'000) {
    return Fail(fmt::format("key {}", Quoted(Key("leading_dense_block_count"))),
                fmt::format("{} of {} layers", dense, Layers()));
  }
  json freq = json::array();
  for (int64_t layer = 0; layer < Layers(); ++layer) freq.push_back(layer < dense ? 0 : 1);
  out_["moe_layer_freq"] = std::move(freq);
  const TensorView* shared = file_.Find(fmt::format("blk.{}.ffn_gate_shexp.weight", dense));
  if (shared != nullptr && shared->shape.size() == 2) {
    out_["shared_intermediate_size"] = shared->shape[0];
  }
  out_["use_routing_bias"] = LayerHas(dense, "exp_probs_b.bias");
  out_["use_qk_norm"] = LayerHas(0, "attn_q_norm.weight");
  out_["use_gemma_norm"] = false;  // the file has 1 + w
  out_["scoring_func"] = "sigmoid";
  // llama.cpp's constants of the family: the file does not have them.
  out_["hidden_act"] = "swigluoai";
  out_["swiglu_alpha"] = 1.702;
  out_["swiglu_limit"] = 7.0;
}

GgufNames GgufFamilyNames(const ModelConfig& config, int64_t layer) {
  GgufNames names;
  AddWeights(names, {"attn_norm", "ffn_norm", "attn_output"});
  if (config.is_moe(layer)) {
    AddWeights(names, {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"});
    if (!config.topk_method.empty()) names.insert("exp_probs_b.bias");
    if (config.shared_experts > 0) {
      AddWeights(names, {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"});
    }
    if (config.latent > 0) AddWeights(names, {"ffn_routed_down", "ffn_routed_up"});
    if (config.latent_norm) AddWeights(names, {"ffn_routed_norm"});
  } else {
    AddWeights(names, {"ffn_gate", "ffn_up", "ffn_down"});
  }
  if (config.family == Family::kMinimaxM3) {
    AddWeights(names, {"attn_q", "attn_k", "attn_v"});
    if (config.qk_norm) AddWeights(names, {"attn_q_norm", "attn_k_norm"});
    // Its own sparse layers are those with experts.
    if (config.is_moe(layer)) {
      AddWeights(names, {"indexer.q_proj", "indexer.q_norm", "indexer.k_proj", "indexer.k_norm"});
    }
    return names;
  }
  if (config.attn_res_block > 0) AddWeights(names, {"attn_res_score", "ffn_res_score"});
  if (config.is_kda(layer)) {
    AddWeights(names, {"attn_q", "attn_k", "attn_v", "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v",
                       "ssm_f_a", "ssm_f_b", "ssm_beta", "ssm_norm"});
    if (config.kda_full_gate) AddWeights(names, {"ssm_g"});
    names.insert({"ssm_a", "ssm_dt.bias"});
    return names;
  }
  // The latent's second matrix lies in two parts, or as it was.
  AddWeights(names, {"attn_kv_a_mqa", "attn_kv_a_norm", "attn_k_b", "attn_v_b", "attn_kv_b"});
  if (config.q_lora > 0) {
    AddWeights(names, {"attn_q_a", "attn_q_a_norm", "attn_q_b"});
  } else {
    AddWeights(names, {"attn_q"});
  }
  if (config.mla_gate) AddWeights(names, {"attn_gate"});
  return names;
}

}  // namespace assay
