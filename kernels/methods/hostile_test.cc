// What Decode refuses, with the tensor and the reason; what it accepts although producers differ;
// and what ModelSlim's static parts mean.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/methods/numbers.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {
namespace {

constexpr int64_t kN = 16, kK = 256;

Scheme SchemeOf(const std::string& id) { return ParseScheme(id).value(); }

std::vector<PackedPart> Packed(const std::string& id, const PackOptions& options = {}) {
  std::vector<float> w(static_cast<size_t>(kN * kK));
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
  }
  auto parts = Pack(SchemeOf(id), w.data(), kN, kK, options);
  EXPECT_TRUE(parts.ok()) << (parts.ok() ? "" : parts.error().message);
  return parts.ok() ? *parts : std::vector<PackedPart>{};
}

PackedPart& PartOf(std::vector<PackedPart>& parts, const std::string& suffix) {
  for (PackedPart& part : parts) {
    if (part.spec.suffix == suffix) return part;
  }
  ADD_FAILURE() << suffix;
  return parts.front();
}

// The message, or "" where it decodes.
std::string Refusal(const std::string& id, const PartViews& views, int64_t n = kN, int64_t k = kK) {
  std::vector<double> out(static_cast<size_t>(kN * kK));
  const Status status = Decode(SchemeOf(id), views, n, k, out.data());
  return status.ok() ? "" : status.error().message;
}

std::string Refusal(const std::string& id, const std::vector<PackedPart>& parts) {
  return Refusal(id, ViewsOf(parts, "m.q"));
}

::testing::AssertionResult Says(const std::string& message, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (message.find(text) == std::string::npos) {
      return ::testing::AssertionFailure() << '"' << message << "\" lacks \"" << text << '"';
    }
  }
  if (message.find('\n') != std::string::npos) return ::testing::AssertionFailure() << "two lines";
  return ::testing::AssertionSuccess();
}

TEST(Hostile, EveryPartIsNeededAndChecked) {
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const std::vector<PackedPart> parts = Packed(id);
    ASSERT_EQ(Refusal(id, parts), "");
    for (const PackedPart& part : parts) {
      const std::string& suffix = part.spec.suffix;
      SCOPED_TRACE(suffix);
      // Decoding does not need these, and reads them where it can check them only.
      const bool beside = suffix == ".weight_shape" || suffix == ".g_idx" ||
                          suffix == ".input_scale" || suffix == ".input_offset" ||
                          suffix == ".deq_scale" || suffix == ".quant_bias" ||
                          suffix == ".scale_bias";
      const bool needed = !beside || (suffix == ".g_idx" && SchemeOf(id).actorder);
      PartViews views = ViewsOf(parts, "m.q");
      views.erase(suffix);
      EXPECT_EQ(Refusal(id, views).empty(), !needed);
      if (!needed) continue;
      EXPECT_TRUE(Says(Refusal(id, views), {id, suffix, "missing"}));
      views = ViewsOf(parts, "m.q");
      views[suffix].dtype = DType::kBool;
      EXPECT_TRUE(Says(Refusal(id, views), {"m.q" + suffix, "type is BOOL"}));
      views = ViewsOf(parts, "m.q");
      views[suffix].shape.push_back(2);
      EXPECT_TRUE(Says(Refusal(id, views), {"m.q" + suffix, "shape"}));
      views = ViewsOf(parts, "m.q");
      views[suffix].bytes = views[suffix].bytes.first(views[suffix].bytes.size() - 1);
      EXPECT_TRUE(Says(Refusal(id, views), {"m.q" + suffix, "bytes"}));
    }
  }
}

TEST(Hostile, ExtentsAreChecked) {
  for (const std::string& id : KnownSchemes()) {
    const std::vector<PackedPart> parts = Packed(id);
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{0, kK},
                               {kN, -32},
                               {int64_t{1} << 62, int64_t{1} << 62},
                               {kN / 2, kK},
                               {kN, kK / 2}}) {
      EXPECT_NE(Refusal(id, ViewsOf(parts, "m"), n, k), "") << id << " " << n << " " << k;
    }
  }
}

