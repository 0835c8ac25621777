// vllm-ascend's W4A8: weights [K, N / 2] of bytes that hold two rows' codes, signed; scales as the
// fp32's bits in 64.
#include "kernels/layouts/ascend.h"

#include <algorithm>
#include <cstring>

#include "kernels/layouts/rules.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels {
namespace {

constexpr int64_t kWord = 4;    // the layout's rows are int32 words
constexpr int64_t kBlock = 64;  // of a transpose: both sides stay in the cache

// f(first row, first column, rows, columns) of each block of rows × columns.
template <class F>
void ForEachBlock(int64_t rows, int64_t columns, F f) {
  for (int64_t r = 0; r < rows; r += kBlock) {
    for (int64_t c = 0; c < columns; c += kBlock) {
      f(r, c, std::min(kBlock, rows - r), std::min(kBlock, columns - c));
    }
  }
}

// ModelSlim: bytes [N / 2, K], the even row's code low.
int64_t PairsBytes(const StoredShape& s) {
  if (s.dtype != DType::kI8 || s.rows < 0) return -1;
  return Product({s.columns, CeilDiv(s.rows, kWord), kWord});
}
void PairsPack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t across = CeilDiv(s.rows, kWord) * kWord, bytes = PairsBytes(s);
  if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
  ForEachBlock(s.rows, s.columns, [=](int64_t r0, int64_t k0, int64_t rows, int64_t ks) {
    std::byte block[kBlock][kBlock];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < ks; ++k) block[k][r] = in[(r0 + r) * s.columns + k0 + k];
    }
    for (int64_t k = 0; k < ks; ++k) {
      std::memcpy(out + (k0 + k) * across + r0, block[k], static_cast<size_t>(rows));
    }
  });
}
void PairsUnpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t across = CeilDiv(s.rows, kWord) * kWord;
  ForEachBlock(s.rows, s.columns, [=](int64_t r0, int64_t k0, int64_t rows, int64_t ks) {
    for (int64_t r = r0; r < r0 + rows; ++r) {
      for (int64_t k = k0; k < k0 + ks; ++k) out[r * s.columns + k] = in[k * across + r];
    }
  });
}

// compressed-tensors: words of eight codes + 8 along K, [N, K / 8], so bytes of two in order.
int64_t WordsAcross(const StoredShape& s) { return CeilDiv(s.rows, 2 * kWord) * kWord; }
int64_t WordsBytes(const StoredShape& s) {
  if (s.dtype != DType::kI32 || s.rows < 0 || Product({s.rows, s.columns, 4}) < 0) return -1;
  return Product({s.columns, 8, CeilDiv(s.rows, 2 * kWord), kWord});
}
void WordsPack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t across = WordsAcross(s), row_bytes = s.columns * 4, bytes = WordsBytes(s);
  if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
  ForEachBlock(s.rows, row_bytes * 2, [=](int64_t n0, int64_t k0, int64_t rows, int64_t ks) {
    std::byte block[kBlock][kBlock / 2] = {};
    for (int64_t n = 0; n < rows; ++n) {
      const std::byte* row = in + (n0 + n) * row_bytes + k0 / 2;
      for (int64_t k = 0; k < ks; ++k) {
        const int code = (static_cast<int>(row[k / 2]) >> k % 2 * 4 & 15) ^ 8;
        block[k][n / 2] |= static_cast<std::byte>(code << n % 2 * 4);
      }
    }
    for (int64_t k = 0; k < ks; ++k) {
      std::memcpy(out + (k0 + k) * across + n0 / 2, block[k], static_cast<size_t>(rows + 1) / 2);
    }
  });
}
void WordsUnpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t across = WordsAcross(s), row_bytes = s.columns * 4;
  ForEachBlock(s.rows, row_bytes, [=](int64_t n0, int64_t b0, int64_t rows, int64_t count) {
    for (int64_t n = n0; n < n0 + rows; ++n) {
      for (int64_t b = b0; b < b0 + count; ++b) {  // two codes of one row
        const auto low = static_cast<int>(in[2 * b * across + n / 2]) >> n % 2 * 4 & 15;
        const auto high = static_cast<int>(in[(2 * b + 1) * across + n / 2]) >> n % 2 * 4 & 15;
        out[n * row_bytes + b] = static_cast<std::byte>((low | high << 4) ^ 0x88);
      }
    }
  });
}

// One scale a row, bf16 or fp32.
int64_t ScaleBytes(const StoredShape& s) {
  const bool taken = s.dtype == DType::kF32 || s.dtype == DType::kBF16;
  return taken && s.columns == 1 ? Product({s.rows, 8}) : -1;
}
void ScalePack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const size_t size = s.dtype == DType::kF32 ? 4 : 2;
  for (int64_t n = 0; n < s.rows; ++n) {
    std::memset(out + 8 * n, 0, 8);
    std::memcpy(out + 8 * n + 4 - size, in + static_cast<int64_t>(size) * n, size);
  }
}
void ScaleUnpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const size_t size = s.dtype == DType::kF32 ? 4 : 2;
  for (int64_t n = 0; n < s.rows; ++n) {
    std::memcpy(out + static_cast<int64_t>(size) * n, in + 8 * n + 4 - size, size);
  }
}

bool IsModelSlim(const Scheme& s) { return s.family == MethodFamily::kModelSlimW4a8; }
bool IsCt(const Scheme& s) {
  return IsCtInt4(s) && s.granularity == Granularity::kChannel && !s.asymmetric;
}
// One scale a row, and no second one by groups.
bool IsByChannel(const Scheme& s) {
  return IsCt(s) || (IsModelSlim(s) && s.granularity == Granularity::kChannel);
}

constexpr Rule kRules[] = {
    {{"ascend-w4a8", "modelslim-w4a8", "weight", PairsBytes, PairsPack, PairsUnpack}, IsModelSlim},
    {{"ascend-w4a8", "ct-int4-channel", "weight", WordsBytes, WordsPack, WordsUnpack}, IsCt},
    {{"ascend-w4a8", "by channel", "scale", ScaleBytes, ScalePack, ScaleUnpack}, IsByChannel},
};

}  // namespace

std::span<const Rule> AscendRules() { return kRules; }

namespace ascend {

float ScaleBias(std::span<const float> parts) {
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum;
}

float ScaleBiasOfCodes(float scale, std::span<const int8_t> codes) {
  int64_t sum = 0;
  for (const int8_t code : codes) sum += code;
  return static_cast<float>(8.0 * static_cast<double>(scale) * static_cast<double>(sum));
}

}  // namespace ascend
}  // namespace assay::kernels
