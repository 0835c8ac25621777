// Layouts that cut a matrix of bytes into tiles and order the tiles by rows, then by columns. A
// Tile says how big one is and where a unit of neighbouring bytes lies in it; a Rows says which row
// of the matrix stands at which row of which tile. Templates, so that the loops know both.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/layouts/sizes.h"

namespace assay::kernels {

// Rows in order, `Count` a tile.
template <int64_t Count>
struct RowsInOrder {
  static constexpr bool kEven = false;  // takes only even counts of rows
  static int64_t Tiles(int64_t rows) { return CeilDiv(rows, Count); }
  static int64_t Row(int64_t tile, int64_t r, int64_t rows) {
    const int64_t row = tile * Count + r;
    return row < rows ? row : -1;
  }
};

// A tile of `kRows` rows and `kUnits` units of `kUnit` bytes; Offset(r, u) in bytes.
// Unit after unit, of each all rows: VNNI (4 bytes), AITER (16 bytes).
template <int64_t Rows, int64_t Unit, int64_t Units = 1>
struct UnitTile {
  static constexpr int64_t kRows = Rows, kUnit = Unit, kUnits = Units;
  static constexpr uint8_t kPad = 0;
  static constexpr int64_t Offset(int64_t r, int64_t u) { return (u * Rows + r) * Unit; }
};

// Scales for a matrix core with 16 lanes of rows, 32 rows × 8 scales: [scale % 4][row % 16]
// [scale / 4][row / 16].
template <uint8_t Pad>
struct LaneScaleTile {
  static constexpr int64_t kRows = 32, kUnit = 1, kUnits = 8;
  static constexpr uint8_t kPad = Pad;
  static constexpr int64_t Offset(int64_t r, int64_t u) {
    return u % 4 * 64 + r % 16 * 4 + u / 4 * 2 + r / 16;
  }
};

template <class Tile, class Rows, bool (*TakesType)(DType)>
struct Tiled {
  static constexpr int64_t kTileBytes = Tile::kRows * Tile::kUnit * Tile::kUnits;

  static int64_t Bytes(const StoredShape& shape) {
    const int64_t row_bytes = RowBytes(shape);
    if (!TakesType(shape.dtype) || row_bytes < 0) return -1;
    if (Product({shape.rows, row_bytes}) < 0 || (Rows::kEven && shape.rows % 2 != 0)) return -1;
    return Product(
        {Rows::Tiles(shape.rows), CeilDiv(row_bytes, Tile::kUnit * Tile::kUnits), kTileBytes});
  }

  static void Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    const int64_t row_bytes = RowBytes(shape);
    ForEachRow(
        shape,
        [&](int64_t row, int64_t tile_row, std::byte* tiles) {
          const std::byte* from = in + std::max<int64_t>(row, 0) * row_bytes;
          const int64_t bytes = row < 0 ? 0 : row_bytes;
          ForEachUnit(shape, tile_row, tiles, [&](int64_t at, std::byte* unit) {
            const int64_t count = std::clamp<int64_t>(bytes - at, 0, Tile::kUnit);
            if (count == Tile::kUnit) {
              std::memcpy(unit, from + at, static_cast<size_t>(Tile::kUnit));
              return;
            }
            std::memset(unit, Tile::kPad, static_cast<size_t>(Tile::kUnit));
            if (count > 0) std::memcpy(unit, from + at, static_cast<size_t>(count));
          });
        },
        out);
  }

  static void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    const int64_t row_bytes = RowBytes(shape);
    ForEachRow(
        shape,
        [&](int64_t row, int64_t tile_row, const std::byte* tiles) {
          if (row < 0) return;
          std::byte* to = out + row * row_bytes;
          ForEachUnit(shape, tile_row, tiles, [&](int64_t at, const std::byte* unit) {
            const int64_t count = std::clamp<int64_t>(row_bytes - at, 0, Tile::kUnit);
            if (count > 0) std::memcpy(to + at, unit, static_cast<size_t>(count));
          });
        },
        in);
  }

 private:
  // f(row of the matrix or −1, row of the tile, first tile of that row of tiles)
  template <class F, class Byte>
  static void ForEachRow(const StoredShape& shape, F f, Byte* layout) {
    const int64_t across = CeilDiv(RowBytes(shape), Tile::kUnit * Tile::kUnits) * kTileBytes;
    for (int64_t tile = 0; tile < Rows::Tiles(shape.rows); ++tile) {
      for (int64_t r = 0; r < Tile::kRows; ++r) {
        f(Rows::Row(tile, r, shape.rows), r, layout + tile * across);
      }
    }
  }

  // f(byte of the row where a unit begins, the unit in the layout)
  template <class F, class Byte>
  static void ForEachUnit(const StoredShape& shape, int64_t tile_row, Byte* tiles, F f) {
    const int64_t count = CeilDiv(RowBytes(shape), Tile::kUnit * Tile::kUnits);
    for (int64_t c = 0; c < count; ++c, tiles += kTileBytes) {
      for (int64_t u = 0; u < Tile::kUnits; ++u) {
        f((c * Tile::kUnits + u) * Tile::kUnit, tiles + Tile::Offset(tile_row, u));
      }
    }
  }
};

// Layouts that keep all rows of one unit of columns together: [unit][row][bytes of a unit], the
// last unit filled up with zeros.
struct ColumnUnits {
  static int64_t Bytes(const StoredShape& shape, int64_t unit) {
    const int64_t row_bytes = RowBytes(shape);
    if (row_bytes < 0 || Product({shape.rows, row_bytes}) < 0) return -1;
    return Product({CeilDiv(row_bytes, unit), shape.rows, unit});
  }
  static void Pack(const StoredShape& shape, int64_t unit, const std::byte* in, std::byte* out) {
    ForEach(shape, unit, [=](int64_t from, int64_t bytes, int64_t to) {
      std::memcpy(out + to, in + from, static_cast<size_t>(bytes));
      if (bytes < unit) std::memset(out + to + bytes, 0, static_cast<size_t>(unit - bytes));
    });
  }
  static void Unpack(const StoredShape& shape, int64_t unit, const std::byte* in, std::byte* out) {
    ForEach(shape, unit, [=](int64_t to, int64_t bytes, int64_t from) {
      std::memcpy(out + to, in + from, static_cast<size_t>(bytes));
    });
  }

 private:
  // f(byte of the component, bytes of the unit that are there, byte of the layout)
  template <class F>
  static void ForEach(const StoredShape& shape, int64_t unit, F f) {
    const int64_t row_bytes = RowBytes(shape);
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t at = 0; at < row_bytes; at += unit) {
        f(row * row_bytes + at, std::min(unit, row_bytes - at), at * shape.rows + row * unit);
      }
    }
  }
};

}  // namespace assay::kernels
