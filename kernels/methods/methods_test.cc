#include "kernels/methods/methods.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
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

TEST(Mxfp4, DecodesBytesWrittenByHand) {
  // One row of two groups. Bytes 0…7 hold codes 0…15, the even element in the low nibble.
  std::vector<uint8_t> bytes(32, 0);
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
  bytes[16] = 0x7F;                                // −6, then 6
  const std::vector<uint8_t> scales = {128, 126};  // 2, ½
  std::vector<float> out(64, NAN);
  FindMethod("deepseek-v4-mxfp4")->decode(Raw(bytes), Raw(scales), 1, 64, out.data());
  const float values[16] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0.0F, -.5, -1, -1.5, -2, -3, -4, -6};
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], values[i] * 2) << i;
    EXPECT_EQ(std::signbit(out[i]), i >= 8) << i;
    EXPECT_EQ(FloatFromE2m1(i), values[i]);
  }
  for (int i = 16; i < 32; ++i) EXPECT_EQ(out[i], 0) << i;
  EXPECT_EQ(out[32], -3);
  EXPECT_EQ(out[33], 3);
}

TEST(Mxfp4, ScalesReachBothEndsOfTheirRange) {
  EXPECT_EQ(FloatFromE8m0(0), 0x1p-127F);
  EXPECT_EQ(FloatFromE8m0(1), 0x1p-126F);
  EXPECT_EQ(FloatFromE8m0(127), 1);
  EXPECT_EQ(FloatFromE8m0(254), 0x1p127F);
  EXPECT_TRUE(std::isnan(FloatFromE8m0(255)));
  const std::vector<uint8_t> bytes(16, 0x71);  // ½, 6
  for (const uint8_t scale : {uint8_t{0}, uint8_t{254}}) {
    const std::vector<uint8_t> scales = {scale};
    std::vector<float> out(32);
    FindMethod("deepseek-v4-mxfp4")->decode(Raw(bytes), Raw(scales), 1, 32, out.data());
    EXPECT_EQ(out[0], scale == 0 ? 0x1p-128F : 0x1p126F);
    EXPECT_EQ(out[1], scale == 0 ? 6 * 0x1p-127F : std::numeric_limits<float>::infinity());
  }
}

TEST(Mxfp4, PackIsTheInverseOfDecodeAndRefusesOtherCodes) {
  std::vector<uint8_t> codes(2 * 64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>((i * 5 + i / 16) % 16);
  std::vector<std::byte> bytes(codes.size() / 2);
  PackMxfp4(codes.data(), 2, 64, bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0x50});
  const std::vector<uint8_t> ones(4, 127);
  std::vector<float> out(codes.size());
  FindMethod("deepseek-v4-mxfp4")->decode(bytes.data(), Raw(ones), 2, 64, out.data());
  for (size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(out[i], FloatFromE2m1(codes[i])) << i;
  codes[7] = 16;
  EXPECT_DEATH(PackMxfp4(codes.data(), 2, 64, bytes.data()), "code 16 at element 7");
}

TEST(GgufQ41, DecodesABlockWrittenByHand) {
  // d = 2, m = −3; byte j holds element j low and element j + 16 high.
  std::vector<uint8_t> block = {0x00, 0x40, 0x00, 0xC2};
  for (int j = 0; j < 16; ++j) block.push_back(static_cast<uint8_t>(j | (15 - j) << 4));
  std::vector<float> out(32);
  FindMethod("gguf-q4_1")->decode(Raw(block), nullptr, 1, 32, out.data());
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(out[j], j * 2 - 3) << j;
    EXPECT_EQ(out[16 + j], (15 - j) * 2 - 3) << j;
  }
}

TEST(GgufQ41, RoundsASumOfMoreThan24BitsOnce) {
  // d the largest fp16, m the least subnormal one: 15·65504 + 2^-24 has 45 bits.
  std::vector<uint8_t> block = {0xFF, 0x7B, 0x01, 0x00};
  block.resize(20, 0x0F);
  std::vector<float> out(32);
  FindMethod("gguf-q4_1")->decode(Raw(block), nullptr, 1, 32, out.data());
  EXPECT_EQ(out[0], 15 * 65504.0F);
  EXPECT_EQ(out[16], 0x1p-24F);
}

