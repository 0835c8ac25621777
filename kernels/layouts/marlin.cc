// Weights in Marlin's tiles, from every way in which the methods store codes.
#include "kernels/layouts/marlin.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/layouts/marlin_tile.h"

namespace assay::kernels::marlin {
namespace {

// Where the code of an element lies: a byte of the component and a shift in it.
struct Place {
  int64_t at;
  int shift;
};

// Rows are the matrix's, codes in order along K: compressed-tensors' words (least significant code
// first, so bytes in order), FP8, MXFP4 and NVFP4.
template <int Bits, bool (*Type)(DType)>
struct ByRows {
  static constexpr int kBits = Bits;
  static bool Takes(DType d) { return Type(d); }
  static Extents Of(const StoredShape& s) { return {s.rows, Product({RowBytes(s), 8 / Bits})}; }
  static Place At(int64_t row_bytes, int64_t k, int64_t n) {
    return {n * row_bytes + k * Bits / 8, Bits == 4 ? static_cast<int>(k % 2) * 4 : 0};
  }
};

bool IsI32(DType d) { return d == DType::kI32; }
bool IsE4m3(DType d) { return d == DType::kF8E4M3; }

// GPTQ: words along K, [K / codes a word, N].
template <int Bits>
struct ByColumns {
  static constexpr int kBits = Bits;
  static constexpr int64_t kCodes = 32 / Bits;
  static bool Takes(DType d) { return IsI32(d); }
  static Extents Of(const StoredShape& s) { return {s.columns, Product({s.rows, kCodes})}; }
  static Place At(int64_t row_bytes, int64_t k, int64_t n) {
    const int64_t bit = k % kCodes * Bits;
    return {k / kCodes * row_bytes + n * 4 + bit / 8, static_cast<int>(bit % 8)};
  }
};

// AWQ: words along N, [K, N / 8], interleaved.
struct Awq {
  static constexpr int kBits = 4;
  static bool Takes(DType d) { return IsI32(d); }
  static Extents Of(const StoredShape& s) { return {Product({s.columns, 8}), s.rows}; }
  static Place At(int64_t row_bytes, int64_t k, int64_t n) {
    constexpr int kField[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of columns 0…7; inverse of Interleave
    const int field = kField[n % 8];
    return {k * row_bytes + n / 8 * 4 + field / 2, field % 2 * 4};
  }
};

bool IsPermutation(std::span<const int32_t> order) {
  std::vector<bool> seen(order.size());
  for (const int32_t i : order) {
    if (i < 0 || static_cast<size_t>(i) >= order.size() || seen[static_cast<size_t>(i)]) {
      return false;
    }
    seen[static_cast<size_t>(i)] = true;
  }
  return true;
}

template <class Source, Fill F, uint8_t Zero>
struct Weight {
  static constexpr int64_t kTileBytes = kTileCodes * Source::kBits / 8;

  static int64_t Bytes(const StoredShape& shape) {
    if (!Source::Takes(shape.dtype) || shape.rows < 0 || Product({shape.rows, RowBytes(shape)}) < 0)
      return -1;
    const Extents stored = Source::Of(shape);
    if (stored.n < 0 || stored.k < 0) return -1;
    if (!shape.order.empty() &&
        (static_cast<int64_t>(shape.order.size()) != stored.k || !IsPermutation(shape.order))) {
      return -1;
    }
    const Extents e = Filled<F>(stored, shape.group);
    return e.n < 0 ? -1 : Product({e.n / kTileN, e.k / kTileK, kTileBytes});
  }

  static void Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    ForEachTile(shape, [&](const Cut& cut) {
      uint8_t tile[kTileCodes];
      std::memset(tile, Zero, sizeof tile);
      ForEachCode(shape, cut, [&](int64_t i, Place place) {
        tile[i] = static_cast<uint8_t>(in[place.at]) >> place.shift & kMask;
      });
      Write(tile, out);
      out += kTileBytes;
    });
  }

