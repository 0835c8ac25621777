// GGUF's blocks, one at a time. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::kernels {

struct BlockType {
  DType dtype;
  // out[elements of a block], exactly. Error: a scale is NaN or infinite (message without a place).
  Status (*decode)(const std::byte* block, double* out);
  // Makes a block of x[elements], as ggml does. Error: a scale is beyond its type.
  Status (*pack)(const double* x, std::byte* block);
  // Sets the codes of `block`, whose scales are there and whose codes are zero, to the nearest.
  void (*encode)(const double* x, std::byte* block);
  // Zeroes the codes, keeping scales.
  void (*clear)(std::byte* block);
};

// nullptr: no type of blocks.
const BlockType* FindBlock(DType dtype);

extern const BlockType kQ4_0Block, kQ4_1Block, kQ5_0Block, kQ5_1Block, kQ8_0Block, kQ2KBlock,
    kQ3KBlock, kQ4KBlock, kQ5KBlock, kQ6KBlock, kMxfp4BlockType, kNvfp4BlockType;

// fp16 at any address; and into it, nearest or not less than `value`. Writing returns the value
// that is stored, or nullopt where the type cannot hold it.
double Half(const std::byte* at);
Status PutHalf(double value, std::byte* at);
Status PutHalfAtLeast(double value, std::byte* at);
Status HalvesFinite(const std::byte* first, const std::byte* second = nullptr);
int ClampCode(double code, int least, int most);

}  // namespace assay::kernels
