// Kinds of mistake of a weight's parts: padding, scales, zero points, orders of groups, codes that
// mean something of their own.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/locate/shard_tests.h"
#include "harness/units/scheme.h"

namespace assay::locate {
namespace {

int BitsOfCode(const ShardCase& c) {
  const auto method = c.oracle->MethodOf(c.component);
  const auto scheme = method ? ParseScheme(*method) : std::nullopt;
  return scheme ? scheme->bits : 0;
}

bool IsPadding(const ShardCase& c, size_t i) {
  const auto at = static_cast<int64_t>(i);
  const int64_t row = at / c.want.columns;
  const int64_t column = at % c.want.columns / PartsOf(c.expected->dtype);
  return c.expected->rows[static_cast<size_t>(row)] < 0 ||
         c.expected->columns[static_cast<size_t>(column)] < 0;
}

// Fields of a word, changed one by one.
template <class F>
uint64_t EachField(uint64_t word, int width, int bits, F f) {
  uint64_t out = 0;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int at = 0; at + bits <= width; at += bits) out |= (f(word >> at & mask) & mask) << at;
  return out;
}

uint64_t Reversed(uint64_t bits, int width) {
  uint64_t out = 0;
  for (int i = 0; i < width; ++i) out |= (bits >> (8 * i) & 255) << (8 * (width - 1 - i));
  return out;
}

bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return value > 0 && std::isfinite(value) && std::frexp(value, &exponent) == 0.5;
}

}  // namespace

std::optional<Signature> PaddingNotZero(const ShardCase& c) {
  if (!AllWrong(c, [&](size_t i) { return IsPadding(c, i); })) return std::nullopt;
  std::set<uint64_t> values;
  for (size_t i = 0; i < c.got.bits.size(); ++i) {
    if (c.want.bits[i] != c.got.bits[i]) values.insert(c.got.bits[i]);
  }
  return Signature{"padding-not-zero",
                   values.size() == 1 ? fmt::format("padding is {} where 0 is due",
                                                    HexOf(*values.begin(), c.expected->dtype))
                                      : "padding has values where 0 is due",
                   fmt::format("{}, all in padding", Wrong(c))};
}

// Every byte of one code has become another, and nothing else is wrong.
std::optional<Signature> ExtremeCodes(const ShardCase& c) {
  const bool bytes = c.expected->dtype == DType::kF8E4M3 || c.expected->dtype == DType::kF8E5M2 ||
                     c.expected->dtype == DType::kF8E8M0 || c.expected->dtype == DType::kU8;
  if (!bytes) return std::nullopt;
  uint64_t code = 256, now = 256;
  for (size_t i = 0; i < c.want.bits.size() && code == 256; ++i) {
    if (c.want.bits[i] == c.got.bits[i]) continue;
    code = c.want.bits[i];
    now = c.got.bits[i];
  }
  const std::set<uint64_t> extremes = {0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF};
  if (extremes.count(code) == 0) return std::nullopt;
  int64_t others = 0;
  const bool holds = All(c, [&](size_t i) {
    others += c.want.bits[i] != code ? 1 : 0;
    return c.got.bits[i] == (c.want.bits[i] == code ? now : c.want.bits[i]);
  });
  if (!holds || others == 0) return std::nullopt;
  return Signature{"extreme-codes", fmt::format("every byte {:02x} has become {:02x}", code, now),
                   fmt::format("{}, and no other byte", Wrong(c))};
}

// A narrower format, or arithmetic that flushes: below some magnitude all scales are 0.
std::optional<Signature> SmallScalesLost(const ShardCase& c) {
  const DType dtype = c.expected->dtype;
  const bool numbers = IsFloat(dtype) || dtype == DType::kF8E4M3;
  if (SuffixOf(c.component) != ".scale" || !numbers) return std::nullopt;
  double largest = 0, least = INFINITY;
  for (size_t i = 0; i < c.want.bits.size(); ++i) {
    const double want = std::abs(NumberOf(c.want.bits[i], dtype));
    const double got = NumberOf(c.got.bits[i], dtype);
    if (c.want.bits[i] != c.got.bits[i]) {
      if (got != 0) return std::nullopt;
      largest = std::max(largest, want);
    } else if (want > 0) {
      least = std::min(least, want);
    }
  }
  if (!std::isfinite(least) || largest >= least) return std::nullopt;
  return Signature{
      "small-scales-lost",
      fmt::format("every scale up to {:.6g} has become 0, from {:.6g} on they are right", largest,
                  least),
      Wrong(c)};
}

// Everything beyond a magnitude has become that magnitude, with its sign.
std::optional<Signature> CodesClamped(const ShardCase& c) {
  const DType dtype = c.expected->dtype;
  if (dtype != DType::kF8E4M3 && dtype != DType::kF8E5M2) return std::nullopt;
  double limit = 0, right = 0;
  for (size_t i = 0; i < c.want.bits.size(); ++i) {
    const double want = NumberOf(c.want.bits[i], dtype), got = NumberOf(c.got.bits[i], dtype);
    if (c.want.bits[i] == c.got.bits[i]) {
      right = std::max(right, std::abs(want));
      continue;
    }
    if (limit == 0) limit = std::abs(got);
    if (std::abs(got) != limit || std::signbit(got) != std::signbit(want) ||
        std::abs(want) <= limit) {
      return std::nullopt;
    }
  }
  if (right > limit) return std::nullopt;
  return Signature{"codes-clamped", fmt::format("every code beyond {} has become that", limit),
                   Wrong(c)};
}

