#include "kernels/layouts/i4_split16.h"

#include <algorithm>
#include <cstring>

#include "kernels/layouts/sizes.h"

namespace assay::kernels::i4_split16 {
namespace {

constexpr int64_t kWordsPerGroup = 4;
constexpr int64_t kGroupBytes = 16;
constexpr int64_t kWordBytes = 4;
constexpr uint32_t kZeroWord = 0x88888888;  // eight codes of value 0

int64_t GroupsOf(int64_t columns) {
  return columns / kWordsPerGroup + (columns % kWordsPerGroup != 0 ? 1 : 0);
}

uint32_t Code(const uint32_t* words, int64_t element) {
  return (words[element / 8] >> (4 * (element % 8))) & 0xF;
}

void PackGroup(const uint32_t words[kWordsPerGroup], std::byte* out) {
  for (int64_t j = 0; j < kGroupBytes; ++j) {
    out[j] = static_cast<std::byte>(Code(words, j) | Code(words, j + 16) << 4);
  }
}

void UnpackGroup(const std::byte* in, uint32_t words[kWordsPerGroup]) {
  std::fill_n(words, kWordsPerGroup, 0);
  for (int64_t j = 0; j < kGroupBytes; ++j) {
    const auto byte = std::to_integer<uint32_t>(in[j]);
    words[j / 8] |= (byte & 0xF) << (4 * (j % 8));
    words[2 + j / 8] |= (byte >> 4) << (4 * (j % 8));
  }
}

}  // namespace

int64_t Bytes(const StoredShape& shape) {
  if (shape.dtype != DType::kI32 || shape.columns < 0) return -1;
  return Product({shape.rows, GroupsOf(shape.columns), kGroupBytes});
}

void Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t word = 0; word < shape.columns; word += kWordsPerGroup, out += kGroupBytes) {
      const int64_t count = std::min(kWordsPerGroup, shape.columns - word);
      uint32_t words[kWordsPerGroup];
      std::fill_n(words, kWordsPerGroup, kZeroWord);
      std::memcpy(words, in, static_cast<size_t>(count * kWordBytes));
      in += count * kWordBytes;
      PackGroup(words, out);
    }
  }
}

void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t word = 0; word < shape.columns; word += kWordsPerGroup, in += kGroupBytes) {
      const int64_t count = std::min(kWordsPerGroup, shape.columns - word);
      uint32_t words[kWordsPerGroup];
      UnpackGroup(in, words);
      std::memcpy(out, words, static_cast<size_t>(count * kWordBytes));
      out += count * kWordBytes;
    }
  }
}

}  // namespace assay::kernels::i4_split16
