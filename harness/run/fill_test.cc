// Data is a function of (seed, name, index), covers what it must, and never changes silently.
#include "harness/run/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "harness/run/codes.h"

namespace assay::run {
namespace {

constexpr int64_t kSeed = 7;

std::vector<double> Values(const TapValue& value) {
  std::vector<double> values;
  for (size_t at = 0; at < value.bytes.size();) {
    if (value.dtype == DType::kBF16) {
      uint16_t bits = 0;
      std::memcpy(&bits, &value.bytes[at], sizeof bits);
      at += sizeof bits;
      const uint32_t word = static_cast<uint32_t>(bits) << 16;
      float single = 0;
      std::memcpy(&single, &word, sizeof single);
      values.push_back(single);
    } else {
      float single = 0;
      std::memcpy(&single, &value.bytes[at], sizeof single);
      at += sizeof single;
      values.push_back(single);
    }
  }
  return values;
}

std::vector<double> Values(const TensorView& view) {
  TapValue value{view.dtype, view.shape, {}};
  value.bytes.assign(view.bytes.begin(), view.bytes.end());
  return Values(value);
}

// The largest power of two that divides all values; infinity if all are zero.
double Unit(const std::vector<double>& values) {
  double unit = INFINITY;
  for (const double value : values) {
    if (value == 0) continue;
    double own = std::exp2(std::ilogb(value));
    while (std::fmod(std::abs(value), own) != 0) own /= 2;
    unit = std::min(unit, own);
  }
  return unit;
}

// Tensors of zeros to be replaced.
class Zeros {
 public:
  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    int64_t count = SizeOf(dtype).count();
    for (const int64_t extent : shape) count *= extent;
    source_.Put(name, dtype, std::move(shape), std::vector<std::byte>(static_cast<size_t>(count)));
    names_.push_back(name);
  }
  std::unique_ptr<TensorSource> Filled(Fill fill, int64_t seed = kSeed) const {
    return SyntheticWeights(source_, names_, fill, seed);
  }
  const TensorSource& source() const { return source_; }

