// Extents of stored tensors, without overflow. Private to the room.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <utility>

#include "harness/audit/report.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::audit {

inline int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

inline int64_t Extent(const TensorView* tensor, size_t axis) {
  return tensor != nullptr && axis < tensor->shape.size() ? tensor->shape[axis] : 1;
}

// The fastest axis; 1 of a scalar.
inline int64_t Last(const TensorView* tensor) {
  return tensor == nullptr || tensor->shape.empty() ? 1 : tensor->shape.back();
}

inline int64_t Values(const TensorView& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return 0;
  }
  return count;
}

inline Finding Wrong(std::string kind, const TensorView& tensor, std::string detail) {
  return {std::move(kind), tensor.name, tensor.file, std::move(detail)};
}

inline std::string ShapeOf(const TensorView& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

// Words of 32 bits that hold `count` codes.
inline int64_t WordsOf(int64_t count, int bits, bool old_packing) {
  if (old_packing) return CeilDiv(count, 32 / bits);
  return count > INT64_MAX / 32 ? 0 : CeilDiv(count * bits, 32);
}

}  // namespace assay::audit
