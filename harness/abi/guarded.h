// Memory that shows what an engine does wrong with it: it ends at an inaccessible page, a poisoned
// margin lies before it, and it starts out as poison. Used in the child process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "harness/units/dtype.h"

namespace assay::abi {

// NaN shows in what is computed from it, unless it is multiplied away or compared; a large finite
// value shows there. Only two runs with different poisons see both.
enum class Poison { kNaN, kLarge };

// One value of the poison, in SizeOf(dtype) little-endian bytes: all bits set (a NaN in every
// floating type), or 10,000 (in types that end below it their largest finite value, or 100).
uint64_t PoisonBits(Poison poison, DType dtype);
// Fills memory with values of that type; a rest shorter than a value with its first bytes.
void FillPoison(Poison poison, DType dtype, std::span<std::byte> memory);

// Tensors begin at a multiple of this, so that a kernel that loads aligned registers is served.
inline constexpr uint64_t kTensorAlignment = 64;

class GuardedBuffer {
 public:
  // nullptr: no memory, or an alignment that is no power of two up to 4096. `label` is what
  // messages call it. The buffer itself is left to the caller; its surroundings are poisoned.
  static std::unique_ptr<GuardedBuffer> Make(std::string label, uint64_t bytes, uint64_t alignment,
                                             Poison poison);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }
  const std::string& label() const { return label_; }

  // Whether somebody wrote beside it; empty if not, else "wrote N bytes before the start of LABEL".
  std::string CheckMargins() const;

  // For the handler of SIGSEGV: which living buffer's guard pages hold this address, and how far
  // it is past the end (0: the first byte behind it) or before the start (negative). Takes no lock
  // and allocates nothing.
  static const GuardedBuffer* FindByGuard(const void* address, int64_t* distance);

 private:
  GuardedBuffer() = default;

  std::string label_;
  Poison poison_ = Poison::kNaN;
  std::byte* mapping_ = nullptr;  // guard page, margin, data, guard page
  uint64_t mapped_ = 0;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  GuardedBuffer* next_ = nullptr;  // all living ones
  GuardedBuffer* previous_ = nullptr;
};

}  // namespace assay::abi
