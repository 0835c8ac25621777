#include "harness/audit/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "harness/audit/gguf_values.h"

namespace assay::audit {
namespace {

constexpr size_t kBlock = 4096;  // bytes between two looks at what has been seen

template <class T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// A float type by its bits. `U` holds a value, `S` compares magnitudes in SSE2's own lanes.
template <class UnsignedType, class SignedType, int kMantissa>
struct Format {
  using U = UnsignedType;
  using S = SignedType;
  static constexpr U kMagnitude = static_cast<U>(~U{0}) >> 1;
  static constexpr U kInf = kMagnitude >> kMantissa << kMantissa;
  static constexpr U kNormal = U{1} << kMantissa;  // the least normal magnitude
};
using BF16 = Format<uint16_t, int16_t, 7>;
using F16 = Format<uint16_t, int16_t, 10>;
using F32 = Format<uint32_t, int32_t, 23>;
using F64 = Format<uint64_t, int64_t, 52>;

template <class F>
void LookAt(typename F::U bits, bool scale, uint64_t index, Tally* tally) {
  const auto magnitude = static_cast<typename F::U>(bits & F::kMagnitude);
  if (magnitude > F::kInf) return tally->Add(Issue::kNan, index);
  if (magnitude == F::kInf) return tally->Add(Issue::kInf, index);
  if (!scale) return;
  if (magnitude == 0) return tally->Add(Issue::kZero, index);
  if (magnitude < F::kNormal) tally->Add(Issue::kDenormal, index);
  if (bits > F::kMagnitude) tally->Add(Issue::kNegative, index);
}

// Dense values: what a block's exponents say decides whether there is anything to look at. Wide
// values are compared instead of ordered: SSE2 has no maximum of 32-bit lanes.
template <class F>
bool HasSpecials(const std::byte* from, size_t count, Tally* tally) {
  using U = typename F::U;
  using S = typename F::S;
  if constexpr (sizeof(U) == 2) {
    S largest = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto magnitude = static_cast<S>(Load<U>(from + i * sizeof(U)) & F::kMagnitude);
      largest = std::max(largest, magnitude);
    }
    tally->all_zero = tally->all_zero && largest == 0;
    return largest >= static_cast<S>(F::kInf);
  } else {
    U any = 0, specials = 0;
    for (size_t i = 0; i < count; ++i) {
      const U bits = Load<U>(from + i * sizeof(U));
      any |= bits;
      specials |= (bits & F::kInf) == F::kInf ? ~U{0} : U{0};
    }
    tally->all_zero = tally->all_zero && (any & F::kMagnitude) == 0;
    return specials != 0;
  }
}

template <class F>
void LookDense(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  using U = typename F::U;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::byte* from = bytes.data() + at;
    const size_t count = std::min(kBlock, bytes.size() - at) / sizeof(U);
    if (!HasSpecials<F>(from, count, tally)) continue;
    for (size_t i = 0; i < count; ++i) {
      LookAt<F>(Load<U>(from + i * sizeof(U)), false, first + at / sizeof(U) + i, tally);
    }
  }
}

template <class F>
void LookScales(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  using U = typename F::U;
  using S = typename F::S;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::byte* from = bytes.data() + at;
    const size_t count = std::min(kBlock, bytes.size() - at) / sizeof(U);
    S largest = 0, least = static_cast<S>(F::kMagnitude);
    U any = 0;
    for (size_t i = 0; i < count; ++i) {
      const U bits = Load<U>(from + i * sizeof(U));
      const auto magnitude = static_cast<S>(bits & F::kMagnitude);
      largest = std::max(largest, magnitude);
      least = std::min(least, magnitude);
      any = static_cast<U>(any | bits);
    }
    if (count == 0) return;
    tally->all_zero = tally->all_zero && largest == 0;
    tally->least = std::min<uint64_t>(tally->least, static_cast<U>(least));
    tally->largest = std::max<uint64_t>(tally->largest, static_cast<U>(largest));
    tally->negative = tally->negative || any > F::kMagnitude;
    if (largest < static_cast<S>(F::kInf) && least >= static_cast<S>(F::kNormal) &&
        any <= F::kMagnitude) {
      continue;
    }
    for (size_t i = 0; i < count; ++i) {
      LookAt<F>(Load<U>(from + i * sizeof(U)), true, first + at / sizeof(U) + i, tally);
    }
  }
}

// One byte a value: `suspicious` of the block's least and largest byte under `mask`.
template <class Suspicious, class Each>
void LookBytes(std::span<const std::byte> bytes, uint64_t first, uint8_t mask, Tally* tally,
               Suspicious suspicious, Each each) {
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::byte* from = bytes.data() + at;
    const size_t count = std::min(kBlock, bytes.size() - at);
    uint8_t largest = 0, least = 0xFF;
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<uint8_t>(Load<uint8_t>(from + i) & mask);
      largest = std::max(largest, value);
      least = std::min(least, value);
    }
    tally->all_zero = tally->all_zero && largest == 0;
    tally->least = std::min<uint64_t>(tally->least, least);
    tally->largest = std::max<uint64_t>(tally->largest, largest);
    if (!suspicious(least, largest)) continue;
    for (size_t i = 0; i < count; ++i) each(Load<uint8_t>(from + i), first + at + i);
  }
}

