// A model of one small layer in GGUF's blocks, for tests: Q4_1 matrices, a Q8_0 embedding that is
// also the head, F32 norms.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/methods/method.h"
#include "reference/test_support.h"

namespace assay::reference::testing_support {

// fp16 of a power of two times 1, 1¼, 1½ or 1¾.
inline uint16_t HalfOf(int exponent, unsigned quarters) {
  return static_cast<uint16_t>((exponent + 15) << 10 | quarters << 8);
}

// Blocks with scales of about 2^-6 … 2^-4, from the seed. Q4_1 (with minima) or Q8_0.
inline std::vector<std::byte> RandomBlocks(DType dtype, uint64_t seed, int64_t count) {
  std::vector<std::byte> bytes;
  const auto size = static_cast<uint64_t>(SizeOf(dtype).count());
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
    for (uint64_t j = 0; j < size; ++j) {
      bytes.push_back(static_cast<std::byte>(Mix(Mix(seed + i) ^ j)));
    }
    const uint64_t dice = Mix(seed ^ (i << 32));
    const int deep = dtype == DType::kQ8_0 ? -9 : -6;
    const uint16_t halves[2] = {
        HalfOf(deep + static_cast<int>(dice % 3), static_cast<unsigned>(dice >> 8 & 3u)),
        static_cast<uint16_t>(0x8000u | HalfOf(deep + 2 + static_cast<int>(dice >> 16 & 1u),
                                               static_cast<unsigned>(dice >> 24 & 3u)))};
    std::memcpy(bytes.data() + i * size, halves, dtype == DType::kQ8_0 ? 2 : 4);
  }
  return bytes;
}

inline uint64_t SeedOf(const std::string& name) {
  uint64_t seed = 0;
  for (const char c : name) seed = Mix(seed ^ static_cast<unsigned char>(c));
  return seed;
}

struct TinyGguf {
  static constexpr int64_t kHidden = 128, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kWidth = 192,
                           kVocab = 70;
  ModelConfig config;
  MemorySource source;
  std::vector<std::string> matrices;

  TinyGguf() {
    config.container = Container::kGguf;
    config.family = Family::kLlama;
    config.architecture = "LlamaForCausalLM";
    config.hidden_act = "silu";
    config.hidden = kHidden;
    config.layers = 1;
    config.heads = kHeads;
    config.kv_heads = kKvHeads;
    config.head_dim = kHeadDim;
    config.intermediate = kWidth;
    config.vocab = kVocab;
    config.max_position = 64;
    config.rms_norm_eps = 1e-5;
    config.tied = true;
    config.rope_interleave = true;
    Matrix("token_embd.weight", DType::kQ8_0, kVocab, kHidden);
    Matrix("blk.0.attn_q.weight", DType::kQ4_1, kHeads * kHeadDim, kHidden);
    Matrix("blk.0.attn_k.weight", DType::kQ4_1, kKvHeads * kHeadDim, kHidden);
    Matrix("blk.0.attn_v.weight", DType::kQ4_1, kKvHeads * kHeadDim, kHidden);
    Matrix("blk.0.attn_output.weight", DType::kQ4_1, kHidden, kHeads * kHeadDim);
    Matrix("blk.0.ffn_gate.weight", DType::kQ4_1, kWidth, kHidden);
    Matrix("blk.0.ffn_up.weight", DType::kQ4_1, kWidth, kHidden);
    Matrix("blk.0.ffn_down.weight", DType::kQ4_1, kHidden, kWidth);
    for (const char* norm :
         {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
      std::vector<float> values;
      for (uint64_t i = 0; i < kHidden; ++i) {
        values.push_back(static_cast<float>(1 + 0.5 * Uniform(SeedOf(norm), i)));
      }
      source.Put(norm, DType::kF32, {kHidden}, FloatBytes(values));
    }
  }
  std::unique_ptr<Oracle> MakeOracle() const {
    auto oracle = Oracle::Create(config, source);
    if (!oracle) {
      ADD_FAILURE() << oracle.error().message;
      std::abort();
    }
    return std::move(*oracle);
  }
  // Dequantised, and its minima (zeros where there are none).
  Tensor Dequantised(const std::string& name, bool minima = false) const {
    const TensorView* view = source.Find(name);
    const int64_t columns = view->shape[1] * ElementsOf(view->dtype).count();
    class One : public PartFinder {
     public:
      explicit One(const TensorView* view) : view_(view) {}
      const TensorView* Find(std::string_view suffix) const override {
        return suffix == "weight" ? view_ : nullptr;
      }
      std::string Name() const override { return view_->name; }

     private:
      const TensorView* view_;
    };
    auto opened = OpenDecoder(One(view), {}, view->shape[0], columns);
    const std::unique_ptr<Decoder> decoder = std::move(*opened);
    Tensor tensor;
    tensor.shape = {view->shape[0], columns};
    tensor.data.assign(static_cast<size_t>(view->shape[0] * columns), 0.0);
    for (int64_t n = 0; n < view->shape[0]; ++n) {
      double* row = tensor.data.data() + n * columns;
      if (minima) {
        decoder->Minima(n, row);
      } else {
        decoder->Row(n, row);
      }
    }
    return tensor;
  }

 private:
  void Matrix(const std::string& name, DType dtype, int64_t rows, int64_t columns) {
    const int64_t blocks = columns / ElementsOf(dtype).count();
    source.Put(name, dtype, {rows, blocks}, RandomBlocks(dtype, SeedOf(name), rows * blocks));
    matrices.push_back(name);
  }
};

}  // namespace assay::reference::testing_support
