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

// f(row, column) of rows × columns in blocks.
template <class F>
void ForEachInBlocks(int64_t rows, int64_t columns, F f) {
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      for (int64_t r = r0; r < std::min(rows, r0 + kBlock); ++r) {
        for (int64_t c = c0; c < std::min(columns, c0 + kBlock); ++c) f(r, c);
      }
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
  ForEachInBlocks(s.rows, s.columns,
                  [=](int64_t r, int64_t k) { out[k * across + r] = in[r * s.columns + k]; });
}
void PairsUnpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t across = CeilDiv(s.rows, kWord) * kWord;
  ForEachInBlocks(s.rows, s.columns,
                  [=](int64_t r, int64_t k) { out[r * s.columns + k] = in[k * across + r]; });
}

// compressed-tensors: words of eight codes + 8 along K, [N, K / 8]. f(byte and shift of a code in
// the component, byte and shift in the layout).
int64_t WordsAcross(const StoredShape& s) { return CeilDiv(s.rows, 2 * kWord) * kWord; }
int64_t WordsBytes(const StoredShape& s) {
  if (s.dtype != DType::kI32 || s.rows < 0 || Product({s.rows, s.columns, 4}) < 0) return -1;
  return Product({s.columns, 8, CeilDiv(s.rows, 2 * kWord), kWord});
}
template <class F>
void ForEachCode(const StoredShape& s, F f) {
  const int64_t across = WordsAcross(s), row = s.columns * 4;
  ForEachInBlocks(s.rows, s.columns * 8, [=](int64_t n, int64_t k) {
    f(n * row + k / 2, k % 2 * 4, k * across + n / 2, n % 2 * 4);
  });
}
void WordsPack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t bytes = WordsBytes(s);
  if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
  ForEachCode(s, [=](int64_t from, int64_t from_shift, int64_t to, int64_t shift) {
    const int code = (static_cast<int>(in[from]) >> from_shift & 15) ^ 8;
    out[to] |= static_cast<std::byte>(code << shift);
  });
}
void WordsUnpack(const StoredShape& s, const std::byte* in, std::byte* out) {
  const int64_t bytes = s.rows * s.columns * 4;
  if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
  ForEachCode(s, [=](int64_t to, int64_t to_shift, int64_t from, int64_t shift) {
    const int code = (static_cast<int>(in[from]) >> shift & 15) ^ 8;
    out[to] |= static_cast<std::byte>(code << to_shift);
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
