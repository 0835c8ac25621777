// Codes of 2 to 8 bits in 32-bit words. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace assay::kernels {

// How a run of codes lies in words, least significant bits first. Straddling: a stream of bits,
// element i at bit i·bits, across words. Otherwise floor(32/bits) codes a word, its top bits
// unused. Where 32 is a multiple of `bits` both are the same.
struct WordLayout {
  int bits = 4;
  bool straddles = true;
  int64_t Words(int64_t count) const {
    const int64_t whole = 32 / bits;
    return straddles ? (count * bits + 31) / 32 : (count + whole - 1) / whole;
  }
  int64_t Bit(int64_t i) const {
    const int64_t whole = 32 / bits;
    return straddles ? i * bits : i / whole * 32 + i % whole * bits;
  }
};

// A run of codes whose words lie `stride` words apart: 1 within a row, a row's words for a run
// along columns. No alignment is needed.
class CodeRun {
 public:
  CodeRun(const std::byte* first, int64_t stride, WordLayout layout)
      : first_(first), stride_(stride), layout_(layout) {}
  uint32_t Get(int64_t i) const {
    const int64_t bit = layout_.Bit(i), word = bit / 32;
    const int offset = static_cast<int>(bit % 32);
    uint32_t value = Word(word) >> offset;
    if (offset + layout_.bits > 32) value |= Word(word + 1) << (32 - offset);
    return value & ((1u << layout_.bits) - 1);
  }

 private:
  uint32_t Word(int64_t i) const {
    uint32_t word;
    std::memcpy(&word, first_ + i * stride_ * 4, sizeof word);
    return word;
  }
  const std::byte* first_;
  int64_t stride_;
  WordLayout layout_;
};

// Sets codes in words that are zero there.
class CodeSink {
 public:
  CodeSink(std::byte* first, int64_t stride, WordLayout layout)
      : first_(first), stride_(stride), layout_(layout) {}
  void Put(int64_t i, uint32_t code) {
    const int64_t bit = layout_.Bit(i), word = bit / 32;
    const int offset = static_cast<int>(bit % 32);
    Or(word, code << offset);
    if (offset + layout_.bits > 32) Or(word + 1, code >> (32 - offset));
  }

 private:
  void Or(int64_t i, uint32_t bits) {
    uint32_t word;
    std::memcpy(&word, first_ + i * stride_ * 4, sizeof word);
    word |= bits;
    std::memcpy(first_ + i * stride_ * 4, &word, sizeof word);
  }
  std::byte* first_;
  int64_t stride_;
  WordLayout layout_;
};

}  // namespace assay::kernels
