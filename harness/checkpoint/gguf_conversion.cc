// Hugging Face's layout to llama.cpp's, for tests.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "harness/checkpoint/gguf_writer.h"

namespace assay {
namespace {

// Whoever reads GGUF for the oracle has a table of its own, from llama.cpp's description: a mistake
// in one of them is seen where they meet.
using Name = std::pair<std::string_view, std::string_view>;  // Hugging Face's, GGUF's
constexpr std::array<Name, 11> kLayerNames = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
}};

std::string GgufName(std::string_view name) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return "";
  name.remove_prefix(kLayers.size());
  const size_t dot = name.find('.');
  if (dot == name.npos) return "";
  const std::string_view layer = name.substr(0, dot), rest = name.substr(dot + 1);
  const size_t suffix = rest.rfind('.');
  if (suffix == rest.npos) return "";
  for (const auto& [theirs, ours] : kLayerNames) {
    if (rest.substr(0, suffix) == theirs) {
      return fmt::format("blk.{}.{}{}", layer, ours, rest.substr(suffix));
    }
  }
  return "";
}

float ToFloat(uint16_t bits, DType dtype) {
  if (dtype == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}

std::vector<float> Floats(const TensorView& view) {
  const size_t size = static_cast<size_t>(SizeOf(view.dtype).count());
  std::vector<float> values(view.bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i) {
    if (view.dtype == DType::kF32) {
      std::memcpy(&values[i], view.bytes.data() + i * size, size);
    } else {
      uint16_t bits;
      std::memcpy(&bits, view.bytes.data() + i * size, size);
      values[i] = ToFloat(bits, view.dtype);
    }
  }
  return values;
}

// What values can be taken from and stored as.
bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Error: a type that is none of F32, F16 and BF16, or a value that the type does not have.
Result<std::vector<std::byte>> Stored(const TensorView& view, DType dtype) {
  if (dtype == view.dtype) return std::vector<std::byte>(view.bytes.begin(), view.bytes.end());
  if (!IsFloat(view.dtype) || !IsFloat(dtype)) {
    return Error{fmt::format("{}: {} to {}; allowed are F32, F16 and BF16", view.name,
                             NameOf(view.dtype), NameOf(dtype))};
  }
  const std::vector<float> values = Floats(view);
  const size_t size = static_cast<size_t>(SizeOf(dtype).count());
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + i * size, &values[i], size);
      continue;
    }
    if (dtype == DType::kBF16) {
      bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[i]) >> 16);
    } else {
      const auto half = static_cast<_Float16>(values[i]);
      std::memcpy(&bits, &half, sizeof half);
    }
    if (ToFloat(bits, dtype) != values[i]) {
      return Error{fmt::format("{}: {} is no value of {}", view.name, values[i], NameOf(dtype))};
    }
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

void PermuteHeads(int64_t head_dim, GgufTensor& tensor) {
  const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
  std::vector<std::byte> permuted(tensor.bytes.size());
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    const int64_t to = i / head_dim * head_dim + GgufRowOfHead(i % head_dim, head_dim);
    std::memcpy(permuted.data() + static_cast<size_t>(to) * row,
                tensor.bytes.data() + static_cast<size_t>(i) * row, row);
  }
  tensor.bytes = std::move(permuted);
}

void PutMetadata(const ModelConfig& c, const std::string& arch, bool exact_eps,
                 GgufWriter& writer) {
  const auto u32 = [&](std::string_view key, int64_t value) {
    writer.PutU32(fmt::format("{}.{}", arch, key), static_cast<uint32_t>(value));
  };
  writer.PutText("general.architecture", arch);
  u32("block_count", c.layers);
  u32("context_length", c.max_position);
  u32("embedding_length", c.hidden);
  u32("feed_forward_length", c.intermediate);
  u32("attention.head_count", c.heads);
  u32("attention.head_count_kv", c.kv_heads);
  u32("attention.key_length", c.head_dim);
  u32("attention.value_length", c.head_dim);
  if (arch == "llama") u32("rope.dimension_count", c.head_dim);
  u32("vocab_size", c.vocab);
  writer.PutF32(arch + ".rope.freq_base", static_cast<float>(c.rope.theta));
  const std::string eps = arch + ".attention.layer_norm_rms_epsilon";
  exact_eps ? writer.PutF64(eps, c.rms_norm_eps)
            : writer.PutF32(eps, static_cast<float>(c.rms_norm_eps));
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < c.vocab; ++i) tokens.push_back(fmt::format("<{}>", i));
  writer.PutText("tokenizer.ggml.model", "none");
  writer.PutTexts("tokenizer.ggml.tokens", tokens);
  writer.PutU32("general.quantization_version", 2);
}

}  // namespace

int64_t GgufRowOfHead(int64_t row, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  return row % half * 2 + row / half;
}

Result<GgufWriter> ConvertToGguf(const Checkpoint& checkpoint, const GgufConversion& conversion) {
  const ModelConfig& config = checkpoint.config();
  std::string arch;
  if (config.family == Family::kLlama) arch = "llama";
  if (config.family == Family::kQwen2) arch = "qwen2";
  if (config.family == Family::kQwen3) arch = "qwen3";
  if (arch.empty() || config.container != Container::kSafetensors) {
    return Error{
        fmt::format("{}: no Llama, Qwen2 or Qwen3 in Hugging Face's layout", checkpoint.path())};
  }
  GgufWriter writer;
  PutMetadata(config, arch, conversion.exact_eps, writer);
  for (const std::string& name : checkpoint.Names()) {
    const TensorView& view = *checkpoint.Find(name);
    if (name == "lm_head.weight" && config.tied) continue;
    GgufTensor tensor{GgufName(name), view.dtype, view.shape, {}};
    if (tensor.name.empty()) return Error{fmt::format("{}: has no name in GGUF", name)};
    const bool matrix = view.shape.size() > 1;
    tensor.dtype = matrix ? conversion.matrices.value_or(view.dtype) : DType::kF32;
    auto bytes = Stored(view, tensor.dtype);
    if (!bytes.ok()) return bytes.error();
    tensor.bytes = std::move(*bytes);
    const bool qk = name.find(".q_proj.") != name.npos || name.find(".k_proj.") != name.npos;
    if (qk && config.family == Family::kLlama) PermuteHeads(config.head_dim, tensor);
    std::optional<GgufTensor> other;
    if (matrix && conversion.replace) other = conversion.replace(tensor);
    writer.PutTensor(other ? std::move(*other) : std::move(tensor));
  }
  return writer;
}

}  // namespace assay
