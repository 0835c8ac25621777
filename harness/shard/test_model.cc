#include "harness/shard/test_model.h"

#include <cstring>
#include <utility>

#include "harness/units/dtype.h"

namespace assay::shard {
namespace {

void PutMlp(MemorySource* source, const std::string& module, int64_t width, int64_t hidden) {
  PutTensor(source, module + ".gate_proj.weight", DType::kBF16, {width, hidden});
  PutTensor(source, module + ".up_proj.weight", DType::kBF16, {width, hidden});
  PutTensor(source, module + ".down_proj.weight", DType::kBF16, {hidden, width});
}

void PutCommon(MemorySource* source, const ModelConfig& c) {
  PutTensor(source, "model.embed_tokens.weight", DType::kBF16, {c.vocab, c.hidden});
  PutTensor(source, "model.norm.weight", DType::kBF16, {c.hidden});
  if (!c.tied) PutTensor(source, "lm_head.weight", DType::kBF16, {c.vocab, c.hidden});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    PutTensor(source, layer + "input_layernorm.weight", DType::kBF16, {c.hidden});
    PutTensor(source, layer + "post_attention_layernorm.weight", DType::kBF16, {c.hidden});
  }
}

void SetCommon(ModelConfig* c, int64_t layers, int64_t hidden, int64_t heads, int64_t vocab) {
  c->prefix = "model.";
  c->layers = layers;
  c->hidden = hidden;
  c->heads = heads;
  c->vocab = vocab;
  c->lm_head = "lm_head.weight";
}

void SetGqa(ModelConfig* c, const GqaSizes& sizes) {
  c->family = Family::kLlama;
  SetCommon(c, sizes.layers, sizes.hidden, sizes.heads, sizes.vocab);
  c->kv_heads = sizes.kv_heads;
  c->head_dim = sizes.head_dim;
  c->intermediate = sizes.intermediate;
  c->qkv_bias = sizes.qkv_bias;
  c->o_bias = sizes.o_bias;
  c->mlp_bias = sizes.mlp_bias;
  c->qk_norm = sizes.qk_norm;
  c->tied = sizes.tied;
}

void PutGqaLayer(MemorySource* source, const ModelConfig& c, int64_t index) {
  const std::string layer = "model.layers." + std::to_string(index) + ".";
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (auto [name, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
    const std::string module = layer + "self_attn." + name + "_proj";
    PutTensor(source, module + ".weight", DType::kBF16, {rows, c.hidden});
    if (c.qkv_bias) PutTensor(source, module + ".bias", DType::kBF16, {rows});
  }
  if (c.qk_norm) {
    PutTensor(source, layer + "self_attn.q_norm.weight", DType::kBF16, {c.head_dim});
    PutTensor(source, layer + "self_attn.k_norm.weight", DType::kBF16, {c.head_dim});
  }
  PutTensor(source, layer + "self_attn.o_proj.weight", DType::kBF16, {c.hidden, q});
  if (c.o_bias) PutTensor(source, layer + "self_attn.o_proj.bias", DType::kBF16, {c.hidden});
  PutMlp(source, layer + "mlp", c.intermediate, c.hidden);
  if (c.mlp_bias) {
    PutTensor(source, layer + "mlp.gate_proj.bias", DType::kBF16, {c.intermediate});
    PutTensor(source, layer + "mlp.up_proj.bias", DType::kBF16, {c.intermediate});
    PutTensor(source, layer + "mlp.down_proj.bias", DType::kBF16, {c.hidden});
  }
}

void PutMla(MemorySource* source, const ModelConfig& c, const std::string& attn) {
  if (c.q_lora > 0) {
    PutTensor(source, attn + "q_a_proj.weight", DType::kBF16, {c.q_lora, c.hidden});
    PutTensor(source, attn + "q_a_layernorm.weight", DType::kBF16, {c.q_lora});
  }
  PutTensor(source, attn + (c.q_lora > 0 ? "q_b_proj.weight" : "q_proj.weight"), DType::kBF16,
            {c.heads * (c.qk_nope + c.qk_rope), c.q_lora > 0 ? c.q_lora : c.hidden});
  PutTensor(source, attn + "kv_a_proj_with_mqa.weight", DType::kBF16,
            {c.kv_lora + c.qk_rope, c.hidden});
  PutTensor(source, attn + "kv_a_layernorm.weight", DType::kBF16, {c.kv_lora});
  PutTensor(source, attn + "kv_b_proj.weight", DType::kBF16,
            {c.heads * (c.qk_nope + c.v_dim), c.kv_lora});
  PutTensor(source, attn + "o_proj.weight", DType::kBF16, {c.hidden, c.heads * c.v_dim});
}

void PutMxfp4Mlp(MemorySource* source, const std::string& module, int64_t width, int64_t hidden) {
  PutMxfp4(source, module + ".gate_proj", width, hidden);
  PutMxfp4(source, module + ".up_proj", width, hidden);
  PutMxfp4(source, module + ".down_proj", hidden, width);
}

void PutMoe(MemorySource* source, const ModelConfig& c, const MlaSizes& sizes,
            const std::string& mlp) {
  const int64_t group = sizes.group;
  PutTensor(source, mlp + "gate.weight", DType::kBF16, {c.experts, c.hidden});
  PutTensor(source, mlp + "gate.e_score_correction_bias", DType::kF32, {c.experts});
  for (int64_t e = 0; e < c.experts; ++e) {
    const std::string expert = mlp + "experts." + std::to_string(e);
    if (sizes.mxfp4) {
      PutMxfp4Mlp(source, expert, c.moe_intermediate, c.hidden);
      continue;
    }
    if (group == 0) {
      PutMlp(source, expert, c.moe_intermediate, c.hidden);
      continue;
    }
    PutInt4(source, expert + ".gate_proj", c.moe_intermediate, c.hidden, group);
    PutInt4(source, expert + ".up_proj", c.moe_intermediate, c.hidden, group);
    PutInt4(source, expert + ".down_proj", c.hidden, c.moe_intermediate, group);
  }
  if (c.shared_experts > 0) {
    PutMlp(source, mlp + "shared_experts", c.moe_intermediate * c.shared_experts, c.hidden);
  }
}

}  // namespace

std::vector<std::byte> TestBytes(const std::string& name, size_t count) {
  uint64_t state = 0xcbf29ce484222325u;  // FNV-1a of the name, then splitmix64 of the index
  for (char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    uint64_t z = state + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    bytes[i] = static_cast<std::byte>(z >> 56);
  }
  return bytes;
}

void PutTensor(MemorySource* source, const std::string& name, DType dtype,
               std::vector<int64_t> shape) {
  int64_t bytes = SizeOf(dtype).count();
  for (int64_t extent : shape) bytes *= extent;
  std::vector<std::byte> values = TestBytes(name, static_cast<size_t>(bytes));
  // An exponent of 255 is no number.
  const auto block = static_cast<size_t>(SizeOf(dtype).count());
  for (size_t i = 0; dtype == DType::kMxfp4Block && i < values.size(); i += block) {
    if (values[i] == std::byte{255}) values[i] = std::byte{254};
  }
  source->Put(name, dtype, std::move(shape), std::move(values));
}

void PutShape(MemorySource* source, const std::string& module, int64_t n, int64_t k) {
  const int64_t shape[2] = {n, k};
  std::vector<std::byte> bytes(sizeof shape);
  std::memcpy(bytes.data(), shape, sizeof shape);
  source->Put(module + ".weight_shape", DType::kI64, {2}, std::move(bytes));
}

void PutInt4(MemorySource* source, const std::string& module, int64_t n, int64_t k, int64_t group) {
  PutTensor(source, module + ".weight_packed", DType::kI32, {n, (k + 7) / 8});
  PutTensor(source, module + ".weight_scale", DType::kBF16, {n, group == 0 ? 1 : k / group});
  PutShape(source, module, n, k);
}

void PutMxfp4(MemorySource* source, const std::string& module, int64_t n, int64_t k) {
  PutTensor(source, module + ".weight", DType::kI8, {n, k / 2});
  std::vector<std::byte> scale = TestBytes(module + ".scale", static_cast<size_t>(n * (k / 32)));
  for (std::byte& exponent : scale) {
    if (exponent == std::byte{255}) exponent = std::byte{254};
  }
  source->Put(module + ".scale", DType::kF8E8M0, {n, k / 32}, std::move(scale));
}

TestModel GgufModel(const GqaSizes& sizes, DType blocks, DType embed) {
  TestModel model;
  ModelConfig& c = model.config;
  SetGqa(&c, sizes);
  c.container = Container::kGguf;
  c.prefix = "";
  c.lm_head = c.tied ? "token_embd.weight" : "output.weight";
  const auto matrix = [&](const std::string& name, DType dtype, int64_t n, int64_t k) {
    PutTensor(&model.source, name, dtype, {n, k / ElementsOf(dtype).count()});
  };
  const auto vector = [&](const std::string& name, int64_t n) {
    PutTensor(&model.source, name, DType::kF32, {n});
  };
  matrix("token_embd.weight", embed, c.vocab, c.hidden);
  if (!c.tied) matrix("output.weight", embed, c.vocab, c.hidden);
  vector("output_norm.weight", c.hidden);
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm", "ffn_norm"}) vector(layer + norm + ".weight", c.hidden);
    for (auto [name, rows] : {std::pair{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}) {
      matrix(layer + name + ".weight", blocks, rows, c.hidden);
      if (c.qkv_bias) vector(layer + name + ".bias", rows);
    }
    if (c.qk_norm) {
      for (const char* norm : {"attn_q_norm", "attn_k_norm"}) {
        vector(layer + norm + ".weight", c.head_dim);
      }
    }
    matrix(layer + "attn_output.weight", blocks, c.hidden, q);
    if (c.o_bias) vector(layer + "attn_output.bias", c.hidden);
    for (const char* name : {"ffn_gate", "ffn_up"}) {
      matrix(layer + name + ".weight", blocks, c.intermediate, c.hidden);
      if (c.mlp_bias) vector(layer + name + ".bias", c.intermediate);
    }
    matrix(layer + "ffn_down.weight", blocks, c.hidden, c.intermediate);
    if (c.mlp_bias) vector(layer + "ffn_down.bias", c.hidden);
  }
  return model;
}

TestModel GqaModel(const GqaSizes& sizes) {
  TestModel model;
  ModelConfig& c = model.config;
  SetGqa(&c, sizes);
  if (c.tied) c.lm_head = "model.embed_tokens.weight";
  PutCommon(&model.source, c);
  for (int64_t i = 0; i < c.layers; ++i) PutGqaLayer(&model.source, c, i);
  return model;
}

TestModel MlaModel(const MlaSizes& sizes) {
  TestModel model;
  ModelConfig& c = model.config;
  c.family = Family::kDeepseekV3;
  SetCommon(&c, sizes.layers, sizes.hidden, sizes.heads, sizes.vocab);
  c.kv_heads = sizes.heads;
  c.q_lora = sizes.q_lora;
  c.kv_lora = sizes.kv_lora;
  c.qk_nope = sizes.nope;
  c.qk_rope = sizes.rope;
  c.v_dim = sizes.v;
  c.intermediate = sizes.intermediate;
  c.experts = sizes.experts;
  c.moe_intermediate = sizes.moe_intermediate;
  c.shared_experts = sizes.shared;
  c.first_dense = 1;
  c.topk_method = "noaux_tc";
  if (sizes.group > 0 && !sizes.mxfp4) {
    c.quant = {.method = "compressed-tensors",
               .format = "pack-quantized",
               .weight_type = "int",
               .bits = 4,
               .group_size = sizes.group,
               .strategy = "group",
               .symmetric = true,
               .actorder = "",
               .ignore = {},
               .targets = {"Linear"}};
  }
  PutCommon(&model.source, c);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    PutMla(&model.source, c, layer + "self_attn.");
    if (i < c.first_dense) {
      PutMlp(&model.source, layer + "mlp", c.intermediate, c.hidden);
    } else {
      PutMoe(&model.source, c, sizes, layer + "mlp.");
    }
  }
  return model;
}

}  // namespace assay::shard
