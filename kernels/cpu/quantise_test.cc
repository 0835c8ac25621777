// 8-bit activations of each tier: bit for bit what a plain definition gives, over every bf16 value
// and on the edges: ties, subnormals, zero groups, infinities and NaN.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/testing/guarded.h"
#include "kernels/cpu/testing/random.h"
#include "kernels/cpu/testing/tables.h"
#include "kernels/methods/methods.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using testing::Guard;
using testing::Guarded;

using QuantiseFn = decltype(ElementwiseKernels::quantise);

constexpr int64_t kStep = 32;

struct Quantised {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};

Quantised RunOn(QuantiseFn quantise, const std::vector<uint16_t>& x, int64_t m, int64_t k,
                int64_t group) {
  const auto count = static_cast<size_t>(m * k);
  Guarded in(2 * count, Guard::kBehind, 0xFF), codes(count, Guard::kBehind, 0x55);
  Guarded scales(count / 8, Guard::kBehind, 0x55), sums(count / 8, Guard::kBehind, 0x55);
  std::memcpy(in.data(), x.data(), in.size());
  quantise(in.as<uint16_t>(), m, k, group, codes.as<int8_t>(), scales.as<float>(),
           sums.as<int32_t>());
  const auto steps = static_cast<ptrdiff_t>(count / kStep);
  return {{codes.as<int8_t>(), codes.as<int8_t>() + count},
          {scales.as<float>(), scales.as<float>() + steps},
          {sums.as<int32_t>(), sums.as<int32_t>() + steps}};
}

// The definition, one element at a time.
void Check(QuantiseFn quantise, const std::vector<uint16_t>& x, int64_t m, int64_t k,
           int64_t group) {
  const Quantised got = RunOn(quantise, x, m, k, group);
  for (int64_t i = 0; i < m * k; ++i) {
    const int64_t begin = i / group * group;
    float amax = 0;
    bool finite = true;
    for (int64_t j = begin; j < begin + group; ++j) {
      const float value = FloatFromBf16(x[static_cast<size_t>(j)]);
      finite = finite && std::isfinite(value);
      amax = std::fabs(value) > amax ? std::fabs(value) : amax;
    }
    const float scale = amax / 127.0F, got_scale = got.scales[static_cast<size_t>(i / kStep)];
    if (!finite) {
      ASSERT_TRUE(std::isnan(got_scale)) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got_scale), std::bit_cast<uint32_t>(scale)) << i;
    }
    int code = 0;
    if (finite && scale > 0) {
      const float quotient = FloatFromBf16(x[static_cast<size_t>(i)]) / scale;
      code = std::clamp(static_cast<int>(std::nearbyint(quotient)), -127, 127);
    }
    ASSERT_EQ(got.codes[static_cast<size_t>(i)], code) << i << " of scale " << scale;
    if (i % kStep != kStep - 1) continue;
    int32_t sum = 0;
    for (int64_t j = i + 1 - kStep; j <= i; ++j) sum += got.codes[static_cast<size_t>(j)];
    ASSERT_EQ(got.sums[static_cast<size_t>(i / kStep)], sum) << i;
  }
}

std::vector<uint16_t> Bits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(Bf16FromFloat(value));
  return bits;
}

class Quantise : public ::testing::TestWithParam<ElementwiseKernels> {
 protected:
  const QuantiseFn quantise = GetParam().quantise;
};

TEST_P(Quantise, FollowsTheDefinitionForEveryShapeAndGroup) {
  for (const int64_t m : {1, 2, 5}) {
    for (const int64_t k : {32, 64, 96, 224, 1024}) {
      std::vector<float> x;
      for (int64_t i = 0; i < m * k; ++i) {
        x.push_back(static_cast<float>(testing::Normal(static_cast<uint64_t>(k), i)));
      }
      for (const int64_t group : {int64_t{32}, k}) Check(quantise, Bits(x), m, k, group);
      if (k % 128 == 0) Check(quantise, Bits(x), m, k, 128);
    }
  }
}

