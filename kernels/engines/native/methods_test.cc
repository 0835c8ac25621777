// Quantised weights and activations through the engine: what lies in memory is the file's, what is
// computed is the product of what the taps show.
#include "kernels/methods/methods.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/engines/native/test_model.h"
#include "kernels/quantisers/quantisers.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

const char* BestTier() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

// The tap that a linear op takes; of an expert's gate and up the rows that are routed to it.
Values InputOf(Driver& driver, const std::string& tap, int rank) {
  const std::string layer = tap.substr(0, tap.find('.') + 1);
  const std::string op = tap.substr(tap.rfind('.') + 1);
  if (tap == "logits") return ValuesOf(driver, "final_norm", rank);
  if (op == "partial") return ValuesOf(driver, layer + "attn.ctx", rank);
  if (op == "down") return ValuesOf(driver, tap.substr(0, tap.size() - 4) + "act", rank);
  if (op == "q" || op == "k" || op == "v") return ValuesOf(driver, layer + "input_norm", rank);
  const Values whole = ValuesOf(driver, layer + "post_norm", rank);
  const size_t expert = tap.find("moe.e");
  if (expert == std::string::npos) return whole;
  const Values ids = ValuesOf(driver, layer + "router.ids", rank);
  Values routed{0, whole.columns, {}};
  for (int64_t t = 0; t < ids.rows; ++t) {
    const auto first = ids.at.begin() + t * ids.columns;
    if (std::count(first, first + ids.columns, std::stoi(tap.substr(expert + 5))) == 0) continue;
    const auto row = whole.at.begin() + t * whole.columns;
    routed.at.insert(routed.at.end(), row, row + whole.columns);
    ++routed.rows;
  }
  return routed;
}

// What the engine shows of x in 8 bits is what the contract says: s = fl(amax / 127),
// code = RNE(fl(x / s)).
void CheckCodes(const Values& x, const Values& codes, const Values& scales, int64_t group,
                const std::string& tap) {
  ASSERT_EQ(codes.rows, x.rows) << tap;
  ASSERT_EQ(codes.columns, x.columns) << tap;
  ASSERT_EQ(scales.columns, x.columns / group) << tap;
  for (int64_t at = 0; at < x.rows * x.columns; at += group) {
    float amax = 0;
    for (int64_t i = at; i < at + group; ++i) {
      amax = std::max(amax, std::fabs(static_cast<float>(x.at[static_cast<size_t>(i)])));
    }
    const float scale = amax / 127.0f;
    EXPECT_EQ(scales.at[static_cast<size_t>(at / group)], scale) << tap;
    for (int64_t i = at; i < at + group; ++i) {
      const float quotient = static_cast<float>(x.at[static_cast<size_t>(i)]) / scale;
      EXPECT_EQ(codes.at[static_cast<size_t>(i)], amax == 0 ? 0 : std::nearbyint(quotient)) << tap;
    }
  }
}

// FP8 or MXFP4 activations as AITER makes them, which no tap shows.
Values Microscaled(Values x, std::string_view act) {
  const std::vector<float> values(x.at.begin(), x.at.end());
  const bool wide = act == "amxfp8";
  const auto q =
      Quantise(*FindQuantiser(wide ? "mxfp8-rceil-aiter" : "mxfp4-rceil-aiter"),
               {DType::kF32, x.rows, x.columns, reinterpret_cast<const std::byte*>(values.data())});
  EXPECT_TRUE(q.ok());
  for (size_t i = 0; i < x.at.size(); ++i) {
    const auto byte = std::to_integer<uint8_t>(q->codes[wide ? i : i / 2]);
    float code = FloatFromE2m1(byte >> (4 * (i % 2)) & 15);
    if (wide) {
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      code = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                           : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
      if (byte >= 0x80) code = -code;
    }
    x.at[i] = code * double{FloatFromE8m0(std::to_integer<uint8_t>(q->scales[i / 32]))};
  }
  return x;
}

// What enters the product: x, or code times scale.
Values Entering(Driver& driver, const std::string& tap, int rank, std::string_view act) {
  Values x = InputOf(driver, tap, rank);
  if (act.starts_with("amx")) return Microscaled(std::move(x), act);
  EXPECT_EQ(driver.taps.contains({tap + ".x_q", rank}), act != "a16") << tap;
  if (act == "a16") return x;
  const Values codes = ValuesOf(driver, tap + ".x_q", rank);
  const Values scales = ValuesOf(driver, tap + ".x_scale", rank);
  const int64_t group = act == "a8row" ? x.columns : 32;
  CheckCodes(x, codes, scales, group, tap);
  for (size_t i = 0; i < x.at.size(); ++i) {
    x.at[i] = codes.at[i] * scales.at[i / static_cast<size_t>(group)];
  }
  return x;
}

