// What Pack writes, for every method: within the bound that its scales imply, the same codes for
// values that are codes, zeros harmless, hostile parts refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "kernels/methods/numbers.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {
namespace {

constexpr int64_t kN = 40, kK = 512;

// Log-normal magnitudes, both signs; one row of zeros, one of positive values only, one of negative
// ones, a group of zeros, outliers.
std::vector<float> Weights() {
  std::vector<float> w(static_cast<size_t>(kN * kK));
  uint64_t state = 12345;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-53;
  };
  for (size_t i = 0; i < w.size(); ++i) {
    double sum = 0;
    for (int j = 0; j < 6; ++j) sum += uniform() - 0.5;
    const double size = 0.02 * std::exp(sum), sign = uniform() < 0.5 ? -1 : 1;
    w[i] = static_cast<float>(sign * size);
  }
  for (int64_t c = 0; c < kK; ++c) {
    w[static_cast<size_t>(3 * kK + c)] = 0;
    w[static_cast<size_t>(5 * kK + c)] = std::fabs(w[static_cast<size_t>(5 * kK + c)]);
    w[static_cast<size_t>(6 * kK + c)] = -std::fabs(w[static_cast<size_t>(6 * kK + c)]);
    if (c < 64) w[static_cast<size_t>(8 * kK + c)] = 0;
  }
  w[7] = 1.5F;
  w[static_cast<size_t>(9 * kK + 300)] = -2.5F;
  return w;
}

Scheme SchemeOf(const std::string& id) { return ParseScheme(id).value(); }

std::vector<PackedPart> MustPack(const Scheme& scheme, const std::vector<float>& w, int64_t n,
                                 int64_t k, const PackOptions& options = {}) {
  Result<std::vector<PackedPart>> parts = Pack(scheme, w.data(), n, k, options);
  EXPECT_TRUE(parts.ok()) << (parts.ok() ? "" : parts.error().message);
  return parts.ok() ? std::move(*parts) : std::vector<PackedPart>{};
}

std::vector<double> MustDecode(const Scheme& scheme, const std::vector<PackedPart>& parts,
                               int64_t n, int64_t k) {
  std::vector<double> out(static_cast<size_t>(n * k), NAN);
  const Status status = Decode(scheme, ViewsOf(parts, "m"), n, k, out.data());
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return out;
}

// Extremes of the values that share a scale, and of all.
struct Group {
  double least = 0, most = 0;
  double amax() const { return std::max(-least, most); }
  void Add(double x) { least = std::min(least, x), most = std::max(most, x); }
};

// Which scale an element has: an index.
int64_t GroupOf(const Scheme& s, const std::vector<int64_t>& order, int64_t r, int64_t c) {
  switch (s.granularity) {
    case Granularity::kNone:
      return r * kK + c;
    case Granularity::kTensor:
      return 0;
    case Granularity::kChannel:
      return r;
    case Granularity::kBlock:
      return r / s.block_n * kK + c / s.block_k;
    case Granularity::kGroup:
      break;
  }
  int64_t group = s.group < 0 ? kK : s.group;
  if (s.family == MethodFamily::kGguf) {
    // The scale of a sub-block.
    if (group == 64) group = 16;
    if (group == 256) group = s.dtype == DType::kQ4K || s.dtype == DType::kQ5K ? 32 : 16;
  }
  return r * kK + (order.empty() ? c / group : order[static_cast<size_t>(c)]);
}

std::vector<int64_t> OrderIn(const std::vector<PackedPart>& parts) {
  std::vector<int64_t> order;
  for (const PackedPart& part : parts) {
    if (part.spec.part != "g_idx") continue;
    for (int64_t c = 0; c < kK; ++c) {
      order.push_back(static_cast<int64_t>(LoadValue(DType::kI32, part.bytes.data(), c)));
    }
  }
  return order;
}

constexpr double kFloatWork = 0x1p-22;  // two roundings to float on the way to a scale

// |decoded − x| of codes that are evenly spaced: half a step, and the rounding of the scale (unit
// roundoff u) times the largest code, which moves the ends of the range by as much.
double Even(double step, double codes, double u) {
  return step * (0.5 + (codes + 0.5) * (u + kFloatWork));
}

// Of floating codes: half a unit of the last of `mantissa` bits, not less than half the smallest
// step; and what lies beyond the largest code after the scale was rounded.
double Floating(double x, int mantissa, double smallest_half, double beyond) {
  return std::max(std::fabs(x) * std::ldexp(1, -mantissa - 1), smallest_half) + beyond;
}

