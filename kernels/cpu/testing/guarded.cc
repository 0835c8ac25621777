#include "kernels/cpu/testing/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace assay::kernels::testing {

Guarded::Guarded(size_t bytes, Guard guard, uint8_t poison, size_t slack) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inside = (bytes + slack + page - 1) / page * page;
  mapped_ = inside + 2 * page;  // a forbidden page on both sides
  void* map = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    std::perror("mmap");
    std::abort();
  }
  map_ = static_cast<std::byte*>(map);
  std::byte* first = map_ + page;
  if (inside > 0 && mprotect(first, inside, PROT_READ | PROT_WRITE) != 0) {
    std::perror("mprotect");
    std::abort();
  }
  if (inside > 0) std::memset(first, poison, inside);
  data_ = guard == Guard::kBefore ? first : first + inside - slack - bytes;
}

Guarded::~Guarded() { munmap(map_, mapped_); }

}  // namespace assay::kernels::testing
