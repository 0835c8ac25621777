#include "harness/shard/huge_model.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace assay::shard {
namespace {

// More than any of the model's tensors has.
constexpr size_t kLargest = size_t{1} << 33;

constexpr int64_t kHidden = 7168, kHeads = 96, kHeadDim = 128, kQLora = 1536, kKvLora = 512,
                  kNope = 128, kRope = 64, kV = 128, kConv = 4, kVocab = 163840;
constexpr int64_t kDense = 33792, kExperts = 896, kIntermediate = 3072, kLatent = 3584,
                  kShared = 6144, kLogValues = 128;
constexpr char kPrefix[] = "language_model.model.";

struct Writer {
  HeaderSource& source;
  HugeMethod method;
  std::string layer = "";

  void Tensor(std::string_view name, std::vector<int64_t> shape, DType dtype = DType::kBF16) {
    source.Put(layer + std::string(name), dtype, std::move(shape));
  }
  void Quantised(const std::string& module, int64_t n, int64_t k) {
    if (method == HugeMethod::kMxfp4) {
      Tensor(module + ".weight_packed", {n, k / 2}, DType::kU8);
      Tensor(module + ".weight_scale", {n, k / 32}, DType::kU8);
      return;
    }
    Tensor(module + ".weight", {n / 2, k}, DType::kI8);
    Tensor(module + ".weight_scale", {n, 1}, DType::kF32);
    Tensor(module + ".weight_offset", {n, 1}, DType::kF32);
  }

  void Residual(const std::string& name) {
    Tensor(name + "_norm.weight", {kHidden});
    Tensor(name + "_proj.weight", {1, kHidden});
  }
  void Kda() {
    constexpr int64_t kWidth = kHeads * kHeadDim;
    for (const char* name : {"q", "k", "v"}) {
      Tensor(fmt::format("self_attn.{}_proj.weight", name), {kWidth, kHidden});
      Tensor(fmt::format("self_attn.{}_conv1d.weight", name), {kWidth, 1, kConv}, DType::kF32);
    }
    Tensor("self_attn.f_a_proj.weight", {kHeadDim, kHidden});
    Tensor("self_attn.f_b_proj.weight", {kWidth, kHeadDim});
    Tensor("self_attn.dt_bias", {kWidth}, DType::kF32);
    Tensor("self_attn.A_log", {kLogValues}, DType::kF32);
    Tensor("self_attn.b_proj.weight", {kHeads, kHidden});
    Tensor("self_attn.g_proj.weight", {kWidth, kHidden});
    Tensor("self_attn.o_norm.weight", {kHeadDim}, DType::kF32);
    Tensor("self_attn.o_proj.weight", {kHidden, kWidth});
  }
  void Mla() {
    Tensor("self_attn.q_a_proj.weight", {kQLora, kHidden});
    Tensor("self_attn.q_a_layernorm.weight", {kQLora});
    Tensor("self_attn.q_b_proj.weight", {kHeads * (kNope + kRope), kQLora});
    Tensor("self_attn.kv_a_proj_with_mqa.weight", {kKvLora + kRope, kHidden});
    Tensor("self_attn.kv_a_layernorm.weight", {kKvLora});
    Tensor("self_attn.kv_b_proj.weight", {kHeads * (kNope + kV), kKvLora});
    Tensor("self_attn.g_proj.weight", {kHeads * kV, kHidden});
    Tensor("self_attn.o_proj.weight", {kHidden, kHeads * kV});
  }
  void Mlp(const std::string& module, int64_t width) {
    Tensor(module + ".gate_proj.weight", {width, kHidden});
    Tensor(module + ".up_proj.weight", {width, kHidden});
    Tensor(module + ".down_proj.weight", {kHidden, width});
  }
  void Moe() {
    const std::string moe = "block_sparse_moe.";
    Tensor(moe + "gate.weight", {kExperts, kHidden});
    Tensor(moe + "gate.e_score_correction_bias", {kExperts}, DType::kF32);
    Tensor(moe + "routed_expert_down_proj.weight", {kLatent, kHidden});
    Tensor(moe + "routed_expert_norm.weight", {kLatent});
    Tensor(moe + "routed_expert_up_proj.weight", {kHidden, kLatent});
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", moe, e);
      Quantised(expert + "w1", kIntermediate, kLatent);
      Quantised(expert + "w3", kIntermediate, kLatent);
      Quantised(expert + "w2", kLatent, kIntermediate);
    }
    Mlp(moe + "shared_experts", kShared);
  }
};

}  // namespace

