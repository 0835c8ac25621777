#include "harness/abi/contract.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

namespace assay {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The values of a 16-bit format's non-negative codes, decoded by the format's definition.
std::vector<double> NonNegativeValues(int exponent_bits, int fraction_bits) {
  std::vector<double> values;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (int code = 0;; ++code) {
    const int exponent = code >> fraction_bits;
    const int fraction = code & ((1 << fraction_bits) - 1);
    if (exponent == (1 << exponent_bits) - 1) break;
    const int significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    values.push_back(std::ldexp(significand, std::max(exponent, 1) - bias - fraction_bits));
  }
  // What the code after the largest finite one would stand for: where overflow begins is the
  // midpoint between the two.
  values.push_back(std::ldexp(1, bias + 1));
  return values;
}

struct Format {
  DType dtype;
  int exponent_bits, fraction_bits;
};
class Rounding : public testing::TestWithParam<Format> {};

TEST_P(Rounding, EveryValueMidpointAndNeighbour) {
  const Format format = GetParam();
  const std::vector<double> values = NonNegativeValues(format.exponent_bits, format.fraction_bits);
  ASSERT_GT(values.size(), 30000u);
  const auto expected = [&](size_t code) {
    return code + 1 == values.size() ? kInfinity : values[code];
  };
  const auto both_signs = [&](double value, double rounded) {
    ASSERT_EQ(RoundTo(value, format.dtype), rounded) << value;
    ASSERT_EQ(RoundTo(-value, format.dtype), -rounded) << -value;
    ASSERT_EQ(std::signbit(RoundTo(-value, format.dtype)), true) << -value;
  };
  for (size_t code = 0; code + 1 < values.size(); ++code) {
    both_signs(values[code], values[code]);
    const double middle = (values[code] + values[code + 1]) / 2;
    both_signs(middle, expected(code % 2 == 0 ? code : code + 1));
    both_signs(std::nextafter(middle, 0.0), expected(code));
    both_signs(std::nextafter(middle, kInfinity), expected(code + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Rounding,
                         testing::Values(Format{DType::kBF16, 8, 7}, Format{DType::kF16, 5, 10}));

TEST(RoundTo, IsNotRoundedTwice) {
  // Through float both become the tie 1 + 2^-8 (or 1 + 2^-11) and go to the even neighbour, 1.
  const double brain = 1 + std::ldexp(1, -8) + std::ldexp(1, -40);
  EXPECT_EQ(RoundTo(static_cast<float>(brain), DType::kBF16), 1);
  EXPECT_EQ(RoundTo(brain, DType::kBF16), 1 + std::ldexp(1, -7));
  const double half = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(RoundTo(static_cast<float>(half), DType::kF16), 1);
  EXPECT_EQ(RoundTo(half, DType::kF16), 1 + std::ldexp(1, -10));
}

TEST(RoundTo, Float) {
  EXPECT_EQ(RoundTo(1 + std::ldexp(1, -24), DType::kF32), 1);
  EXPECT_EQ(RoundTo(1 + std::ldexp(3, -24), DType::kF32), 1 + std::ldexp(1, -22));
  EXPECT_EQ(RoundTo(std::ldexp(1, -149), DType::kF32), std::ldexp(1, -149));
  EXPECT_EQ(RoundTo(std::ldexp(1, -150), DType::kF32), 0);
  EXPECT_EQ(RoundTo(std::ldexp(3, -151), DType::kF32), std::ldexp(1, -149));
  EXPECT_EQ(RoundTo(std::ldexp(1, 128), DType::kF32), kInfinity);
  EXPECT_EQ(RoundTo(0.1, DType::kF64), 0.1);
}

TEST(RoundTo, NonFiniteTinyAndHuge) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(std::isnan(RoundTo(std::nan(""), dtype)));
    EXPECT_EQ(RoundTo(kInfinity, dtype), kInfinity);
    EXPECT_EQ(RoundTo(-kInfinity, dtype), -kInfinity);
    EXPECT_TRUE(std::signbit(RoundTo(-0.0, dtype)));
    if (dtype == DType::kF64) continue;
    EXPECT_EQ(RoundTo(std::numeric_limits<double>::denorm_min(), dtype), 0);
    EXPECT_EQ(RoundTo(1e-300, dtype), 0);
    EXPECT_EQ(RoundTo(1e300, dtype), kInfinity);
    EXPECT_EQ(RoundTo(-std::numeric_limits<double>::max(), dtype), -kInfinity);
  }
}

TEST(RoundToDeathTest, IntegersHaveNoRounding) {
  EXPECT_DEATH(RoundTo(1, DType::kI32), "RoundTo: I32");
  EXPECT_DEATH(UnitRoundoff(DType::kI8), "UnitRoundoff: I8");
  EXPECT_DEATH(HalfSmallestSubnormal(DType::kBool), "HalfSmallestSubnormal: BOOL");
}

// The constants against the rounding itself: 1 + u is the tie that goes down, half the smallest
// subnormal the largest value that becomes 0.
TEST(UnitRoundoff, IsTheLargestRelativeErrorOfRounding) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const double u = UnitRoundoff(dtype);
    EXPECT_EQ(RoundTo(1 + u, dtype), 1) << NameOf(dtype);
    EXPECT_EQ(RoundTo(std::nextafter(1 + u, 2), dtype), 1 + 2 * u) << NameOf(dtype);
    const double tiny = HalfSmallestSubnormal(dtype);
    EXPECT_EQ(RoundTo(tiny, dtype), 0) << NameOf(dtype);
    EXPECT_EQ(RoundTo(std::nextafter(tiny, 1), dtype), 2 * tiny) << NameOf(dtype);
  }
  EXPECT_EQ(UnitRoundoff(DType::kF64), std::numeric_limits<double>::epsilon() / 2);
  EXPECT_EQ(HalfSmallestSubnormal(DType::kF64), std::numeric_limits<double>::denorm_min());
}

