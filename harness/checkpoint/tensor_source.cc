#include "harness/checkpoint/tensor_source.h"

#include <cassert>
#include <utility>

namespace assay {

std::optional<Bytes> StoredBytes(DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = SizeOf(dtype).count();
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return Bytes(bytes);
}

void MemorySource::Put(std::string name, DType dtype, std::vector<int64_t> shape,
                       std::vector<std::byte> bytes) {
  const std::optional<Bytes> expected = StoredBytes(dtype, shape);
  assert(expected.has_value() && expected->count() == static_cast<int64_t>(bytes.size()));
  Owned& owned = tensors_[name];
  owned.bytes = std::move(bytes);
  owned.view = {std::move(name), dtype, std::move(shape), owned.bytes, "memory"};
}

const TensorView* MemorySource::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.view;
}

std::vector<std::string> MemorySource::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, owned] : tensors_) names.push_back(name);
  return names;
}

}  // namespace assay
