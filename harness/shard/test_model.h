// Small models in memory for this room's tests: a config, and tensors that fit it. The names are
// written out again here, not taken from the code under test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::shard {

struct TestModel {
  ModelConfig config;
  MemorySource source;
};

// Bytes that differ from place to place and from tensor to tensor: a function of name and index.
std::vector<std::byte> TestBytes(const std::string& name, size_t count);
void PutTensor(MemorySource* source, const std::string& name, DType dtype,
               std::vector<int64_t> shape);
// weight_packed, weight_scale, weight_shape of an int4 layer; group 0: one scale a row.
void PutInt4(MemorySource* source, const std::string& module, int64_t n, int64_t k, int64_t group);
void PutShape(MemorySource* source, const std::string& module, int64_t n, int64_t k);

// DeepSeek-V4's MXFP4: weight and scale of an MLP's matrix; the scales are 0 to 254.
void PutMxfp4(MemorySource* source, const std::string& module, int64_t n, int64_t k);

struct GqaSizes {
  int64_t layers = 1, hidden = 32, heads = 8, kv_heads = 2, head_dim = 4, intermediate = 64;
  int64_t vocab = 261;
  bool qkv_bias = false, o_bias = false, mlp_bias = false, qk_norm = false, tied = false;
};
TestModel GqaModel(const GqaSizes& sizes);
// The same model as a GGUF file has it: llama.cpp's names, norms and biases F32, the matrices in
// `blocks`, the embedding (and a head of its own) in `embed`.
TestModel GgufModel(const GqaSizes& sizes, DType blocks, DType embed);

struct MlaSizes {
  int64_t layers = 2, hidden = 64, heads = 8, q_lora = 24, kv_lora = 16, nope = 8, rope = 4, v = 6;
  int64_t intermediate = 96, experts = 3, moe_intermediate = 256, shared = 1, vocab = 261;
  int64_t group = 32;  // of the experts' int4; 0: experts are bf16
  bool mxfp4 = false;  // the experts are DeepSeek-V4's MXFP4
};
TestModel MlaModel(const MlaSizes& sizes);

}  // namespace assay::shard