double KQuant(const Scheme& s, const Group& g, double largest_least, double largest_range) {
  const bool two = s.dtype == DType::kQ2K, three = s.dtype == DType::kQ3K,
             six = s.dtype == DType::kQ6K;
  const double most = two ? 15 : three ? 31 : six ? 127 : 63;
  const double codes = two ? 3 : three ? 3 : six ? 31 : s.dtype == DType::kQ4K ? 15 : 31;
  const double up = 1 + 0x1p-10;  // to the next fp16
  // Minimum and step of a sub-block are rounded up to a multiple of d, the super-block's largest
  // over `most`: at most one d more.
  const double min_unit = three || six ? 0 : largest_least / most * up;
  const double range = three || six ? g.amax() : g.most - g.least + min_unit;
  const double unit = (largest_range + min_unit) / codes / most * up;
  return (range / codes + unit) / 2;
}

double GgufBound(const Scheme& s, double x, const Group& g, double largest_least,
                 double largest_range) {
  constexpr double u = 0x1p-11;  // of fp16
  const double range = g.most - g.least;
  switch (s.dtype) {
    case DType::kQ4_0:
    case DType::kQ5_0: {
      // The largest magnitude is code −8; the same with the other sign would be 8, but 7 is the
      // last code.
      const double middle = s.dtype == DType::kQ4_0 ? 8 : 16, d = g.amax() / middle;
      const double beyond = std::max(0.0, std::fabs(x) / d - (middle - 0.5));
      return d == 0 ? 0 : Even(d, middle, u) + d * beyond;
    }
    case DType::kQ4_1:
    case DType::kQ5_1: {
      const double codes = s.dtype == DType::kQ4_1 ? 15 : 31;
      return Even(range / codes, codes, u) + g.amax() * u;
    }
    case DType::kQ8_0:
      return Even(g.amax() / 127, 127, u);
    case DType::kMxfp4Block:
      return Floating(x, 1, g.amax() / 4 / 4, 0);
    case DType::kNvfp4Block:
      // A scale E4M3: 4 bits, or multiples of 2^-9, and not less than one.
      return Floating(x, 1, (g.amax() / 6 * (1 + 0x1p-4) + 0x1p-9) / 4,
                      std::max(g.amax() * 0x1p-4, 6 * 0x1p-10));
    default:
      return KQuant(s, g, largest_least, largest_range);
  }
}

double Bound(const Scheme& s, double x, const Group& g, const Group& all, double largest_least,
             double largest_range) {
  const double levels = std::ldexp(1, s.bits) - 1, range = g.most - g.least;
  switch (s.family) {
    case MethodFamily::kDense: {
      const int mantissa = s.dtype == DType::kF32 ? 23 : s.dtype == DType::kF16 ? 10 : 7;
      return Floating(x, mantissa, s.dtype == DType::kF16 ? 0x1p-25 : 0, 0);
    }
    case MethodFamily::kCtInt:
      return Even((s.asymmetric ? range : 2 * g.amax()) / levels, levels, 0x1p-8);
    case MethodFamily::kCtW8a8:
      return Even((s.asymmetric ? range : 2 * g.amax()) / levels, levels, 0x1p-24);
    case MethodFamily::kGptq:
    case MethodFamily::kAwq:
      // v1 may give up its lowest code for a zero point that it can store.
      return Even(s.asymmetric ? range / (levels - 1) : 2 * g.amax() / levels, levels, 0x1p-11);
    case MethodFamily::kModelSlimW8a8:
      return Even(g.amax() / 127, 127, 0x1p-24);
    case MethodFamily::kModelSlimW4a8:
      return Even(g.amax() / 7, 7, 0x1p-24);
    case MethodFamily::kCtFp8:
    case MethodFamily::kDeepseekFp8: {
      const double largest = s.fnuz ? 240 : 448, least = s.fnuz ? 0x1p-11 : 0x1p-10;
      const bool bf16 = s.family == MethodFamily::kCtFp8 && s.granularity != Granularity::kTensor;
      const double u = (bf16 ? 0x1p-8 : 0x1p-24) + kFloatWork;
      return Floating(x, 3, g.amax() / largest * least * (1 + u), g.amax() * u);
    }
    case MethodFamily::kCtMxfp8:
      // The scale's power of two is at most 8/7 of the largest magnitude's part.
      return Floating(x, 3, g.amax() * 8 / 7 / 256 * 0x1p-10, 0);
    case MethodFamily::kCtMxfp4:
    case MethodFamily::kGptOssMxfp4:
    case MethodFamily::kDeepseekV4Mxfp4:
    case MethodFamily::kQuarkMxfp4:
      return Floating(x, 1, g.amax() * 8 / 7 / 4 / 4, 0);
    case MethodFamily::kCtNvfp4:
    case MethodFamily::kModelOptNvfp4: {
      const double unit = all.amax() / (448 * 6) * (1 + kFloatWork);
      return Floating(x, 1, (g.amax() / 6 * (1 + 0x1p-4) + 0x1p-9 * unit) / 4,
                      std::max(g.amax() * (0x1p-4 + kFloatWork), 6 * 0x1p-10 * unit));
    }
    case MethodFamily::kGguf:
      return GgufBound(s, x, g, largest_least, largest_range);
  }
  return 0;
}

