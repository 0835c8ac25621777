// Every row of the registry that this host can run, against a plain double loop, against the other
// members of its class, and against guard pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/cpu/testing/linear_check.h"
#include "kernels/cpu/testing/tables.h"
#include "kernels/methods/methods.h"
#include "kernels/registry.h"

namespace assay::kernels {

void PrintTo(const LinearKernel& row, std::ostream* out) { *out << TestName(row.name, row.how); }

namespace {

using testing::Fill;
using testing::Guard;
using testing::LinearCase;
using testing::LinearData;

constexpr Fill kAllFills[] = {Fill::kNormal, Fill::kPositive, Fill::kInteger, Fill::kCodes,
                              Fill::kExtreme};

std::vector<LinearKernel> Runnable() {
  std::vector<LinearKernel> rows;
  for (const LinearKernel& row : LinearKernels()) {
    if (CanRun(row.tier, row.how)) rows.push_back(row);
  }
  return rows;
}

std::vector<int64_t> DepthsOf(const LinearKernel& row) {
  if (testing::CodesOf(row) == 0) {
    return {1, 7, 12, 15, 16, 17, 28, 31, 32, 33, 44, 47, 96, 224, 672, 1000};
  }
  return {32, 64, 96, 160, 224, 384, 672, 1024};
}

// `unit`: of the rows.
std::vector<LinearCase> CasesOf(const LinearKernel& row, int64_t unit) {
  std::vector<LinearCase> cases;
  uint64_t seed = 1;
  for (const int64_t k : DepthsOf(row)) {
    for (const int64_t m : {1, 2, 3, 4, 5, 7, 9}) cases.push_back({m, 1 + (k + m) % 7, k});
  }
  for (const int64_t n : {31, 32, 33, 65, 96}) {
    for (const int64_t m : {1, 3, 8}) cases.push_back({m, n, DepthsOf(row)[2]});
  }
  // More tokens than a kernel lays out at a time, and one more than a multiple of that.
  for (const int64_t m : {31, 32, 33, 47, 49, 65, 97}) cases.push_back({m, 3, DepthsOf(row)[2]});
  for (const int64_t m : {1, 5}) cases.push_back({m, 5, 7168});
  for (LinearCase& c : cases) {
    c.n += c.n % unit;
    c.seed = seed++;
  }
  return cases;
}
std::vector<LinearCase> CasesOf(const LinearKernel& row) {
  return CasesOf(row, testing::RowUnitOf(row));
}

bool SameBits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Empty, or where two results differ.
std::string Difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameBits(a[i], b[i])) {
      return "element " + std::to_string(i) + ": " + std::to_string(a[i]) + " and " +
             std::to_string(b[i]);
    }
  }
  return "";
}

// Which rows must agree: a class is one for each kind of activations.
std::map<std::string, std::vector<LinearKernel>> Classes() {
  std::map<std::string, std::vector<LinearKernel>> classes;
  for (const LinearKernel& row : Runnable()) {
    classes[std::string(row.arithmetic_class) + " " + std::string(row.act)].push_back(row);
  }
  return classes;
}

class LinearRow : public ::testing::TestWithParam<LinearKernel> {};

TEST_P(LinearRow, IsWithinTheBoundOfItsDeclaredDepth) {
  for (LinearCase c : CasesOf(GetParam())) {
    for (const Fill fill : {Fill::kNormal, Fill::kPositive, Fill::kCodes}) {
      c.fill = fill;
      LinearData data(GetParam(), c);
      ASSERT_EQ(data.Check(data.Run(GetParam().run)), "");
    }
  }
}

TEST_P(LinearRow, IsExactOnIntegers) {
  for (LinearCase c : CasesOf(GetParam())) {
    c.fill = Fill::kInteger;
    LinearData data(GetParam(), c);
    const std::vector<float> y = data.Run(GetParam().run);
    for (int64_t i = 0; i < c.m * c.n; ++i) {
      ASSERT_TRUE(data.ExactInAnyOrder(i / c.n, i % c.n)) << c.Print();
      ASSERT_EQ(y[static_cast<size_t>(i)], data.Expected(i / c.n, i % c.n))
          << c.Print() << " element " << i;
    }
  }
}

