#include "kernels/layouts/rows16.h"

#include <algorithm>
#include <cstring>

#include "kernels/layouts/nibbles.h"
#include "kernels/layouts/rules.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels::rows16 {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kWordsPerGroup = 4;       // of eight 4-bit codes
constexpr int64_t kPartBytes = 4;           // of one row
constexpr int64_t kVectorBytes = 64;        // of all 16 rows
constexpr uint32_t kInt4Zero = 0x88888888;  // eight codes of value 0
constexpr uint32_t kE2m1Zero = 0;

constexpr int64_t kQ41Bytes = 20, kQ41Scales = 4;  // d, m, then 16 bytes of codes
constexpr int64_t kQ80Bytes = 34, kQ80Scales = 2;  // d, then 32 codes

uint32_t Load(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}
void Store(uint32_t word, std::byte* p) { std::memcpy(p, &word, sizeof word); }

// Calls f(where a row's bytes of a word lie in the layout, index of the word in the checkpoint, or
// −1 for padding) for every word of a matrix of rows × words, four of them a group.
template <class F>
void ForEachWord(int64_t rows, int64_t words, F f) {
  const int64_t groups = CeilDiv(words, kWordsPerGroup);
  int64_t at = 0;
  for (int64_t tile = 0; tile < rows; tile += kRows) {
    for (int64_t w = 0; w < groups * kWordsPerGroup; ++w) {
      for (int64_t row = tile; row < tile + kRows; ++row, at += kPartBytes) {
        f(at, row < rows && w < words ? row * words + w : -1);
      }
    }
  }
}

int64_t WordBytes(int64_t rows, int64_t words) {
  return Product(
      {CeilDiv(rows, kRows), CeilDiv(words, kWordsPerGroup), kWordsPerGroup * kVectorBytes});
}

// The same for scales of `Size` bytes.
template <int64_t Size>
void PackScales(const StoredShape& shape, const std::byte* in, std::byte* out) {
  for (int64_t tile = 0; tile < shape.rows; tile += kRows) {
    for (int64_t g = 0; g < shape.columns; ++g) {
      for (int64_t row = tile; row < tile + kRows; ++row, out += Size) {
        std::memset(out, 0, Size);
        if (row < shape.rows) std::memcpy(out, in + (row * shape.columns + g) * Size, Size);
      }
    }
  }
}

template <int64_t Size>
void UnpackScales(const StoredShape& shape, const std::byte* in, std::byte* out) {
  for (int64_t tile = 0; tile < shape.rows; tile += kRows) {
    for (int64_t g = 0; g < shape.columns; ++g) {
      for (int64_t row = tile; row < tile + kRows; ++row, in += Size) {
        if (row < shape.rows) std::memcpy(out + (row * shape.columns + g) * Size, in, Size);
      }
    }
  }
}

int64_t ScaleBytes(const StoredShape& shape) {
  if (shape.rows < 0) return -1;
  return Product({CeilDiv(shape.rows, kRows), kRows, shape.columns, SizeOf(shape.dtype).count()});
}

// Blocks of one GGUF type: `Bytes` of which the first `Scales` are fp16 scales. Convert: four
// bytes of part v of a block's codes to the layout's; Restore: the four bytes back into the block.
template <int64_t Bytes, int64_t Scales, class F>
void ForEachBlock(const StoredShape& shape, F f) {
  const int64_t codes = (Bytes - Scales) * kRows, scales = Scales * kRows;
  for (int64_t tile = 0; tile < shape.rows; tile += kRows) {
    const int64_t tile_at = tile * Bytes * shape.columns;
    for (int64_t b = 0; b < shape.columns; ++b) {
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t codes_at = tile_at + b * codes + r * kPartBytes;
        const int64_t scales_at = tile_at + shape.columns * codes + b * scales + 2 * r;
        const int64_t row = tile + r;
        f(row < shape.rows ? (row * shape.columns + b) * Bytes : -1, codes_at, scales_at);
      }
    }
  }
}

