#include "harness/audit/gguf_values.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "harness/units/dtype.h"

namespace assay::audit {
namespace {

// Where a block keeps its scales (ggml-common.h).
struct Layout {
  DType type;
  int halves = 0;  // float16 values, one after the other: d, and the minimum's
  size_t at = 0;
  int e4m3 = 0;       // at byte 0, one for 16 elements
  bool e8m0 = false;  // at byte 0
};

constexpr std::array<Layout, 12> kLayouts = {{
    {DType::kQ4_0, 1, 0},
    {DType::kQ4_1, 2, 0},
    {DType::kQ5_0, 1, 0},
    {DType::kQ5_1, 2, 0},
    {DType::kQ8_0, 1, 0},
    {DType::kQ2K, 2, 80},
    {DType::kQ3K, 1, 108},
    {DType::kQ4K, 2, 0},
    {DType::kQ5K, 2, 0},
    {DType::kQ6K, 1, 208},
    {DType::kMxfp4Block, 0, 0, 0, true},
    {DType::kNvfp4Block, 0, 0, 4},
}};

const Layout* Find(uint32_t type) {
  for (const Layout& layout : kLayouts) {
    if (static_cast<uint32_t>(layout.type) == type) return &layout;
  }
  return nullptr;
}

constexpr uint16_t kMagnitude = 0x7FFF, kInf = 0x7C00, kNormal = 0x0400;
constexpr size_t kBlocks = 256;  // between two looks at what has been seen

uint16_t Half(const std::byte* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<uint16_t>(bits & kMagnitude);
}

// A minimum (the second half) may be zero or small; a scale of zero makes the block zero.
void LookHalf(uint16_t magnitude, bool minimum, uint64_t index, Tally* tally) {
  if (magnitude > kInf) return tally->Add(Issue::kNan, index);
  if (magnitude == kInf) return tally->Add(Issue::kInf, index);
  if (minimum) return;
  if (magnitude == 0) return tally->Add(Issue::kZero, index);
  if (magnitude < kNormal) tally->Add(Issue::kDenormal, index);
}

template <int kHalves>
void LookHalves(const Layout& layout, size_t block, std::span<const std::byte> bytes,
                uint64_t first, Tally* tally) {
  const size_t count = bytes.size() / block;
  for (size_t begin = 0; begin < count; begin += kBlocks) {
    const size_t end = std::min(begin + kBlocks, count);
    uint16_t largest = 0, least = kMagnitude;
    const std::byte* at = bytes.data() + begin * block + layout.at;
    for (size_t i = begin; i < end; ++i, at += block) {
      const uint16_t scale = Half(at);
      largest = std::max(largest, scale);
      least = std::min(least, scale);
      if constexpr (kHalves == 2) largest = std::max(largest, Half(at + 2));
    }
    tally->all_zero = tally->all_zero && largest == 0;
    if (largest < kInf && least >= kNormal) continue;
    at = bytes.data() + begin * block + layout.at;
    for (size_t i = begin; i < end; ++i, at += block) {
      LookHalf(Half(at), false, first + i, tally);
      if constexpr (kHalves == 2) LookHalf(Half(at + 2), true, first + i, tally);
    }
  }
}

void LookScaleBytes(const Layout& layout, size_t block, std::span<const std::byte> bytes,
                    uint64_t first, Tally* tally) {
  const size_t count = bytes.size() / block;
  for (size_t i = 0; i < count; ++i) {
    const std::byte* at = bytes.data() + i * block;
    if (layout.e8m0) {
      const auto exponent = std::to_integer<uint8_t>(*at);
      tally->all_zero = false;
      if (exponent == 0xFF) tally->Add(Issue::kNan, first + i);
      if (exponent == 0) tally->Add(Issue::kDenormal, first + i);
    }
    for (int j = 0; j < layout.e4m3; ++j) {
      const auto code = std::to_integer<uint8_t>(at[j]);
      tally->all_zero = tally->all_zero && (code & 0x7F) == 0;
      if (code == 0x7F || code == 0xFF) tally->Add(Issue::kNan, first + i);
      if ((code & 0x7F) == 0) tally->Add(Issue::kZero, first + i);
    }
  }
}

}  // namespace

size_t GgufBlockBytes(uint32_t type) {
  const Layout* layout = Find(type);
  return layout == nullptr ? 1 : static_cast<size_t>(SizeOf(layout->type).count());
}

void LookGguf(uint32_t type, std::span<const std::byte> bytes, uint64_t first, Tally* tally) {
  const Layout* layout = Find(type);
  if (layout == nullptr) return;
  const size_t block = GgufBlockBytes(type);
  if (layout->halves == 1) return LookHalves<1>(*layout, block, bytes, first, tally);
  if (layout->halves == 2) return LookHalves<2>(*layout, block, bytes, first, tally);
  LookScaleBytes(*layout, block, bytes, first, tally);
}

}  // namespace assay::audit
