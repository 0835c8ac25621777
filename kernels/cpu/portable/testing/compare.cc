#include "kernels/cpu/portable/testing/compare.h"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernels/cpu/testing/random.h"

namespace assay::kernels::testing {
namespace {

constexpr int kRounds = 3000;
constexpr int kBytes = 64;
constexpr uint8_t kUntouched = 0xA5;

// fp32 and int32 patterns at the ends of what their operations do.
constexpr uint32_t kExtremes[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001,  // zeros, smallest subnormals
    0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000,  // largest subnormal, smallest normal
    0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000,  // 0.5, -0.5, 1.5, 2.5: ties
    0x3EFFFFFF, 0x3F000001, 0x4AFFFFFF, 0x4B000000,  // about 0.5; 2^23 - 0.5, 2^23
    0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001,  // about ±2^31: what an int holds
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,  // largest finite, infinities
    0x7FC00000, 0xFFC00001, 0x7F800001, 0xFF812345,  // quiet and signalling NaNs
    0x7FFFFFFF, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F,  // bytes and halves at their ends
    0x80007FFF, 0x7FFF8000, 0xFF80FF7F, 0x03FF0400, 0x7C007C01, 0xFBFFFC00,
};

uint32_t Word(int round, uint64_t seed, uint64_t i) {
  const uint64_t h = Hash(seed, i);
  const auto bits = static_cast<uint32_t>(h);
  const auto with_exponent = [bits](uint64_t exponent) {
    return (bits & 0x807FFFFF) | static_cast<uint32_t>(exponent) << 23;
  };
  switch (round % 7) {
    case 0:
      return bits;
    case 1:
      return kExtremes[h % (sizeof kExtremes / sizeof kExtremes[0])];
    case 2:  // floats near each other
      return with_exponent(120 + (h >> 32) % 16);
    case 3:  // few digits: products and sums that end in ties
      return with_exponent(118 + (h >> 32) % 30) & 0xFFFFF000;
    case 4:  // about the smallest normal, products too
      return with_exponent((h >> 32) % 3 == 0 ? (h >> 40) % 4 : 60 + (h >> 40) % 8);
    case 5:  // a float and one far below it: what double rounding gets wrong
      return (h >> 32) % 2 == 0 ? with_exponent(127) & 0xFF800FFF : with_exponent(90 + h % 37);
    default:  // each byte at an end, or small
      return (bits & 0x7F7F7F7F) * ((h >> 32) % 2 == 0 ? 1 : 2) | ((h >> 33) % 2 == 0 ? 0 : 0x80FF);
  }
}

Operands Make(int round) {
  Operands o;
  uint8_t* const vectors[] = {o.a, o.a + kBytes, o.b, o.c};
  uint64_t seed = static_cast<uint64_t>(round) * 8;
  for (uint8_t* vector : vectors) {
    ++seed;
    for (int i = 0; i < kBytes / 4; ++i) {
      const uint32_t word = Word(round, seed, static_cast<uint64_t>(i));
      std::memcpy(vector + 4 * i, &word, sizeof word);
    }
  }
  const auto random = static_cast<uint16_t>(Hash(seed, 99));
  o.mask = round % 5 == 0 ? 0xFFFF : round % 5 == 1 ? 0 : random;
  return o;
}

bool Equal(Same same, const uint8_t* x, const uint8_t* y) {
  if (std::memcmp(x, y, kBytes) == 0) return true;
  if (same == Same::kBits) return false;
  for (int i = 0; i < kBytes; i += 4) {
    float a, b;
    std::memcpy(&a, x + i, sizeof a);
    std::memcpy(&b, y + i, sizeof b);
    if (std::memcmp(&a, &b, sizeof a) != 0 && !(std::isnan(a) && std::isnan(b))) return false;
  }
  return true;
}

std::string Hex(const char* name, const uint8_t* bytes) {
  std::string text = std::string("\n  ") + name + " ";
  for (int i = 0; i < kBytes / 4; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, sizeof word);
    char digits[12];
    std::snprintf(digits, sizeof digits, " %08x", word);
    text += digits;
  }
  return text;
}

}  // namespace

const Probe* Find(Probes probes, std::string_view name) {
  for (int i = 0; i < probes.count; ++i) {
    if (probes.first[i].name == name) return &probes.first[i];
  }
  return nullptr;
}

std::string FirstDifference(const Probe& probe, const Probe& other) {
  for (int round = 0; round < kRounds; ++round) {
    const Operands o = Make(round);
    alignas(64) uint8_t x[kBytes], y[kBytes];
    std::memset(x, kUntouched, kBytes);
    std::memset(y, kUntouched, kBytes);
    probe.run(o, x);
    other.run(o, y);
    if (Equal(probe.same, x, y)) continue;
    char mask[24];
    std::snprintf(mask, sizeof mask, ", mask %04x", o.mask);
    return std::string(probe.name) + ", round " + std::to_string(round) + mask + Hex("a", o.a) +
           Hex("b", o.b) + Hex("c", o.c) + Hex("is", x) + Hex("not", y);
  }
  return "";
}

}  // namespace assay::kernels::testing
