#include "kernels/methods/methods.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace assay::kernels {
namespace {

template <class T>
const std::byte* Raw(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

TEST(CtInt4, DecodesBytesWrittenByHand) {
  // One row of two groups. Word 0 holds codes 0…7 (values −8…−1), word 1 codes 8…15 (0…7).
  std::vector<uint32_t> words(8, 0x88888888);  // value 0
  words[0] = 0x76543210;
  words[1] = 0xFEDCBA98;
  words[4] = 0x0000000F;                                  // second group: 7, then −8 seven times
  const std::vector<uint16_t> scales = {0x3F00, 0xC040};  // 0.5, −3
  std::vector<float> out(64, NAN);
  FindMethod("ct-int4-g32")->decode(Raw(words), Raw(scales), 1, 64, out.data());
  for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], (i - 8) * 0.5F) << i;
  for (int i = 16; i < 32; ++i) EXPECT_EQ(out[i], 0) << i;
  EXPECT_EQ(out[32], -21);
  for (int i = 33; i < 40; ++i) EXPECT_EQ(out[i], 24) << i;
  for (int i = 40; i < 64; ++i) EXPECT_EQ(out[i], 0) << i;
}

TEST(CtInt4, EachRowHasItsOwnScales) {
  const std::vector<uint32_t> words(8, 0x99999999);       // value 1 everywhere
  const std::vector<uint16_t> scales = {0x3F80, 0x4000};  // row 0: 1, row 1: 2
  std::vector<float> out(64);
  FindMethod("ct-int4-g32")->decode(Raw(words), Raw(scales), 2, 32, out.data());
  EXPECT_EQ(out[31], 1);
  EXPECT_EQ(out[32], 2);
}

TEST(CtInt4, PackIsTheInverseOfDecodeForEveryCodeAndPlace) {
  std::vector<int8_t> codes(3 * 64);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<int8_t>(static_cast<int>((i * 5 + i / 16) % 16) - 8);
  }
  std::vector<uint32_t> words(codes.size() / 8);
  PackCtInt4(codes.data(), 3, 64, words.data());
  // By hand: codes 0, 5, 10, 15, 4, 9, 14, 3 as stored, least significant nibble first.
  EXPECT_EQ(words[0], 0x3E94FA50u);
  const std::vector<uint16_t> ones(6, 0x3F80);
  std::vector<float> out(codes.size());
  FindMethod("ct-int4-g32")->decode(Raw(words), Raw(ones), 3, 64, out.data());
  for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(out[i], codes[i]) << i;
}

TEST(CtInt4, PackingACodeOutOfRangeIsFatal) {
  std::vector<int8_t> codes(8, 0);
  uint32_t word;
  codes[3] = 8;
  EXPECT_DEATH(PackCtInt4(codes.data(), 1, 8, &word), "code 8 at element 3");
  codes[3] = -9;
  EXPECT_DEATH(PackCtInt4(codes.data(), 1, 8, &word), "code -9");
}

TEST(Bf16, EveryValueSurvivesAndRoundingIsNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FloatFromBf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(value))));
    } else {
      ASSERT_EQ(Bf16FromFloat(value), bits);
    }
  }
  EXPECT_EQ(Bf16FromFloat(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // tie, even below
  EXPECT_EQ(Bf16FromFloat(std::bit_cast<float>(0x3F818000u)), 0x3F82);  // tie, even above
  EXPECT_EQ(Bf16FromFloat(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(Bf16FromFloat(std::bit_cast<float>(0x3F807FFFu)), 0x3F80);
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7F80);  // rounds to infinity
  // A NaN whose upper payload bits are zero must not become an infinity.
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Bf16, DecodesAtAnyAddress) {
  const std::vector<uint8_t> bytes = {0, 0x80, 0x3F, 0x00, 0xC0};  // one byte, then 1 and −2
  float out[2];
  FindMethod("bf16")->decode(Raw(bytes) + 1, nullptr, 1, 2, out);
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], -2);
}

TEST(Methods, KnowsOnlyItsRows) {
  EXPECT_EQ(FindMethod("ct-int4-g128"), nullptr);
  EXPECT_EQ(FindMethod(""), nullptr);
  for (const Method& method : Methods()) EXPECT_EQ(FindMethod(method.name), &method);
}

}  // namespace
}  // namespace assay::kernels