HeaderSource::HeaderSource() {
  void* mapped =
      mmap(nullptr, kLargest, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  nothing_ = static_cast<std::byte*>(mapped);
}

HeaderSource::~HeaderSource() { munmap(nothing_, kLargest); }

void HeaderSource::Put(std::string name, DType dtype, std::vector<int64_t> shape) {
  const auto bytes = StoredBytes(dtype, shape);
  if (!bytes || static_cast<size_t>(bytes->count()) > kLargest) std::abort();
  TensorView view{
      name, dtype, std::move(shape), {nothing_, static_cast<size_t>(bytes->count())}, "headers"};
  const auto [at, added] = tensors_.emplace(std::move(name), std::move(view));
  if (!added) std::abort();
  order_.push_back(&at->second);
}

const TensorView* HeaderSource::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::vector<std::string> HeaderSource::Names() const {
  std::vector<std::string> names;
  for (const TensorView* view : order_) names.push_back(view->name);
  std::sort(names.begin(), names.end());
  return names;
}

ModelConfig HugeConfig(HugeMethod method, int64_t layers) {
  ModelConfig c;
  c.family = Family::kKimiK3;
  c.architecture = "KimiK3ForConditionalGeneration";
  c.prefix = kPrefix;
  c.lm_head = "language_model.lm_head.weight";
  c.hidden = kHidden, c.layers = layers, c.heads = c.kv_heads = kHeads, c.head_dim = kNope + kRope;
  c.vocab = kVocab, c.intermediate = kDense;
  c.q_lora = kQLora, c.kv_lora = kKvLora, c.qk_nope = kNope, c.qk_rope = kRope, c.v_dim = kV;
  c.experts = kExperts, c.top_k = 16, c.moe_intermediate = kIntermediate, c.first_dense = 1;
  c.shared_experts = 2, c.latent = kLatent, c.latent_norm = true, c.topk_method = "noaux_tc";
  c.kda_heads = kHeads, c.kda_head_dim = kHeadDim, c.kda_conv = kConv, c.kda_full_gate = true;
  c.mla_gate = true, c.attn_res_block = 12;
  for (int64_t layer = 1; layer <= layers; ++layer) {
    c.kda_layers.push_back(layer % 4 != 0 && layer != 93);
  }
  if (method == HugeMethod::kModelSlimW4a8) {
    c.quant.method = "modelslim";
    return c;
  }
  c.quant.method = "compressed-tensors";
  c.quant.format = "mxfp4-pack-quantized";
  c.quant.weight_type = "float", c.quant.bits = 4;
  c.quant.strategy = "group", c.quant.group_size = 32;
  c.quant.targets = {"Linear"};
  c.quant.ignore = {"language_model.lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                    "re:.*mlp\\.(gate|up|down)_proj.*", "re:.*routed_expert_.*"};
  return c;
}

void PutHugeModel(const ModelConfig& config, HugeMethod method, HeaderSource* source) {
  Writer writer{*source, method};
  writer.layer = kPrefix;
  writer.Tensor("embed_tokens.weight", {kVocab, kHidden});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    writer.layer = fmt::format("{}layers.{}.", kPrefix, layer);
    writer.Residual("self_attention_res");
    writer.Residual("mlp_res");
    writer.Tensor("input_layernorm.weight", {kHidden});
    writer.Tensor("post_attention_layernorm.weight", {kHidden});
    config.is_kda(layer) ? writer.Kda() : writer.Mla();
    config.is_moe(layer) ? writer.Moe() : writer.Mlp("mlp", kDense);
  }
  writer.layer = kPrefix;
  writer.Residual("output_attn_res");
  writer.Tensor("norm.weight", {kHidden});
  source->Put(config.lm_head, DType::kBF16, {kVocab, kHidden});
}

void Describe(const HeaderSource& source, ModelConfig* config) {
  for (const TensorView* view : source.views()) {
    if (!view->name.ends_with("weight")) continue;
    config->quant.description[view->name] = view->dtype == DType::kI8 ? "W4A8_DYNAMIC" : "FLOAT";
  }
}

}  // namespace assay::shard
