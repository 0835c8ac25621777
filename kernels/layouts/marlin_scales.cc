// Scales, zero points and g_idx beside Marlin's weights.
#include <cstring>

#include "kernels/layouts/marlin.h"
#include "kernels/layouts/marlin_tile.h"

namespace assay::kernels::marlin {
namespace {

bool IsFloat(DType d) { return d == DType::kBF16 || d == DType::kF16 || d == DType::kF32; }

// Scales stored [N, groups] (rows are the matrix's) or [groups, N], packed [groups, N] with the
// columns of each 64 or 32 permuted: by channel if the rank has one group, whatever its method.
template <bool RowsAreN, Fill F>
struct Scales {
  struct Sizes {
    int64_t n, groups;  // stored
    int64_t filled_n, filled_groups;
  };

  // filled_n is −1 where the layout does not take the shape.
  static Sizes Of(const StoredShape& s) {
    const int64_t n = RowsAreN ? s.rows : s.columns, groups = RowsAreN ? s.columns : s.rows;
    Sizes sizes = {n, groups, -1, groups};
    if (n < 0 || groups < 0 || Product({s.rows, RowBytes(s)}) < 0) return sizes;
    if constexpr (F == Fill::kTiles) {
      sizes.filled_n = Filled<F>({n, 0}, 0).n;
      return sizes;
    }
    if (s.k < 0 || s.group < 0 || (n > 0 && groups > 0 && s.k == 0)) return sizes;
    const Extents e = Filled<F>({n, s.k}, s.group);
    if (s.group > 0 && e.k >= 0) sizes.filled_groups = e.k / s.group;
    if (sizes.filled_groups >= groups) sizes.filled_n = e.n;
    return sizes;
  }

  static int64_t Bytes(const StoredShape& shape) {
    if (!IsFloat(shape.dtype)) return -1;
    const Sizes s = Of(shape);
    return Product({s.filled_n, s.filled_groups, SizeOf(shape.dtype).count()});
  }

  // f(scale in the component, or −1; scale in the layout)
  template <class G>
  static void ForEach(const StoredShape& shape, G f) {
    const Sizes s = Of(shape);
    for (int64_t g = 0, to = 0; g < s.filled_groups; ++g) {
      for (int64_t p = 0; p < s.filled_n; ++p, ++to) {
        const int64_t n = s.filled_groups == 1 ? ByChannel(p) : ByGroups(p);
        const bool real = n < s.n && g < s.groups;
        f(!real ? -1 : RowsAreN ? n * s.groups + g : g * s.n + n, to);
      }
    }
  }

  template <size_t Size>
  static void PackSized(const StoredShape& shape, const std::byte* in, std::byte* out) {
    ForEach(shape, [=](int64_t from, int64_t to) {
      std::byte* scale = out + to * static_cast<int64_t>(Size);
      std::memset(scale, 0, Size);
      if (from >= 0) std::memcpy(scale, in + from * static_cast<int64_t>(Size), Size);
    });
  }
  template <size_t Size>
  static void UnpackSized(const StoredShape& shape, const std::byte* in, std::byte* out) {
    ForEach(shape, [=](int64_t to, int64_t from) {
      if (to < 0) return;
      std::memcpy(out + to * static_cast<int64_t>(Size), in + from * static_cast<int64_t>(Size),
                  Size);
    });
  }
  static void Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    SizeOf(shape.dtype).count() == 2 ? PackSized<2>(shape, in, out) : PackSized<4>(shape, in, out);
  }
  static void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    SizeOf(shape.dtype).count() == 2 ? UnpackSized<2>(shape, in, out)
                                     : UnpackSized<4>(shape, in, out);
  }
};

// Zero points, packed [groups, N / codes a word]: always permuted by groups, then interleaved in
// the word as AWQ's are. Stored by compressed-tensors [N / codes, groups], in order; by AWQ
// [groups, N / 8], interleaved.
template <int Bits, bool IsAwq>
struct Zeros {
  static constexpr int64_t kCodes = 32 / Bits;

  static int64_t Groups(const StoredShape& s) { return IsAwq ? s.rows : s.columns; }
  static int64_t N(const StoredShape& s) { return (IsAwq ? s.columns : s.rows) * kCodes; }
  static int64_t FilledN(const StoredShape& s) { return CeilDiv(N(s), kTileN) * kTileN; }

  static int64_t Bytes(const StoredShape& shape) {
    if (shape.rows > kMostExtent || shape.columns > kMostExtent) return -1;
    if (shape.dtype != DType::kI32 || Product({shape.rows, shape.columns, 4 * kTileN}) < 0)
      return -1;
    return Product({Groups(shape), FilledN(shape), Bits}) / 8;
  }

