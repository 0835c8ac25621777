// The bulk loops against one look at each value, written again and differently.
#include "harness/audit/values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "harness/units/dtype.h"

namespace assay::audit {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
T At(const Bytes& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void Put(Bytes* bytes, size_t index, T value) {
  std::memcpy(bytes->data() + index * sizeof(T), &value, sizeof(T));
}

float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                               : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25));
}

// What a value is, by arithmetic on it.
std::vector<Issue> IssuesOf(double value, double least_normal, bool scale) {
  if (std::isnan(value)) return {Issue::kNan};
  if (std::isinf(value)) return {Issue::kInf};
  if (!scale) return {};
  if (value == 0) return {Issue::kZero};
  std::vector<Issue> issues;
  if (std::abs(value) < least_normal) issues.push_back(Issue::kDenormal);
  if (value < 0) issues.push_back(Issue::kNegative);
  return issues;
}

struct FloatCase {
  Watch watch;
  size_t width;
  double least_normal;
  bool scale;
  double (*value)(const Bytes&, size_t);
};

double F16At(const Bytes& b, size_t i) { return FromHalf(At<uint16_t>(b, i)); }
double BF16At(const Bytes& b, size_t i) {
  return std::bit_cast<float>(static_cast<uint32_t>(At<uint16_t>(b, i)) << 16);
}
double F32At(const Bytes& b, size_t i) { return At<float>(b, i); }
double F64At(const Bytes& b, size_t i) { return At<double>(b, i); }

const FloatCase kFloats[] = {
    {Watch::kF16, 2, 0x1p-14, false, F16At},      {Watch::kBF16, 2, 0x1p-126, false, BF16At},
    {Watch::kF32, 4, 0x1p-126, false, F32At},     {Watch::kF64, 8, 0x1p-1022, false, F64At},
    {Watch::kScaleF16, 2, 0x1p-14, true, F16At},  {Watch::kScaleBF16, 2, 0x1p-126, true, BF16At},
    {Watch::kScaleF32, 4, 0x1p-126, true, F32At},
};

// Random bytes, of which some are made special: all bits of the exponent set or none.
Bytes Random(size_t size, uint64_t seed, int special_in) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t i = 0; i + 8 <= size; i += 8) {
    if (special_in == 0 || random() % special_in != 0) continue;
    const auto fill = static_cast<std::byte>(random() % 2 == 0 ? 0xFF : 0x00);
    const size_t begin = random() % 8, end = begin + random() % (8 - begin) + 1;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(i + begin),
              bytes.begin() + static_cast<std::ptrdiff_t>(i + end), fill);
  }
  return bytes;
}

Tally LookAt(const Lens& lens, const Bytes& bytes) {
  Tally tally;
  Look(lens, bytes, 0, &tally);
  return tally;
}

TEST(Values, FloatsAreCountedAsArithmeticSays) {
  for (const FloatCase& each : kFloats) {
    for (const int special_in : {0, 1000, 50, 3}) {
      const Bytes bytes = Random(3 * 4096 + 8 * each.width, 7, special_in);
      Tally expected;
      for (size_t i = 0; i < bytes.size() / each.width; ++i) {
        for (const Issue issue : IssuesOf(each.value(bytes, i), each.least_normal, each.scale)) {
          expected.Add(issue, i);
        }
      }
      const Tally got = LookAt({each.watch}, bytes);
      EXPECT_EQ(got.issues, expected.issues)
          << static_cast<int>(each.watch) << " special in " << special_in;
      if (special_in == 3) {
        EXPECT_GT(got.of(Issue::kNan).count, 0u);
      }
    }
  }
}

// One special value anywhere is found, at its place.
TEST(Values, OneInALargeTensorIsFound) {
  for (const FloatCase& each : kFloats) {
    for (const size_t at : {size_t{0}, size_t{2047}, size_t{2048}, size_t{5001}}) {
      Bytes bytes(6000 * each.width, std::byte{0x3C});
      EXPECT_EQ(LookAt({each.watch}, bytes).issues, Tally().issues);
      std::memset(bytes.data() + at * each.width, 0xFF, each.width);
      const Tally tally = LookAt({each.watch}, bytes);
      EXPECT_EQ(tally.of(Issue::kNan), (Tally::Entry{1, at}));
      EXPECT_EQ(tally.of(Issue::kInf).count, 0u);
    }
  }
}

