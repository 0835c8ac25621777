// What stored values are, found in one pass over their bytes: not a number, infinite, zero,
// denormal, all the same. Bulk loops that the compiler vectorises for the machine that everybody
// has; what a block of bytes raises suspicion about is looked at again value by value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace assay::audit {

// How bytes are looked at. A scale is more delicate than a weight: zero and denormal ones matter.
enum class Watch : uint8_t {
  kBytes,  // any bytes are legal: only whether all are zero
  kF64,
  kF32,
  kF16,
  kBF16,
  kScaleF32,
  kScaleF16,
  kScaleBF16,
  kE4M3,      // FP8 codes: 0x7F and 0xFF are NaN
  kE4M3Fnuz,  // 0x80 is NaN
  kE5M2,
  kScaleE4M3,  // NVFP4's scales
  kE8M0,       // 255 is NaN, 0 is 2^-127, a float32 denormal
  kIntWords,   // packed signed codes: groups that are all zero are counted
  kE2M1,       // two codes a byte: likewise
  kI8,         // zero points: a range
  kI32,
  kI64,
  kOffsetF32,  // zero points kept as float32: a range of whole numbers
  kGguf,       // blocks: their scales
};

enum class Issue : uint8_t { kNan, kInf, kZero, kDenormal, kNegative, kRange, kZeroGroup, kCount };

// What was seen of a tensor, or of a part of it. Values are counted in the unit that Lens says.
struct Tally {
  struct Entry {
    uint64_t count = 0;
    uint64_t first = 0;  // index of the first one; only where count > 0
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::array<Entry, static_cast<size_t>(Issue::kCount)> issues{};
  uint64_t bytes = 0;
  bool all_zero = true;   // every bit but signs
  bool negative = false;  // of scales: one has its sign bit set
  // Of scales the magnitudes' bits, of zero points the numbers, in the same order.
  uint64_t least = UINT64_MAX, largest = 0;

  const Entry& of(Issue issue) const { return issues[static_cast<size_t>(issue)]; }
  // Whether every value is the same. Only of scales and zero points.
  bool constant() const { return !negative && least == largest; }
  void Add(Issue issue, uint64_t index);
  void Merge(const Tally& later);  // of bytes that follow
  friend bool operator==(const Tally&, const Tally&) = default;
};

struct Lens {
  Watch watch = Watch::kBytes;
  // kIntWords: the 32-bit word that is eight (four, sixteen) zeros, and words a group; 0: not
  // counted. kE2M1: bytes a group.
  uint32_t zero_word = 0;
  uint32_t group = 0;
  int64_t least = 0, largest = 0;  // kI8, kI32, kI64, kOffsetF32: what is allowed
  uint32_t block_type = 0;         // kGguf: a DType
};

// Bytes that belong together: a part of a tensor must begin and end at a multiple.
size_t Grain(const Lens& lens);
// Index of what a Tally counts at a byte of the tensor: values, groups or blocks.
uint64_t IndexOf(const Lens& lens, uint64_t byte);

// Looks at `bytes`, which begin at byte `offset` of the tensor. Both are multiples of the grain;
// only the end of a tensor that is broken may not be, and what is left over there is not looked at.
void Look(const Lens& lens, std::span<const std::byte> bytes, uint64_t offset, Tally* tally);

}  // namespace assay::audit
