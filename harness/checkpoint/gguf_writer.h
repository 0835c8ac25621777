// Makes GGUF files, good ones and, for tests, bad ones: nothing that is put in is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/gguf.h"
#include "harness/units/dtype.h"

namespace assay {

// A tensor in C's order of extents, in storage values: of a block type the last extent counts
// blocks.
struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

class GgufWriter {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;  // of the data; written as a key only by PutAlignment

  // Keys are written in the order of the calls, and a key twice is written twice.
  void PutU32(std::string_view key, uint32_t value);
  void PutF32(std::string_view key, float value);
  void PutF64(std::string_view key, double value);
  void PutBool(std::string_view key, bool value);
  void PutText(std::string_view key, std::string_view text);
  void PutTexts(std::string_view key, const std::vector<std::string>& texts);
  void PutI32s(std::string_view key, const std::vector<int32_t>& values);
  // A value of any type, as it lies in the file.
  void PutRaw(std::string_view key, uint32_t type, std::string_view bytes);
  void PutAlignment(uint32_t bytes);
  // Tensors lie in the order of the calls. ggml must have the type.
  void PutTensor(GgufTensor tensor);
  // The first of that name; it must be there.
  GgufTensor& Tensor(std::string_view name);
  void RemoveTensor(std::string_view name);

  std::string Bytes() const;  // the whole file

 private:
  std::string keys_;
  uint64_t key_count_ = 0;
  std::vector<GgufTensor> tensors_;
};

struct GgufConversion {
  // Of matrices and embeddings: BF16, F16 or F32; none: as the checkpoint has them. Values must be
  // representable. Vectors become F32, as llama.cpp's converter makes them.
  std::optional<DType> matrices = {};
  // The epsilon of the norms as f64, which llama.cpp does not do: then the file's model is exactly
  // the checkpoint's, where an f32 is off by 2e-8 of it.
  bool exact_eps = false;
  // Ready-made blocks in place of a matrix. Gets GGUF's name and the rows in GGUF's order.
  std::function<std::optional<GgufTensor>(const GgufTensor& matrix)> replace = {};
};

// A dense Llama, Qwen2 or Qwen3 checkpoint in Hugging Face's layout as llama.cpp's converter writes
// it: its names; rows of q and k (and their biases) of a Llama permuted, so that RoPE of halves
// becomes one of neighbours: within each head row i of [2, d/2] goes to [d/2, 2].
// Error: another family, another type.
Result<GgufWriter> ConvertToGguf(const Checkpoint& checkpoint, const GgufConversion& conversion);

// The place in a GGUF file's head of `head_dim` rows of Hugging Face's row `row` of that head.
int64_t GgufRowOfHead(int64_t row, int64_t head_dim);

}  // namespace assay
