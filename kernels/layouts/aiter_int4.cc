// AITER's int4: codes in two's complement, tiles of 16 rows × 32 codes, eight codes interleaved in
// four bytes; scales of two groups side by side.
#include "kernels/layouts/nibbles.h"
#include "kernels/layouts/rules.h"
#include "kernels/layouts/tiled.h"

namespace assay::kernels {
namespace {

constexpr uint32_t kSigns = 0x88888888;  // stored codes are value + 8

struct Int4Tile : UnitTile<16, 16> {
  static constexpr uint8_t kPad = 0x88;  // value 0
};
bool IsI32(DType d) { return d == DType::kI32; }
using Words = Tiled<Int4Tile, RowsInOrder<16>, IsI32>;

template <class F>
void Each32(const std::byte* in, int64_t bytes, std::byte* out, F f) {
  for (int64_t i = 0; i < bytes; i += 4) {
    uint32_t word = 0;
    std::memcpy(&word, in + i, 4);
    word = f(word);
    std::memcpy(out + i, &word, 4);
  }
}
void WordsPack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  Words::Pack(shape, in, out);
  Each32(out, Words::Bytes(shape), out, [](uint32_t w) { return InterleaveNibbles(w ^ kSigns); });
}
void WordsUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  std::vector<std::byte> tiles(static_cast<size_t>(Words::Bytes(shape)));
  Each32(in, Words::Bytes(shape), tiles.data(),
         [](uint32_t w) { return OrderNibbles(w) ^ kSigns; });
  Words::Unpack(shape, tiles.data(), out);
}

// [groups / 2][n][2]
constexpr int64_t kPair = 4;
int64_t ScaleBytes(const StoredShape& shape) {
  const bool half = shape.dtype == DType::kBF16 || shape.dtype == DType::kF16;
  return half ? ColumnUnits::Bytes(shape, kPair) : -1;
}
void ScalePack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ColumnUnits::Pack(shape, kPair, in, out);
}
void ScaleUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ColumnUnits::Unpack(shape, kPair, in, out);
}

bool IsSymmetric(const Scheme& s) { return IsCtInt4(s) && !s.asymmetric && !s.actorder; }
bool IsGrouped(const Scheme& s) { return IsSymmetric(s) && s.granularity == Granularity::kGroup; }

constexpr Rule kRules[] = {
    {{"aiter-int4", "ct-int4", "weight", Words::Bytes, WordsPack, WordsUnpack}, IsSymmetric},
    {{"aiter-int4", "ct-int4 by groups", "scale", ScaleBytes, ScalePack, ScaleUnpack}, IsGrouped},
};

}  // namespace

std::span<const Rule> AiterInt4Rules() { return kRules; }

}  // namespace assay::kernels