// Rows that hold one code each, under the least and the largest scales of their type (E8M0 0, 1 and
// 254 among them), times one-hot tokens of both signs.
TEST_P(LinearRow, KnowsEveryCodeUnderExtremeScales) {
  const LinearKernel& row = GetParam();
  const int64_t codes = testing::CodesOf(row);
  if (codes == 0) return;  // bf16: every fill has all kinds of values
  LinearCase c{8, 6 * codes, 32, Fill::kEveryCode, 3};
  LinearData data(row, c);
  const std::vector<float> y = data.Run(row.run);
  ASSERT_EQ(data.Check(y), "");
  if (row.act != "a16" || row.method == "gguf-q4_1") return;  // a product of one term is exact
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    ASSERT_EQ(y[static_cast<size_t>(i)], data.Expected(i / c.n, i % c.n)) << i;
  }
}

TEST_P(LinearRow, ANanScaleOfATokenIsNanInItsOutputsOnly) {
  const LinearKernel& row = GetParam();
  if (row.act == "a16") return;
  if (testing::IsMx(row.act)) return;  // aiter_test.cc has them
  LinearCase c{5, 21, 96, Fill::kNormal, 9};
  LinearData data(row, c);
  const std::vector<float> clean = data.Run(row.run);
  std::vector<int8_t> codes(data.x().codes, data.x().codes + c.m * c.k);
  std::vector<float> scales(data.x().scales, data.x().scales + c.m * c.k / 32);
  std::vector<int32_t> sums(data.x().sums, data.x().sums + c.m * c.k / 32);
  std::fill_n(codes.begin() + 2 * c.k + 32, 32, int8_t{0});
  scales[2 * 3 + 1] = std::nanf("");
  sums[2 * 3 + 1] = 0;
  std::vector<float> y(clean.size());
  row.run(data.View(), {.codes = codes.data(), .scales = scales.data(), .sums = sums.data()}, c.m,
          0, c.n, y.data(), c.n);
  for (int64_t i = 0; i < c.m * c.n; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i / c.n == 2) {
      ASSERT_TRUE(std::isnan(y[at])) << i;
    } else {
      ASSERT_TRUE(SameBits(y[at], clean[at])) << i;
    }
  }
}

TEST_P(LinearRow, ReadsAndWritesInsideItsBuffersAtAnyAlignment) {
  for (const LinearCase& c : CasesOf(GetParam())) {
    for (const Guard guard : {Guard::kBehind, Guard::kBefore}) {
      for (const size_t slack : {0, 1, 5}) {
        LinearData data(GetParam(), c, guard, slack);
        ASSERT_EQ(data.Check(data.Run(GetParam().run)), "") << "slack " << slack;
      }
    }
  }
}

TEST_P(LinearRow, DoesNotDependOnHowRowsAreSplit) {
  const LinearKernel& row = GetParam();
  for (const int64_t m : {1, 4, 7}) {
    // Tiles of rows that are as many in gate and up.
    const int64_t tiles = 37, unit = row.row_tile * testing::RowUnitOf(row);
    LinearCase c{m, tiles * unit, DepthsOf(row)[4]};
    c.seed = 77 + static_cast<uint64_t>(m);
    LinearData data(row, c);
    const std::vector<float> whole = data.Run(row.run);
    for (const std::vector<int64_t>& tiles :
         {std::vector<int64_t>{0, 18, 37}, {0, 1, 2, 3, 37}, {0, 0, 36, 37}, {0, 32, 33, 37}}) {
      std::vector<int64_t> splits;
      for (const int64_t tile : tiles) splits.push_back(tile * unit);
      ASSERT_EQ(Difference(data.RunSplit(row.run, splits), whole), "") << c.Print();
    }
  }
}