 private:
  MemorySource source_;
  std::vector<std::string> names_;
};

TEST(Fill, DrawsArePinned) {
  // Changed data changes every recorded result: a new generator needs a new seed convention.
  EXPECT_EQ(Draw(1, HashName("embed"), 0), 4923991612813931587u);
  EXPECT_EQ(Draw(1, HashName("embed"), 1), 12096234891252452041u);
  EXPECT_EQ(Draw(2, HashName("embed"), 0), 6897661414689089153u);
  EXPECT_EQ(Draw(1, HashName("L1.moe.e5.down"), 123456789), 9293442566027091680u);
  EXPECT_EQ(FillTokens(1, 5, 261), (std::vector<int32_t>{192, 207, 42, 236, 215}));
  EXPECT_EQ(Values(FillActivation(Fill::kExact, 1, "L0.input_norm", 1, 8)),
            (std::vector<double>{-3, 7, 2, -4, 0, -8, -1, -6}));
  EXPECT_EQ(Values(FillActivation(Fill::kLognormal, 1, "L0.input_norm", 1, 4)),
            (std::vector<double>{0.322265625, 0.3515625, -2.953125, 0.7421875}));
}

TEST(Fill, NothingButSeedNameAndIndexMatters) {
  for (const Fill fill : {Fill::kExact, Fill::kNormal, Fill::kLognormal, Fill::kExtreme}) {
    const TapValue first = FillActivation(fill, kSeed, "tap", 4, 32);
    EXPECT_EQ(first.bytes, FillActivation(fill, kSeed, "tap", 4, 32).bytes);
    // Fewer rows are the first rows.
    const TapValue shorter = FillActivation(fill, kSeed, "tap", 2, 32);
    EXPECT_TRUE(std::equal(shorter.bytes.begin(), shorter.bytes.end(), first.bytes.begin()));
    EXPECT_NE(first.bytes, FillActivation(fill, kSeed + 1, "tap", 4, 32).bytes);
    EXPECT_NE(first.bytes, FillActivation(fill, kSeed, "pat", 4, 32).bytes);
  }
}

TEST(Fill, WeightsDependOnTheirNameNotOnTheOthers) {
  Zeros both, one;
  for (const char* name : {"a.weight", "b.weight"}) both.Add(name, DType::kBF16, {4, 32});
  one.Add("b.weight", DType::kBF16, {4, 32});
  const auto with = both.Filled(Fill::kExtreme), without = one.Filled(Fill::kExtreme);
  EXPECT_EQ(Values(*with->Find("b.weight")), Values(*without->Find("b.weight")));
  EXPECT_NE(Values(*with->Find("b.weight")), Values(*with->Find("a.weight")));
  EXPECT_NE(Values(*with->Find("b.weight")),
            Values(*both.Filled(Fill::kExtreme, kSeed + 1)->Find("b.weight")));
}

TEST(Fill, OnlyNamedTensorsAreReplaced) {
  Zeros zeros;
  zeros.Add("a.weight", DType::kBF16, {2, 4});
  const auto filled = SyntheticWeights(zeros.source(), {"absent"}, Fill::kExact, kSeed);
  EXPECT_EQ(Values(*filled->Find("a.weight")), std::vector<double>(8, 0.0));
  EXPECT_EQ(filled->Find("absent"), nullptr);
  EXPECT_EQ(filled->Names(), zeros.source().Names());
}

TEST(Fill, AllSixteenCodesUnderBothSignsOfX) {
  Zeros zeros;
  zeros.Add("w.weight_packed", DType::kI32, {16, 8});
  for (const Fill fill : {Fill::kExact, Fill::kExtreme}) {
    const auto filled = zeros.Filled(fill);
    const auto bytes = filled->Find("w.weight_packed")->bytes;
    const std::vector<double> x = Values(FillActivation(fill, kSeed, "x", 1, 64));
    std::set<std::pair<int, bool>> seen;
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 64; ++column) {
        const auto byte = static_cast<int>(bytes[row * 32 + column / 2]);
        const int code = column % 2 == 0 ? byte & 15 : byte >> 4;
        if (x[column] != 0) seen.insert({code, x[column] < 0});
      }
    }
    EXPECT_EQ(seen.size(), 32u);
  }
}

// Σ|x||w| ≤ 2^24·u_x·u_w for each pair of rows: every fp32 partial sum is exact in any order.
void ExpectExact(const std::vector<double>& x, const std::vector<double>& w, size_t k) {
  for (size_t a = 0; a < x.size(); a += k) {
    const std::vector<double> left(x.begin() + a, x.begin() + a + k);
    for (size_t b = 0; b < w.size(); b += k) {
      const std::vector<double> right(w.begin() + b, w.begin() + b + k);
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += std::abs(left[i] * right[i]);
      ASSERT_LE(sum, std::exp2(24) * Unit(left) * Unit(right));
      ASSERT_GT(sum, 0);
    }
  }
}

TEST(Fill, ExactFillIsExactInAnyOrderForTheLongestRows) {
  for (const int64_t k : {32, 96, 256, 7168}) {
    Zeros zeros;
    zeros.Add("d.weight", DType::kBF16, {3, k});
    zeros.Add("q.weight_packed", DType::kI32, {3, k / 8});
    zeros.Add("q.weight_scale", DType::kBF16, {3, k / 32});
    const auto filled = zeros.Filled(Fill::kExact);
    const auto x = Values(FillActivation(Fill::kExact, kSeed, "x", 2, k));
    ExpectExact(x, Values(*filled->Find("d.weight")), static_cast<size_t>(k));
    const auto codes = filled->Find("q.weight_packed")->bytes;
    const auto scales = Values(*filled->Find("q.weight_scale"));
    std::vector<double> w;
    for (int64_t i = 0; i < 3 * k; ++i) {
      const auto byte = static_cast<int>(codes[static_cast<size_t>(i / 2)]);
      const int code = i % 2 == 0 ? byte & 15 : byte >> 4;
      w.push_back((code - 8) * scales[static_cast<size_t>(i / 32)]);
    }
    ExpectExact(x, w, static_cast<size_t>(k));
  }
}

