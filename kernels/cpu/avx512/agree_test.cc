// The two ways of this tier, bit for bit, over all rows and shapes: where the host has the
// instructions. (linear_test holds the portable rows against the scalar ones on every host.)
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/testing/linear_check.h"
#include "kernels/cpu/testing/random.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using testing::Fill;
using testing::Hash;
using testing::LinearCase;
using testing::LinearData;
using testing::Normal;

using Floats = std::vector<float>;

std::vector<LinearKernel> RowsOf(How how) {
  std::vector<LinearKernel> rows;
  for (const LinearKernel& row : LinearKernels()) {
    if (row.tier == Tier::kAvx512 && row.how == how) rows.push_back(row);
  }
  return rows;
}

// Empty, or where two results differ; NaNs are alike.
std::string Difference(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    char text[80];
    std::snprintf(text, sizeof text, "element %zu: %a and %a", i, a[i], b[i]);
    return text;
  }
  return "";
}

TEST(BothWays, HaveTheSameRows) {
  const std::vector<LinearKernel> hardware = RowsOf(How::kHardware);
  const std::vector<LinearKernel> portable = RowsOf(How::kPortable);
  ASSERT_EQ(hardware.size(), portable.size());
  EXPECT_GE(hardware.size(), 13u);
  for (size_t i = 0; i < hardware.size(); ++i) {
    EXPECT_EQ(hardware[i].name, portable[i].name);
    EXPECT_EQ(hardware[i].arithmetic_class, portable[i].arithmetic_class);
    EXPECT_NE(hardware[i].run, portable[i].run);
  }
  ASSERT_NE(Elementwise(Tier::kAvx512, How::kHardware), nullptr);
  ASSERT_NE(Elementwise(Tier::kAvx512, How::kPortable), nullptr);
}

// Pairs of a row's two ways; none where the host cannot execute one of them, which is said.
using Pair = std::pair<LinearKernel, LinearKernel>;
std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  if (!HostHas(Tier::kAvx512)) {
    std::printf("not done: this host has no AVX-512 to hold the portable rows against\n");
    return pairs;
  }
  const std::vector<LinearKernel> hardware = RowsOf(How::kHardware);
  const std::vector<LinearKernel> portable = RowsOf(How::kPortable);
  for (size_t i = 0; i < hardware.size(); ++i) pairs.emplace_back(hardware[i], portable[i]);
  return pairs;
}

class Linear : public ::testing::TestWithParam<Pair> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Linear);

TEST_P(Linear, AgreesBitForBit) {
  const auto& [hardware, portable] = GetParam();
  const std::vector<int64_t> depths = hardware.method == "bf16"
                                          ? std::vector<int64_t>{0, 1, 7, 16, 31, 33, 47, 672}
                                          : std::vector<int64_t>{0, 32, 64, 96, 160, 672};
  for (const Fill fill : {Fill::kNormal, Fill::kPositive, Fill::kInteger, Fill::kCodes,
                          Fill::kExtreme, Fill::kEveryCode}) {
    for (const int64_t k : depths) {
      for (const int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 33, 49}) {
        const LinearCase c{m, 1 + (k + 5 * m) % 37, k, fill, static_cast<uint64_t>(k + m)};
        LinearData a(hardware, c), b(portable, c);
        ASSERT_EQ(Difference(a.Run(hardware.run), b.Run(portable.run)), "") << c.Print();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Linear, ::testing::ValuesIn(Pairs()),
                         [](const auto& test) { return std::string(test.param.first.name); });

// The same op of both tables on the same data; `kind` 0: any bits, 1 and 2: numbers.
struct Data {
  Floats x, z;
  std::vector<uint16_t> bf16;
};
Data Make(int64_t n, int kind) {
  Data data{Floats(static_cast<size_t>(n)), Floats(static_cast<size_t>(n)), {}};
  const uint64_t seed = static_cast<uint64_t>(10 * n + kind);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<uint64_t>(i);
    const float scale = kind == 1 ? 1 : 40;
    data.x[at] = kind == 0 ? std::bit_cast<float>(static_cast<uint32_t>(Hash(seed, at)))
                           : scale * static_cast<float>(Normal(seed, at));
    data.z[at] = kind == 0 ? std::bit_cast<float>(static_cast<uint32_t>(Hash(seed + 5, at)))
                           : static_cast<float>(Normal(seed + 5, at));
    data.bf16.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(data.x[at]) >> 16));
  }
  return data;
}

