// Mistakes in a weight's parts, planted: zero points, g_idx, scales of every kind, padding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "harness/locate/testing/table.h"

namespace assay::locate {
namespace {

std::vector<uint64_t> Ramp(int64_t count, int64_t group) {
  std::vector<uint64_t> groups;
  for (int64_t i = 0; i < count; ++i)
    groups.push_back(static_cast<uint64_t>(i * 37 % count / group));
  return groups;
}

const Entry kZero = {"L0.mlp.gate.zero", DType::kI32, 16,    6, 'n',
                     "ct-int4-g32-asym", "group",     "word"};
const Entry kIndex = {
    "L0.mlp.down.g_idx", DType::kI32, 128,          1, 'n', "gptq-int4-g32-actorder",
    "element",           "element",   Ramp(128, 32)};
const Entry kScale = {"L0.mlp.down.scale", DType::kBF16, 24, 8, 'k'};
const Entry kFp8Scale = {"L0.mlp.down.scale",     DType::kF32, 24, 8, 'k',
                         "deepseek-fp8-block128", "block"};
const Entry kFp4Scale = {"L0.mlp.down.scale", DType::kF8E4M3, 24, 8, 'k', "ct-nvfp4"};

struct Case {
  const char* name;
  Entry entry;
  std::function<void(Values* values)> change;
  const char* id;
  friend std::ostream& operator<<(std::ostream& out, const Case& one) { return out << one.name; }
};

uint64_t Fields(uint64_t word, uint64_t (*f)(uint64_t)) {
  uint64_t out = 0;
  for (int at = 0; at < 32; at += 4) out |= (f(word >> at & 15) & 15) << at;
  return out;
}

template <class F>
std::function<void(Values*)> Each(F f) {
  return [f](Values* values) {
    for (uint64_t& bits : values->bits) bits = f(bits);
  };
}

float AsFloat(uint64_t bits) {
  const auto word = static_cast<uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
uint64_t BitsOfFloat(float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  return word;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto up = [](uint64_t w) { return Fields(w, [](uint64_t v) { return v + 1; }); };
  const auto down = [](uint64_t w) { return Fields(w, [](uint64_t v) { return v - 1; }); };
  const auto wrap = [](uint64_t w) {
    return Fields(w, [](uint64_t v) { return v == 0 ? uint64_t{15} : v; });
  };
  cases.push_back({"ZeroPointsOneUp", kZero, Each(up), "zero-point-offset"});
  cases.push_back({"ZeroPointsOneDown", kZero, Each(down), "zero-point-offset"});
  cases.push_back({"ZeroPointsOfNothingWrap", kZero, Each(wrap), "zero-point-wrap"});
  cases.push_back({"CarriesBetweenZeroPoints", kZero,
                   Each([](uint64_t w) { return (w + 0x09249249) & 0xFFFFFFFF; }),
                   "zero-point-carry"});
  cases.push_back({"IndexIsLost", kIndex,
                   [](Values* v) {
                     for (int64_t i = 0; i < v->rows; ++i) {
                       v->bits[static_cast<size_t>(i)] = static_cast<uint64_t>((64 + i) / 32);
                     }
                   },
                   "g-idx-trivial"});
  cases.push_back({"IndexIsRenumbered", kIndex,
                   Each([](uint64_t g) { return (g - 2) & 0xFFFFFFFF; }), "g-idx-renumbered"});
  cases.push_back({"IndexIsSorted", kIndex,
                   [](Values* v) { std::sort(v->bits.begin(), v->bits.end()); }, "g-idx-sorted"});
  cases.push_back({"BytesOfScalesSwapped", kScale,
                   Each([](uint64_t w) { return (w >> 8 | w << 8) & 0xFFFF; }), "byte-order"});
  cases.push_back({"ScalesCutOffToPowersOfTwo", kFp8Scale,
                   Each([](uint64_t w) { return w & 0xFF800000; }), "scale-converted"});
  cases.push_back({"ScalesRoundedToPowersOfTwo", kFp8Scale, Each([](uint64_t w) {
                     return BitsOfFloat(std::exp2(std::round(std::log2(AsFloat(w)))));
                   }),
                   "scale-converted"});
  cases.push_back({"ScalesOfFnuzTwice", kFp8Scale,
                   Each([](uint64_t w) { return BitsOfFloat(2 * AsFloat(w)); }), "fnuz-factor"});
  cases.push_back({"SmallScalesUnderflow", kFp4Scale,
                   Each([](uint64_t w) { return w < 8 ? 0 : w; }), "small-scales-lost"});
  cases.push_back({"LargeCodesAreClamped", kFp4Scale,
                   Each([](uint64_t w) { return std::min<uint64_t>(w, 0x50); }), "codes-clamped"});
  cases.push_back({"OneCodeBecomesAnother", kFp4Scale,
                   Each([](uint64_t w) { return w == 0 ? 1 : w; }), "extreme-codes"});
  return cases;
}

class Parts : public testing::TestWithParam<Case> {};

TEST_P(Parts, AreNamed) {
  Case one = GetParam();
  // All codes are there, the least among them.
  if (one.entry.dtype == DType::kF8E4M3) {
    for (uint64_t i = 0; i < 192; ++i) one.entry.bits.push_back(i % 100);
  }
  ShardRig rig({one.entry}, 2);
  ASSERT_TRUE(rig.Compare().findings.empty());
  rig.Change(one.entry.name, 1, one.change);
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, one.id) << found.signature.text;
  EXPECT_EQ(found.component, one.entry.name);
  EXPECT_EQ(found.rank, 1);
  EXPECT_FALSE(found.index.empty());
}

// One value more that the relation does not explain, and it is not said.
TEST_P(Parts, AreNotNamedWhereOneValueSpeaksAgainstIt) {
  Case one = GetParam();
  if (one.entry.dtype == DType::kF8E4M3) {
    for (uint64_t i = 0; i < 192; ++i) one.entry.bits.push_back(i % 100);
  }
  ShardRig rig({one.entry}, 2);
  rig.Change(one.entry.name, 1, one.change);
  rig.Change(one.entry.name, 1, [](Values* values) { values->bits[5] ^= 0x55; });
  EXPECT_NE(rig.Only().signature.id, one.id);
}

INSTANTIATE_TEST_SUITE_P(All, Parts, testing::ValuesIn(Cases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Padding, ThatIsNotZeroIsNamedByWhatIsInIt) {
  ShardRig rig({Matrix("L0.mlp.down.weight", 15)}, 2);  // the last row of rank 1 is padding
  rig.Change("L0.mlp.down.weight", 1, [](Values* values) {
    for (int64_t c = 0; c < 12; ++c) values->bits[static_cast<size_t>(7 * 12 + c)] = 0x7F7F;
  });
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "padding-not-zero");
  EXPECT_EQ(found.signature.text, "padding is 7f7f where 0 is due");
  EXPECT_EQ(found.local_index, (std::vector<int64_t>{7, 0}));
  EXPECT_EQ(found.index, (std::vector<int64_t>{-1, 0}));
  rig.Change("L0.mlp.down.weight", 1, [](Values* values) { values->bits[0] ^= 1; });
  EXPECT_NE(rig.Only().signature.id, "padding-not-zero");
}

TEST(Numbers, OfSmallFloats) {
  EXPECT_EQ(NumberOf(0x01, DType::kF8E4M3), 0x1p-9);
  EXPECT_EQ(NumberOf(0x7E, DType::kF8E4M3), 448);
  EXPECT_EQ(NumberOf(0xB8, DType::kF8E4M3), -1);
  EXPECT_EQ(NumberOf(0x3C, DType::kF8E5M2), 1);
  EXPECT_EQ(NumberOf(0, DType::kF8E8M0), 0x1p-127);
}

}  // namespace
}  // namespace assay::locate