// The condition itself can fail: N(0, 1) data does not meet it.
TEST(Fill, NormalFillIsNotExact) {
  const auto x = Values(FillActivation(Fill::kNormal, kSeed, "x", 1, 7168));
  double sum = 0;
  for (const double value : x) sum += std::abs(value * value);
  EXPECT_GT(sum, std::exp2(24) * Unit(x) * Unit(x));
}

TEST(Fill, ExactPartialsAddUpExactlyInFloat) {
  for (int rank = 0; rank < 8; ++rank) {
    const auto values =
        Values(FillPartial(Fill::kExact, kSeed, "p@r" + std::to_string(rank), 4, 64));
    EXPECT_TRUE(std::all_of(values.begin(), values.end(),
                            [](double v) { return v == std::rint(v) && std::abs(v) <= 8; }));
  }
}

TEST(Fill, ExtremesHaveBothSignsManyBinadesAndZeros) {
  const auto values = Values(FillActivation(Fill::kExtreme, kSeed, "x", 8, 256));
  std::set<int> binades;
  int64_t negative = 0, positive = 0, zero = 0;
  for (const double value : values) {
    negative += value < 0;
    positive += value > 0;
    zero += value == 0;
    if (value != 0) binades.insert(std::ilogb(value));
  }
  const auto count = static_cast<int64_t>(values.size());
  EXPECT_GT(negative, count / 3);
  EXPECT_GT(positive, count / 3);
  EXPECT_GT(zero, 0);
  EXPECT_LT(zero, count / 8);
  EXPECT_GE(*binades.rbegin() - *binades.begin(), 14);
}

TEST(Fill, LognormalHasOutlierChannels) {
  const int64_t rows = 64, columns = 512;
  const auto values = Values(FillActivation(Fill::kLognormal, kSeed, "x", rows, columns));
  std::vector<double> square(columns, 0.0);
  for (size_t i = 0; i < values.size(); ++i) square[i % columns] += values[i] * values[i];
  std::sort(square.begin(), square.end());
  // A median channel against the largest: ×12 of a log-normal spread.
  EXPECT_GT(std::sqrt(square.back() / square[columns / 2]), 6);
  const auto plain = Values(FillActivation(Fill::kNormal, kSeed, "x", rows, columns));
  std::fill(square.begin(), square.end(), 0.0);
  for (size_t i = 0; i < plain.size(); ++i) square[i % columns] += plain[i] * plain[i];
  std::sort(square.begin(), square.end());
  EXPECT_LT(std::sqrt(square.back() / square[columns / 2]), 2);
}

TEST(Fill, ScalesAreFarApartWhereExtreme) {
  Zeros zeros;
  zeros.Add("w.weight_scale", DType::kBF16, {16, 16});
  const auto scales = Values(*zeros.Filled(Fill::kExtreme)->Find("w.weight_scale"));
  const auto [least, most] = std::minmax_element(scales.begin(), scales.end());
  EXPECT_GT(*least, 0);
  EXPECT_GT(*most / *least, 64);
  const auto exact = Values(*zeros.Filled(Fill::kExact)->Find("w.weight_scale"));
  EXPECT_EQ(std::set<double>(exact.begin(), exact.end()), (std::set<double>{0.5, 1, 2}));
}

TEST(Fill, ShapesOfPackedWeightsAreKept) {
  Zeros zeros;
  zeros.Add("w.weight_shape", DType::kI64, {2});
  EXPECT_EQ(Values(*zeros.Filled(Fill::kExact)->Find("w.weight_shape")),
            std::vector<double>(4, 0.0));
  EXPECT_EQ(zeros.Filled(Fill::kExact)->Find("w.weight_shape")->dtype, DType::kI64);
}

