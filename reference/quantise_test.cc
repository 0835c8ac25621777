// The quantiser against engines' own codes, and against arithmetic done by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/checkpoint/safetensors.h"
#include "reference/golden_file.h"
#include "reference/methods/method.h"
#include "reference/oracle.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::RandomTensor;

constexpr ActQuantiser kRow = {0, CodeRule::kDivide};

Tensor Row(std::vector<double> values) {
  Tensor x;
  x.shape = {1, static_cast<int64_t>(values.size())};
  x.data = std::move(values);
  return x;
}
QuantisedActivation Made(const Tensor& x, const ActQuantiser& quantiser,
                         const Tensor* scales = nullptr) {
  auto made = Quantise(x, quantiser, scales);
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return {};
  }
  return std::move(*made);
}

TEST(Quantise, TiesGoToEvenAndCodesReach127OnBothSides) {
  // amax 127: the scale is 1 and x / s is x.
  const auto made = Made(Row({127, -127, 0.5, 1.5, -2.5, 2.25, -126.5, 0}), kRow);
  EXPECT_EQ(made.scales.data, (std::vector<double>{1}));
  EXPECT_EQ(made.codes.data, (std::vector<double>{127, -127, 0, 2, -2, 2, -126, 0}));
  EXPECT_EQ(made.tie_ulps.data[2], 0);
  EXPECT_EQ(made.tie_ulps.data[5], 0.25 / std::ldexp(1.0, -22));
  EXPECT_EQ(made.tie_ulps.data[7], 0.5 / std::ldexp(1.0, -149));
  EXPECT_EQ(made.group, 0);
}

