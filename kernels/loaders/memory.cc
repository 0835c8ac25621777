#include "kernels/loaders/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {
namespace {

// Own memory is aligned to a cache line, whatever the caller needs at least.
constexpr int64_t kLine = 64;

}  // namespace

Memory::Memory(const assay_host* host) {
  if (host != nullptr) std::memcpy(&host_, host, std::min(host->size, sizeof host_));
  if (host_.alloc == nullptr || host_.free == nullptr) {
    host_.alloc = nullptr;
    host_.free = nullptr;
  }
}

void* Memory::Allocate(int64_t bytes, int64_t alignment) {
  if (bytes < 0) throw EngineError(ASSAY_FAILED, fmt::format("{} bytes were asked for", bytes));
  bytes = std::max<int64_t>(bytes, 1);
  void* pointer = nullptr;
  if (host_.alloc != nullptr) {
    pointer =
        host_.alloc(host_.context, static_cast<uint64_t>(bytes), static_cast<uint64_t>(alignment));
  } else {
    const int64_t whole = CheckedProduct(bytes / kLine + 1, kLine);
    pointer = std::aligned_alloc(static_cast<size_t>(std::max(kLine, alignment)),
                                 static_cast<size_t>(whole));
  }
  if (pointer == nullptr) {
    throw EngineError(ASSAY_FAILED, fmt::format("no memory for {} bytes", bytes));
  }
  return pointer;
}

void Memory::Free(void* pointer) noexcept {
  if (host_.alloc != nullptr) {
    host_.free(host_.context, pointer);
  } else {
    std::free(pointer);
  }
}

int64_t CheckedProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) {
    throw EngineError(ASSAY_FAILED, fmt::format("a size of {} times {} is not possible", a, b));
  }
  return product;
}

}  // namespace assay::kernels
