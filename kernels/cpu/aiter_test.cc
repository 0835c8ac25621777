// MXFP4 weights in AITER's pre-shuffles: every code of both sides, what NaN does, who else's
// weights the rows take, and the accident of a kernel on the other kernel's layout.
#include "kernels/layouts/aiter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/testing/layout_check.h"
#include "kernels/cpu/testing/linear_check.h"
#include "kernels/cpu/testing/random.h"
#include "kernels/cpu/testing/tables.h"
#include "kernels/layouts/layouts.h"
#include "kernels/methods/methods.h"
#include "kernels/quantisers/quantisers.h"
#include "kernels/registry.h"

namespace assay::kernels {

void PrintTo(const LinearKernel& row, std::ostream* out) { *out << TestName(row.name, row.how); }

namespace {

using testing::FloatFromE4m3;
using testing::LayoutChecksOff;

using Bytes = std::vector<std::byte>;
constexpr std::string_view kMethod = "deepseek-v4-mxfp4";
constexpr int64_t kGroup = 32;
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<LinearKernel> AiterRows() {
  std::vector<LinearKernel> rows;
  for (const LinearKernel& row : LinearKernels()) {
    if (row.layout.starts_with("aiter-") && CanRun(row.tier, row.how)) rows.push_back(row);
  }
  return rows;
}

// Weights as the checkpoint has them, [n, k / 2] and [n, k / 32], and in a layout.
struct Stored {
  int64_t n = 0, k = 0;
  Bytes codes, scales;
};

Bytes Pack(std::string_view tag, std::string_view method, std::string_view part,
           const StoredShape& shape, const Bytes& rows) {
  const Layout* layout = FindLayout(tag, method, part);
  if (layout == nullptr || layout->bytes(shape) < 0) {
    ADD_FAILURE() << tag << " of " << method << " " << part;
    return {};
  }
  Bytes packed(static_cast<size_t>(layout->bytes(shape)));
  layout->pack(shape, rows.data(), packed.data());
  return packed;
}

struct Packed {
  std::string_view tag;
  int64_t n = 0, k = 0;
  Bytes codes, scales;
  WeightView View() const { return {tag, n, k, codes.data(), scales.data(), kGroup}; }
};
Packed In(std::string_view tag, const Stored& w, std::string_view method = kMethod) {
  return {tag, w.n, w.k, Pack(tag, method, "weight", {DType::kU8, w.n, w.k / 2}, w.codes),
          Pack(tag, method, "scale", {DType::kU8, w.n, w.k / kGroup}, w.scales)};
}

class Aiter : public ::testing::TestWithParam<LinearKernel> {};

// Every value of an activation's code: one-hot tokens, each at another element.
struct Tokens {
  std::vector<double> values;  // of the one element of each token, its scale in it
  std::vector<uint16_t> bf16;
  Bytes codes;
  std::vector<uint8_t> scales;
  Activations View(std::string_view act) const {
    if (act == "a16") return {.bf16 = bf16.data()};
    if (act == "amxfp4") return {.e2m1 = codes.data(), .e8m0 = scales.data()};
    return {.e4m3 = reinterpret_cast<const uint8_t*>(codes.data()), .e8m0 = scales.data()};
  }
};

int64_t PlaceOf(int64_t token, int64_t k) { return token * 7 % k; }

Tokens EveryCode(std::string_view act, int64_t k) {
  const bool wide = act != "amxfp4";
  const int count = wide ? 256 : 16;
  Tokens t;
  t.bf16.resize(static_cast<size_t>(count * k));
  t.codes.resize(static_cast<size_t>(count * k / (wide ? 1 : 2)));
  for (int token = 0; token < count; ++token) {
    const auto code = static_cast<uint8_t>(token);
    const bool nan = wide && (code & 0x7F) == 0x7F;
    const double value = nan ? 0 : wide ? FloatFromE4m3(code) : FloatFromE2m1(code);
    const auto byte = static_cast<uint8_t>(120 + token % 9);
    const int64_t at = token * k + PlaceOf(token, k);
    t.bf16[static_cast<size_t>(at)] = Bf16FromFloat(static_cast<float>(value));
    const std::byte placed{nan ? uint8_t{0} : code};
    t.codes[static_cast<size_t>(wide ? at : at / 2)] |= wide ? placed : placed << (4 * (at % 2));
    t.scales.insert(t.scales.end(), static_cast<size_t>(k / kGroup), byte);
    t.values.push_back(act == "a16" ? value : value * std::ldexp(1, byte - 127));
  }
  return t;
}

// Row r holds code r % 16 everywhere, under scale r / 16.
Stored RowOfEachCode(int64_t k) {
  constexpr uint8_t kBytes[] = {1, 100, 127, 130, 200, 0};
  Stored w{16 * 6, k, Bytes(static_cast<size_t>(96 * k / 2)), {}};
  for (int64_t i = 0; i < w.n * k / 2; ++i) {
    const auto code = static_cast<uint8_t>(i / (k / 2) % 16);
    w.codes[static_cast<size_t>(i)] = std::byte{static_cast<uint8_t>(code | code << 4)};
  }
  for (int64_t i = 0; i < w.n * k / kGroup; ++i) {
    w.scales.push_back(std::byte{kBytes[i / (k / kGroup) / 16]});
  }
  return w;
}

TEST_P(Aiter, MultipliesEveryCodeByEveryCode) {
  const LinearKernel& row = GetParam();
  for (const int64_t k : {32, 160}) {
    const Stored stored = RowOfEachCode(k);
    const Packed w = In(row.layout, stored);
    const Tokens x = EveryCode(row.act, k);
    const auto m = static_cast<int64_t>(x.values.size());
    std::vector<float> y(static_cast<size_t>(m * w.n));
    row.run(w.View(), x.View(row.act), m, 0, w.n, y.data(), w.n);
    for (int64_t i = 0; i < m * w.n; ++i) {
      const int64_t token = i / w.n, n = i % w.n;
      const int64_t g = PlaceOf(token, k) / kGroup;
      const auto scale =
          std::to_integer<uint8_t>(stored.scales[static_cast<size_t>(n * k / kGroup + g)]);
      const double want = x.values[static_cast<size_t>(token)] *
                          FloatFromE2m1(static_cast<int>(n % 16)) * FloatFromE8m0(scale);
      ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<float>(want))
          << "token " << token << " row " << n << " k " << k;
    }
  }
}

// A scale of 255, or a NaN among FP8 codes, is in that token's outputs and in no other's.
TEST_P(Aiter, NanStaysInItsToken) {
  const LinearKernel& row = GetParam();
  if (row.act == "a16") return;
  const int64_t k = 160, m = 5;
  const Packed w = In(row.layout, RowOfEachCode(k));
  Tokens x = EveryCode(row.act, k);
  std::vector<float> clean(static_cast<size_t>(m * w.n)), y(clean.size());
  row.run(w.View(), x.View(row.act), m, 0, w.n, clean.data(), w.n);
  for (const bool scale : {true, false}) {
    if (!scale && row.act == "amxfp4") continue;  // has no NaN
    Tokens bad = x;
    if (scale) {
      bad.scales[2 * k / kGroup + 3] = 0xFF;
    } else {
      bad.codes[2 * k + 100] = std::byte{0xFF};
    }
    row.run(w.View(), bad.View(row.act), m, 0, w.n, y.data(), w.n);
    for (int64_t i = 0; i < m * w.n; ++i) {
      const auto at = static_cast<size_t>(i);
      if (i / w.n == 2) {
        ASSERT_TRUE(std::isnan(y[at])) << i << " scale " << scale;
      } else {
        ASSERT_EQ(y[at], clean[at]) << i << " scale " << scale;
      }
    }
  }
}

TEST_P(Aiter, RefusesAnOddMatrixOfGateAndUp) {
  const LinearKernel& row = GetParam();
  if (row.layout != "aiter-interleaved") return;
  const Packed w = In(row.layout, RowOfEachCode(32));
  const Tokens x = EveryCode(row.act, 32);
  WeightView odd = w.View();
  odd.n = 95;
  float y[95];
  EXPECT_DEATH(row.run(odd, x.View(row.act), 1, 0, 95, y, 95), "which is odd");
}

INSTANTIATE_TEST_SUITE_P(Registry, Aiter, ::testing::ValuesIn(AiterRows()), [](const auto& test) {
  return TestName(test.param.name, test.param.how);
});

// What rows say of other producers: the same bytes in row order become the same bytes.
TEST(Mxfp4Producers, StoreAlikeWhatTheRowsTake) {
  const Stored stored = RowOfEachCode(224);
  int rows = 0;
  for (const LinearKernel& row : LinearKernels()) {
    EXPECT_EQ(row.also.empty(), row.method != kMethod) << row.name;
    if (row.also.empty()) continue;
    ++rows;
    const Packed own = In(row.layout, stored);
    for (const std::string_view method : row.also) {
      EXPECT_TRUE(Takes(row, method));
      const Packed others = In(row.layout, stored, method);
      EXPECT_TRUE(others.codes == own.codes && others.scales == own.scales) << method;
    }
    // GGUF has its codes in another order, NVFP4 other scales.
    for (const char* method : {"gguf-mxfp4", "ct-nvfp4", "ct-int4-g32"}) {
      EXPECT_FALSE(Takes(row, method)) << method;
    }
  }
  EXPECT_GE(rows, 16);
}

std::string_view ActOf(AiterMode mode) {
  if (mode == AiterMode::kA16W4) return "a16";
  return mode == AiterMode::kA8W4 ? "amxfp8" : "amxfp4";
}

std::optional<LinearKernel> RowFor(Tier tier, std::string_view act, std::string_view layout) {
  for (const LinearKernel& row : AiterRows()) {
    if (row.tier == tier && row.act == act && row.layout == layout) return row;
  }
  return std::nullopt;
}

TEST(AiterModes, EachHasItsKernelsInItsLayouts) {
  for (const AiterMode mode : {AiterMode::kA16W4, AiterMode::kA8W4, AiterMode::kA4W4}) {
    for (const Tier tier : {Tier::kScalar, Tier::kAvx2}) {
      if (!HostHas(tier)) continue;
      const AiterLayouts layouts = AiterLayoutFor(mode);
      EXPECT_TRUE(RowFor(tier, ActOf(mode), layouts.gate_up)) << ActOf(mode);
      EXPECT_TRUE(RowFor(tier, ActOf(mode), layouts.down)) << ActOf(mode);
    }
  }
  EXPECT_FALSE(RowFor(Tier::kScalar, "amxfp4", "aiter-interleaved"));
}

// One expert of Kimi-K3's kind, gate above up, then SiTUv2 and down.
struct Expert {
  static constexpr int64_t kTokens = 4, kHidden = 256, kWidth = 384;
  Stored gate_up, down;
  std::vector<float> x;  // [tokens, hidden], bf16 values
};

Stored RandomWeights(uint64_t seed, int64_t n, int64_t k) {
  Stored w{n, k, Bytes(static_cast<size_t>(n * k / 2)), {}};
  for (int64_t i = 0; i < n * k / 2; ++i) {
    w.codes[static_cast<size_t>(i)] =
        std::byte{static_cast<uint8_t>(testing::Hash(seed, static_cast<uint64_t>(i)))};
  }
  for (int64_t i = 0; i < n * k / kGroup; ++i) {
    const uint64_t h = testing::Hash(seed + 1, static_cast<uint64_t>(i));
    w.scales.push_back(std::byte{static_cast<uint8_t>(120 + h % 4)});
  }
  return w;
}

Expert MakeExpert() {
  Expert e{RandomWeights(1, 2 * Expert::kWidth, Expert::kHidden),
           RandomWeights(5, Expert::kHidden, Expert::kWidth),
           {}};
  for (uint64_t i = 0; i < Expert::kTokens * Expert::kHidden; ++i) {
    e.x.push_back(FloatFromBf16(Bf16FromFloat(static_cast<float>(testing::Normal(9, i)))));
  }
  return e;
}

// Activations of any kind from fp32, [m, k].
struct Input {
  std::vector<uint16_t> bf16;
  QuantisedActivation q;
  Activations View(std::string_view act) const {
    const auto* scales = reinterpret_cast<const uint8_t*>(q.scales.data());
    if (act == "a16") return {.bf16 = bf16.data()};
    if (act == "amxfp4") return {.e2m1 = q.codes.data(), .e8m0 = scales};
    return {.e4m3 = reinterpret_cast<const uint8_t*>(q.codes.data()), .e8m0 = scales};
  }
};

Input Enter(std::string_view act, const std::vector<float>& x, int64_t k) {
  Input in;
  for (const float value : x) in.bf16.push_back(Bf16FromFloat(value));
  if (act == "a16") return in;
  const char* name = act == "amxfp4" ? "mxfp4-rceil-aiter" : "mxfp8-rceil-aiter";
  const auto rows = static_cast<int64_t>(x.size()) / k;
  const auto quantised =
      Quantise(*FindQuantiser(name),
               {DType::kBF16, rows, k, reinterpret_cast<const std::byte*>(in.bf16.data())});
  if (quantised.ok()) in.q = *quantised;
  EXPECT_TRUE(quantised.ok());
  return in;
}

std::vector<float> Linear(const LinearKernel& kernel, const WeightView& w,
                          const std::vector<float>& x) {
  const Input in = Enter(kernel.act, x, w.k);
  const auto m = static_cast<int64_t>(x.size()) / w.k;
  std::vector<float> y(static_cast<size_t>(m * w.n));
  kernel.run(w, in.View(kernel.act), m, 0, w.n, y.data(), w.n);
  return y;
}

// SiTUv2 of [gate | up].
std::vector<float> Situ(const std::vector<float>& gate_up) {
  const int64_t width = Expert::kWidth;
  std::vector<float> y(gate_up.size() / 2);
  for (int64_t token = 0; token < Expert::kTokens; ++token) {
    const float* gate = gate_up.data() + token * 2 * width;
    Elementwise(Tier::kScalar)
        ->situ(gate, gate + width, 4, 25, kInf, width, y.data() + token * width);
  }
  return y;
}

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// The expert through kernels of one tier and activation type; gate and up lie in `lies`, whatever
// the kernel takes.
std::vector<float> Through(const Expert& e, const LinearKernel& gate_up, const LinearKernel& down,
                           std::string_view lies) {
  const Packed first = In(lies, e.gate_up), second = In(down.layout, e.down);
  return Linear(down, second.View(), Situ(Linear(gate_up, first.View(), e.x)));
}

std::vector<Tier> Tiers() {
  if (HostHas(Tier::kAvx2)) return {Tier::kScalar, Tier::kAvx2};
  return {Tier::kScalar};
}

class Accident : public ::testing::TestWithParam<Tier> {};

// With codes and scales that have nothing to do with each other a cosine is a mean of as many
// independent signs as there are outputs.
double ByChance(const Expert& e) { return 6 / std::sqrt(static_cast<double>(e.x.size())); }

TEST_P(Accident, TheSeparatedKernelOnInterleavedWeightsIsNoiseAndNoError) {
  const Expert e = MakeExpert();
  const LinearKernel a4 = *RowFor(GetParam(), "amxfp4", "aiter-separated");
  const LinearKernel a16 = *RowFor(GetParam(), "a16", "aiter-interleaved");
  const LinearKernel a16_down = *RowFor(GetParam(), "a16", "aiter-klane");
  const std::vector<float> truth = Through(e, a16, a16_down, "aiter-interleaved");
  const double right = Cosine(Through(e, a4, a4, "aiter-separated"), truth);
  double wrong = 1;
  {
    const LayoutChecksOff off;
    wrong = Cosine(Through(e, a4, a4, "aiter-interleaved"), truth);
  }
  std::printf("A4W4 against A16W4: cosine %.4f in its layout, %.4f in the other one\n", right,
              wrong);
  EXPECT_GT(right, std::sqrt(0.5));  // more of it is signal than noise of four bits
  EXPECT_LT(std::fabs(wrong), ByChance(e));
}

TEST_P(Accident, SoIsTheInterleavedKernelOnSeparatedWeights) {
  const Expert e = MakeExpert();
  const LinearKernel a8_down = *RowFor(GetParam(), "amxfp8", "aiter-klane");
  for (const char* act : {"a16", "amxfp8"}) {
    const LinearKernel kernel = *RowFor(GetParam(), act, "aiter-interleaved");
    const std::vector<float> truth = Through(e, kernel, a8_down, "aiter-interleaved");
    const LayoutChecksOff off;
    EXPECT_LT(std::fabs(Cosine(Through(e, kernel, a8_down, "aiter-separated"), truth)),
              ByChance(e));
  }
}

// With the check on, neither computes anything.
TEST_P(Accident, IsRefusedBeforeACodeIsRead) {
  const Expert e = MakeExpert();
  const LinearKernel a4 = *RowFor(GetParam(), "amxfp4", "aiter-separated");
  const LinearKernel a8 = *RowFor(GetParam(), "amxfp8", "aiter-interleaved");
  EXPECT_DEATH(Through(e, a4, a4, "aiter-interleaved"), "'aiter-separated'.*'aiter-interleaved'");
  EXPECT_DEATH(Through(e, a8, a4, "aiter-separated"), "'aiter-interleaved'.*'aiter-separated'");
  {
    const LayoutChecksOff off;
    Through(e, a4, a4, "aiter-interleaved");
  }
  EXPECT_DEATH(Through(e, a4, a4, "aiter-interleaved"), "'aiter-separated'")
      << "the switch stayed off";
}

INSTANTIATE_TEST_SUITE_P(Tiers, Accident, ::testing::ValuesIn(Tiers()),
                         [](const auto& test) { return std::string(NameOf(test.param)); });

}  // namespace
}  // namespace assay::kernels