// Elements that lie beyond their bound.
int64_t Beyond(const Scheme& s, const std::vector<float>& w, const std::vector<PackedPart>& parts,
               const std::vector<double>& decoded) {
  const std::vector<int64_t> order = OrderIn(parts);
  std::map<int64_t, Group> groups;
  Group all;
  for (int64_t i = 0; i < kN * kK; ++i) {
    const double x = w[static_cast<size_t>(i)];
    groups[GroupOf(s, order, i / kK, i % kK)].Add(x);
    all.Add(x);
  }
  int64_t beyond = 0;
  for (int64_t i = 0; i < kN * kK; ++i) {
    // Of the super-block around it.
    double least = 0, range = 0;
    for (int64_t c = i % kK / 256 * 256; s.dtype >= DType::kQ2K && c < (i % kK / 256 + 1) * 256;
         c += 16) {
      const Group& sub = groups[GroupOf(s, order, i / kK, c)];
      const bool with_min = s.dtype != DType::kQ3K && s.dtype != DType::kQ6K;
      least = std::max(least, -sub.least);
      range = std::max(range, with_min ? sub.most - sub.least : sub.amax());
    }
    const double x = w[static_cast<size_t>(i)];
    const double bound = Bound(s, x, groups[GroupOf(s, order, i / kK, i % kK)], all, least, range);
    if (!(std::fabs(decoded[static_cast<size_t>(i)] - x) <= bound)) ++beyond;
  }
  return beyond;
}

TEST(Pack, LiesWithinHalfAStepForEveryMethod) {
  const std::vector<float> w = Weights();
  size_t controls = 0;
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const Scheme scheme = SchemeOf(id);
    std::vector<PackedPart> parts = MustPack(scheme, w, kN, kK);
    ASSERT_FALSE(parts.empty());
    EXPECT_EQ(Beyond(scheme, w, parts, MustDecode(scheme, parts, kN, kK)), 0);
    // Codes that are wrong are seen.
    for (size_t i = parts.front().bytes.size() / 2; i < parts.front().bytes.size(); i += 7) {
      parts.front().bytes[i] ^= std::byte{0x14};
    }
    std::vector<double> wrong(w.size());
    // A block's scale may have become a NaN, which is refused.
    if (!Decode(scheme, ViewsOf(parts, "m"), kN, kK, wrong.data()).ok()) continue;
    EXPECT_GT(Beyond(scheme, w, parts, wrong), 0);
    ++controls;
  }
  EXPECT_GT(controls, KnownSchemes().size() / 2);
}

TEST(Pack, RepresentableValuesGiveTheirOwnCodesBack) {
  const std::vector<float> w = Weights();
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const Scheme scheme = SchemeOf(id);
    std::vector<PackedPart> parts = MustPack(scheme, w, kN, kK);
    std::vector<double> values = MustDecode(scheme, parts, kN, kK);
    const Result<PackedPart> again = Encode(scheme, values.data(), kN, kK, ViewsOf(parts, "m"));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->bytes, parts.front().bytes);
    // Another value gives another code.
    values[7] = -values[7];
    const Result<PackedPart> other = Encode(scheme, values.data(), kN, kK, ViewsOf(parts, "m"));
    ASSERT_TRUE(other.ok());
    EXPECT_NE(other->bytes, parts.front().bytes);
  }
}

TEST(Pack, WritesThePartsThatPartsOfLists) {
  const std::vector<float> w = Weights();
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const auto specs = PartsOf(SchemeOf(id), kN, kK);
    ASSERT_TRUE(specs.ok()) << specs.error().message;
    const std::vector<PackedPart> parts = MustPack(SchemeOf(id), w, kN, kK);
    ASSERT_EQ(parts.size(), specs->size());
    EXPECT_EQ(parts.front().spec.part, "weight");
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].spec.suffix, (*specs)[i].suffix);
      EXPECT_EQ(parts[i].spec.dtype, (*specs)[i].dtype);
      EXPECT_EQ(parts[i].spec.shape, (*specs)[i].shape);
      EXPECT_EQ(static_cast<int64_t>(parts[i].bytes.size()),
                StoredBytes(parts[i].spec.dtype, parts[i].spec.shape)->count());
    }
  }
}