int64_t BlockBytes(const StoredShape& shape, DType dtype) {
  if (shape.dtype != dtype || shape.rows < 0) return -1;
  return Product({CeilDiv(shape.rows, kRows), kRows, shape.columns, SizeOf(dtype).count()});
}

// Q4_1 has element j in the low nibble of byte j, j + 16 in the high one. Part v of the layout
// wants elements 8v … 8v + 7: two words of one kind of nibble.
uint32_t Q41Part(const std::byte* codes, int v) {
  const uint32_t low = Load(codes + 8 * (v % 2)), high = Load(codes + 8 * (v % 2) + 4);
  if (v < 2) return (low & 0x0F0F0F0F) | (high & 0x0F0F0F0F) << 4;
  return (low >> 4 & 0x0F0F0F0F) | (high & 0xF0F0F0F0);
}

}  // namespace

int64_t BytesI32(const StoredShape& shape) {
  if (shape.dtype != DType::kI32 || shape.rows < 0 || shape.columns < 0) return -1;
  return WordBytes(shape.rows, shape.columns);
}

void PackI32(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachWord(shape.rows, shape.columns, [=](int64_t at, int64_t word) {
    Store(InterleaveNibbles(word < 0 ? kInt4Zero : Load(in + 4 * word)), out + at);
  });
}

void UnpackI32(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachWord(shape.rows, shape.columns, [=](int64_t at, int64_t word) {
    if (word >= 0) Store(OrderNibbles(Load(in + at)), out + 4 * word);
  });
}

int64_t BytesBf16(const StoredShape& shape) {
  return shape.dtype == DType::kBF16 ? ScaleBytes(shape) : -1;
}
void PackBf16(const StoredShape& shape, const std::byte* in, std::byte* out) {
  PackScales<2>(shape, in, out);
}
void UnpackBf16(const StoredShape& shape, const std::byte* in, std::byte* out) {
  UnpackScales<2>(shape, in, out);
}

int64_t BytesI8(const StoredShape& shape) {
  if (shape.dtype != DType::kI8 && shape.dtype != DType::kU8) return -1;
  if (shape.rows < 0 || shape.columns < 0) return -1;
  return WordBytes(shape.rows, CeilDiv(shape.columns, kPartBytes));
}

// A row may end within a word: its bytes are not a multiple of four then.
void PackI8(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const int64_t words = CeilDiv(shape.columns, kPartBytes);
  ForEachWord(shape.rows, words, [=](int64_t at, int64_t word) {
    uint32_t codes = kE2m1Zero;
    if (word >= 0) {
      const int64_t row = word / words, column = word % words * kPartBytes;
      const int64_t count = std::min(kPartBytes, shape.columns - column);
      std::memcpy(&codes, in + row * shape.columns + column, static_cast<size_t>(count));
    }
    Store(InterleaveNibbles(codes), out + at);
  });
}

void UnpackI8(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const int64_t words = CeilDiv(shape.columns, kPartBytes);
  ForEachWord(shape.rows, words, [=](int64_t at, int64_t word) {
    if (word < 0) return;
    const int64_t row = word / words, column = word % words * kPartBytes;
    const int64_t count = std::min(kPartBytes, shape.columns - column);
    const uint32_t codes = OrderNibbles(Load(in + at));
    std::memcpy(out + row * shape.columns + column, &codes, static_cast<size_t>(count));
  });
}

int64_t BytesE8m0(const StoredShape& shape) {
  return shape.dtype == DType::kF8E8M0 || shape.dtype == DType::kU8 ? ScaleBytes(shape) : -1;
}
void PackE8m0(const StoredShape& shape, const std::byte* in, std::byte* out) {
  PackScales<1>(shape, in, out);
}
void UnpackE8m0(const StoredShape& shape, const std::byte* in, std::byte* out) {
  UnpackScales<1>(shape, in, out);
}

int64_t BytesQ41(const StoredShape& shape) { return BlockBytes(shape, DType::kQ4_1); }

