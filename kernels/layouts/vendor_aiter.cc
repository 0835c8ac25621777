// AITER's pre-shuffles.
#include "kernels/layouts/vendor_checks.h"
#include "kernels/layouts/vendor_file.h"

namespace assay::kernels {
namespace {

constexpr size_t kExperts = 2;

void ShuffledWeight(const std::string& file) {
  VendorFile f(file);
  const StoredShape shape = f.Shape("bytes");
  for (const char* tag : {"aiter-klane", "aiter-separated"}) {
    ExpectPacks(tag, "quark-mxfp4", "weight", shape, f.Bytes("bytes"), f.Bytes("shuffled"));
  }
  ExpectPacks("aiter-klane", "bf16", "weight", f.Shape("bf16"), f.Bytes("bf16"),
              f.Bytes("bf16_shuffled"));
  ExpectDiffers("aiter-interleaved", "quark-mxfp4", "weight", shape, f.Bytes("bytes"),
                f.Bytes("shuffled"));
  ExpectDiffers("vnni", "ct-w8a8-channel", "weight", {DType::kI8, shape.rows, shape.columns},
                f.Bytes("bytes"), f.Bytes("shuffled"));

  // int4: the engine shuffles codes a byte each, then packs eight in four bytes (its own bytes for
  // that are in aiter-int4). The component has code + 8 in words.
  const Image codes = f.Bytes("int4_view"), shuffled = f.Bytes("int4_shuffled");
  Image words(codes.size() / 2), engines(codes.size() / 2);
  for (size_t i = 0; i < codes.size(); ++i) {
    words[i / 2] |= ((codes[i] & std::byte{15}) ^ std::byte{8}) << i % 2 * 4;
    engines[i / 8 * 4 + i % 4] |= (shuffled[i] & std::byte{15}) << i % 8 / 4 * 4;
  }
  const StoredShape rows = {DType::kI32, shape.rows, shape.columns / 8};
  ExpectPacks("aiter-int4", "ct-int4-g32", "weight", rows, words, engines);
  ExpectDiffers("row", "ct-int4-g32", "weight", rows, words, engines);
}

void ExpertWeights(const std::string& file) {
  VendorFile f(file);
  for (size_t e = 0; e < kExperts; ++e) {
    const Image w13 = f.Bytes("w13", e, kExperts), w2 = f.Bytes("w2", e, kExperts);
    const StoredShape gate_up = f.Shape("w13"), down = f.Shape("w2");
    const auto check = [&](const char* tag, const StoredShape& shape, const Image& in,
                           const char* engines) {
      ExpectPacks(tag, "gptoss-mxfp4", "weight", shape, in, f.Bytes(engines, e, kExperts));
    };
    check("aiter-interleaved", gate_up, w13, "w13_gate_up");
    check("aiter-klane", gate_up, w13, "w13_separated");
    check("aiter-separated", gate_up, w13, "w13_generic");
    check("aiter-klane", down, w2, "w2_a16w4");
    check("aiter-separated", down, w2, "w2_generic");
    // The accident: one's kernel on the other's weights.
    ExpectDiffers("aiter-interleaved", "gptoss-mxfp4", "weight", gate_up, w13,
                  f.Bytes("w13_generic", e, kExperts));
    ExpectDiffers("aiter-separated", "gptoss-mxfp4", "weight", gate_up, w13,
                  f.Bytes("w13_gate_up", e, kExperts));
  }
}

void ExpertScales(const std::string& file) {
  VendorFile f(file);
  const auto shape = [&](const char* name) {
    StoredShape s = f.Shape(name);
    s.rows /= static_cast<int64_t>(kExperts);
    return s;
  };
  for (size_t e = 0; e < kExperts; ++e) {
    const auto check = [&](const char* tag, const char* in, const char* engines) {
      ExpectPacks(tag, "ct-mxfp4", "scale", shape(in), f.Bytes(in, e, kExperts),
                  f.Bytes(engines, e, kExperts));
    };
    check("aiter-interleaved", "s13", "s13_gate_up");
    check("aiter-klane", "s13", "s13_separated");
    check("aiter-klane", "s2", "s2_a16w4");
    check("aiter-klane", "s2_12_columns", "s2_12_columns_a16w4");
    ExpectDiffers("aiter-klane", "ct-mxfp4", "scale", shape("s13"), f.Bytes("s13", e, kExperts),
                  f.Bytes("s13_gate_up", e, kExperts));
    // Padded with 0 for 0x7F.
    ExpectDiffers("triton-cdna4", "ct-mxfp4", "scale", shape("s2_12_columns"),
                  f.Bytes("s2_12_columns", e, kExperts),
                  f.Bytes("s2_12_columns_a16w4", e, kExperts));
  }
}

void ShuffledScale(const std::string& file) {
  VendorFile f(file);
  const auto check = [&](const char* in, const char* engines) {
    ExpectPacks("aiter-separated", "ct-mxfp4", "scale", f.Shape(in), f.Bytes(in), f.Bytes(engines));
  };
  check("scales", "shuffled");
  check("padded_256x16_by_us", "padded_256x16_shuffled");
  check("scales_200x11", "padded_256x16_shuffled");
  ExpectDiffers("blockscale-128x4", "ct-mxfp4", "scale", f.Shape("scales"), f.Bytes("scales"),
                f.Bytes("shuffled"));
}

void Gfx1250(const std::string& file) {
  VendorFile f(file);
  const Image scales = f.Bytes("scales");
  ExpectPacks("aiter-gfx1250", "ct-mxfp4", "scale", f.Shape("scales"), scales, f.Bytes("f4_mxfp4"));
  ExpectPacks("aiter-gfx1250", "ct-nvfp4", "scale", f.Shape("scales"), scales, f.Bytes("f4_nvfp4"));
  ExpectDiffers("aiter-gfx1250", "ct-mxfp4", "scale", f.Shape("scales"), scales,
                f.Bytes("f4_nvfp4"));
  const size_t experts = 4;
  StoredShape shape = f.Shape("scales");
  shape.rows /= 4;
  for (size_t e = 0; e < experts; ++e) {
    const Image in = f.Bytes("scales", e, experts);
    ExpectPacks("aiter-gfx1250-separated", "ct-mxfp4", "scale", shape, in,
                f.Bytes("n32k4_separated", e, experts));
    ExpectPacks("aiter-gfx1250-interleaved", "ct-mxfp4", "scale", shape, in,
                f.Bytes("n32k4_gate_up_interleaved", e, experts));
    ExpectDiffers("aiter-gfx1250-separated", "ct-mxfp4", "scale", shape, in,
                  f.Bytes("n32k4_gate_up_interleaved", e, experts));
  }
  const Image w = f.Bytes("w"), shuffled = f.Bytes("shuffle_weight_f4");
  ExpectPacks("aiter-gfx1250", "ct-mxfp4", "weight", f.Shape("w"), w, shuffled);
  ExpectPacks("aiter-gfx1250", "modelopt-nvfp4", "weight", f.Shape("w"), w, shuffled);
  ExpectPacks("aiter-gfx1250", "ct-mxfp4", "act", f.Shape("w"), w, f.Bytes("shuffle_mxfp8fp4_a"));
  for (size_t e = 0; e < kExperts; ++e) {
    const Image gate_up = f.Bytes("w13", e, kExperts), rows = f.Bytes("gate_up_rows", e, kExperts);
    ExpectPacks("gate-up-rows", "ct-mxfp4", "weight", f.Shape("w13"), gate_up, rows);
    // The engine then shuffles those rows as it does any others.
    const Layout* then = FindLayout("aiter-gfx1250", "ct-mxfp4", "weight");
    ASSERT_NE(then, nullptr);
    ExpectPacks("aiter-gfx1250-interleaved", "ct-mxfp4", "weight", f.Shape("w13"), gate_up,
                Packed(*then, f.Shape("w13"), rows));
  }
}

void Int4(const std::string& file) {
  VendorFile f(file);
  // Eight codes in four bytes: the same as the last step of aiter-int4's tiles, of one row of 32
  // codes in a tile of 16.
  const Image values = f.Bytes("values"), packed = f.Bytes("packed");
  const Layout* layout = FindLayout("aiter-int4", "ct-int4-g32", "weight");
  ASSERT_NE(layout, nullptr);
  for (size_t at = 0; at < values.size(); at += 32) {
    Image words(16);
    for (size_t i = 0; i < 32; ++i) {
      words[i / 2] |= ((values[at + i] & std::byte{15}) ^ std::byte{8}) << i % 2 * 4;
    }
    Image tile = Packed(*layout, {DType::kI32, 1, 4}, words);
    ASSERT_EQ(tile.size(), 256U);
    const auto from = packed.begin() + static_cast<std::ptrdiff_t>(at / 2);
    EXPECT_TRUE(std::equal(tile.begin(), tile.begin() + 16, from)) << at;
    EXPECT_FALSE(std::equal(words.begin(), words.end(), from)) << at;
    EXPECT_EQ(Image(tile.begin() + 16, tile.end()), Image(240)) << "padding has value 0";
  }
  // Scales [expert, groups, N] in the file, [N, groups] in a checkpoint.
  const std::vector<uint16_t> scales = f.Values<uint16_t>("scales");
  const size_t groups = 8, n = 32;
  for (size_t e = 0; e < kExperts; ++e) {
    std::vector<uint16_t> by_rows(groups * n);
    for (size_t g = 0; g < groups; ++g) {
      for (size_t i = 0; i < n; ++i) by_rows[i * groups + g] = scales[(e * groups + g) * n + i];
    }
    const StoredShape shape = {DType::kBF16, static_cast<int64_t>(n), static_cast<int64_t>(groups)};
    ExpectPacks("aiter-int4", "ct-int4-g32", "scale", shape, ImageOf(by_rows),
                f.Bytes("scales_packed", e, kExperts));
    ExpectDiffers("row", "ct-int4-g32", "scale", shape, ImageOf(by_rows),
                  f.Bytes("scales_packed", e, kExperts));
  }
}

}  // namespace

std::vector<VendorCheck> AiterChecks() {
  return {{"aiter-shuffle-weight", ShuffledWeight},
          {"aiter-a16w4-weight", ExpertWeights},
          {"aiter-a16w4-scale", ExpertScales},
          {"aiter-shuffle-scale", ShuffledScale},
          {"aiter-gfx1250", Gfx1250},
          {"aiter-int4", Int4}};
}

}  // namespace assay::kernels