TEST_P(LinearRow, GivesATokenTheSameBitsAloneAndInABatch) {
  const LinearKernel& row = GetParam();
  for (const Fill fill : kAllFills) {
    LinearCase c{53, 10, DepthsOf(row)[3], fill, 5};
    LinearData data(row, c);
    const std::vector<float> batch = data.Run(row.run);
    for (int64_t token = 0; token < c.m; ++token) {
      std::vector<float> alone(static_cast<size_t>(c.n));
      row.run(data.View(), data.x(token), 1, 0, c.n, alone.data(), c.n);
      const auto begin = batch.begin() + token * c.n;
      ASSERT_EQ(Difference(alone, {begin, begin + c.n}), "") << c.Print() << " token " << token;
    }
  }
}

TEST_P(LinearRow, EmptySumsAreZeroAndEmptyRangesTouchNothing) {
  const LinearKernel& row = GetParam();
  LinearData empty(row, {2, 4, 0});
  for (const float y : empty.Run(row.run)) EXPECT_EQ(y, 0);
  LinearData data(row, {1, 4, DepthsOf(row)[0]});
  row.run(data.View(), data.x(), 1, 0, 0, nullptr, 4);
  row.run(data.View(), data.x(), 0, 0, 4, nullptr, 4);
}

TEST_P(LinearRow, RefusesAnotherLayoutAndRowsThatDoNotExist) {
  const LinearKernel& row = GetParam();
  LinearData data(row, {1, 4, DepthsOf(row)[0]});
  WeightView other = data.View();
  other.layout = "some-other";
  float y[5];
  EXPECT_DEATH(row.run(other, data.x(), 1, 0, 4, y, 4), "some-other");
  EXPECT_DEATH(row.run(data.View(), data.x(), 1, 0, 5, y, 4), "rows");
}

INSTANTIATE_TEST_SUITE_P(Registry, LinearRow, ::testing::ValuesIn(Runnable()),
                         [](const auto& test) {
                           return TestName(test.param.name, test.param.how);
                         });

TEST(ArithmeticClass, MembersAgreeBitForBit) {
  int pairs = 0;
  for (const auto& [name, rows] : Classes()) {
    for (size_t other = 1; other < rows.size(); ++other) {
      ++pairs;
      ASSERT_EQ(rows[0].method, rows[other].method) << name;
      const int64_t unit = std::max(testing::RowUnitOf(rows[0]), testing::RowUnitOf(rows[other]));
      for (LinearCase c : CasesOf(rows[0], unit)) {
        for (const Fill fill : kAllFills) {
          c.fill = fill;
          LinearData a(rows[0], c), b(rows[other], c);
          ASSERT_EQ(Difference(a.Run(rows[0].run), b.Run(rows[other].run)), "")
              << rows[0].name << " and " << rows[other].name << " " << c.Print();
        }
      }
    }
  }
  // bf16, and four methods with three kinds of activations; AITER's five.
  EXPECT_GE(pairs, HostHas(Tier::kAvx2) ? 13 + 7 : 0);
}

TEST(Registry, RowsAreNamedOnceAndDeclareWhatTheyAre) {
  std::map<std::string, int> names;
  for (const LinearKernel& row : LinearKernels()) {
    EXPECT_EQ(++names[TestName(row.name, row.how)], 1) << row.name;
    EXPECT_TRUE(row.name.ends_with(NameOf(row.tier))) << row.name;
    EXPECT_NE(FindMethod(row.method), nullptr) << row.name;
    EXPECT_TRUE(Takes(row, row.method) && !Takes(row, "")) << row.name;
    for (const std::string_view method : row.also) EXPECT_TRUE(Takes(row, method)) << row.name;
    EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(row.lanes))) << row.name;
    EXPECT_GE(row.row_tile, 1);
  }
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2}) {
    ASSERT_NE(Elementwise(tier), nullptr);
    EXPECT_EQ(Elementwise(tier)->tier, tier);
  }
}

// Deliberately broken kernels: the checker that passed above must find each.
const LinearKernel* honest = nullptr;

