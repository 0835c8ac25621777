// GGUF's blocks (formats.md §7), one function a type: the block's bytes to its elements in double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/units/dtype.h"

namespace assay::reference {

struct BlockFormat {
  DType dtype;
  // Every element, ElementsOf(dtype) of them.
  void (*decode)(const std::byte* block, double* out);
  // Of a type that stores minima, w = d·q + m: m of every element. Otherwise nullptr.
  void (*minima)(const std::byte* block, double* out) = nullptr;
  // Byte of an E8M0 scale, whose 255 is refused; -1: none.
  int e8m0_at = -1;
  // Bytes of the block's fp16 scale, and of its minimum's, which must be finite; -1: none.
  int scale_at = -1, minimum_at = -1;
};

// nullptr: not a block.
const BlockFormat* FindBlockFormat(DType dtype);

// The types of 32 or 64 elements, and the superblocks of 256: each in a file of its own.
namespace gguf {
void Q4_0(const std::byte* block, double* out);
void Q4_1(const std::byte* block, double* out);
void Q4_1Minima(const std::byte* block, double* out);
void Q5_0(const std::byte* block, double* out);
void Q5_1(const std::byte* block, double* out);
void Q5_1Minima(const std::byte* block, double* out);
void Q8_0(const std::byte* block, double* out);
void Mxfp4(const std::byte* block, double* out);
void Nvfp4(const std::byte* block, double* out);
void Q2K(const std::byte* block, double* out);
void Q2KMinima(const std::byte* block, double* out);
void Q3K(const std::byte* block, double* out);
void Q4K(const std::byte* block, double* out);
void Q4KMinima(const std::byte* block, double* out);
void Q5K(const std::byte* block, double* out);
void Q5KMinima(const std::byte* block, double* out);
void Q6K(const std::byte* block, double* out);

inline unsigned Byte(const std::byte* block, size_t at) {
  return std::to_integer<unsigned>(block[at]);
}
double Half(const std::byte* block, size_t at);
}  // namespace gguf

}  // namespace assay::reference
