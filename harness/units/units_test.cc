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
  for (uint32_t i = 0; i < 16; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(DTypeFromName(NameOf(dtype)), dtype);
    EXPECT_GT(SizeOf(dtype).count(), 0);
  }
  EXPECT_FALSE(DTypeFromName("bf16").has_value());
}

}  // namespace
}  // namespace assay
