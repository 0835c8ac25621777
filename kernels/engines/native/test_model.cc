#include "kernels/engines/native/test_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/engines/native/native.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"

namespace assay::kernels::native {
namespace {

constexpr int64_t kGroup = 32;

uint32_t Hash(const std::string& name, int64_t index) {
  uint64_t h = 1469598103934665603u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  h ^= static_cast<uint64_t>(index) * 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9u;
  return static_cast<uint32_t>(h >> 32);
}

// fp16 bits of a value in [1, 2)·2^exponent.
std::vector<uint16_t> Scales(const std::string& name, int64_t count, int exponent) {
  std::vector<uint16_t> scales;
  for (int64_t i = 0; i < count; ++i) {
    const float mantissa = 1.0f + static_cast<float>(Hash(name, i) % 64) / 64.0f;
    scales.push_back(F16FromFloat(std::ldexp(mantissa, exponent)));
  }
  return scales;
}

void PutBlocks(const std::string& name, DType dtype, int64_t n, int64_t k, MemorySource* source) {
  const int64_t groups = k / kGroup;
  std::vector<std::byte> blocks(static_cast<size_t>(n * groups * SizeOf(dtype).count()));
  const auto d = Scales(name + ".d", n * groups, -7);
  if (dtype == DType::kQ8_0) {
    std::vector<int8_t> codes;
    for (int64_t i = 0; i < n * k; ++i) {
      codes.push_back(static_cast<int8_t>(static_cast<int>(Hash(name, i) % 256) - 128));
    }
    PackQ80(codes.data(), d.data(), n, k, blocks.data());
  } else {
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(Hash(name, i) % 16);
    const auto m = Scales(name + ".m", n * groups, -9);
    PackQ41(codes.data(), d.data(), m.data(), n, k, blocks.data());
  }
  source->Put(name, dtype, {n, groups}, std::move(blocks));
}

std::vector<std::byte> Floats(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

void PutVector(const std::string& name, int64_t n, MemorySource* source) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(0.75f + static_cast<float>(Hash(name, i) % 8191) / 16384.0f);
  }
  source->Put(name, DType::kF32, {n}, Floats(values));
}

void PutQuantised(const std::string& name, const std::string& method, int64_t n, int64_t k,
                  MemorySource* source) {
  if (method == "gguf-q4_1") return PutBlocks(name + ".weight", DType::kQ4_1, n, k, source);
  if (method == "gguf-q8_0") return PutBlocks(name + ".weight", DType::kQ8_0, n, k, source);
  ASSERT_EQ(method, "deepseek-v4-mxfp4");
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < n * k; ++i) codes.push_back(Hash(name, i) % 16);
  std::vector<std::byte> packed(static_cast<size_t>(n * k / 2));
  PackMxfp4(codes.data(), n, k, packed.data());
  source->Put(name + ".weight", DType::kI8, {n, k / 2}, std::move(packed));
  std::vector<std::byte> scales;
  for (int64_t i = 0; i < n * k / kGroup; ++i) {
    scales.push_back(static_cast<std::byte>(120 + Hash(name + ".scale", i) % 5));
  }
  source->Put(name + ".scale", DType::kF8E8M0, {n, k / kGroup}, std::move(scales));
}

std::string TinyConfig() {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 96,
             "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
             "head_dim": 16, "intermediate_size": 192, "vocab_size": 200, "rms_norm_eps": 1e-5,
             "rope_theta": 10000.0, "max_position_embeddings": 128, "hidden_act": "silu",
             "tie_word_embeddings": true, "assay_container": "gguf"})";
}

MemorySource TinyGguf() {
  MemorySource source;
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    PutQuantised(name, "gguf-q4_1", n, k, &source);
  };
  PutQuantised("token_embd", "gguf-q8_0", 200, 96, &source);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    PutVector(blk + "attn_norm.weight", 96, &source);
    matrix(blk + "attn_q", 96, 96);
    matrix(blk + "attn_k", 48, 96);
    matrix(blk + "attn_v", 48, 96);
    matrix(blk + "attn_output", 96, 96);
    PutVector(blk + "ffn_norm.weight", 96, &source);
    matrix(blk + "ffn_gate", 192, 96);
    matrix(blk + "ffn_up", 192, 96);
    matrix(blk + "ffn_down", 96, 192);
  }
  PutVector("output_norm.weight", 96, &source);
  return source;
}

