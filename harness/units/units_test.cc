#include "harness/units/units.h"

#include <gtest/gtest.h>

#include <functional>
#include <type_traits>

#include "harness/units/dtype.h"

namespace assay {
namespace {

constexpr Packing kInt4{Elements(8), Bytes(4)};

TEST(Units, ConvertByExactDivisionOnly) {
  ASSERT_TRUE(ToWords(Elements(256), kInt4).ok());
  EXPECT_EQ(ToWords(Elements(256), kInt4)->count(), 32);
  EXPECT_FALSE(ToWords(Elements(252), kInt4).ok());
  EXPECT_NE(ToWords(Elements(252), kInt4).error().message.find("252"), std::string::npos);
  EXPECT_EQ(ToGroups(Elements(256), Elements(32))->count(), 8);
  EXPECT_FALSE(ToGroups(Elements(16), Elements(32)).ok());
}

TEST(Units, ZeroAndNegativeDivisorsAreErrorsNotCrashes) {
  EXPECT_FALSE(ToGroups(Elements(8), Elements(0)).ok());
  EXPECT_FALSE(ToWords(Elements(8), Packing{Elements(0), Bytes(4)}).ok());
}

TEST(Units, AreDistinctTypes) {
  static_assert(!std::is_convertible_v<Words, Elements>);
  static_assert(!std::is_convertible_v<int64_t, Elements>);
  static_assert(!std::is_invocable_v<std::plus<>, Words, Groups>);
  SUCCEED();
}

TEST(DTypes, NamesRoundTripAndUnknownOnesAreNotGuessed) {
  for (uint32_t i = 0; i <= static_cast<uint32_t>(DType::kNvfp4Block); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(NameOf(dtype)), dtype);
    EXPECT_GT(SizeOf(dtype).count(), 0);
    EXPECT_EQ(IsBlock(dtype), ElementsOf(dtype).count() > 1);
  }
  EXPECT_FALSE(DTypeFromName("bf16").has_value());
}

// Bits per element as ggml's types are known for: scales of 16 bits, six-bit scales of K blocks.
TEST(DTypes, BlocksHaveGgmlsSizes) {
  const auto bits = [](DType dtype) {
    return static_cast<double>(SizeOf(dtype).count() * 8) /
           static_cast<double>(ElementsOf(dtype).count());
  };
  EXPECT_EQ(bits(DType::kQ4_0), 4.5);
  EXPECT_EQ(bits(DType::kQ4_1), 5.0);
  EXPECT_EQ(bits(DType::kQ5_0), 5.5);
  EXPECT_EQ(bits(DType::kQ5_1), 6.0);
  EXPECT_EQ(bits(DType::kQ8_0), 8.5);
  EXPECT_EQ(bits(DType::kQ2K), 2.625);
  EXPECT_EQ(bits(DType::kQ3K), 3.4375);
  EXPECT_EQ(bits(DType::kQ4K), 4.5);
  EXPECT_EQ(bits(DType::kQ5K), 5.5);
  EXPECT_EQ(bits(DType::kQ6K), 6.5625);
  EXPECT_EQ(bits(DType::kMxfp4Block), 4.25);
  EXPECT_EQ(bits(DType::kNvfp4Block), 4.5);
}

}  // namespace
}  // namespace assay
