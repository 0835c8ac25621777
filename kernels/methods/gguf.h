#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::kernels::gguf {

inline constexpr int64_t kBlock = 32;  // elements
inline constexpr int64_t kQ41Bytes = 20, kQ80Bytes = 34;

// `scales` is not used: a block holds its own.
void DecodeQ41(const std::byte* blocks, const std::byte* scales, int64_t n, int64_t k, float* out);
void DecodeQ80(const std::byte* blocks, const std::byte* scales, int64_t n, int64_t k, float* out);

}  // namespace assay::kernels::gguf