// |y − x·Wᵀ| ≤ (d + 2)·2^-24·Σ|x||w| + half a place of the output's type; d is the kernel's stated
// depth, 2 the roundings of its scale products (numerics.md §1.3). Weights here have |d·q + m| =
// |d·q| + |m|.
void CheckProduct(Driver& driver, const std::string& tap, int rank, const Ran& ran) {
  const LinearKernel& kernel = RowOf(ran.kernel);
  const Values x = Entering(driver, tap, rank, ran.act);
  const Values y = ValuesOf(driver, tap, rank);
  std::string component = tap;
  if (tap.ends_with("attn.partial")) component.replace(component.size() - 7, 7, "out");
  assay_shard shard;
  ASSERT_EQ(driver.Export(rank, component + ".weight", &shard), ASSAY_OK);
  const auto codes = RowMajor(shard, kernel.method, "weight");
  std::vector<std::byte> scales;
  if (driver.Export(rank, component + ".scale", &shard) == ASSAY_OK) {
    scales = RowMajor(shard, kernel.method, "scale");
  }
  const int64_t k = x.columns, n = y.columns;
  std::vector<float> w(static_cast<size_t>(n * k));
  FindMethod(kernel.method)->decode(codes.data(), scales.data(), n, k, w.data());
  const double depth =
      std::ceil(static_cast<double>(k) / kernel.lanes) + std::log2(kernel.lanes) + kernel.extra + 2;
  const bool rounds = (driver.taps[{tap, rank}].dtype == ASSAY_BF16);
  ASSERT_EQ(y.rows, x.rows);
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t c = 0; c < k; ++c) {
        const double term =
            x.at[static_cast<size_t>(i * k + c)] * w[static_cast<size_t>(j * k + c)];
        sum += term;
        magnitude += std::fabs(term);
      }
      const double bound =
          depth * 0x1p-24 * magnitude + (rounds ? 0x1p-8 : 0x1p-24) * std::fabs(sum);
      EXPECT_LE(std::fabs(y.at[static_cast<size_t>(i * n + j)] - sum), bound)
          << tap << "@" << rank << " [" << i << ", " << j << "] " << kernel.name;
    }
  }
}

// Every product of a quantised weight; returns how many there were.
int CheckProducts(Driver& driver, std::string_view act) {
  int checked = 0;
  for (const auto& [key, ran] : driver.ran) {
    if (!ran.kernel.starts_with("linear_")) continue;
    if (RowOf(ran.kernel).method == "bf16") {
      EXPECT_EQ(ran.act, "a16") << key.first;
      EXPECT_FALSE(driver.taps.contains({key.first + ".x_q", key.second})) << key.first;
      continue;
    }
    EXPECT_EQ(ran.act, act) << key.first;
    CheckProduct(driver, key.first, key.second, ran);
    ++checked;
  }
  return checked;
}

TEST(Methods, EveryProductIsThatOfWhatTheTapsShow) {
  for (const char* act : {"a16", "a8g32", "a8row"}) {
    for (const char* tier : {"scalar", BestTier()}) {
      for (int tp : {1, 3}) {
        // Of each layer q, k, v, partial, gate, up, down, on each rank; and the head, in Q8_0.
        EXPECT_EQ(CheckProducts(std::make_unique<Loaded>(Tiny(), tp, tier, act)->driver, act),
                  (2 * 7 + 1) * tp);
      }
      for (const char* method : {"gguf-q4_1", "gguf-q8_0", "deepseek-v4-mxfp4"}) {
        EXPECT_GE(
            CheckProducts(std::make_unique<Loaded>(Experts(method), 4, tier, act)->driver, act),
            2 * 3 * 4);
      }
    }
  }
}

