// Keys and values of one layer on one rank: expanded per head, in bf16.
#pragma once

#include <cstdint>

#include "kernels/engines/native/values.h"
#include "kernels/loaders/memory.h"

namespace assay::kernels::native {

class KvCache {
 public:
  // Appends the rows of keys [T, key width] and values [T, value width]; widths never change.
  void Append(Memory& memory, const Matrix& keys, const Matrix& values);
  // Forgets positions from `length` on.
  void Truncate(int64_t length) { length_ = length < length_ ? length : length_; }
  int64_t length() const { return length_; }
  // All positions, as fp32.
  Matrix Keys(Memory& memory) const { return Expand(memory, keys_, key_width_); }
  Matrix Values(Memory& memory) const { return Expand(memory, values_, value_width_); }

 private:
  Matrix Expand(Memory& memory, const Array<uint16_t>& bits, int64_t width) const;
  void Grow(Memory& memory, int64_t rows);

  Array<uint16_t> keys_, values_;
  int64_t length_ = 0, capacity_ = 0, key_width_ = 0, value_width_ = 0;
};

}  // namespace assay::kernels::native