  // f(byte and shift in the component, −1: padding; byte and shift in the layout)
  template <class G>
  static void ForEach(const StoredShape& shape, G f) {
    constexpr auto kInterleave = Interleave<Bits>();
    const int64_t groups = Groups(shape), filled = FilledN(shape), count = N(shape);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t i = 0; i < filled; ++i) {
        const int64_t field = i % kCodes;
        const int64_t n = ByGroups(i - field + kInterleave[static_cast<size_t>(field)]);
        const int64_t code = IsAwq ? n % 8 / 2 + n % 2 * 4 : n % kCodes;  // field it is stored in
        const int64_t word = IsAwq ? g * shape.columns + n / kCodes : n / kCodes * groups + g;
        const int64_t from = (word * kCodes + code) * Bits, to = (g * filled + i) * Bits;
        f(n < count ? from / 8 : -1, from % 8, to / 8, to % 8);
      }
    }
  }

  static void Move(const StoredShape& shape, const std::byte* in, std::byte* out, bool packs) {
    const int64_t bytes = packs ? Bytes(shape) : shape.rows * shape.columns * 4;
    if (bytes > 0) std::memset(out, 0, static_cast<size_t>(bytes));
    ForEach(shape, [=](int64_t row, int64_t row_shift, int64_t at, int64_t shift) {
      if (row < 0) return;
      const int64_t from = packs ? row : at, to = packs ? at : row;
      const int64_t from_shift = packs ? row_shift : shift, to_shift = packs ? shift : row_shift;
      const int code = static_cast<int>(in[from]) >> from_shift & ((1 << Bits) - 1);
      out[to] |= static_cast<std::byte>(code << to_shift);
    });
  }
  static void Pack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    Move(shape, in, out, true);
  }
  static void Unpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
    Move(shape, in, out, false);
  }
};

// g_idx [K]: the sorted groups, then the order in which K was sorted.
int64_t GroupsBytes(const StoredShape& shape) {
  if (shape.dtype != DType::kI32 || shape.rows > INT32_MAX || shape.columns != 1) return -1;
  return Product({shape.rows, 8});
}
void GroupsPack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  std::vector<int32_t> g_idx(static_cast<size_t>(shape.rows));
  if (g_idx.empty()) return;
  std::memcpy(g_idx.data(), in, g_idx.size() * 4);
  const std::vector<int32_t> order = SortedOrder(g_idx);
  for (size_t i = 0; i < order.size(); ++i) {
    std::memcpy(out + 4 * i, &g_idx[static_cast<size_t>(order[i])], 4);
  }
  std::memcpy(out + 4 * order.size(), order.data(), 4 * order.size());
}
// An order that is none (bytes that somebody broke) leaves zeros.
void GroupsUnpack(const StoredShape& shape, const std::byte* in, std::byte* out) {
  if (shape.rows > 0) std::memset(out, 0, static_cast<size_t>(shape.rows) * 4);
  for (int64_t i = 0; i < shape.rows; ++i) {
    int32_t at = 0;
    std::memcpy(&at, in + 4 * (shape.rows + i), 4);
    if (at >= 0 && at < shape.rows) std::memcpy(out + int64_t{4} * at, in + 4 * i, 4);
  }
}

// A weight that has groups or channels: a scale of the whole tensor is not permuted.
bool HasColumns(const Scheme& s) {
  return s.granularity == Granularity::kChannel || s.granularity == Granularity::kGroup;
}
bool IsByRows(const Scheme& s) {
  return HasColumns(s) && (IsMarlinCt(s) || (s.family == MethodFamily::kCtFp8 && !s.fnuz));
}
bool IsCtInOrder(const Scheme& s) { return IsMarlinCt(s) && !s.actorder; }
bool IsByGroups(const Scheme& s) { return s.family == MethodFamily::kAwq || IsMarlinGptq(s); }
bool IsByGroupsInOrder(const Scheme& s) { return IsByGroups(s) && !s.actorder; }
template <int Bits>
bool IsCtAsymmetric(const Scheme& s) {
  return IsMarlinCt(s) && s.bits == Bits && s.asymmetric;
}
bool IsAwqAsymmetric(const Scheme& s) { return s.family == MethodFamily::kAwq && s.asymmetric; }
bool HasGroupIndex(const Scheme& s) { return (IsMarlinCt(s) || IsMarlinGptq(s)) && s.actorder; }

template <class S>
constexpr Rule Of(std::string_view tag, std::string_view methods, std::string_view part,
                  bool (*takes)(const Scheme&)) {
  return {{tag, methods, part, S::Bytes, S::Pack, S::Unpack}, takes};
}

constexpr Rule kRules[] = {
    Of<Scales<true, Fill::kTiles>>("marlin", "ct, FP8 by channel", "scale", IsByRows),
    Of<Scales<false, Fill::kTiles>>("marlin", "gptq, awq", "scale", IsByGroups),
    Of<Zeros<4, false>>("marlin", "ct-int4, asymmetric", "zero", IsCtAsymmetric<4>),
    Of<Zeros<8, false>>("marlin", "ct-int8, asymmetric", "zero", IsCtAsymmetric<8>),
    Of<Zeros<4, true>>("marlin", "awq", "zero", IsAwqAsymmetric),
    {{"marlin", "ct and gptq, act-order", "g_idx", GroupsBytes, GroupsPack, GroupsUnpack},
     HasGroupIndex},
    Of<Scales<true, Fill::kKernels>>("marlin-padded", "ct", "scale", IsCtInOrder),
    Of<Scales<false, Fill::kKernels>>("marlin-padded", "gptq, awq", "scale", IsByGroupsInOrder),
};

}  // namespace

std::span<const Rule> ScaleRules() { return kRules; }

}  // namespace assay::kernels::marlin