void LookE4M3(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  LookBytes(
      bytes, first, 0x7F, tally, [](uint8_t, uint8_t largest) { return largest == 0x7F; },
      [&](uint8_t code, uint64_t index) {
        if ((code & 0x7F) == 0x7F) tally->Add(Issue::kNan, index);
      });
}

void LookE5M2(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  LookBytes(
      bytes, first, 0x7F, tally, [](uint8_t, uint8_t largest) { return largest >= 0x7C; },
      [&](uint8_t code, uint64_t index) {
        if ((code & 0x7F) == 0x7C) tally->Add(Issue::kInf, index);
        if ((code & 0x7F) > 0x7C) tally->Add(Issue::kNan, index);
      });
}

// 0x80 is the byte that XOR 0x80 makes the least.
void LookE4M3Fnuz(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::byte* from = bytes.data() + at;
    const size_t count = std::min(kBlock, bytes.size() - at);
    uint8_t least = 0xFF, any = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto code = Load<uint8_t>(from + i);
      least = std::min(least, static_cast<uint8_t>(code ^ 0x80));
      any |= code;
    }
    tally->all_zero = tally->all_zero && any == 0;
    if (least != 0) continue;
    for (size_t i = 0; i < count; ++i) {
      if (Load<uint8_t>(from + i) == 0x80) tally->Add(Issue::kNan, first + at + i);
    }
  }
}

void LookScaleE4M3(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  LookBytes(
      bytes, first, 0xFF, tally,
      [](uint8_t least, uint8_t largest) { return largest >= 0x7F || least < 8; },
      [&](uint8_t code, uint64_t index) {
        const int magnitude = code & 0x7F;
        if (magnitude == 0x7F) return tally->Add(Issue::kNan, index);
        if (magnitude == 0) return tally->Add(Issue::kZero, index);
        if (magnitude < 8) tally->Add(Issue::kDenormal, index);
        if (code > 0x7F) tally->Add(Issue::kNegative, index);
      });
}

void LookE8M0(std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  LookBytes(
      bytes, first, 0xFF, tally,
      [](uint8_t least, uint8_t largest) { return largest == 0xFF || least == 0; },
      [&](uint8_t code, uint64_t index) {
        if (code == 0xFF) tally->Add(Issue::kNan, index);
        if (code == 0) tally->Add(Issue::kDenormal, index);
      });
  // The byte 0 is 2^-127 and no zero.
  tally->all_zero = false;
}

// Packed codes. A word that is all zeros is rare enough to look at its block again.
void LookWords(const Lens& lens, uint32_t mask, uint64_t group_bytes,
               std::span<const std::byte> bytes, uint64_t offset, Tally* tally) {
  const size_t block =
      group_bytes == 0 ? kBlock : std::max<size_t>(kBlock / group_bytes, 1) * group_bytes;
  for (size_t at = 0; at < bytes.size(); at += block) {
    const std::byte* from = bytes.data() + at;
    const size_t size = std::min(block, bytes.size() - at);
    const size_t count = size / sizeof(uint32_t);
    uint32_t any = 0, zeros = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t word = Load<uint32_t>(from + i * sizeof(uint32_t)) & mask;
      any |= word;
      zeros |= word == lens.zero_word ? 1u : 0u;
    }
    for (size_t i = count * sizeof(uint32_t); i < size; ++i) any |= Load<uint8_t>(from + i) & mask;
    tally->all_zero = tally->all_zero && any == 0;
    if (zeros == 0 || group_bytes == 0) continue;
    for (size_t group = 0; group + group_bytes <= size; group += group_bytes) {
      bool zero = true;
      for (size_t i = 0; zero && i < group_bytes; i += sizeof(uint32_t)) {
        zero = (Load<uint32_t>(from + group + i) & mask) == lens.zero_word;
      }
      if (zero) tally->Add(Issue::kZeroGroup, (offset + at + group) / group_bytes);
    }
  }
}

// Whole numbers in a range: zero points, in tensors that are small beside their codes.
template <class T>
void LookRange(const Lens& lens, std::span<const std::byte> bytes, uint64_t offset, Tally* tally) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    const T value = Load<T>(bytes.data() + at);
    const uint64_t index = (offset + at) / sizeof(T);
    // As an unsigned number, the same order for all types.
    const uint64_t shown = static_cast<uint64_t>(static_cast<int64_t>(value)) ^ (uint64_t{1} << 63);
    tally->all_zero = tally->all_zero && value == 0;
    tally->least = std::min(tally->least, shown);
    tally->largest = std::max(tally->largest, shown);
    if (value < lens.least || value > lens.largest) tally->Add(Issue::kRange, index);
  }
}

