// Memory that ends, or begins, at a page which may not be touched: one byte too far is a SIGSEGV.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::kernels::testing {

enum class Guard { kBehind, kBefore };

class Guarded {
 public:
  // `bytes` bytes of value `poison`. Behind: they end `slack` bytes before the forbidden page (a
  // slack moves the start to another alignment). Before: they begin right after one.
  Guarded(size_t bytes, Guard guard, uint8_t poison, size_t slack = 0);
  ~Guarded();
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::byte* data() { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* map_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace assay::kernels::testing
