// What the engines' files do not reach: rules of Marlin by their definition.
#include "kernels/layouts/marlin.h"

#include <cmath>
#include <string>

#include "kernels/layouts/test_images.h"

namespace assay::kernels {
namespace {

struct PaddedCase {
  int64_t n, k, group, padded_n, padded_k;
};

TEST(Marlin, PadsToTheCheaperOfTwoTileFamilies) {
  const PaddedCase kCases[] = {
      {64, 128, 0, 64, 128},        // both families' least
      {128, 64, 0, 128, 64},        //
      {64, 64, 0, 64, 128},         // as large either way: the first
      {72, 208, 16, 128, 256},      // the engine's file
      {64, 192, 0, 64, 256},        // (64, 256) < (128, 192)
      {200, 130, 0, 256, 192},      // (256, 192) < (256, 256)
      {100, 96, 96, 128, 192},      // whole groups of 96: 192, not 128
      {128, 320, 160, 128, 320},    //
      {64, 160, 160, 128, 320},     // of 640 and 320
      {192, 1408, 128, 192, 1408},  //
      {0, 0, 0, 0, 0},
  };
  for (const PaddedCase& c : kCases) {
    const marlin::Extents e = marlin::Padded(c.n, c.k, c.group);
    EXPECT_EQ(e.n, c.padded_n) << c.n << " x " << c.k;
    EXPECT_EQ(e.k, c.padded_k) << c.n << " x " << c.k;
  }
  EXPECT_EQ(marlin::Padded(-1, 4, 0).n, -1);
  EXPECT_EQ(marlin::Padded(4, int64_t{1} << 60, 0).n, -1);
  const int64_t huge = INT64_MAX;
  EXPECT_EQ(FindLayout("marlin", "ct-int4-g32", "scale")->bytes({DType::kBF16, huge, 0}), -1);
  EXPECT_EQ(FindLayout("marlin", "ct-int4-g32", "weight")->bytes({DType::kI32, huge, 0}), -1);
  EXPECT_EQ(FindLayout("marlin", "awq-int4-g32-asym", "zero")->bytes({DType::kI32, 0, huge}), -1);
}

// Scales of "marlin-padded" by groups, whose padding makes of one group two: the permutation by
// groups is due then, as the kernel sees two.
TEST(Marlin, PaddedGroupsDecideThePermutation) {
  const Layout* layout = FindLayout("marlin-padded", "gptq-int4-g32", "scale");
  ASSERT_NE(layout, nullptr);
  StoredShape shape{DType::kF16, 1, 128, 32, 32};
  const Image in = RandomBytes(256, 3);
  ASSERT_EQ(layout->bytes(shape), 2 * 128 * 2);
  const Image packed = Pack(layout->pack, shape, in, 512);
  EXPECT_EQ(Image(packed.begin() + 2, packed.begin() + 4), Image(in.begin() + 16, in.begin() + 18));
  EXPECT_EQ(Image(packed.begin() + 256, packed.end()), Image(256)) << "the padded group";
  shape.k = shape.group = 64;  // one group that needs no padding
  ASSERT_EQ(layout->bytes(shape), 256);
  EXPECT_EQ(Pack(layout->pack, shape, in, 256)[2], in[2]);
  shape.k = 0;
  EXPECT_EQ(layout->bytes(shape), -1) << "K is not known";
}

// One group on a rank: columns 0, 1, 8, 9, 16, ... of each 32, then places 1 and 2 exchanged.
TEST(Marlin, Fp4ScalesOfOneGroupAreByChannel) {
  std::vector<int> counting, places;
  for (int i = 0; i < 64; ++i) counting.push_back(i);
  for (int block = 0; block < 64; block += 32) {
    for (int pair = 0; pair < 8; pair += 2) {
      for (const int at : {0, 8, 1, 9, 16, 24, 17, 25}) places.push_back(block + pair + at);
    }
  }
  const StoredShape shape{DType::kU8, 64, 1};
  const Layout* mxfp4 = FindLayout("marlin", "ct-mxfp4", "scale");
  EXPECT_EQ(Pack(mxfp4->pack, shape, Bytes(counting), 64), Bytes(places));
  // By groups it would be columns 0, 16, 8, 24, ...
  const StoredShape two{DType::kU8, 64, 2};
  std::vector<int> twice;
  for (const int i : counting) twice.insert(twice.end(), {i, i});
  EXPECT_EQ(Pack(mxfp4->pack, two, Bytes(twice), 128)[1], std::byte{16});
}

double E4m3(int code) {
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

TEST(Nvfp4, FactorIsTheLargestPowerOfTwoThatKeepsScalesAt448) {
  for (int code = 1; code < 0x7F; ++code) {
    const std::byte scales[] = {std::byte{1}, static_cast<std::byte>(code), std::byte{0x7F},
                                std::byte{0xFE}, std::byte{0}};
    const double factor = marlin::Nvfp4ScaleFactor(scales);
    EXPECT_EQ(factor, std::exp2(std::round(std::log2(factor))));
    EXPECT_LE(E4m3(code) * factor, 448) << code;
    EXPECT_GT(E4m3(code) * factor * 2, 448) << code;
  }
  const std::byte none[] = {std::byte{0}, std::byte{0x7F}, std::byte{0x81}};
  EXPECT_EQ(marlin::Nvfp4ScaleFactor(none), 1);
  EXPECT_EQ(marlin::Nvfp4ScaleFactor({}), 1);
}

// Every scale that NVFP4 may have, whatever the largest is; a negative one is refused.
TEST(Nvfp4, EveryScaleHasAPlaceInMarlin) {
  const Layout* layout = FindLayout("marlin", "ct-nvfp4", "scale");
  ASSERT_NE(layout, nullptr);
  for (int largest = 0; largest < 0x7F; ++largest) {
    const StoredShape shape{DType::kF8E4M3, 1, largest + 2};
    Image in;
    for (int code = 0; code <= largest; ++code) in.push_back(static_cast<std::byte>(code));
    in.push_back(std::byte{0x7F});  // NaN
    const Image packed = Pack(layout->pack, shape, in, layout->bytes(shape));
    ASSERT_EQ(Pack(layout->unpack, shape, packed, static_cast<int64_t>(in.size())), in) << largest;
    ASSERT_EQ(layout->objection(shape, in.data()), nullptr);
    in[0] = std::byte{0x80};
    ASSERT_NE(layout->objection(shape, in.data()), nullptr);
  }
}

// FP8 scales: 2^120 by the exponent; subnormal ones become normal, large ones infinite.
TEST(Fp8, ExponentBias) {
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0x0000), 0x0000);
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0x3F80), 0x7B80);  // 1 -> 2^120
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0xBF80), 0xFB80);
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0x0001), 0x3900);  // 2^-133 -> 2^-13
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0x4380), 0x7F80);  // 2^8 -> infinity
  EXPECT_EQ(marlin::FusedExponentBiasBf16(0x7FC0) & 0x7FC0, 0x7FC0);
}

}  // namespace
}  // namespace assay::kernels
