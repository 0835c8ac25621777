// Layouts for CPUs: vnni, amx, ktile, vllm-cpu-moe-vec; and rows of gate and up that alternate.
#include "kernels/layouts/rules.h"
#include "kernels/layouts/tiled.h"

namespace assay::kernels {
namespace {

// Two bytes a value or one: what a lane of 32 bits holds two or four of.
bool IsNarrow(DType d) {
  return (IsByte(d) && d != DType::kF8E8M0) || d == DType::kBF16 || d == DType::kF16;
}

// [n / 16][k / 4][16][4] of bytes, [n / 16][k / 2][16][2] of 16-bit values.
using Vnni = Tiled<UnitTile<16, 4>, RowsInOrder<16>, IsNarrow>;
// The same in tiles of 16 × 64 bytes: K is filled up to whole tiles.
using Amx = Tiled<UnitTile<16, 4, 16>, RowsInOrder<16>, IsNarrow>;

bool IsTwoBytes(DType d) { return d == DType::kBF16 || d == DType::kF16; }
bool IsF32(DType d) { return d == DType::kF32; }

// [n / 16][k][16] of values.
using Vec2 = Tiled<UnitTile<16, 2>, RowsInOrder<16>, IsTwoBytes>;
using Vec4 = Tiled<UnitTile<16, 4>, RowsInOrder<16>, IsF32>;

int64_t VecBytes(const StoredShape& shape) {
  return IsF32(shape.dtype) ? Vec4::Bytes(shape) : Vec2::Bytes(shape);
}
void VecPack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  IsF32(shape.dtype) ? Vec4::Pack(shape, in, out) : Vec2::Pack(shape, in, out);
}
void VecUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  IsF32(shape.dtype) ? Vec4::Unpack(shape, in, out) : Vec2::Unpack(shape, in, out);
}

// [K tile][row][tile]: a tile is 64 bytes of a row, or one GGUF block.
constexpr int64_t kTileBytes = 64;

int64_t KTileOf(DType d) { return IsBlock(d) ? SizeOf(d).count() : kTileBytes; }

int64_t KTileBytes(const StoredShape& shape) {
  return ColumnUnits::Bytes(shape, KTileOf(shape.dtype));
}
void KTilePack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ColumnUnits::Pack(shape, KTileOf(shape.dtype), in, out);
}
void KTileUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ColumnUnits::Unpack(shape, KTileOf(shape.dtype), in, out);
}

// Rows gate 0, up 0, gate 1, up 1, ... of a matrix whose first half is gate, whose second is up.
int64_t AlternateBytes(const StoredShape& shape) {
  const int64_t row_bytes = RowBytes(shape);
  return row_bytes < 0 || shape.rows % 2 != 0 ? -1 : Product({shape.rows, row_bytes});
}

template <class F>
void ForEachAlternate(const StoredShape& shape, F f) {
  const int64_t row_bytes = RowBytes(shape), half = shape.rows / 2;
  if (row_bytes == 0) return;
  for (int64_t i = 0; i < shape.rows; ++i) {
    f((i % 2 * half + i / 2) * row_bytes, i * row_bytes, static_cast<size_t>(row_bytes));
  }
}
void AlternatePack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachAlternate(shape, [=](int64_t from, int64_t to, size_t bytes) {
    std::memcpy(out + to, in + from, bytes);
  });
}
void AlternateUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  ForEachAlternate(shape, [=](int64_t to, int64_t from, size_t bytes) {
    std::memcpy(out + to, in + from, bytes);
  });
}

// A stored value is one element of the matrix, and a byte or two.
bool IsElementwise(const Scheme& s) {
  return IsInt8(s) || IsFp8(s) || s.family == MethodFamily::kCtMxfp8 ||
         (IsDense(s) && s.dtype != DType::kF32);
}
// Rows of the stored weight are rows of the matrix.
bool IsRowMajor(const Scheme& s) {
  return s.family != MethodFamily::kGptq && s.family != MethodFamily::kAwq &&
         s.family != MethodFamily::kModelSlimW4a8;
}
// A scale (or a list of them) a row.
bool HasRowScales(const Scheme& s) {
  return IsRowMajor(s) &&
         (s.granularity == Granularity::kGroup || s.granularity == Granularity::kChannel) &&
         s.family != MethodFamily::kGguf;
}

constexpr Rule kRules[] = {
    {{"vnni", "a byte or two each", "weight", Vnni::Bytes, Vnni::Pack, Vnni::Unpack},
     IsElementwise},
    {{"amx", "a byte or two each", "weight", Amx::Bytes, Amx::Pack, Amx::Unpack}, IsElementwise},
    {{"ktile", "all but GPTQ, AWQ, W4A8", "weight", KTileBytes, KTilePack, KTileUnpack},
     IsRowMajor},
    {{"vllm-cpu-moe-vec", "dense", "weight", VecBytes, VecPack, VecUnpack}, IsDense},
    {{"gate-up-rows", "all but GPTQ, AWQ, W4A8", "weight", AlternateBytes, AlternatePack,
      AlternateUnpack},
     IsRowMajor},
    {{"gate-up-rows", "scales by rows", "scale", AlternateBytes, AlternatePack, AlternateUnpack},
     HasRowScales},
    {{"gate-up-rows", "all but GPTQ, AWQ, W4A8", "bias", AlternateBytes, AlternatePack,
      AlternateUnpack},
     IsRowMajor},
};

}  // namespace

std::span<const Rule> TileRules() { return kRules; }

}  // namespace assay::kernels