TEST(Contract, LooksUpPathThenClassThenDefaultThenAccumulator) {
  Contract contract;
  contract.rounding = {{"moe.down", DType::kBF16}, {"partial", DType::kF16}};
  EXPECT_EQ(contract.RoundingOf("moe.down", "partial"), DType::kBF16);
  EXPECT_EQ(contract.RoundingOf("mlp.down", "partial"), DType::kF16);
  EXPECT_EQ(contract.RoundingOf("attn.q", "linear"), DType::kF32);
  contract.rounding["default"] = DType::kF64;
  EXPECT_EQ(contract.RoundingOf("attn.q", "linear"), DType::kF64);
}

TEST(Contract, ExactRoundsNowhere) {
  const Contract exact = Contract::Exact();
  EXPECT_TRUE(exact.is_exact());
  EXPECT_EQ(exact.RoundingOf("moe.down", "partial"), DType::kF64);
  EXPECT_FALSE(Contract().is_exact());
  Contract changed = exact;
  changed.rounding["partial"] = DType::kF32;
  EXPECT_FALSE(changed.is_exact());
  changed = exact;
  changed.act = "a8row";
  EXPECT_FALSE(changed.is_exact());
  changed = exact;
  changed.daz = true;
  EXPECT_FALSE(changed.is_exact());
}

// No two members alike, so that one read into the other's place shows.
constexpr std::string_view kFull =
    R"j({"name":"mine","rounding":{"default":"BF16","moe.down":"F16","partial":"F32"},)j"
    R"j("accumulator":"F16","lanes":32,"extra":2,"dequant":"BF16","rope_table":"F64",)j"
    R"j("probs":"F16","exp_ulp":1.5,"rsqrt_ulp":2.5,"sin_ulp":3.5,"sigmoid_ulp":4.5,)j"
    R"j("div_ulp":0.75,"tanh_ulp":5.5,"daz":true,"ftz":false,"act":"a8g32",)j"
    R"j("quantisers":{"a8g128":"x*(127/amax)"},"reduce_order":"ring",)j"
    R"j("reduce_wire":"I8","arithmetic_class":"zmm16","mla_absorbed":true})j";