TEST(Fill, Bf16RoundsToNearestEven) {
  EXPECT_EQ(ToBf16(1.0), 0x3f80);
  EXPECT_EQ(ToBf16(-2.0), 0xc000);
  EXPECT_EQ(ToBf16(1.0 + 1.0 / 256), 0x3f80);  // a tie, to even
  EXPECT_EQ(ToBf16(1.0 + 3.0 / 256), 0x3f82);  // a tie, to even
  EXPECT_EQ(ToBf16(1.0 + 1.0 / 256 + 1e-9), 0x3f81);
  EXPECT_EQ(ToBf16(0.0), 0);
}

TEST(Fill, TokensAreOfTheVocabulary) {
  const auto tokens = FillTokens(kSeed, 2000, 261);
  EXPECT_EQ(*std::min_element(tokens.begin(), tokens.end()), 0);
  EXPECT_EQ(*std::max_element(tokens.begin(), tokens.end()), 260);
}

TEST(Fill, NamesAreClosed) {
  for (const char* name : {"exact", "normal", "lognormal", "extreme", "real"}) {
    EXPECT_TRUE(ParseFill(name).ok()) << name;
  }
  const auto wrong = ParseFill("gauss");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("lognormal"), std::string::npos);
  EXPECT_TRUE(GeneratesWeights(Fill::kExact) && GeneratesWeights(Fill::kExtreme));
  EXPECT_FALSE(GeneratesWeights(Fill::kNormal) || GeneratesWeights(Fill::kLognormal) ||
               GeneratesWeights(Fill::kReal));
}

// Sums over ranks in two orders, rounded to bf16 as an engine's reduce does: how many differ.
int64_t DifferInOrder(Fill fill, int ranks) {
  std::vector<std::vector<float>> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = Values(FillPartialOf(fill, kSeed, "p", rank, ranks, 5, 96));
    parts.emplace_back(values.begin(), values.end());
  }
  int64_t differ = 0;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    float up = 0, down = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      up += parts[static_cast<size_t>(rank)][i];
      down += parts[static_cast<size_t>(ranks - 1 - rank)][i];
    }
    differ += ToBf16(up) != ToBf16(down);
  }
  return differ;
}

TEST(Fill, PartialsShowInWhichOrderTheyWereAdded) {
  for (const int ranks : {3, 4, 8}) {
    EXPECT_GT(DifferInOrder(Fill::kLognormal, ranks), 24) << ranks;
    EXPECT_GT(DifferInOrder(Fill::kExtreme, ranks), 4) << ranks;  // most of its sums are exact
    EXPECT_EQ(DifferInOrder(Fill::kExact, ranks), 0) << ranks;
  }
  EXPECT_EQ(DifferInOrder(Fill::kLognormal, 2), 0);  // two in either order are the same
}

TEST(Codes, EveryGroupHasAnAmaxOf127AndTies) {
  const TapValue value = FillCodes(3, "x", 4, 96);
  int64_t ties = 0;
  const auto* bits = reinterpret_cast<const uint16_t*>(value.bytes.data());
  for (int64_t group = 0; group < 4 * 3; ++group) {
    float most = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(bits[group * 32 + i]) << 16);
      EXPECT_EQ(2 * x, std::nearbyint(2 * x));
      ties += x != std::nearbyint(x);
      most = std::max(most, std::abs(x));
    }
    EXPECT_EQ(most, 127.0f) << group;
  }
  EXPECT_GT(ties, 16);
}

std::unique_ptr<MadeSource> Made(const MemorySource& base, const std::string& method, Fill fill,
                                 int64_t seed) {
  auto made = MakeSource(base, method, {{"m.up_proj", 64, 128}});
  EXPECT_TRUE(made.ok());
  (*made)->Make(fill, seed);
  return std::move(*made);
}