TEST(Hostile, ScalesThatAreNoNumbers) {
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    for (const char* kind : {"scale", "global_scale", "scale_second"}) {
      std::vector<PackedPart> parts = Packed(id);
      for (PackedPart& part : parts) {
        if (part.spec.part != kind) continue;
        // All ones: NaN in every type that a scale has.
        const auto size = static_cast<size_t>(SizeOf(part.spec.dtype).count());
        std::memset(part.bytes.data() + part.bytes.size() - size, 0xFF, size);
        EXPECT_TRUE(Says(Refusal(id, parts), {"m.q" + part.spec.suffix}));
      }
    }
  }
  // In a block.
  for (const auto& [id, at] : {std::pair<const char*, size_t>{"gguf-q4_0", 0},
                               {"gguf-q4_1", 2},
                               {"gguf-q6_k", 208},
                               {"gguf-mxfp4", 0}}) {
    std::vector<PackedPart> parts = Packed(id);
    parts[0].bytes[at] = parts[0].bytes[at + 1] = std::byte{0xFF};
    EXPECT_TRUE(Says(Refusal(id, parts), {"m.q.weight", "block [0, 0]", "scale"})) << id;
  }
}

TEST(Hostile, CodesThatAreNanGiveNan) {
  for (const char* id : {"ct-fp8-channel", "deepseek-fp8-block128", "ct-mxfp8"}) {
    std::vector<PackedPart> parts = Packed(id);
    parts[0].bytes[3] = std::byte{0xFF};
    std::vector<double> out(static_cast<size_t>(kN * kK));
    ASSERT_TRUE(Decode(SchemeOf(id), ViewsOf(parts, "m"), kN, kK, out.data()).ok());
    EXPECT_TRUE(std::isnan(out[3]));
    EXPECT_FALSE(std::isnan(out[2]));
  }
  std::vector<PackedPart> parts = Packed("ct-fp8-channel-fnuz");
  parts[0].bytes[3] = std::byte{0x80};
  parts[0].bytes[4] = std::byte{0x7F};
  std::vector<double> out(static_cast<size_t>(kN * kK));
  ASSERT_TRUE(
      Decode(SchemeOf("ct-fp8-channel-fnuz"), ViewsOf(parts, "m"), kN, kK, out.data()).ok());
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], 240 * LoadValue(DType::kBF16, parts[1].bytes.data(), 0));
}

TEST(Hostile, OrdersAreChecked) {
  for (const auto& [id, suffix] :
       {std::pair<const char*, const char*>{"ct-int4-g32-actorder-group", ".weight_g_idx"},
        {"gptq-int4-g32-actorder", ".g_idx"},
        {"gptq-int4-g32", ".g_idx"}}) {
    for (const double entry : {-1.0, 8.0}) {
      std::vector<PackedPart> parts = Packed(id);
      StoreValue(DType::kI32, entry, PartOf(parts, suffix).bytes.data(), 5);
      EXPECT_TRUE(Says(Refusal(id, parts), {suffix, "entry 5", "groups are 0 to 7"}));
    }
  }
  std::vector<PackedPart> parts = Packed("gptq-int4-g32");
  StoreValue(DType::kI32, 3, PartOf(parts, ".g_idx").bytes.data(), 0);
  EXPECT_TRUE(Says(Refusal("gptq-int4-g32", parts), {".g_idx", "permutes"}));
  EXPECT_EQ(Refusal("gptq-int4-g32-actorder", parts), "");
}

TEST(Hostile, AShapeThatLies) {
  std::vector<PackedPart> parts = Packed("ct-int4-g32");
  const int64_t shape[2] = {kN, kK + 1};
  std::memcpy(PartOf(parts, ".weight_shape").bytes.data(), shape, sizeof shape);
  EXPECT_TRUE(Says(Refusal("ct-int4-g32", parts), {"weight_shape", "[16, 257]", "[16, 256]"}));
}

