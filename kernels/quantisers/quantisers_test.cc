// What a row of the table says of a quantiser is what it does; the conversions over all codes; what
// is refused.
#include "kernels/quantisers/quantisers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "kernels/quantisers/elements.h"

namespace assay::kernels {
namespace {

using quantisers::FromE2m1;
using quantisers::FromE4m3;

constexpr int64_t kColumns = 128;  // whole groups of every quantiser

Activation Of(const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  return {DType::kF32, count / kColumns, kColumns,
          reinterpret_cast<const std::byte*>(values.data())};
}

// A row whose elements are 0 but for the group's first, and others that are given.
std::vector<float> RowOf(const std::vector<float>& first) {
  std::vector<float> row(kColumns);
  std::copy(first.begin(), first.end(), row.begin());
  return row;
}

int CodeAt(const Quantiser& q, const QuantisedActivation& x, size_t at) {
  if (q.element != Element::kE2m1) return std::to_integer<int>(x.codes[at]);
  return std::to_integer<int>(x.codes[at / 2] >> (4 * (at % 2)) & std::byte{15});
}

float ValueOf(const Quantiser& q, int code) {
  if (q.element == Element::kInt8) return static_cast<int8_t>(code);
  return q.element == Element::kE4m3 ? FromE4m3(static_cast<uint8_t>(code)) : FromE2m1(code);
}

// The code of a size that lies in the middle between two codes: with the element's largest value
// in the group every rule but the tie's own gives scale 1 (or a power of two that is known).
TEST(Table, TiesAreWhatTheRowSays) {
  for (const Quantiser& q : Quantisers()) {
    if (q.rule == ScaleRule::kRange || q.rule == ScaleRule::kTwoLevel) continue;
    if (q.name == "int8-token-compressed-tensors") continue;  // has no scale of 1
    const bool wide = q.element == Element::kE2m1;
    const float largest = wide ? 6 : q.element == Element::kInt8 ? 127 : 448;
    // Twice: under an even and an odd code. int8: 2.5, 3.5; E4M3: between 16, 18, 20 (codes 88,
    // 89, 90); E2M1: between 2 and 3, 3 and 4.
    const float low = wide ? 2.5F : q.element == Element::kInt8 ? 2.5F : 17;
    const float high = wide ? 3.5F : q.element == Element::kInt8 ? 3.5F : 19;
    const auto x = Quantise(q, Of(RowOf({largest, low, high, -low})));
    ASSERT_TRUE(x.ok());
    const float unit = ValueOf(q, CodeAt(q, *x, 0)) / largest;  // what became of the scale
    if (unit != 1) continue;                                    // ceil's scale is 2: other ties
    const float a = ValueOf(q, CodeAt(q, *x, 1)), b = ValueOf(q, CodeAt(q, *x, 2));
    EXPECT_EQ(ValueOf(q, CodeAt(q, *x, 3)), -a) << q.name;
    switch (q.rounding) {
      case Rounding::kEven:
        EXPECT_LT(a, low) << q.name;
        EXPECT_GT(b, high) << q.name;
        break;
      case Rounding::kAway:
        EXPECT_GT(a, low) << q.name;
        EXPECT_GT(b, high) << q.name;
        break;
      case Rounding::kTowardsZero:
      case Rounding::kTruncate:
        EXPECT_LT(a, low) << q.name;
        EXPECT_LT(b, high) << q.name;
        break;
    }
  }
}

// Powers of two: what the rule says of amax = 7 (E2M1) or 480 (E4M3), beside 6 and 448.
TEST(Table, ExponentsAreWhatTheRowSays) {
  int checked = 0;
  for (const Quantiser& q : Quantisers()) {
    if (q.scale != ScaleType::kE8m0) continue;
    ++checked;
    const bool wide = q.element == Element::kE2m1;
    const float largest = wide ? 6 : 448, emax = wide ? 2 : 8;
    const auto byte = [&q](float amax) {
      const auto x = Quantise(q, Of(RowOf({amax})));
      return std::to_integer<int>(x.value().scales[0]) - 127;
    };
    const float above = std::nextafter(largest, 1e9F);
    const float half_step =
        wide ? 7 : 480;  // as far above the largest as the next would be, halved
    switch (q.rule) {
      case ScaleRule::kFloor:
        EXPECT_EQ(byte(above), 0) << q.name;
        EXPECT_EQ(byte(half_step), 0) << q.name;
        EXPECT_EQ(byte(std::ldexp(1.0F, static_cast<int>(emax))), 0) << q.name;
        break;
      case ScaleRule::kCeil:
        EXPECT_EQ(byte(largest), 1) << q.name;
        EXPECT_EQ(byte(std::ldexp(1.0F, static_cast<int>(emax))), 0) << q.name;
        break;
      case ScaleRule::kEven:
        EXPECT_EQ(byte(above), 0) << q.name;
        EXPECT_EQ(byte(wide ? 7.0F : 496.0F), 1) << q.name;
        EXPECT_EQ(byte(std::nextafter(wide ? 7.0F : 496.0F, 0.0F)), 0) << q.name;
        break;
      case ScaleRule::kRoundUp:
        EXPECT_EQ(byte(largest), 0) << q.name;
        EXPECT_EQ(byte(half_step), 1) << q.name;
        break;
      case ScaleRule::kRoundDown:
        EXPECT_EQ(byte(largest), 0) << q.name;
        EXPECT_EQ(byte(std::nextafter(largest, 0.0F)), -1) << q.name;
        break;
      case ScaleRule::kFloorNoEmax:
        EXPECT_EQ(byte(largest), emax) << q.name;
        break;
      default:
        ADD_FAILURE() << q.name;
    }
  }
  EXPECT_EQ(checked, 20);
}

TEST(Table, IsSortedAndFoundByName) {
  std::string_view last;
  for (const Quantiser& q : Quantisers()) {
    EXPECT_LT(last, q.name);
    last = q.name;
    EXPECT_EQ(FindQuantiser(q.name), &q);
    EXPECT_FALSE(q.library.empty());
    for (const std::string_view word :
         {NameOf(q.element), NameOf(q.scale), NameOf(q.rule), NameOf(q.rounding)}) {
      EXPECT_NE(word, "unknown") << q.name;
    }
  }
  EXPECT_EQ(FindQuantiser("mxfp4"), nullptr);
}

// Every code is the nearest of its own value, of what lies just inside the middle to its
// neighbours; and the middle itself goes to the even one.
TEST(Elements, NearestE4m3) {
  for (int code = 0; code < 0x7E; ++code) {
    const float value = FromE4m3(static_cast<uint8_t>(code));
    const float next = FromE4m3(static_cast<uint8_t>(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(quantisers::ToE4m3(value), code);
    EXPECT_EQ(quantisers::ToE4m3(-value), code | 0x80);
    EXPECT_EQ(quantisers::ToE4m3(std::nextafter(middle, 0.0F)), code);
    EXPECT_EQ(quantisers::ToE4m3(std::nextafter(middle, 1e9F)), code + 1);
    EXPECT_EQ(quantisers::ToE4m3(middle), code % 2 == 0 ? code : code + 1);
  }
  EXPECT_EQ(FromE4m3(0x7E), 448);
  for (const float beyond : {448.0F, 464.0F, 480.0F, 1e30F}) {
    EXPECT_EQ(quantisers::ToE4m3(beyond), 0x7E);
    EXPECT_EQ(quantisers::ToE4m3(-beyond), 0xFE);
  }
}

TEST(Elements, NearestE2m1) {
  for (uint8_t code = 0; code < 7; ++code) {
    const float value = FromE2m1(code), middle = (value + FromE2m1(code + 1)) / 2;
    for (const Rounding rounding : {Rounding::kEven, Rounding::kAway, Rounding::kTowardsZero}) {
      EXPECT_EQ(quantisers::ToE2m1(value, rounding), code);
      EXPECT_EQ(quantisers::ToE2m1(-value, rounding), code | 8);
      EXPECT_EQ(quantisers::ToE2m1(std::nextafter(middle, 0.0F), rounding), code);
      EXPECT_EQ(quantisers::ToE2m1(std::nextafter(middle, 9.0F), rounding), code + 1);
    }
    EXPECT_EQ(quantisers::ToE2m1(middle, Rounding::kEven), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(quantisers::ToE2m1(middle, Rounding::kAway), code + 1);
    EXPECT_EQ(quantisers::ToE2m1(middle, Rounding::kTowardsZero), code);
  }
  EXPECT_EQ(quantisers::ToE2m1(1e30F, Rounding::kEven), 7);
}

TEST(Elements, NearestF16AndBf16) {
  EXPECT_EQ(quantisers::ToF16(1), 0x3C00);
  EXPECT_EQ(quantisers::ToF16(65504), 0x7BFF);
  EXPECT_EQ(quantisers::ToF16(65519.996F), 0x7BFF);
  EXPECT_EQ(quantisers::ToF16(65520), 0x7C00);
  EXPECT_EQ(quantisers::ToF16(0x1p-24F), 1);
  EXPECT_EQ(quantisers::ToF16(0x1p-25F), 0);  // a tie
  EXPECT_EQ(quantisers::ToF16(0x1.8p-24F), 2);
  EXPECT_EQ(quantisers::ToF16(0x1.FFFp-15F), 0x0400);
  EXPECT_EQ(quantisers::ToF16(1 + 0x1p-11F), 0x3C00);
  EXPECT_EQ(quantisers::ToF16(1 + 0x1.8p-10F), 0x3C02);
  EXPECT_EQ(quantisers::RoundToBf16(1 + 0x1p-8F), 1);
  EXPECT_EQ(quantisers::RoundToBf16(-1 - 0x1.8p-7F), -1 - 0x1p-6F);
}

std::string MessageOf(const Quantiser& q, const Activation& x) {
  const auto result = Quantise(q, x);
  return result.ok() ? "" : result.error().message;
}

TEST(Refusals, NameWhatIsWrong) {
  const std::vector<float> zeros(2 * kColumns);
  for (const Quantiser& q : Quantisers()) {
    EXPECT_EQ(MessageOf(q, Of(zeros)), "");
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      std::vector<float> values = zeros;
      values[kColumns + 5] = bad;
      EXPECT_NE(MessageOf(q, Of(values)).find("row 1, column 5"), std::string::npos) << q.name;
    }
    Activation x = Of(zeros);
    x.columns = 72;
    EXPECT_EQ(MessageOf(q, x).empty(), q.group == 0) << q.name;
    x = Of(zeros);
    x.dtype = DType::kF16;
    EXPECT_NE(MessageOf(q, x).find("F16"), std::string::npos);
    x = Of(zeros);
    x.rows = -1;
    EXPECT_NE(MessageOf(q, x), "");
    x.rows = int64_t{1} << 60;
    EXPECT_NE(MessageOf(q, x), "");
  }
}

TEST(Refusals, NothingIsNothing) {
  for (const Quantiser& q : Quantisers()) {
    for (const Activation& x :
         {Activation{DType::kF32, 0, kColumns, nullptr}, Activation{DType::kBF16, 3, 0, nullptr}}) {
      const auto result = Quantise(q, x);
      ASSERT_TRUE(result.ok()) << q.name;
      EXPECT_TRUE(result->codes.empty() && result->scales.empty() && result->zeros.empty());
    }
  }
}

}  // namespace
}  // namespace assay::kernels