// What a table makes of it, op after op in one row of results.
Floats Results(const ElementwiseKernels& t, const Data& d, int kind) {
  const auto n = static_cast<int64_t>(d.x.size());
  Floats all, y(d.x.size());
  const auto keep = [&all](const Floats& part) { all.insert(all.end(), part.begin(), part.end()); };
  t.exp(d.x.data(), n, y.data()), keep(y);
  t.tanh(d.x.data(), n, y.data()), keep(y);
  t.situ(d.x.data(), d.z.data(), 4, 25, 7, n, y.data()), keep(y);
  t.rsqrt(d.x.data(), n, y.data()), keep(y);
  t.sigmoid(d.x.data(), n, y.data()), keep(y);
  t.add(d.x.data(), d.z.data(), n, y.data()), keep(y);
  t.axpy(0.37F, d.x.data(), n, y.data()), keep(y);
  t.swiglu(d.x.data(), d.z.data(), 7, n, y.data()), keep(y);
  t.rms_norm(d.x.data(), d.z.data(), 1e-6F, 1, n, y.data()), keep(y);
  for (const bool interleaved : {false, true}) {
    y = d.x;
    t.rope(y.data(), 1, n, n / 2 * 2, d.z.data(), d.z.data() + n / 2, interleaved), keep(y);
  }
  t.scores(d.x.data(), d.z.data(), n, n, 1, 0.3F, y.data()), keep(y);
  if (kind != 0) {  // n keys, a masked one among them, and 9 columns
    Floats v, ctx(9);
    for (int64_t i = 0; i < 9 * n; ++i) v.push_back(d.z[static_cast<size_t>(i % n)]);
    y = d.x;
    if (n > 2) y[1] = -std::numeric_limits<float>::infinity();
    t.context(y.data(), v.data(), 9, 9, n, ctx.data()), keep(y), keep(ctx);
  }
  const int64_t k = n / 32 * 32;
  for (const int64_t group : {int64_t{32}, k}) {
    if (k == 0) break;
    std::vector<int8_t> codes(static_cast<size_t>(k));
    Floats scales(static_cast<size_t>(k / 32));
    std::vector<int32_t> sums(scales.size());
    t.quantise(d.bf16.data(), 1, k, group, codes.data(), scales.data(), sums.data());
    keep(scales), keep(Floats(codes.begin(), codes.end())), keep(Floats(sums.begin(), sums.end()));
  }
  return all;
}

std::string ElementwiseDifference(const ElementwiseKernels& a, const ElementwiseKernels& b) {
  for (const int64_t n : {1, 2, 5, 15, 16, 17, 31, 32, 33, 64, 100, 257, 1000}) {
    for (int kind = 0; kind < 3; ++kind) {
      const Data data = Make(n, kind);
      const std::string difference = Difference(Results(a, data, kind), Results(b, data, kind));
      if (!difference.empty()) return "n " + std::to_string(n) + ": " + difference;
    }
  }
  return "";
}

class Tables : public ::testing::TestWithParam<How> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Tables);

TEST_P(Tables, OfTheElementwiseOpsAgreeBitForBit) {
  EXPECT_EQ(ElementwiseDifference(*Elementwise(Tier::kAvx512, GetParam()),
                                  *Elementwise(Tier::kAvx512, How::kPortable)),
            "");
}

INSTANTIATE_TEST_SUITE_P(Hardware, Tables,
                         ::testing::ValuesIn(HostHas(Tier::kAvx512)
                                                 ? std::vector<How>{How::kHardware}
                                                 : std::vector<How>{}),
                         [](const auto&) { return std::string("hardware"); });

// Another order of sums is another result: the comparison sees one in the last place.
TEST(BothWays, ATierOfAnotherOrderDiffers) {
  EXPECT_NE(ElementwiseDifference(*Elementwise(Tier::kScalar),
                                  *Elementwise(Tier::kAvx512, How::kPortable)),
            "");
}

}  // namespace
}  // namespace assay::kernels