TEST(Hostile, AGlobalScaleOfZeroIsNoDivisor) {
  std::vector<PackedPart> parts = Packed("ct-nvfp4");
  StoreValue(DType::kF32, 0, parts[2].bytes.data(), 0);
  EXPECT_TRUE(Says(Refusal("ct-nvfp4", parts), {"weight_global_scale", "0"}));
  parts = Packed("modelopt-nvfp4");
  StoreValue(DType::kF32, 0, parts[2].bytes.data(), 0);
  EXPECT_EQ(Refusal("modelopt-nvfp4", parts), "");
}

// Whatever the bytes are, there is an answer; and where there is one, it can be encoded again.
TEST(Hostile, AnyBytesDecodeOrAreRefused) {
  uint64_t state = 7;
  for (const std::string& id : KnownSchemes()) {
    SCOPED_TRACE(id);
    const std::vector<PackedPart> good = Packed(id);
    for (int round = 0; round < 20; ++round) {
      std::vector<PackedPart> parts = good;
      for (PackedPart& part : parts) {
        for (int flips = 0; flips < 4 << (round % 8); ++flips) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          part.bytes[(state >> 33) % part.bytes.size()] = static_cast<std::byte>(state >> 56);
        }
      }
      std::vector<double> out(static_cast<size_t>(kN * kK), NAN);
      const PartViews views = ViewsOf(parts, "m");
      if (!Decode(SchemeOf(id), views, kN, kK, out.data()).ok()) continue;
      const Result<PackedPart> codes = Encode(SchemeOf(id), out.data(), kN, kK, views);
      const bool finite =
          std::all_of(out.begin(), out.end(), [](double x) { return std::isfinite(x); });
      EXPECT_EQ(codes.ok(), finite);
    }
  }
}

TEST(Lenient, WhereProducersDiffer) {
  // The scale's type, and the shape of one value a row.
  std::vector<PackedPart> parts = Packed("ct-w8a8-channel");
  PartViews views = ViewsOf(parts, "m");
  views[".weight_scale"].shape = {kN};
  EXPECT_EQ(Refusal("ct-w8a8-channel", views), "");
  views[".weight_scale"].shape = {1, kN};
  EXPECT_NE(Refusal("ct-w8a8-channel", views), "");
  parts = Packed("ct-fp8-tensor");
  views = ViewsOf(parts, "m");
  views[".weight_scale"].shape = {};
  EXPECT_EQ(Refusal("ct-fp8-tensor", views), "");
  // A last group of GPTQ that is not whole: 3 groups for 88 columns.
  parts = Packed("gptq-int4-g32");
  views = ViewsOf(parts, "m");
  views.erase(".g_idx");
  views[".qweight"].shape[0] = 11;
  views[".qweight"].bytes = views[".qweight"].bytes.first(11 * kN * 4);
  views[".scales"].shape[0] = views[".qzeros"].shape[0] = 3;
  views[".scales"].bytes = views[".scales"].bytes.first(3 * kN * 2);
  views[".qzeros"].bytes = views[".qzeros"].bytes.first(3 * kN / 2);
  EXPECT_EQ(Refusal("gptq-int4-g32", views, kN, 88), "");
}