void LookOffsets(const Lens& lens, std::span<const std::byte> bytes, uint64_t offset,
                 Tally* tally) {
  for (size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    const auto value = Load<float>(bytes.data() + at);
    const uint64_t index = (offset + at) / sizeof(float);
    tally->all_zero = tally->all_zero && value == 0;
    if (std::isnan(value)) {
      tally->Add(Issue::kNan, index);
    } else if (std::isinf(value)) {
      tally->Add(Issue::kInf, index);
    } else if (value != std::trunc(value) || value < static_cast<float>(lens.least) ||
               value > static_cast<float>(lens.largest)) {
      tally->Add(Issue::kRange, index);
    }
    const uint64_t bits = Load<uint32_t>(bytes.data() + at);
    tally->least = std::min(tally->least, bits);
    tally->largest = std::max(tally->largest, bits);
  }
}

uint64_t GroupBytes(const Lens& lens) {
  if (lens.watch == Watch::kIntWords) return uint64_t{lens.group} * sizeof(uint32_t);
  return lens.watch == Watch::kE2M1 ? lens.group : 0;
}

}  // namespace

void Tally::Add(Issue issue, uint64_t index) {
  Entry& entry = issues[static_cast<size_t>(issue)];
  if (entry.count == 0 || index < entry.first) entry.first = index;
  ++entry.count;
}

void Tally::Merge(const Tally& later) {
  if (later.bytes == 0) return;
  for (size_t i = 0; i < issues.size(); ++i) {
    const Entry& other = later.issues[i];
    if (other.count == 0) continue;
    issues[i].first = issues[i].count == 0 ? other.first : std::min(issues[i].first, other.first);
    issues[i].count += other.count;
  }
  bytes += later.bytes;
  all_zero = all_zero && later.all_zero;
  least = std::min(least, later.least);
  largest = std::max(largest, later.largest);
  negative = negative || later.negative;
}

size_t Grain(const Lens& lens) {
  switch (lens.watch) {
    case Watch::kF16:
    case Watch::kBF16:
    case Watch::kScaleF16:
    case Watch::kScaleBF16:
      return 2;
    case Watch::kF32:
    case Watch::kScaleF32:
    case Watch::kI32:
    case Watch::kOffsetF32:
      return 4;
    case Watch::kF64:
    case Watch::kI64:
      return 8;
    case Watch::kIntWords:
    case Watch::kE2M1:
      return std::max<size_t>(GroupBytes(lens), sizeof(uint32_t));
    case Watch::kGguf:
      return GgufBlockBytes(lens.block_type);
    default:
      return 1;
  }
}

uint64_t IndexOf(const Lens& lens, uint64_t byte) { return byte / Grain(lens); }

void Look(const Lens& lens, std::span<const std::byte> bytes, uint64_t offset, Tally* tally) {
  const uint64_t first = IndexOf(lens, offset);
  tally->bytes += bytes.size();
  switch (lens.watch) {
    case Watch::kBytes:
      return LookWords(lens, ~0u, 0, bytes, offset, tally);
    case Watch::kF64:
      return LookDense<F64>(bytes, first, tally);
    case Watch::kF32:
      return LookDense<F32>(bytes, first, tally);
    case Watch::kF16:
      return LookDense<F16>(bytes, first, tally);
    case Watch::kBF16:
      return LookDense<BF16>(bytes, first, tally);
    case Watch::kScaleF32:
      return LookScales<F32>(bytes, first, tally);
    case Watch::kScaleF16:
      return LookScales<F16>(bytes, first, tally);
    case Watch::kScaleBF16:
      return LookScales<BF16>(bytes, first, tally);
    case Watch::kE4M3:
      return LookE4M3(bytes, first, tally);
    case Watch::kE4M3Fnuz:
      return LookE4M3Fnuz(bytes, first, tally);
    case Watch::kE5M2:
      return LookE5M2(bytes, first, tally);
    case Watch::kScaleE4M3:
      return LookScaleE4M3(bytes, first, tally);
    case Watch::kE8M0:
      return LookE8M0(bytes, first, tally);
    case Watch::kIntWords:
      return LookWords(lens, ~0u, GroupBytes(lens), bytes, offset, tally);
    case Watch::kE2M1:
      // The sign bit of a code says nothing: 8 is -0.
      return LookWords(lens, 0x77777777u, GroupBytes(lens), bytes, offset, tally);
    case Watch::kI8:
      return LookRange<int8_t>(lens, bytes, offset, tally);
    case Watch::kI32:
      return LookRange<int32_t>(lens, bytes, offset, tally);
    case Watch::kI64:
      return LookRange<int64_t>(lens, bytes, offset, tally);
    case Watch::kOffsetF32:
      return LookOffsets(lens, bytes, offset, tally);
    case Watch::kGguf:
      return LookGguf(lens.block_type, bytes, first, tally);
  }
}

}  // namespace assay::audit