TEST(Codes, ExtremesHaveRowsOfTheLeastScalesAndGroupsOfTheLargestCode) {
  MemorySource base;
  const auto mxfp4 = Made(base, "deepseek-v4-mxfp4", Fill::kExtreme, 1);
  const TensorView& scales = *mxfp4->Find("m.up_proj.scale");
  int rows_of[2] = {0, 0};
  for (size_t row = 0; row < 64; ++row) {
    for (const int least : {0, 1}) {
      const auto* at = scales.bytes.data() + row * 4;
      rows_of[least] += std::all_of(at, at + 4, [&](std::byte b) { return b == std::byte(least); });
    }
  }
  EXPECT_GT(rows_of[0], 1);
  EXPECT_GT(rows_of[1], 1);
  const auto q4 = Made(base, "gguf-q4_1", Fill::kExtreme, 1);
  const TensorView& blocks = *q4->Find("m.up_proj.weight");
  int full = 0;
  for (size_t at = 0; at < blocks.bytes.size(); at += 20) {
    const auto* codes = blocks.bytes.data() + at + 4;
    full += std::all_of(codes, codes + 16, [](std::byte b) { return b == std::byte{0xff}; });
  }
  EXPECT_GT(full, 8);
}

TEST(Codes, ReplaceTheParameterAndNothingElse) {
  MemorySource base;
  base.Put("m.up_proj.weight", DType::kBF16, {64, 128}, std::vector<std::byte>(64 * 128 * 2));
  base.Put("m.up_proj.bias", DType::kBF16, {64}, std::vector<std::byte>(128));
  base.Put("m.down_proj.weight", DType::kBF16, {1, 1}, std::vector<std::byte>(2));
  const auto int4 = Made(base, "ct-int4-g32", Fill::kLognormal, 1);
  EXPECT_EQ(int4->Names(), (std::vector<std::string>{
                               "m.down_proj.weight", "m.up_proj.bias", "m.up_proj.weight_packed",
                               "m.up_proj.weight_scale", "m.up_proj.weight_shape"}));
  EXPECT_EQ(int4->Find("m.up_proj.weight"), nullptr);
  EXPECT_FALSE(int4->IsMade("m.up_proj.bias"));
  const auto q41 = Made(base, "gguf-q4_1", Fill::kLognormal, 1);
  const TensorView* blocks = q41->Find("m.up_proj.weight");
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->shape, (std::vector<int64_t>{64, 4}));
  EXPECT_EQ(blocks->bytes.size(), 64u * 4 * 20);
}

TEST(Codes, AreAFunctionOfTheSeed) {
  const MemorySource base;
  for (const std::string_view id : MadeMethods()) {
    const std::string method(id);
    const auto one = Made(base, method, Fill::kExtreme, 1),
               same = Made(base, method, Fill::kExtreme, 1),
               other = Made(base, method, Fill::kExtreme, 2);
    for (const std::string& name : one->Names()) {
      const auto a = one->Find(name)->bytes, b = same->Find(name)->bytes,
                 c = other->Find(name)->bytes;
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << name;
      if (name.ends_with("shape")) continue;
      EXPECT_FALSE(std::equal(a.begin(), a.end(), c.begin(), c.end())) << name;
    }
  }
}

TEST(Codes, ExtremeHasTheCodesThatAreGotWrong) {
  const MemorySource base;
  const auto mxfp4 = Made(base, "deepseek-v4-mxfp4", Fill::kExtreme, 1);
  std::set<int> bytes;
  for (const std::byte b : mxfp4->Find("m.up_proj.scale")->bytes) bytes.insert(static_cast<int>(b));
  for (const int special : {0, 1, 254}) EXPECT_TRUE(bytes.count(special)) << special;
  EXPECT_FALSE(bytes.count(255));
  const auto q80 = Made(base, "gguf-q8_0", Fill::kExtreme, 1);
  const auto blocks = q80->Find("m.up_proj.weight")->bytes;
  bool least = false;
  for (size_t i = 0; i < blocks.size(); ++i) least |= i % 34 >= 2 && blocks[i] == std::byte{0x80};
  EXPECT_TRUE(least);
}

TEST(Codes, WhatCannotBeMade) {
  const MemorySource base;
  const auto odd = MakeSource(base, "gguf-q4_1", {{"m.up_proj", 4, 48}});
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find("m.up_proj"), std::string::npos);
  EXPECT_NE(odd.error().message.find("48"), std::string::npos);
  EXPECT_FALSE(MakeSource(base, "bf16", {{"m.up_proj", 4, 32}}).ok());
}

}  // namespace
}  // namespace assay::run