TEST(ModelSlim, StaticPartsGiveTheProductThatTheWeightsGive) {
  std::vector<float> bias(kN);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) - 7.25F;
  std::vector<PackedPart> parts =
      Packed("modelslim-w8a8", {.input_min = -3, .input_max = 9, .bias = bias.data()});
  std::vector<double> w(static_cast<size_t>(kN * kK));
  ASSERT_TRUE(Decode(SchemeOf("modelslim-w8a8"), ViewsOf(parts, "m"), kN, kK, w.data()).ok());
  const auto at = [&](const char* suffix, int64_t i) {
    const PackedPart& part = PartOf(parts, suffix);
    return LoadValue(part.spec.dtype, part.bytes.data(), i);
  };
  const double scale = at(".input_scale", 0), offset = at(".input_offset", 0);
  EXPECT_EQ(std::round(-3 / scale) + offset, -128);
  for (int64_t r = 0; r < kN; ++r) {
    // Any codes of an input will do.
    double integer = at(".quant_bias", r), real = bias[static_cast<size_t>(r)];
    for (int64_t c = 0; c < kK; ++c) {
      const double code = static_cast<double>(c * 7 % 256) - 128;
      integer += at(".weight", r * kK + c) * code;
      real += w[static_cast<size_t>(r * kK + c)] * (code - offset) * scale;
    }
    // quant_bias is rounded to a whole step of deq_scale, and deq_scale to float.
    const double step = at(".deq_scale", r);
    EXPECT_LE(std::fabs(integer * step - real), step / 2 + 0x1p-24 * std::fabs(real) * 2) << r;
  }
  EXPECT_FALSE(Pack(SchemeOf("modelslim-w8a8"), bias.data(), 4, 4, {.input_min = 1}).ok());
}

TEST(ModelSlim, ScaleBiasIsEightTimesTheSumOfTheRow) {
  for (const char* id : {"modelslim-w4a8", "modelslim-w4a8-g256"}) {
    for (const int64_t columns : {1, 16}) {
      std::vector<PackedPart> parts = Packed(id, {.scale_bias_columns = columns});
      std::vector<double> w(static_cast<size_t>(kN * kK));
      ASSERT_TRUE(Decode(SchemeOf(id), ViewsOf(parts, "m"), kN, kK, w.data()).ok());
      const PackedPart& bias = PartOf(parts, ".scale_bias");
      EXPECT_EQ(bias.spec.shape, (std::vector<int64_t>{kN, columns}));
      const int64_t length = kK / columns;
      for (int64_t i = 0; i < kN * columns; ++i) {
        double sum = 0;
        for (int64_t c = 0; c < length; ++c) sum += w[static_cast<size_t>(i * length + c)];
        EXPECT_EQ(LoadValue(DType::kF32, bias.bytes.data(), i), static_cast<float>(8 * sum)) << id;
      }
    }
    std::vector<float> w(4 * 256, 1);
    EXPECT_FALSE(Pack(SchemeOf(id), w.data(), 4, 256, {.scale_bias_columns = 3}).ok());
  }
}

TEST(ModelSlim, TwoRowsShareAByteTheEvenOneLow) {
  const std::vector<float> w = {7, -3, 0, 1, -7, 5, 2, -1};  // [2, 4], both scales 1
  const auto parts = Pack(SchemeOf("modelslim-w4a8"), w.data(), 2, 4);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->front().spec.shape, (std::vector<int64_t>{1, 4}));
  const uint8_t by_hand[4] = {0x97, 0x5D, 0x20, 0xF1};
  EXPECT_EQ(std::memcmp(parts->front().bytes.data(), by_hand, 4), 0);
}

TEST(Gptq, AZeroPointOfZeroDoesNotExistInVersionOne) {
  const std::vector<float> w(8 * 32, 0.5F);  // nothing is negative
  for (const bool v2 : {false, true}) {
    const std::string id = v2 ? "gptq-v2-int4-g32-asym" : "gptq-int4-g32-asym";
    auto parts = Pack(SchemeOf(id), w.data(), 8, 32);
    ASSERT_TRUE(parts.ok());
    uint32_t word;
    std::memcpy(&word, PartOf(*parts, ".qzeros").bytes.data(), 4);
    EXPECT_EQ(word, 0u) << id;  // version 1 means 1 by it, version 2 means 0
    std::vector<double> out(8 * 32);
    ASSERT_TRUE(Decode(SchemeOf(id), ViewsOf(*parts, "m"), 8, 32, out.data()).ok());
    const double scale = LoadValue(DType::kF16, PartOf(*parts, ".scales").bytes.data(), 0);
    EXPECT_EQ(out[0], scale * (v2 ? 15 : 14));
  }
}

}  // namespace
}  // namespace assay::kernels