TEST(GgufQ80, DecodesABlockWrittenByHand) {
  std::vector<uint8_t> block = {0x00, 0xB8};  // −½
  for (int j = 0; j < 32; ++j) block.push_back(static_cast<uint8_t>(j * 8 + 128));
  std::vector<float> out(32);
  FindMethod("gguf-q8_0")->decode(Raw(block), nullptr, 1, 32, out.data());
  EXPECT_EQ(out[0], 64);  // code −128
  for (int j = 0; j < 32; ++j) EXPECT_EQ(out[j], (j * 8 - 128) * -0.5F) << j;
}

TEST(Gguf, PackIsTheInverseOfDecode) {
  std::vector<uint8_t> q41(3 * 64);
  std::vector<int8_t> q80(3 * 64);
  for (size_t i = 0; i < q41.size(); ++i) {
    q41[i] = static_cast<uint8_t>((i * 5 + i / 16) % 16);
    q80[i] = static_cast<int8_t>(static_cast<int>(i * 7 % 256) - 128);
  }
  std::vector<uint16_t> d, m;
  for (int b = 0; b < 6; ++b) {
    d.push_back(F16FromFloat(std::ldexp(1.0F, b - 3)));
    m.push_back(F16FromFloat(static_cast<float>(-b)));
  }
  std::vector<std::byte> blocks(6 * 20), bytes(6 * 34);
  PackQ41(q41.data(), d.data(), m.data(), 3, 64, blocks.data());
  PackQ80(q80.data(), d.data(), 3, 64, bytes.data());
  std::vector<float> a(q41.size()), b(q80.size());
  FindMethod("gguf-q4_1")->decode(blocks.data(), nullptr, 3, 64, a.data());
  FindMethod("gguf-q8_0")->decode(bytes.data(), nullptr, 3, 64, b.data());
  for (size_t i = 0; i < a.size(); ++i) {
    const float scale = FloatFromF16(d[i / 32]);
    ASSERT_EQ(a[i], static_cast<float>(q41[i]) * scale + FloatFromF16(m[i / 32])) << i;
    ASSERT_EQ(b[i], static_cast<float>(q80[i]) * scale) << i;
  }
  q41[33] = 16;
  EXPECT_DEATH(PackQ41(q41.data(), d.data(), m.data(), 3, 64, blocks.data()),
               "code 16 at element 33");
}

TEST(F16, EveryValueSurvivesAndRoundingIsNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FloatFromF16(static_cast<uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 31),
              mantissa = static_cast<int>(bits & 1023);
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(value))));
      continue;
    }
    const double size = exponent == 31  ? std::numeric_limits<double>::infinity()
                        : exponent == 0 ? std::ldexp(mantissa, -24)
                                        : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(value, bits < 0x8000 ? size : -size) << bits;
    ASSERT_EQ(F16FromFloat(value), bits);
  }
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {  // the host's does not matter
    ASSERT_EQ(std::fesetround(mode), 0);
    const uint16_t tie = F16FromFloat(1 + 0x1p-11F), odd = F16FromFloat(1 + 3 * 0x1p-11F);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(tie, 0x3C00) << mode;
    EXPECT_EQ(odd, 0x3C02) << mode;
  }
  EXPECT_EQ(F16FromFloat(1 + 0x1p-11F), 0x3C00);      // tie, even below
  EXPECT_EQ(F16FromFloat(1 + 3 * 0x1p-11F), 0x3C02);  // tie, even above
  EXPECT_EQ(F16FromFloat(2 - 0x1p-12F), 0x4000);      // carries into the next binade
  EXPECT_EQ(F16FromFloat(0x1p-25F), 0);               // tie at half of the least
  EXPECT_EQ(F16FromFloat(0x1.8p-25F), 1);
  EXPECT_EQ(F16FromFloat(65519.0F), 0x7BFF);
  EXPECT_EQ(F16FromFloat(65520.0F), 0x7C00);
  EXPECT_EQ(F16FromFloat(-1e30F), 0xFC00);
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