void PackQ41(const StoredShape& shape, const std::byte* in, std::byte* out) {
  constexpr std::byte kZero[kQ41Bytes] = {};
  ForEachBlock<kQ41Bytes, kQ41Scales>(shape, [=](int64_t from, int64_t codes, int64_t scales) {
    const std::byte* block = from < 0 ? kZero : in + from;
    std::memcpy(out + scales, block, 2);
    std::memcpy(out + scales + 2 * kRows, block + 2, 2);
    for (int v = 0; v < 4; ++v) {
      Store(Q41Part(block + kQ41Scales, v), out + codes + v * kVectorBytes);
    }
  });
}

void UnpackQ41(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachBlock<kQ41Bytes, kQ41Scales>(shape, [=](int64_t to, int64_t codes, int64_t scales) {
    if (to < 0) return;
    std::memcpy(out + to, in + scales, 2);
    std::memcpy(out + to + 2, in + scales + 2 * kRows, 2);
    for (int64_t i = 0; i < 2; ++i) {  // eight bytes: elements 8i … and, in high nibbles, 16 + 8i …
      const uint32_t low = Load(in + codes + i * kVectorBytes);
      const uint32_t high = Load(in + codes + (i + 2) * kVectorBytes);
      std::byte* bytes = out + to + kQ41Scales + 8 * i;
      Store((low & 0x0F0F0F0F) | (high & 0x0F0F0F0F) << 4, bytes);
      Store((low >> 4 & 0x0F0F0F0F) | (high & 0xF0F0F0F0), bytes + 4);
    }
  });
}

int64_t BytesQ80(const StoredShape& shape) { return BlockBytes(shape, DType::kQ8_0); }

void PackQ80(const StoredShape& shape, const std::byte* in, std::byte* out) {
  constexpr std::byte kZero[kQ80Bytes] = {};
  ForEachBlock<kQ80Bytes, kQ80Scales>(shape, [=](int64_t from, int64_t codes, int64_t scales) {
    const std::byte* block = from < 0 ? kZero : in + from;
    std::memcpy(out + scales, block, 2);
    for (int64_t v = 0; v < 8; ++v) {
      std::memcpy(out + codes + v * kVectorBytes, block + kQ80Scales + v * kPartBytes, kPartBytes);
    }
  });
}

void UnpackQ80(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachBlock<kQ80Bytes, kQ80Scales>(shape, [=](int64_t to, int64_t codes, int64_t scales) {
    if (to < 0) return;
    std::memcpy(out + to, in + scales, 2);
    for (int64_t v = 0; v < 8; ++v) {
      std::memcpy(out + to + kQ80Scales + v * kPartBytes, in + codes + v * kVectorBytes,
                  kPartBytes);
    }
  });
}

}  // namespace assay::kernels::rows16

namespace assay::kernels {
namespace {

bool IsSymmetricCtInt4(const Scheme& s) { return IsCtInt4(s) && !s.asymmetric && !s.actorder; }
template <DType Block>
bool IsGguf(const Scheme& s) {
  return s.family == MethodFamily::kGguf && s.dtype == Block;
}

constexpr Rule kRules[] = {
    {{"rows16", "ct-int4", "weight", rows16::BytesI32, rows16::PackI32, rows16::UnpackI32},
     IsSymmetricCtInt4},
    {{"rows16", "ct-int4", "scale", rows16::BytesBf16, rows16::PackBf16, rows16::UnpackBf16},
     IsSymmetricCtInt4},
    {{"rows16", "MXFP4", "weight", rows16::BytesI8, rows16::PackI8, rows16::UnpackI8}, IsMxfp4},
    {{"rows16", "MXFP4", "scale", rows16::BytesE8m0, rows16::PackE8m0, rows16::UnpackE8m0},
     IsMxfp4},
    {{"rows16", "gguf-q4_1", "weight", rows16::BytesQ41, rows16::PackQ41, rows16::UnpackQ41},
     IsGguf<DType::kQ4_1>},
    {{"rows16", "gguf-q8_0", "weight", rows16::BytesQ80, rows16::PackQ80, rows16::UnpackQ80},
     IsGguf<DType::kQ8_0>},
};

}  // namespace

std::span<const Rule> Rows16Rules() { return kRules; }

}  // namespace assay::kernels