TEST_P(Quantise, FollowsTheDefinitionForEveryBf16) {
  // Neighbours share a group, so that codes are not all 127; a second pass scatters them.
  std::vector<uint16_t> x(0x10000), scattered(0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    x[i] = static_cast<uint16_t>(i);
    scattered[i] = static_cast<uint16_t>(i * 40503u);
  }
  Check(quantise, x, 1, 0x10000, kStep);
  Check(quantise, scattered, 4, 0x4000, kStep);
}

TEST_P(Quantise, TiesGoToTheEvenCode) {
  std::vector<float> x(32);
  x[0] = 127;  // scale 1
  for (int i = 1; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) - 15.5F;
  const Quantised got = RunOn(quantise, Bits(x), 1, 32, 32);
  EXPECT_EQ(got.scales[0], 1);
  for (int i = 1; i < 32; ++i) {
    EXPECT_EQ(got.codes[static_cast<size_t>(i)], std::nearbyint(i - 15.5)) << i;
    EXPECT_EQ(got.codes[static_cast<size_t>(i)] % 2, 0) << i;
  }
}

TEST_P(Quantise, ZeroSubnormalAndNonFiniteGroups) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x(6 * 32, 0.0F);
  x[5] = -0.0F;  // group 0: zeros
  for (int i = 0; i < 32; ++i) {
    const auto at = static_cast<size_t>(i);
    x[32 + at] = std::ldexp(static_cast<float>(i - 16), -133);  // group 1: subnormals
    x[64 + at] = static_cast<float>(i);                         // groups 2 and 3
    x[96 + at] = static_cast<float>(-i);
    x[128 + at] = std::ldexp(1 + static_cast<float>(i) / 32, 127);  // group 4: the largest
    x[160 + at] = i == 31 ? -1.0F : std::ldexp(1.0F, -i);           // group 5
  }
  x[64 + 7] = -kInf;
  x[96 + 31] = NAN;
  const std::vector<uint16_t> bits = Bits(x);
  Check(quantise, bits, 1, 192, 32);
  Check(quantise, bits, 6, 32, 32);
  const Quantised got = RunOn(quantise, bits, 1, 192, 32);
  EXPECT_EQ(got.scales[0], 0);
  EXPECT_EQ(got.codes[32], -127);  // −2^-129 by its own 127th, which is rounded
  EXPECT_TRUE(std::isnan(got.scales[2]));
  EXPECT_TRUE(std::isnan(got.scales[3]));
  EXPECT_EQ(got.codes[64], 0);
  EXPECT_EQ(got.sums[3], 0);
  EXPECT_EQ(got.codes[191], -127);
}

INSTANTIATE_TEST_SUITE_P(Tier, Quantise, ::testing::ValuesIn(testing::RunnableTables()),
                         [](const auto& test) {
                           return testing::TestName(NameOf(test.param.tier), test.param.how);
                         });

// Wrong quantisers, each by one step.
void Honest(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
            int32_t* sums) {
  Elementwise(Tier::kScalar)->quantise(x, m, k, group, codes, scales, sums);
}

void By128(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
           int32_t* sums) {
  Honest(x, m, k, group, codes, scales, sums);
  for (int64_t i = 0; i < m * k / kStep; ++i) scales[i] *= 127.0F / 128.0F;
}

void TiesAway(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
              int32_t* sums) {
  Honest(x, m, k, group, codes, scales, sums);
  for (int64_t i = 0; i < m * k; ++i) {
    if (scales[i / kStep] > 0) {
      codes[i] = static_cast<int8_t>(std::round(FloatFromBf16(x[i]) / scales[i / kStep]));
    }
  }
}

void StaleSums(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
               int32_t* sums) {
  Honest(x, m, k, group, codes, scales, sums);
  sums[m * k / kStep - 1] += 1;
}

TEST(BrokenQuantisers, AreCaught) {
  static std::vector<uint16_t> x(64);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = Bf16FromFloat(i == 0 || i == 32 ? 127 : static_cast<float>(i % 32) + 0.5F);
  }
  Check(Honest, x, 1, 64, 32);
  EXPECT_FATAL_FAILURE(Check(By128, x, 1, 64, 32), "");
  EXPECT_FATAL_FAILURE(Check(TiesAway, x, 1, 64, 32), "");
  EXPECT_FATAL_FAILURE(Check(StaleSums, x, 1, 64, 32), "");
}

}  // namespace
}  // namespace assay::kernels