void DropsLast8OfK(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride) {
  const int64_t first = w.k < 8 ? 0 : w.k - 8;
  if (x.bf16 != nullptr) {
    std::vector<uint16_t> cut(x.bf16, x.bf16 + m * w.k);
    for (int64_t i = 0; i < m * w.k; ++i) {
      if (i % w.k >= first) cut[static_cast<size_t>(i)] = 0;
    }
    honest->run(w, {.bf16 = cut.data()}, m, n_begin, n_end, y, y_stride);
    return;
  }
  if (x.e8m0 != nullptr) {
    const int64_t bytes = x.e4m3 != nullptr ? w.k : w.k / 2,
                  kept = x.e4m3 != nullptr ? first : first / 2;
    const auto* codes = x.e4m3 != nullptr ? reinterpret_cast<const std::byte*>(x.e4m3) : x.e2m1;
    std::vector<std::byte> cut(codes, codes + m * bytes);
    for (int64_t i = 0; i < m * bytes; ++i) {
      if (i % bytes >= kept) cut[static_cast<size_t>(i)] = std::byte{0};
    }
    Activations left = x;
    left.e4m3 = reinterpret_cast<const uint8_t*>(cut.data());
    left.e2m1 = cut.data();
    honest->run(w, left, m, n_begin, n_end, y, y_stride);
    return;
  }
  std::vector<int8_t> cut(x.codes, x.codes + m * w.k);
  std::vector<int32_t> sums(x.sums, x.sums + m * w.k / 32);
  for (int64_t i = 0; i < m * w.k; ++i) {
    if (i % w.k < first) continue;
    sums[static_cast<size_t>(i / 32)] -= cut[static_cast<size_t>(i)];
    cut[static_cast<size_t>(i)] = 0;
  }
  const Activations left{.codes = cut.data(), .scales = x.scales, .sums = sums.data()};
  honest->run(w, left, m, n_begin, n_end, y, y_stride);
}

void OneUlpOff(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin, int64_t n_end,
               float* y, int64_t y_stride) {
  honest->run(w, x, m, n_begin, n_end, y, y_stride);
  y[n_begin] = std::nextafter(y[n_begin], 1e30F);
}

void ForgetsTheLastRow(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride) {
  honest->run(w, x, m, n_begin, n_end - 1, y, y_stride);
}

void WritesItsNeighboursRow(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                            int64_t n_end, float* y, int64_t y_stride) {
  honest->run(w, x, m, n_begin, n_end < w.n ? n_end + 1 : n_end, y, y_stride);
}

class BrokenRow : public LinearRow {};

TEST_P(BrokenRow, KernelsAreCaught) {
  honest = &GetParam();
  const int64_t tile = honest->row_tile, n = 2 * tile + 4;
  for (const int64_t k : DepthsOf(*honest)) {
    LinearData data(*honest, {3, n, k, Fill::kNormal, static_cast<uint64_t>(k)});
    ASSERT_EQ(data.Check(data.Run(honest->run)), "");
    EXPECT_NE(data.Check(data.Run(DropsLast8OfK)), "") << k;
    EXPECT_NE(data.Check(data.Run(ForgetsTheLastRow)), "") << k;
    EXPECT_NE(Difference(data.Run(OneUlpOff), data.Run(honest->run)), "") << k;
    EXPECT_NE(data.Check(data.RunSplit(WritesItsNeighboursRow, {0, tile, n})), "") << k;
  }
}

TEST(Guards, ABytePastTheEndOrBeforeTheStartIsFatal) {
  testing::Guarded behind(100, Guard::kBehind, 0), before(100, Guard::kBefore, 0);
  EXPECT_DEATH(behind.data()[100] = std::byte{1}, "");
  EXPECT_DEATH(before.data()[-1] = std::byte{1}, "");
  behind.data()[99] = before.data()[0] = std::byte{1};
}

INSTANTIATE_TEST_SUITE_P(Registry, BrokenRow, ::testing::ValuesIn(Runnable()),
                         [](const auto& test) {
                           return TestName(test.param.name, test.param.how);
                         });

}  // namespace
}  // namespace assay::kernels