TEST(Pack, IsAFunctionOfItsInputs) {
  const std::vector<float> w = Weights();
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const Scheme scheme = SchemeOf(id);
    const std::vector<PackedPart> a = MustPack(scheme, w, kN, kK), b = MustPack(scheme, w, kN, kK),
                                  c = MustPack(scheme, w, kN, kK, {.seed = 2});
    bool differs = false;
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].spec.suffix;
      differs = differs || a[i].bytes != c[i].bytes;
    }
    EXPECT_EQ(differs, scheme.actorder);
    if (!scheme.actorder) continue;
    const std::vector<int64_t> order = OrderIn(a);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    for (int64_t g = 0; g < kK / scheme.group; ++g) {
      EXPECT_EQ(std::count(order.begin(), order.end(), g), scheme.group);
    }
  }
}

TEST(Pack, ZerosStayZeros) {
  const std::vector<float> zeros(static_cast<size_t>(kN * kK), 0);
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const Scheme scheme = SchemeOf(id);
    for (const double value : MustDecode(scheme, MustPack(scheme, zeros, kN, kK), kN, kK)) {
      ASSERT_EQ(value, 0);
    }
  }
}

TEST(Pack, ValuesThatCannotBeStoredAreRefused) {
  std::vector<float> w = Weights();
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    w[static_cast<size_t>(2 * kK + 5)] = value;
    for (const std::string& id : KnownSchemes()) {
      const auto parts = Pack(SchemeOf(id), w.data(), kN, kK);
      ASSERT_FALSE(parts.ok()) << id;
      EXPECT_NE(parts.error().message.find("[2, 5]"), std::string::npos) << parts.error().message;
    }
  }
  w = Weights();
  w[0] = 1e30F;  // its scale is beyond fp16
  for (const char* id :
       {"gptq-int4-g32", "awq-int4-g32-asym", "gguf-q4_0", "gguf-q4_k", "gguf-nvfp4", "f16"}) {
    const auto parts = Pack(SchemeOf(id), w.data(), kN, kK);
    ASSERT_FALSE(parts.ok()) << id;
    EXPECT_NE(parts.error().message.find("beyond"), std::string::npos) << parts.error().message;
    EXPECT_NE(parts.error().message.find(id), std::string::npos);
  }
}

TEST(Pack, ExtentsThatDoNotFitAreRefusedWithTheUnit) {
  struct Case {
    const char* id;
    int64_t n, k;
    const char* why;
  };
  for (const Case& c :
       {Case{"ct-int4-g32", 8, 88, "k is 88, which is no multiple of the group of 32"},
        {"gptq-int4-g32", 12, 64, "n is 12, which is no multiple of the word of 8"},
        {"gptq-int4-channel", 8, 60, "k is 60"},
        {"awq-int4-g32", 4, 64, "n is 4"},
        {"ct-mxfp4", 8, 80, "k is 80"},
        {"ct-nvfp4", 8, 24, "k is 24"},
        {"gguf-q4_k", 8, 320, "k is 320, which is no multiple of the block of 256"},
        {"modelslim-w4a8", 5, 32, "n is 5"},
        {"modelslim-w4a8-g256", 4, 128, "k is 128"}}) {
    const auto parts = PartsOf(SchemeOf(c.id), c.n, c.k);
    ASSERT_FALSE(parts.ok()) << c.id;
    EXPECT_EQ(parts.error().kind, ErrorKind::kRefused);
    EXPECT_NE(parts.error().message.find(c.why), std::string::npos) << parts.error().message;
  }
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{0, 32}, {32, -1}, {int64_t{1} << 40, int64_t{1} << 40}}) {
    EXPECT_FALSE(PartsOf(SchemeOf("bf16"), n, k).ok());
  }
}

TEST(Pack, SharedGlobalScalesAreShared) {
  const std::vector<float> w = Weights();
  for (const char* id : {"ct-nvfp4", "modelopt-nvfp4"}) {
    const Scheme scheme = SchemeOf(id);
    const auto own = MustPack(scheme, w, kN, kK),
               same = MustPack(scheme, w, kN, kK, {.global_amax = 2.5}),
               shared = MustPack(scheme, w, kN, kK, {.global_amax = 5});
    EXPECT_EQ(own[2].spec.part, "global_scale");
    EXPECT_EQ(own[2].bytes, same[2].bytes);  // 2.5 is the largest here
    const double a = LoadValue(DType::kF32, own[2].bytes.data(), 0),
                 b = LoadValue(DType::kF32, shared[2].bytes.data(), 0);
    EXPECT_EQ(b, scheme.family == MethodFamily::kCtNvfp4 ? a / 2 : a * 2);
    EXPECT_FALSE(Pack(scheme, w.data(), kN, kK, {.global_amax = 1}).ok());
  }
}

}  // namespace
}  // namespace assay::kernels