TEST(ContractJson, ReadsEveryKeyAndPrintsItBack) {
  const auto contract = ParseContract(kFull);
  ASSERT_TRUE(contract.ok()) << contract.error().message;
  EXPECT_EQ(contract->name, "mine");
  EXPECT_EQ(contract->rounding.size(), 3u);
  EXPECT_EQ(contract->RoundingOf("moe.down", "partial"), DType::kF16);
  EXPECT_EQ(contract->accumulator, DType::kF16);
  EXPECT_EQ(contract->lanes, 32);
  EXPECT_EQ(contract->extra, 2);
  EXPECT_EQ(contract->dequant, DType::kBF16);
  EXPECT_EQ(contract->rope_table, DType::kF64);
  EXPECT_EQ(contract->probs, DType::kF16);
  EXPECT_EQ(contract->exp_ulp, 1.5);
  EXPECT_EQ(contract->rsqrt_ulp, 2.5);
  EXPECT_EQ(contract->sin_ulp, 3.5);
  EXPECT_EQ(contract->sigmoid_ulp, 4.5);
  EXPECT_EQ(contract->div_ulp, 0.75);
  EXPECT_EQ(contract->tanh_ulp, 5.5);
  EXPECT_TRUE(contract->daz);
  EXPECT_FALSE(contract->ftz);
  EXPECT_EQ(contract->act, "a8g32");
  EXPECT_EQ(contract->reduce_order, "ring");
  EXPECT_EQ(contract->reduce_wire, DType::kI8);
  EXPECT_EQ(contract->arithmetic_class, "zmm16");
  EXPECT_TRUE(contract->mla_absorbed);
  EXPECT_EQ(PrintContract(*contract), kFull);
}

TEST(ContractJson, LeftOutKeysKeepTheirDefaults) {
  const auto contract = ParseContract("{}");
  ASSERT_TRUE(contract.ok());
  EXPECT_EQ(PrintContract(*contract), PrintContract(Contract()));
}

struct Bad {
  std::string json;
  std::vector<std::string> named;  // what the error must name
};
class BadContract : public testing::TestWithParam<Bad> {};