std::optional<Signature> GroupIndex(const ShardCase& c) {
  if (SuffixOf(c.component) != ".g_idx") return std::nullopt;
  const auto global = [&](size_t i) { return c.expected->rows[i]; };
  for (const int64_t group : {16, 32, 64, 128, 256}) {
    const bool trivial =
        All(c, [&](size_t i) { return c.got.bits[i] == static_cast<uint64_t>(global(i) / group); });
    if (!trivial) continue;
    return Signature{"g-idx-trivial", fmt::format("input k is said to be of group k/{}", group),
                     Wrong(c)};
  }
  const int64_t by = static_cast<int32_t>(c.got.bits[0] - c.want.bits[0]);
  const bool moved =
      All(c, [&](size_t i) { return static_cast<int32_t>(c.got.bits[i] - c.want.bits[i]) == by; });
  if (moved) {
    return Signature{"g-idx-renumbered", fmt::format("every group's number is off by {}", by),
                     Units(c)};
  }
  Bits sorted = c.want.bits;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != c.got.bits) return std::nullopt;
  return Signature{"g-idx-sorted", "the groups' numbers are in ascending order", Wrong(c)};
}

std::optional<Signature> ZeroPoints(const ShardCase& c) {
  if (SuffixOf(c.component) != ".zero") return std::nullopt;
  const int bits = BitsOfCode(c), width = 8 * c.want.width;
  const auto& want = c.want.bits;
  const auto& got = c.got.bits;
  for (const int64_t step : {1, -1}) {
    const bool offset = bits > 0 && width % bits == 0 && All(c, [&](size_t i) {
                          return got[i] == EachField(want[i], width, bits, [&](uint64_t v) {
                                   return v + static_cast<uint64_t>(step);
                                 });
                        });
    if (!offset) continue;
    return Signature{"zero-point-offset",
                     fmt::format("each zero point one {}", step > 0 ? "up" : "down"), Units(c)};
  }
  const uint64_t last = (uint64_t{1} << bits) - 1;
  const bool wrapped = bits > 0 && width % bits == 0 && All(c, [&](size_t i) {
                         return got[i] == EachField(want[i], width, bits,
                                                    [&](uint64_t v) { return v == 0 ? last : v; });
                       });
  if (wrapped) {
    return Signature{"zero-point-wrap", fmt::format("every zero point of 0 has become {}", last),
                     fmt::format("{}, no other zero point", Wrong(c))};
  }
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  const uint64_t by = (got[0] - want[0]) & mask;
  if (width < 32 || !All(c, [&](size_t i) { return ((got[i] - want[i]) & mask) == by; })) {
    return std::nullopt;
  }
  return Signature{"zero-point-carry",
                   fmt::format("{:x} added to each word, whatever codes lie across two", by),
                   Units(c)};
}

std::optional<Signature> ByteOrder(const ShardCase& c) {
  const Signature swapped{"byte-order", "bytes of each value in the other order", Wrong(c)};
  if (IsBlock(c.expected->dtype)) {
    // Fields of two bytes inside a block.
    const bool pairs = WrongCount(c) >= 2 && c.want.bits.size() % 2 == 0 &&
                       AllWrong(c, [&](size_t i) { return c.got.bits[i] == c.want.bits[i ^ 1]; });
    return pairs ? std::optional(swapped) : std::nullopt;
  }
  if (c.want.width == 1) return std::nullopt;
  const bool all =
      All(c, [&](size_t i) { return c.got.bits[i] == Reversed(c.want.bits[i], c.want.width); });
  return all ? std::optional(swapped) : std::nullopt;
}

std::optional<Signature> FnuzFactor(const ShardCase& c) {
  const auto method = c.oracle->MethodOf(c.component);
  const DType dtype = c.expected->dtype;
  if (SuffixOf(c.component) != ".scale" || !IsFloat(dtype) || !method ||
      method->find("fp8") == std::string::npos) {
    return std::nullopt;
  }
  for (const double factor : {2.0, 0.5}) {
    const bool all = All(c, [&](size_t i) {
      return NumberOf(c.got.bits[i], dtype) == factor * NumberOf(c.want.bits[i], dtype);
    });
    if (!all) continue;
    return Signature{"fnuz-factor",
                     fmt::format("every scale times {}: as if codes were made {} fnuz", factor,
                                 factor == 2 ? "into" : "from"),
                     Units(c)};
  }
  return std::nullopt;
}

std::optional<Signature> ScaleConverted(const ShardCase& c) {
  const std::string suffix = SuffixOf(c.component);
  const DType dtype = c.expected->dtype;
  if ((suffix != ".scale" && suffix != ".global_scale") || !IsFloat(dtype)) return std::nullopt;
  bool down = true, up = true;
  const bool powers = AllWrong(c, [&](size_t i) {
    const double want = NumberOf(c.want.bits[i], dtype), got = NumberOf(c.got.bits[i], dtype);
    down &= got <= want;
    up &= got >= want;
    return IsPowerOfTwo(got) && got >= want / 2 && got <= want * 2;
  });
  // The right ones are powers of two themselves: they stayed.
  const bool stayed = All(c, [&](size_t i) {
    return c.want.bits[i] != c.got.bits[i] || IsPowerOfTwo(NumberOf(c.want.bits[i], dtype)) ||
           NumberOf(c.want.bits[i], dtype) == 0;
  });
  if (!powers || !stayed) return std::nullopt;
  return Signature{"scale-converted",
                   fmt::format("scales are powers of two, rounded {}", down ? "down"
                                                                       : up ? "up"
                                                                            : "to the nearest"),
                   Wrong(c)};
}

std::optional<Signature> ReplicaDiffers(const ShardCase& c) {
  if (!c.right_replica) return std::nullopt;
  return Signature{"replica-differs",
                   fmt::format("rank {} has the same values, and has them right", *c.right_replica),
                   Wrong(c)};
}

}  // namespace assay::locate
