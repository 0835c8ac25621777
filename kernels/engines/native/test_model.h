// Small models in quantised formats for tests, every value a function of its name and place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/tensor_source.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/registry.h"

namespace assay::kernels::native {

// Storage of a matrix [n, k], all scales and minima positive. "gguf-q4_1", "gguf-q8_0": one tensor
// NAME.weight of blocks; "deepseek-v4-mxfp4": NAME.weight I8 and NAME.scale F8_E8M0.
void PutQuantised(const std::string& name, const std::string& method, int64_t n, int64_t k,
                  MemorySource* source);
void PutVector(const std::string& name, int64_t n, MemorySource* source);  // F32, around 1

// A Llama as GGUF stores it, matrices in Q4_1, embedding and head one tensor in Q8_0: hidden 96,
// 6 heads of 16 with 3 KV heads, intermediate 192, vocabulary 200, 2 layers.
std::string TinyConfig();
MemorySource TinyGguf();

// The checkpoint's tensors with the routed experts of `layer` in another method.
MemorySource WithExperts(const Checkpoint& checkpoint, int64_t layer, const std::string& method);

// What a session is opened and loaded with.
struct Tensors {
  std::string config;
  MemorySource source;
  std::string method;  // of the session
};
Tensors Tiny();
// k2-mini with the experts of layer 1 in that method.
Tensors Experts(const std::string& method);

inline const std::vector<int32_t> kTokens = {1, 102, 111, 114, 32};

// A session of them that was run on kTokens.
struct Loaded {
  Loaded(const Tensors& tensors, int tp, const char* tier, const char* act,
         const char* options = "", const char* layout = "");
  ModelConfig config;
  Driver driver;
};

// The registry's row of that name, hardware before portable.
const LinearKernel& RowOf(const std::string& name);
// A component's rows as the file has them.
std::vector<std::byte> RowMajor(const assay_shard& shard, std::string_view method,
                                std::string_view part);

// A tap's numbers, of two axes.
struct Values {
  int64_t rows = 0, columns = 0;
  std::vector<double> at;
};
Values ValuesOf(Driver& driver, const std::string& tap, int rank);

}  // namespace assay::kernels::native