// AITER's modes: activations of each kind, gate and up joined or not, in the layouts that go with
// them.
TEST(Methods, AitersModesAreProductsInTheirLayouts) {
  for (const char* act : {"a16", "amxfp8", "amxfp4"}) {
    const bool separated = std::string_view(act) == "amxfp4";
    for (const char* tier : {"scalar", HostHas(Tier::kAvx2) ? "avx2" : "scalar"}) {
      for (const int tp : {1, 4}) {
        Loaded loaded(Experts("deepseek-v4-mxfp4"), tp, tier, act, "", "aiter");
        EXPECT_GE(CheckProducts(loaded.driver, act), 2 * 3 * tp) << act << " " << tier;
        std::set<std::string> layouts;
        for (const auto& [key, ran] : loaded.driver.ran) {
          if (key.first.find("moe.e") == std::string::npos) continue;
          if (!ran.kernel.starts_with("linear_")) continue;
          if (RowOf(ran.kernel).method != "bf16") layouts.insert(ran.layout);
        }
        using Layouts = std::set<std::string>;
        EXPECT_EQ(layouts, separated ? Layouts{"aiter-separated"}
                                     : (Layouts{"aiter-interleaved", "aiter-klane"}))
            << act;
      }
    }
  }
}

// Without a wish activations stay 16 bits wide.
TEST(Methods, TheDefaultIsA16) {
  EXPECT_EQ(CheckProducts(std::make_unique<Loaded>(Tiny(), 1, "scalar", "")->driver, "a16"), 15);
}

// Control: the checks above see one code changed.
TEST(Methods, AnotherCodeIsAnotherProduct) {
  Loaded loaded(Tiny(), 1, "scalar", "a8g32");
  Driver& driver = loaded.driver;
  Tap& codes = driver.taps[{"L0.mlp.down.x_q", 0}];
  codes.bytes[5] = static_cast<std::byte>(static_cast<int>(codes.bytes[5]) ^ 0x40);
  int failures = 0;
  {
    testing::TestPartResultArray results;
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    CheckProduct(driver, "L0.mlp.down", 0, driver.ran[{"L0.mlp.down", 0}]);
    failures = results.size();
  }
  EXPECT_GT(failures, 96 / 2);  // the code itself, and most columns of its row
}

// The same product alone, with its codes beside it.
TEST(Methods, OneOpGivesTheModelsBitsAndCodes) {
  for (const char* act : {"a8g32", "a8row"}) {
    Loaded model(Tiny(), 3, "scalar", act), alone(Tiny(), 3, "scalar", act);
    alone.driver.taps.clear();
    for (int rank = 0; rank < 3; ++rank) {
      const Values x = ValuesOf(model.driver, "L1.mlp.act", rank);
      In in{"L1.mlp.act", {x.rows, x.columns}, {}, {}, rank};
      in.values.assign(x.at.begin(), x.at.end());
      std::vector<float> out;
      ASSERT_EQ(alone.driver.Op(rank, "L1.mlp.down", {in}, {5, 96}, &out), ASSAY_OK);
      const Values y = ValuesOf(model.driver, "L1.mlp.down", rank);
      EXPECT_EQ(std::vector<double>(out.begin(), out.end()), y.at);
      for (const char* part : {"L1.mlp.down.x_q", "L1.mlp.down.x_scale"}) {
        EXPECT_TRUE((alone.driver.taps[{part, rank}] == model.driver.taps[{part, rank}])) << part;
      }
    }
    EXPECT_EQ(alone.driver.taps.size(), 6u);  // of the op itself the output is the tap
  }
}

// An emulated tier says so, and gives what its instructions would.
TEST(Methods, AnEmulatedTierSaysSo) {
  if (Elementwise(Tier::kAvx512, How::kPortable) == nullptr) {
    Driver driver(NativeEngine());
    Wishes wishes;
    wishes.tier = "avx512";
    wishes.options = "emulate=always";
    EXPECT_EQ(driver.Open(TinyConfig(), wishes), ASSAY_UNSUPPORTED);
    return;
  }
  Loaded emulated(Tiny(), 1, "avx512", "a8g32", "emulate=always");
  for (const auto& [key, ran] : emulated.driver.ran) {
    EXPECT_EQ(ran.how, NameOf(How::kPortable)) << key.first;
    EXPECT_EQ(ran.tier, "avx512");
  }
  EXPECT_EQ(CheckProducts(emulated.driver, "a8g32"), 15);
  Driver driver(NativeEngine());
  Wishes wishes;
  wishes.tier = "avx512";
  wishes.options = "emulate=never";
  EXPECT_EQ(driver.Open(TinyConfig(), wishes),
            HostHas(Tier::kAvx512) ? ASSAY_OK : ASSAY_UNSUPPORTED);
  Loaded scalar(Tiny(), 1, "scalar", "a8g32");
  for (const auto& [key, ran] : scalar.driver.ran) EXPECT_EQ(ran.how, NameOf(How::kHardware));
}

}  // namespace
}  // namespace assay::kernels::native