  static void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    const int64_t bytes = shape.rows * RowBytes(shape);
    if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
    ForEachTile(shape, [&](const Cut& cut) {
      uint8_t tile[kTileCodes];
      Read(in, tile);
      in += kTileBytes;
      ForEachCode(shape, cut, [&](int64_t i, Place place) {
        out[place.at] |= static_cast<std::byte>(tile[i] << place.shift);
      });
    });
  }

 private:
  // A tile: its first element of K and column, how many of each are no padding, and the bytes of a
  // row of the component.
  struct Cut {
    int64_t k, n, ks, ns, row_bytes;
  };

  static constexpr uint8_t kMask = (1 << Source::kBits) - 1;
  static constexpr auto kOrder = TileOrder<Source::kBits>();

  static void Write(const uint8_t* tile, std::byte* out) {
    for (size_t i = 0; i < kTileCodes; ++i) {
      if constexpr (Source::kBits == 8) {
        out[i] = static_cast<std::byte>(tile[kOrder[i]]);
      } else if (i % 2 == 0) {
        out[i / 2] = static_cast<std::byte>(tile[kOrder[i]] | tile[kOrder[i + 1]] << 4);
      }
    }
  }
  static void Read(const std::byte* in, uint8_t* tile) {
    for (size_t i = 0; i < kTileCodes; ++i) {
      if constexpr (Source::kBits == 8) {
        tile[kOrder[i]] = static_cast<uint8_t>(in[i]);
      } else {
        tile[kOrder[i]] = static_cast<uint8_t>(in[i / 2]) >> i % 2 * 4 & kMask;
      }
    }
  }

