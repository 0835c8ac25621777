#include "kernels/engines/native/kv_cache.h"

#include <algorithm>
#include <cstring>

namespace assay::kernels::native {
namespace {

Array<uint16_t> Grown(Memory& memory, const Array<uint16_t>& old, int64_t used, int64_t count) {
  Array<uint16_t> grown(memory, count);
  if (used > 0) std::memcpy(grown.data(), old.data(), static_cast<size_t>(used) * sizeof(uint16_t));
  return grown;
}

void Put(const Matrix& rows, uint16_t* to) {
  for (int64_t i = 0; i < rows.count(); ++i) to[i] = ToBf16(rows.values[i]);
}

}  // namespace

void KvCache::Grow(Memory& memory, int64_t rows) {
  if (rows <= capacity_) return;
  const int64_t capacity = std::max(rows, 2 * capacity_);
  keys_ = Grown(memory, keys_, length_ * key_width_, CheckedProduct(capacity, key_width_));
  values_ = Grown(memory, values_, length_ * value_width_, CheckedProduct(capacity, value_width_));
  capacity_ = capacity;
}

void KvCache::Append(Memory& memory, const Matrix& keys, const Matrix& values) {
  key_width_ = keys.columns;
  value_width_ = values.columns;
  Grow(memory, length_ + keys.rows);
  Put(keys, keys_.data() + length_ * key_width_);
  Put(values, values_.data() + length_ * value_width_);
  length_ += keys.rows;
}

Matrix KvCache::Expand(Memory& memory, const Array<uint16_t>& bits, int64_t width) const {
  Matrix expanded(memory, length_, width, DType::kBF16);
  for (int64_t i = 0; i < expanded.count(); ++i) expanded.values[i] = FromBf16(bits[i]);
  return expanded;
}

}  // namespace assay::kernels::native