TEST_P(BadContract, IsOneLineThatNamesItAndWhatIsAllowed) {
  const auto contract = ParseContract(GetParam().json);
  ASSERT_FALSE(contract.ok()) << GetParam().json;
  EXPECT_EQ(contract.error().kind, ErrorKind::kBadInput);
  for (const std::string& word : GetParam().named) {
    EXPECT_NE(contract.error().message.find(word), std::string::npos)
        << word << " is not in: " << contract.error().message;
  }
  EXPECT_EQ(contract.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadContract,
    testing::Values(Bad{"", {"not JSON"}}, Bad{"[1]", {"object", "[1]"}},
                    Bad{R"({"lane":1})", {"\"lane\"", "lanes"}},
                    Bad{R"({"lanes":-1})", {"lanes", "-1", "whole number"}},
                    Bad{R"({"lanes":1.5})", {"lanes", "1.5"}},
                    Bad{R"({"lanes":4294967296})", {"lanes", "4294967296"}},
                    Bad{R"({"lanes":1,"lanes":2})", {"\"lanes\"", "twice"}},
                    Bad{R"({"rounding":{"act":"F32","act":"F64"}})", {"\"act\"", "twice"}},
                    Bad{R"({"accumulator":"FP32"})", {"accumulator", "FP32", "F64, F32, F16"}},
                    Bad{R"({"accumulator":""})", {"accumulator"}},
                    Bad{R"({"accumulator":1})", {"accumulator", "string"}},
                    Bad{R"({"dequant":"I8"})", {"dequant", "I8"}},
                    Bad{R"({"reduce_wire":"I4"})", {"reduce_wire", "I8"}},
                    Bad{R"({"rounding":[]})", {"rounding", "object"}},
                    Bad{R"({"rounding":{"moe.dwon":"F32"}})", {"moe.dwon", "moe.down"}},
                    Bad{R"({"rounding":{"act":"I32"}})", {"rounding.act", "I32"}},
                    Bad{R"({"exp_ulp":-0.5})", {"exp_ulp", "-0.5"}},
                    Bad{R"({"exp_ulp":1e999})", {"contract"}},
                    Bad{R"({"daz":1})", {"daz", "true or false"}},
                    Bad{R"({"act":"a9"})", {"a9", "a8g32"}},
                    Bad{R"({"reduce_order":"star"})", {"star", "ring"}},
                    Bad{R"({"name":"\ud800"})", {"not JSON"}}));

// Every key that the code reads has its row in the documentation.
TEST(ContractDocument, NamesEveryKey) {
  std::ifstream file("harness/abi/contract.md");
  ASSERT_TRUE(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  const std::string printed = PrintContract(Contract());
  int keys = 0;
  for (size_t at = printed.find('"'); at != std::string::npos; at = printed.find('"', at)) {
    const size_t end = printed.find('"', at + 1);
    const std::string word = printed.substr(at + 1, end - at - 1);
    at = end + 1;
    if (printed[at] != ':') continue;
    ++keys;
    EXPECT_NE(text.str().find("`" + word + "`"), std::string::npos) << word;
  }
  EXPECT_EQ(keys, 22);
}

TEST(Quantisers, DefaultsAndWhatIsStated) {
  const auto contract = ParseContract(R"j({"quantisers":{"a8row":"x*(1/s)"}})j");
  ASSERT_TRUE(contract.ok()) << contract.error().message;
  EXPECT_EQ(contract->QuantiserOf("a8row"), (ActQuantiser{0, CodeRule::kTimesReciprocal}));
  EXPECT_EQ(contract->QuantiserOf("a8g32"), (ActQuantiser{32, CodeRule::kDivide}));
  EXPECT_EQ(contract->QuantiserOf("a8g128"), (ActQuantiser{128, CodeRule::kDivide}));
  EXPECT_EQ(contract->QuantiserOf("a16"), std::nullopt);
  EXPECT_EQ(contract->QuantiserOf("amxfp4"), std::nullopt);  // VariantOf
  const auto again = ParseContract(PrintContract(*contract));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->quantisers, contract->quantisers);
}

TEST(Quantisers, OfMxAreLibrariesVariants) {
  EXPECT_EQ(Contract().VariantOf("amxfp4"), "mxfp4-rceil-aiter");
  EXPECT_EQ(Contract().VariantOf("amxfp8"), "mxfp8-rceil-aiter");
  EXPECT_EQ(Contract().VariantOf("a8row"), std::nullopt);
  const auto contract =
      ParseContract(R"j({"quantisers":{"amxfp4":"mxfp4-even-torchao","a8row":"x*(1/s)"}})j");
  ASSERT_TRUE(contract.ok()) << contract.error().message;
  EXPECT_EQ(contract->VariantOf("amxfp4"), "mxfp4-even-torchao");
  EXPECT_EQ(contract->VariantOf("amxfp8"), "mxfp8-rceil-aiter");
  EXPECT_EQ(contract->QuantiserOf("a8row"), (ActQuantiser{0, CodeRule::kTimesReciprocal}));
  const auto again = ParseContract(PrintContract(*contract));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->variants, contract->variants);
}

TEST(Quantisers, AreChecked) {
  for (const char* bad :
       {R"j({"quantisers":{"a8row":"x/2"}})j", R"j({"quantisers":{"a16":"x/s"}})j",
        R"j({"quantisers":{"amxfp4":"mxfp8-rceil-aiter"}})j",
        R"j({"quantisers":{"amxfp4":"x/s"}})j", R"j({"quantisers":{"a8row":"mxfp4-gguf"}})j",
        R"j({"quantisers":{"amxfp8":1}})j", R"j({"quantisers":{"anvfp4":"nvfp4-vllm"}})j",
        R"j({"quantisers":["a8row"]})j", R"j({"quantisers":{"a8row":1}})j"}) {
    const auto contract = ParseContract(bad);
    ASSERT_FALSE(contract.ok()) << bad;
    EXPECT_NE(contract.error().message.find("quantisers"), std::string::npos);
  }
}

}  // namespace
}  // namespace assay