  // f(tile), in the order of the layout.
  template <class G>
  static void ForEachTile(const StoredShape& shape, G f) {
    const Extents stored = Source::Of(shape), e = Filled<F>(stored, shape.group);
    const int64_t row_bytes = RowBytes(shape);
    for (int64_t k = 0; k < e.k; k += kTileK) {
      for (int64_t n = 0; n < e.n; n += kTileN) {
        f(Cut{k, n, std::min(kTileK, stored.k - k), std::min(kTileN, stored.n - n), row_bytes});
      }
    }
  }
  // f(code in the tile, place in the component) of those codes of a tile that are no padding.
  template <class G>
  static void ForEachCode(const StoredShape& shape, const Cut& cut, G f) {
    const int32_t* order = shape.order.empty() ? nullptr : shape.order.data();
    for (int64_t n = 0; n < cut.ns; ++n) {
      for (int64_t i = 0; i < cut.ks; ++i) {
        const int64_t k = order == nullptr ? cut.k + i : order[cut.k + i];
        f(i * kTileN + n, Source::At(cut.row_bytes, k, cut.n + n));
      }
    }
  }
};

// With act-order the repack needs the order.
template <class W>
int64_t OrderedBytes(const StoredShape& shape) {
  return shape.order.empty() && shape.rows != 0 && shape.columns != 0 ? -1 : W::Bytes(shape);
}

template <class Source, Fill F, uint8_t Zero>
constexpr Rule Of(std::string_view methods, bool (*takes)(const Scheme&), bool ordered = false) {
  using W = Weight<Source, F, Zero>;
  return {{F == Fill::kTiles ? "marlin" : "marlin-padded", methods, "weight",
           ordered ? OrderedBytes<W> : W::Bytes, W::Pack, W::Unpack},
          takes};
}

template <int Bits, bool Asymmetric, bool Actorder>
bool IsCt(const Scheme& s) {
  return IsMarlinCt(s) && s.bits == Bits && s.asymmetric == Asymmetric && s.actorder == Actorder;
}
template <int Bits, bool Actorder>
bool IsGptq(const Scheme& s) {
  return IsMarlinGptq(s) && s.bits == Bits && s.actorder == Actorder;
}
template <int Bits>
bool IsCtInOrder(const Scheme& s) {
  return IsMarlinCt(s) && s.bits == Bits && !s.actorder;
}
bool IsAwq(const Scheme& s) { return s.family == MethodFamily::kAwq; }
bool IsFp8Marlin(const Scheme& s) { return IsFp8(s) && !s.fnuz; }
bool IsFp4(const Scheme& s) { return IsMxfp4(s) || IsNvfp4(s); }

using Ct4 = ByRows<4, IsI32>;
using Ct8 = ByRows<8, IsI32>;
constexpr Fill kT = Fill::kTiles, kK = Fill::kKernels;

// Padding is code 8 (128) where that is value 0. With zero points there is no such code: 0, whose
// scale is 0 in padded columns and whose activation is 0 beyond K. "marlin-padded" has 0 always.
constexpr Rule kRules[] = {
    Of<Ct4, kT, 8>("ct-int4", IsCt<4, false, false>),
    Of<Ct8, kT, 128>("ct-int8", IsCt<8, false, false>),
    Of<Ct4, kT, 0>("ct-int4, asymmetric", IsCt<4, true, false>),
    Of<Ct8, kT, 0>("ct-int8, asymmetric", IsCt<8, true, false>),
    Of<Ct4, kT, 8>("ct-int4, act-order", IsCt<4, false, true>, true),
    Of<Ct8, kT, 128>("ct-int8, act-order", IsCt<8, false, true>, true),
    Of<Ct4, kT, 0>("ct-int4, asymmetric, act-order", IsCt<4, true, true>, true),
    Of<Ct8, kT, 0>("ct-int8, asymmetric, act-order", IsCt<8, true, true>, true),
    Of<ByColumns<4>, kT, 8>("gptq-int4", IsGptq<4, false>),
    Of<ByColumns<8>, kT, 128>("gptq-int8", IsGptq<8, false>),
    Of<ByColumns<4>, kT, 8>("gptq-int4, act-order", IsGptq<4, true>, true),
    Of<ByColumns<8>, kT, 128>("gptq-int8, act-order", IsGptq<8, true>, true),
    Of<Awq, kT, 0>("awq", IsAwq),
    Of<ByRows<8, IsE4m3>, kT, 0>("FP8", IsFp8Marlin),
    Of<ByRows<4, IsByte>, kT, 0>("MXFP4, NVFP4", IsFp4),
    Of<Ct4, kK, 0>("ct-int4", IsCtInOrder<4>),
    Of<Ct8, kK, 0>("ct-int8", IsCtInOrder<8>),
    Of<ByColumns<4>, kK, 0>("gptq-int4", IsGptq<4, false>),
    Of<ByColumns<8>, kK, 0>("gptq-int8", IsGptq<8, false>),
    Of<Awq, kK, 0>("awq", IsAwq),
};

}  // namespace

std::vector<int32_t> SortedOrder(std::span<const int32_t> g_idx) {
  std::vector<int32_t> order(g_idx.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return g_idx[static_cast<size_t>(a)] < g_idx[static_cast<size_t>(b)];
  });
  return order;
}

Extents Padded(int64_t n, int64_t k, int64_t group) {
  const int64_t g = std::max<int64_t>(group, 1);
  if (n < 0 || k < 0 || n > kMostExtent || k > kMostExtent || g > kMostExtent) return {-1, -1};
  const auto up = [](int64_t a, int64_t b) { return CeilDiv(a, b) * b; };
  const Extents wide = {up(n, 64), up(k, std::lcm(int64_t{128}, g))};
  const Extents long_n = {up(n, 128), up(k, std::lcm(int64_t{64}, g))};
  const auto cost = [](const Extents& e) {
    return std::pair(static_cast<__int128>(e.n) * e.k, e.n + e.k);
  };
  return cost(long_n) < cost(wide) ? long_n : wide;
}

}  // namespace assay::kernels::marlin

namespace assay::kernels {

std::span<const Rule> MarlinRules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all(std::begin(marlin::kRules), std::end(marlin::kRules));
    for (const std::span<const Rule> more : {marlin::ScaleRules(), marlin::Fp4ScaleRules()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return rules;
}

}  // namespace assay::kernels
