// Memory of a session: the harness's guarded and poisoned memory where it offers some, else our
// own. Nothing in the engine may depend on what fresh memory contains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "harness/abi/assay_engine.h"

namespace assay::kernels {

class Memory {
 public:
  // `host` may be nullptr, and may be smaller than our header's: its size is obeyed.
  explicit Memory(const assay_host* host);
  // Never nullptr, not even for 0 bytes. Throws EngineError when there is none, or bytes < 0.
  void* Allocate(int64_t bytes, int64_t alignment);
  void Free(void* pointer) noexcept;
  const assay_host& host() const { return host_; }

 private:
  assay_host host_{};
};

// a·b, or EngineError: sizes come from files.
int64_t CheckedProduct(int64_t a, int64_t b);

// An uninitialised array in a Memory, which must outlive it.
template <class T>
class Array {
 public:
  Array() = default;
  // Natural alignment, so that the end lies at the guard page to the last value.
  Array(Memory& memory, int64_t count, int64_t alignment = alignof(T))
      : memory_(&memory),
        data_(static_cast<T*>(memory.Allocate(CheckedProduct(count, sizeof(T)), alignment))),
        count_(count) {}
  ~Array() { Release(); }
  Array(Array&& other) noexcept { *this = std::move(other); }
  Array& operator=(Array&& other) noexcept {
    if (this == &other) return *this;
    Release();
    memory_ = std::exchange(other.memory_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }

 private:
  void Release() noexcept {
    if (data_ != nullptr) memory_->Free(data_);
    data_ = nullptr;
  }
  Memory* memory_ = nullptr;
  T* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace assay::kernels