MemorySource WithExperts(const Checkpoint& checkpoint, int64_t layer, const std::string& method) {
  const ModelConfig& c = checkpoint.config();
  const std::string experts = "model.layers." + std::to_string(layer) + ".mlp.experts.";
  MemorySource source;
  for (const std::string& name : checkpoint.Names()) {
    const TensorView& view = *checkpoint.Find(name);
    if (name.starts_with(experts)) continue;
    source.Put(name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
  }
  for (int64_t e = 0; e < c.experts; ++e) {
    const std::string expert = experts + std::to_string(e) + ".";
    PutQuantised(expert + "gate_proj", method, c.moe_intermediate, c.hidden, &source);
    PutQuantised(expert + "up_proj", method, c.moe_intermediate, c.hidden, &source);
    PutQuantised(expert + "down_proj", method, c.hidden, c.moe_intermediate, &source);
  }
  return source;
}

Tensors Tiny() { return {TinyConfig(), TinyGguf(), "gguf-q4_1"}; }

Tensors Experts(const std::string& method) {
  const auto checkpoint = OpenCheckpoint("goldens/checkpoints/k2-mini");
  return {checkpoint->config_json(), WithExperts(*checkpoint, 1, method), method};
}

Loaded::Loaded(const Tensors& tensors, int tp, const char* tier, const char* act,
               const char* options, const char* layout)
    : config(*ParseModelConfig(tensors.config, "test")), driver(NativeEngine()) {
  Wishes wishes;
  wishes.tp = tp;
  wishes.tier = tier;
  wishes.act = act;
  wishes.method = tensors.method;
  wishes.options = options;
  wishes.layout = layout;
  EXPECT_EQ(driver.Open(tensors.config, wishes), ASSAY_OK) << driver.error().message;
  for (int rank = 0; rank < tp; ++rank) {
    EXPECT_EQ(driver.Load(rank, tensors.source, tensors.source.Names()), ASSAY_OK)
        << driver.error().message;
  }
  driver.Logits(kTokens, 0, config.vocab);
}

const LinearKernel& RowOf(const std::string& name) {
  for (const LinearKernel& row : LinearKernels()) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  std::abort();
}

// A component's rows as the file has them.
std::vector<std::byte> RowMajor(const assay_shard& shard, std::string_view method,
                                std::string_view part) {
  const StoredShape shape{static_cast<DType>(shard.dtype), shard.total_rows, shard.columns};
  const auto row = shape.columns * SizeOf(shape.dtype).count();
  std::vector<std::byte> whole(static_cast<size_t>(row * shape.rows));
  const Layout* layout = FindLayout(shard.layout, method, part);
  if (std::string_view(shard.layout) == "row") {
    std::memcpy(whole.data(), shard.data, whole.size());
  } else if (layout == nullptr) {
    ADD_FAILURE() << shard.layout << " of " << method << " " << part;
  } else {
    layout->unpack(shape, static_cast<const std::byte*>(shard.data), whole.data());
  }
  const auto begin = whole.begin() + row * shard.first_row;
  return {begin, begin + row * shard.rows};
}

Values ValuesOf(Driver& driver, const std::string& tap, int rank) {
  const auto found = driver.taps.find({tap, rank});
  if (found == driver.taps.end()) {
    ADD_FAILURE() << tap << "@" << rank;
    return {};
  }
  const Tap& value = found->second;
  Values read{value.shape[0], value.shape[1], {}};
  if (value.dtype == ASSAY_I8) {
    for (std::byte code : value.bytes) read.at.push_back(static_cast<int8_t>(code));
  } else {
    read.at = value.Values();
  }
  return read;
}

}  // namespace assay::kernels::native