TEST(Quantise, GroupsHaveTheirOwnScales) {
  Tensor x = RandomTensor(1, {3, 64});
  for (size_t i = 32; i < 64; ++i) x.data[i] *= 1024;  // row 0, group 1
  const auto made = Made(x, {32, CodeRule::kDivide});
  ASSERT_EQ(made.scales.shape, (std::vector<int64_t>{3, 2}));
  EXPECT_GT(made.scales.data[1], 100 * made.scales.data[0]);
  const auto row = Made(x, kRow);
  EXPECT_EQ(row.scales.shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(row.scales.data[0], made.scales.data[1]);
  EXPECT_EQ(row.codes.data[0], std::nearbyint(x.data[0] / row.scales.data[0]));
  EXPECT_FALSE(Quantise(x, {48, CodeRule::kDivide}).ok());
}

TEST(Quantise, RulesDifferOnlyNearTies) {
  const Tensor x = RandomTensor(7, {200, 512});
  const auto divide = Made(x, kRow);
  for (const CodeRule rule : {CodeRule::kTimesReciprocal, CodeRule::kTimesInverse}) {
    const auto other = Made(x, {0, rule});
    EXPECT_EQ(other.scales.data, divide.scales.data);
    for (size_t i = 0; i < x.data.size(); ++i) {
      const double distance = std::fabs(other.codes.data[i] - divide.codes.data[i]);
      ASSERT_LE(distance, 1);
      if (distance > 0) {
        EXPECT_LE(divide.tie_ulps.data[i], 2) << i;
      }
    }
  }
}

TEST(Quantise, RulesAreEvaluatedInFp32) {
  // amax / 127 = 3 / 127: fl(1/s) and fl(127/amax) are not the same, and neither is 1 / s.
  const float s = 3.0f / 127.0f, reciprocal = 1.0f / s, inverse = 127.0f / 3.0f;
  int differ = 0;
  for (int i = 0; i < 126 * 5; ++i) {
    // The nearest fp32 to a tie, and its neighbours.
    float x = s * (static_cast<float>(i / 5) + 0.5f);
    for (int step = i % 5; step > 2; --step) x = std::nextafterf(x, 4);
    for (int step = i % 5; step < 2; ++step) x = std::nextafterf(x, 0);
    const Tensor row = Row({3, x});
    const auto code = [&](CodeRule rule) { return Made(row, {0, rule}).codes.data[1]; };
    EXPECT_EQ(code(CodeRule::kDivide), std::nearbyintf(x / s));
    EXPECT_EQ(code(CodeRule::kTimesReciprocal), std::nearbyintf(x * reciprocal));
    EXPECT_EQ(code(CodeRule::kTimesInverse), std::nearbyintf(x * inverse));
    differ += code(CodeRule::kDivide) != code(CodeRule::kTimesInverse) ||
              code(CodeRule::kDivide) != code(CodeRule::kTimesReciprocal);
  }
  EXPECT_GT(differ, 0);
}

TEST(Quantise, ZerosNonFiniteValuesAndSubnormalScales) {
  const auto zero = Made(Row({0, -0.0, 0}), kRow);
  EXPECT_EQ(zero.scales.data[0], 0);
  EXPECT_EQ(zero.codes.data, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(zero.tie_ulps.data[0], INFINITY);
  for (const double bad : {double{INFINITY}, std::numeric_limits<double>::quiet_NaN()}) {
    const auto made = Made(Row({1, 2, bad, 4}), {2, CodeRule::kDivide});
    EXPECT_EQ(made.scales.data[0], static_cast<double>(2.0f / 127.0f));
    EXPECT_EQ(made.codes.data[1], 127);
    EXPECT_TRUE(std::isnan(made.scales.data[1]));
    EXPECT_EQ(made.codes.data[2], 0);
    EXPECT_EQ(made.codes.data[3], 0);
  }
  // 127·2^-149 / 127 is the smallest subnormal: the division is exact, 1 / s overflows.
  const double tiny = 0x1p-149;
  const Tensor x = Row({127 * tiny, 3 * tiny, 0});
  EXPECT_EQ(Made(x, kRow).scales.data[0], tiny);
  EXPECT_EQ(Made(x, kRow).codes.data, (std::vector<double>{127, 3, 0}));
  EXPECT_EQ(Made(x, {0, CodeRule::kTimesReciprocal}).codes.data,
            (std::vector<double>{127, 127, 0}));
  // 150·2^-149 / 127 rounds to the same scale: a code beyond 127 is clamped.
  EXPECT_EQ(Made(Row({150 * tiny}), kRow).codes.data[0], 127);
  EXPECT_EQ(Made(Row({150 * tiny}), kRow).tie_ulps.data[0], INFINITY);
  // An amax that is less than half of that has no scale at all.
  EXPECT_EQ(Made(Row({60 * tiny}), kRow).scales.data[0], 0);
  EXPECT_EQ(Made(Row({60 * tiny}), kRow).codes.data[0], 0);
}

TEST(Quantise, AnotherScaleGivesItsOwnCodes) {
  const Tensor x = Row({127, 10});
  const Tensor scales = Row({2});
  const auto made = Made(x, kRow, &scales);
  EXPECT_EQ(made.codes.data, (std::vector<double>{64, 5}));
  EXPECT_EQ(made.scales.data, scales.data);
  EXPECT_EQ(Made(x, {0, CodeRule::kTimesInverse}, &scales).codes.data,
            (std::vector<double>{127, 10}));
  EXPECT_FALSE(Quantise(x, {1, CodeRule::kDivide}, &scales).ok());
}

// An engine's codes of the awkward rows, in the type that it got.
struct Vendor {
  Tensor x;
  GoldenTensors made;
  std::string type;
  const Tensor& codes() const { return made.at(type + ".q").value; }
  const Tensor& scales() const { return made.at(type + ".scale").value; }
};

// Code values are 8-bit integers, which golden files do not have: widened here.
Vendor Read(const std::string& name, const std::string& type) {
  Vendor vendor;
  vendor.type = type;
  const auto inputs = SafetensorsFile::Open("goldens/activations/inputs.safetensors");
  const auto made = SafetensorsFile::Open("goldens/activations/" + name + ".safetensors");
  if (!inputs || !made) {
    ADD_FAILURE() << name;
    std::abort();
  }
  const auto widen = [](const TensorView& view) {
    Tensor t;
    t.shape = view.shape;
    t.data.resize(view.bytes.size() / static_cast<size_t>(SizeOf(view.dtype).count()));
    if (view.dtype == DType::kI8) {
      for (size_t i = 0; i < t.data.size(); ++i) {
        t.data[i] = static_cast<int8_t>(std::to_integer<uint8_t>(view.bytes[i]));
      }
    } else {
      DecodeFloats(view, 0, static_cast<int64_t>(t.data.size()), t.data.data());
    }
    return t;
  };
  vendor.x = widen(*(*inputs)->Find(type));
  for (const char* part : {".q", ".scale"}) {
    vendor.made[type + part] = {DType::kF32, widen(*(*made)->Find(type + part))};
  }
  return vendor;
}

// Elements whose code is another one, by row.
std::vector<int> Differences(const Vendor& vendor, CodeRule rule, const Tensor* scales) {
  const auto made = Made(vendor.x, {0, rule}, scales);
  std::vector<int> rows(static_cast<size_t>(vendor.x.rows()), 0);
  for (size_t i = 0; i < made.codes.data.size(); ++i) {
    rows[i / static_cast<size_t>(vendor.x.columns())] +=
        made.codes.data[i] != vendor.codes().data[i];
  }
  return rows;
}

// "1e-38": amax / 127 is subnormal, and 1 / s overflows.
constexpr size_t kSubnormalRow = 9;

TEST(QuantiseVendors, VllmMultipliesByTheReciprocal) {
  for (const char* type : {"bf16", "fp32"}) {
    const Vendor vllm = Read("int8-token-vllm-cpu", type);
    const auto made = Made(vllm.x, {0, CodeRule::kTimesReciprocal});
    EXPECT_EQ(made.scales.data, vllm.scales().data) << type;
    const auto columns = static_cast<size_t>(vllm.x.columns());
    for (size_t i = 0; i < made.codes.data.size(); ++i) {
      // Named exception: −∞ and NaN, of 0 · ∞, become −128 there; here −127 and 0.
      const bool lowest = i / columns == kSubnormalRow && vllm.x.data[i] <= 0;
      EXPECT_EQ(lowest ? -128 : made.codes.data[i], vllm.codes().data[i]) << type << " " << i;
      if (lowest) {
        EXPECT_EQ(made.codes.data[i], vllm.x.data[i] < 0 ? -127 : 0);
      }
    }
    // A division says the same of every row but that one.
    std::vector<int> expected(12, 0);
    expected[kSubnormalRow] = static_cast<int>(columns);
    EXPECT_EQ(Differences(vllm, CodeRule::kDivide, nullptr), expected) << type;
  }
}

TEST(QuantiseVendors, TruncationIsSeenInEveryRowThatHasFractions) {
  for (const char* type : {"bf16", "fp32"}) {
    const Vendor aiter = Read("int8-token-aiter", type);
    const auto made = Made(aiter.x, kRow);
    EXPECT_EQ(made.scales.data, aiter.scales().data) << type;
    const auto columns = static_cast<size_t>(aiter.x.columns());
    for (size_t i = 0; i < made.codes.data.size(); ++i) {
      const auto x = static_cast<float>(aiter.x.data[i]);
      const auto s = static_cast<float>(made.scales.data[i / columns]);
      EXPECT_EQ(std::truncf(x / s), aiter.codes().data[i]) << type << " " << i;
    }
    const std::vector<int> differences = Differences(aiter, CodeRule::kDivide, nullptr);
    for (size_t row = 0; row < 12; ++row) {
      if (row == 8) continue;  // "1e-30": all values are ±amax
      EXPECT_GT(differences[row], 0) << type << " " << row;
    }
  }
}

TEST(QuantiseVendors, AnotherDivisorIsSeenInTheScales) {
  // amax / 127.5: four parts in a thousand. Each scale is one division rounded to fp32, theirs and
  // ours, u = 2^-24 each: their ratio is off by 2u of itself, and it is less than 1.5.
  constexpr double kTwoScales = 3 * 0x1p-24;
  const Vendor library = Read("int8-token-compressed-tensors", "fp32");
  const auto made = Made(library.x, kRow);
  for (size_t row = 0; row < 12; ++row) {
    if (row == kSubnormalRow) continue;
    const double ratio = made.scales.data[row] / library.scales().data[row];
    EXPECT_NEAR(ratio, 127.5 / 127, kTwoScales) << row;
  }
}

}  // namespace
}  // namespace assay::reference
