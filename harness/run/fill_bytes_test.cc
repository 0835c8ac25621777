// Generated codes and scales of one byte: every byte that means a number, and none that does not.
#include <gtest/gtest.h>

#include <set>

#include "harness/run/fill.h"

namespace assay::run {
namespace {

std::set<int> BytesOf(Fill fill, const std::string& name, DType dtype) {
  MemorySource base;
  base.Put(name, dtype, {64, 64}, std::vector<std::byte>(64 * 64, std::byte{0x33}));
  const auto made = SyntheticWeights(base, {name}, fill, 3);
  std::set<int> bytes;
  for (const std::byte byte : made->Find(name)->bytes) bytes.insert(static_cast<int>(byte));
  return bytes;
}

TEST(FillBytes, ExtremeHasEveryCode) {
  for (const DType dtype : {DType::kU8, DType::kI8}) {
    EXPECT_EQ(BytesOf(Fill::kExtreme, "down_proj.w", dtype).size(), 256u);
  }
}

TEST(FillBytes, ExtremeHasNoCodeThatIsNoNumber) {
  const std::set<int> codes = BytesOf(Fill::kExtreme, "down_proj.weight", DType::kF8E4M3);
  EXPECT_EQ(codes.size(), 254u);
  EXPECT_EQ(codes.count(0x7F) + codes.count(0xFF), 0u);
  EXPECT_EQ(codes.count(0x80) + codes.count(0x00), 2u);
  for (const auto& [name, dtype] :
       {std::pair("down_proj.weight_scale", DType::kU8), {"w1.scale", DType::kF8E8M0}}) {
    const std::set<int> exponents = BytesOf(Fill::kExtreme, name, dtype);
    EXPECT_EQ(exponents.size(), 255u) << name;
    EXPECT_EQ(exponents.count(0xFF), 0u) << name;
  }
}

TEST(FillBytes, OtherFillsLeaveThemAsTheyAre) {
  for (const Fill fill : {Fill::kExact, Fill::kNormal, Fill::kLognormal, Fill::kReal}) {
    EXPECT_EQ(BytesOf(fill, "down_proj.weight", DType::kF8E4M3), (std::set<int>{0x33}));
  }
}

TEST(FillBytes, PackedZeroPointsHaveEveryCode) {
  MemorySource base;
  base.Put("up_proj.qzeros", DType::kI32, {8, 8}, std::vector<std::byte>(256));
  const auto made = SyntheticWeights(base, {"up_proj.qzeros"}, Fill::kExtreme, 3);
  std::set<int> nibbles;
  for (const std::byte byte : made->Find("up_proj.qzeros")->bytes) {
    nibbles.insert(static_cast<int>(byte) & 15);
    nibbles.insert(static_cast<int>(byte) >> 4);
  }
  EXPECT_EQ(nibbles.size(), 16u);
}

}  // namespace
}  // namespace assay::run