TEST(Values, BytesOfFp8AndExponents) {
  const auto one = [](Watch watch, uint8_t code) {
    Bytes bytes(5000, std::byte{0x38});
    bytes[4999] = static_cast<std::byte>(code);
    return LookAt({watch}, bytes);
  };
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const int magnitude = code & 0x7F;
    EXPECT_EQ(one(Watch::kE4M3, byte).of(Issue::kNan).count, magnitude == 0x7F ? 1u : 0u) << code;
    EXPECT_EQ(one(Watch::kE4M3Fnuz, byte).of(Issue::kNan).count, code == 0x80 ? 1u : 0u) << code;
    EXPECT_EQ(one(Watch::kE5M2, byte).of(Issue::kNan).count, magnitude > 0x7C ? 1u : 0u) << code;
    EXPECT_EQ(one(Watch::kE5M2, byte).of(Issue::kInf).count, magnitude == 0x7C ? 1u : 0u) << code;
    EXPECT_EQ(one(Watch::kE8M0, byte).of(Issue::kNan).count, code == 0xFF ? 1u : 0u) << code;
    EXPECT_EQ(one(Watch::kE8M0, byte).of(Issue::kDenormal).count, code == 0 ? 1u : 0u) << code;
    const Tally scale = one(Watch::kScaleE4M3, byte);
    EXPECT_EQ(scale.of(Issue::kNan).count, magnitude == 0x7F ? 1u : 0u) << code;
    EXPECT_EQ(scale.of(Issue::kZero).count, magnitude == 0 ? 1u : 0u) << code;
    EXPECT_EQ(scale.of(Issue::kDenormal).count, magnitude > 0 && magnitude < 8 ? 1u : 0u) << code;
  }
  EXPECT_EQ(one(Watch::kE4M3, 0xFF).of(Issue::kNan).first, 4999u);
}

TEST(Values, GroupsOfZerosAreCounted) {
  Lens lens{Watch::kIntWords, 0x88888888u, 4};
  Bytes bytes = Random(4 * 1000 * 16, 3, 0);
  EXPECT_EQ(LookAt(lens, bytes).of(Issue::kZeroGroup).count, 0u);
  for (const size_t group : {size_t{17}, size_t{255}, size_t{256}, size_t{3999}}) {
    std::memset(bytes.data() + group * 16, 0x88, 16);
  }
  // Zeros over a group's boundary are in no group.
  std::memset(bytes.data() + 100 * 16 + 8, 0x88, 16);
  EXPECT_EQ(LookAt(lens, bytes).of(Issue::kZeroGroup), (Tally::Entry{4, 17}));

  lens = {Watch::kE2M1, 0, 16};
  bytes = Bytes(200 * 16, std::byte{0x35});
  EXPECT_EQ(LookAt(lens, bytes).of(Issue::kZeroGroup).count, 0u);
  std::memset(bytes.data() + 20 * 16, 0x80, 16);  // zeros of both signs
  EXPECT_EQ(LookAt(lens, bytes).of(Issue::kZeroGroup), (Tally::Entry{1, 20}));
}

TEST(Values, AllZeroIsEveryByte) {
  for (const Watch watch : {Watch::kBytes, Watch::kF32, Watch::kBF16, Watch::kE4M3,
                            Watch::kIntWords, Watch::kI8, Watch::kScaleF32}) {
    Bytes bytes(10000);
    EXPECT_TRUE(LookAt({watch}, bytes).all_zero) << static_cast<int>(watch);
    bytes[9998] = std::byte{1};
    bytes[9999] = std::byte{1};
    EXPECT_FALSE(LookAt({watch}, bytes).all_zero) << static_cast<int>(watch);
  }
}

TEST(Values, SamenessOfScalesAndZeroPoints) {
  Bytes bytes(8192);
  for (size_t i = 0; i < 2048; ++i) Put(&bytes, i, 0.5f);
  EXPECT_TRUE(LookAt({Watch::kScaleF32}, bytes).constant());
  Put(&bytes, 2047, 0.25f);
  EXPECT_FALSE(LookAt({Watch::kScaleF32}, bytes).constant());
  Put(&bytes, 2047, -0.5f);
  EXPECT_FALSE(LookAt({Watch::kScaleF32}, bytes).constant());
  const Lens zeros{Watch::kI32, 0, 0, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < 2048; ++i) Put(&bytes, i, 0x77777777);
  EXPECT_TRUE(LookAt(zeros, bytes).constant());
  Put(&bytes, 5, 0x77777778);
  EXPECT_FALSE(LookAt(zeros, bytes).constant());
}

TEST(Values, ZeroPointsHaveARange) {
  Bytes bytes(100);
  const Lens lens{Watch::kI8, 0, 0, -8, 7};
  for (int value = -128; value < 128; ++value) {
    bytes[42] = static_cast<std::byte>(value);
    const bool legal = value >= -8 && value <= 7;
    EXPECT_EQ(LookAt(lens, bytes).of(Issue::kRange).count, legal ? 0u : 1u) << value;
  }
  Bytes floats(40);
  const Lens offsets{Watch::kOffsetF32, 0, 0, -128, 127};
  EXPECT_EQ(LookAt(offsets, floats).of(Issue::kRange).count, 0u);
  for (const float wrong : {128.0f, -129.0f, 0.5f}) {
    Put(&floats, 3, wrong);
    EXPECT_EQ(LookAt(offsets, floats).of(Issue::kRange), (Tally::Entry{1, 3})) << wrong;
  }
}

// Where each type keeps its scales, by writing there and nowhere else.
TEST(Values, ScalesOfBlocks) {
  struct Place {
    DType type;
    size_t scale, minimum;  // 0 where there is no minimum
  };
  for (const Place& place : {Place{DType::kQ4_0, 0, 0},
                             {DType::kQ4_1, 0, 2},
                             {DType::kQ5_0, 0, 0},
                             {DType::kQ5_1, 0, 2},
                             {DType::kQ8_0, 0, 0},
                             {DType::kQ2K, 80, 82},
                             {DType::kQ3K, 108, 0},
                             {DType::kQ4K, 0, 2},
                             {DType::kQ5K, 0, 2},
                             {DType::kQ6K, 208, 0}}) {
    const auto size = static_cast<size_t>(SizeOf(place.type).count());
    Lens lens{Watch::kGguf};
    lens.block_type = static_cast<uint32_t>(place.type);
    EXPECT_EQ(Grain(lens), size);
    Bytes bytes(size * 600, std::byte{0x2A});
    EXPECT_EQ(LookAt(lens, bytes).issues, Tally().issues);
    std::memset(bytes.data() + size * 300 + place.scale, 0xFF, 2);
    EXPECT_EQ(LookAt(lens, bytes).of(Issue::kNan), (Tally::Entry{1, 300})) << NameOf(place.type);
    std::memset(bytes.data() + size * 300 + place.scale, 0, 2);
    EXPECT_EQ(LookAt(lens, bytes).of(Issue::kZero), (Tally::Entry{1, 300})) << NameOf(place.type);
    if (place.minimum == 0) continue;
    std::memset(bytes.data() + size * 301 + place.minimum, 0xFF, 2);
    EXPECT_EQ(LookAt(lens, bytes).of(Issue::kNan), (Tally::Entry{1, 301})) << NameOf(place.type);
  }
  Lens mxfp4{Watch::kGguf};
  mxfp4.block_type = static_cast<uint32_t>(DType::kMxfp4Block);
  Bytes bytes(17 * 50, std::byte{0x7F});
  EXPECT_EQ(LookAt(mxfp4, bytes).issues, Tally().issues);
  bytes[17 * 9] = std::byte{0xFF};
  EXPECT_EQ(LookAt(mxfp4, bytes).of(Issue::kNan), (Tally::Entry{1, 9}));
}

// In any cutting into parts the tally is the same.
TEST(Values, PartsMergeToTheWhole) {
  for (const Lens& lens : {Lens{Watch::kScaleBF16}, Lens{Watch::kF32}, Lens{Watch::kE8M0},
                           Lens{Watch::kIntWords, 0x88888888u, 4}}) {
    Bytes bytes = Random(64 * 1024, 11, 40);
    std::memset(bytes.data() + 4096, 0x88, 512);
    const Tally whole = LookAt(lens, bytes);
    std::mt19937_64 random(5);
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<Tally> parts;
      for (size_t at = 0; at < bytes.size();) {
        const size_t grain = Grain(lens);
        const size_t size = std::min(bytes.size() - at, (random() % 700 + 1) * grain);
        Look(lens, std::span(bytes).subspan(at, size), at, &parts.emplace_back());
        at += size;
      }
      std::shuffle(parts.begin(), parts.end(), random);
      Tally merged;
      for (const Tally& part : parts) merged.Merge(part);
      EXPECT_EQ(merged, whole);
    }
  }
}

// What is left over at the end of a tensor that is broken is not read past.
TEST(Values, AnEndWithinAValueIsLeftAlone) {
  for (int watch = 0; watch <= static_cast<int>(Watch::kGguf); ++watch) {
    for (size_t size = 0; size < 40; ++size) {
      Lens lens{static_cast<Watch>(watch), 0x88888888u, 4, -8, 7};
      lens.block_type = static_cast<uint32_t>(DType::kQ4_0);
      const Bytes bytes(size, std::byte{0x11});
      EXPECT_EQ(LookAt(lens, bytes).bytes, size);
    }
  }
}

}  // namespace
}  // namespace assay::audit
