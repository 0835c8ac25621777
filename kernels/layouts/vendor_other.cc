// vLLM's block scales, MLA and CPU experts, triton_kernels, vllm-ascend.
#include "kernels/layouts/ascend.h"
#include "kernels/layouts/vendor_checks.h"
#include "kernels/layouts/vendor_file.h"

namespace assay::kernels {
namespace {

void BlockScales(const std::string& file, size_t experts) {
  VendorFile f(file);
  const StoredShape shape = {DType::kU8, f.Shape("scales").rows, f.Shape("scales").columns};
  for (size_t e = 0; e < experts; ++e) {
    const Image in = f.Bytes("scales", e, experts), engines = f.Bytes("swizzled", e, experts);
    for (const char* method : {"ct-nvfp4", "modelopt-nvfp4", "ct-mxfp8"}) {
      ExpectPacks("blockscale-128x4", method, "scale", shape, in, engines);
    }
    ExpectDiffers("triton-cdna4", "ct-mxfp4", "scale", shape, in, engines);
  }
}

void MlaAbsorb(const std::string& file) {
  VendorFile f(file);
  const int64_t nope = 16, v = 12;
  for (const size_t tp : {1U, 2U, 8U}) {
    for (size_t r = 0; r < tp; ++r) {
      const std::string rank = "tp" + std::to_string(tp) + ".rank" + std::to_string(r);
      Image engines = f.Bytes(rank + ".w_kc");
      const Image values = f.Bytes(rank + ".w_vc");
      engines.insert(engines.end(), values.begin(), values.end());
      StoredShape shape = f.Shape("kv_b_proj.weight");
      shape.rows /= static_cast<int64_t>(tp);
      shape.nope = nope, shape.v = v;
      const Image in = f.Bytes("kv_b_proj.weight", r, tp);
      ExpectPacks("mla-absorb", "bf16", "weight", shape, in, engines);
      std::swap(shape.nope, shape.v);
      ExpectDiffers("mla-absorb", "bf16", "weight", shape, in, engines);
      shape.nope = 17;  // no whole head
      EXPECT_EQ(FindLayout("mla-absorb", "bf16", "weight")->bytes(shape), -1);
      shape.nope = 0;
      EXPECT_EQ(FindLayout("mla-absorb", "bf16", "weight")->bytes(shape), -1);
    }
  }
}

void CpuExperts(const std::string& file) {
  VendorFile f(file);
  for (size_t e = 0; e < 2; ++e) {
    const Image in = f.Bytes("weight", e, 2), engines = f.Bytes("packed", e, 2);
    ExpectPacks("vllm-cpu-moe-vec", "bf16", "weight", f.Shape("weight"), in, engines);
    ExpectDiffers("vnni", "bf16", "weight", f.Shape("weight"), in, engines);
  }
}

// The files have the view's order, [columns, rows] of what lies in memory.
Image AsInMemory(const Image& view, const StoredShape& shape) {
  Image memory(view.size());
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.columns; ++c) {
      memory[static_cast<size_t>(c * shape.rows + r)] =
          view[static_cast<size_t>(r * shape.columns + c)];
    }
  }
  return memory;
}

void Triton(const std::string& file, size_t experts, bool whole) {
  VendorFile f(file);
  for (size_t e = 0; e < experts; ++e) {
    const auto check = [&](const char* tag, const char* part, const char* engines, bool view) {
      const char* in = std::string_view(part) == "weight" ? "weight" : "scales";
      const Image bytes = f.Bytes(engines, e, experts);
      ExpectPacks(tag, "gptoss-mxfp4", part, f.Shape(in), f.Bytes(in, e, experts),
                  view ? AsInMemory(bytes, f.Shape(engines)) : bytes);
    };
    check("triton-hopper", "weight", "hopper_value", true);
    check("triton-hopper-w4", "weight", "hopper_value", true);
    check("triton-hopper", "scale", "hopper_scale_8_warps", true);
    check("triton-blackwell", "scale", "blackwell_scale", false);
    if (!whole) continue;
    check("triton-hopper-w4", "scale", "hopper_scale_4_warps", true);
    check("triton-cdna4", "scale", "cdna4_scale", true);
    const Image scales = f.Bytes("scales", e, experts);
    const Image four =
        AsInMemory(f.Bytes("hopper_scale_4_warps", e, experts), f.Shape("hopper_scale_4_warps"));
    Image eight =
        Packed(*FindLayout("triton-hopper", "ct-mxfp4", "scale"), f.Shape("scales"), scales);
    eight.resize(four.size());
    EXPECT_FALSE(eight == four) << "the count of warps is part of the layout";
  }
  ExpectDiffers(
      "blockscale-128x4", "ct-mxfp4", "scale", f.Shape("scales"), f.Bytes("scales", 0, experts),
      AsInMemory(f.Bytes("hopper_scale_8_warps", 0, experts), f.Shape("hopper_scale_8_warps")));
}

constexpr size_t kExperts = 2;

void ModelSlim(const std::string& file) {
  VendorFile f(file);
  for (const std::string w : {"w13", "w2"}) {
    const StoredShape shape = f.Shape("in." + w + "_weight");
    const StoredShape scale = f.Shape("in." + w + "_weight_scale");
    for (size_t e = 0; e < kExperts; ++e) {
      const Image in = f.Bytes("in." + w + "_weight", e, kExperts);
      const Image engines = f.Bytes("out." + w + "_weight", e, kExperts);
      ExpectPacks("ascend-w4a8", "modelslim-w4a8", "weight", shape, in, engines);
      ExpectDiffers("row", "modelslim-w4a8", "weight", shape, in, engines);
      ExpectPacks("ascend-w4a8", "modelslim-w4a8", "scale", scale,
                  f.Bytes("in." + w + "_weight_scale", e, kExperts),
                  f.Bytes("out." + w + "_weight_scale", e, kExperts));
    }
    // Not a layout: sums.
    const std::vector<float> parts = f.Values<float>("in." + w + "_scale_bias");
    const std::vector<float> sums = f.Values<float>("out." + w + "_scale_bias");
    const size_t count = parts.size() / sums.size();
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(ascend::ScaleBias(std::span(parts).subspan(i * count, count)), sums[i]) << i;
    }
  }
}

void CtForAscend(const std::string& file) {
  VendorFile f(file);
  for (const std::string w : {"w13", "w2"}) {
    const StoredShape shape = f.Shape("in." + w + "_weight");  // a code a byte
    const std::vector<float> biases = f.Values<float>("out." + w + "_scale_bias");
    for (size_t e = 0; e < kExperts; ++e) {
      const Image codes = f.Bytes("in." + w + "_weight", e, kExperts);
      Image words(codes.size() / 2);
      for (size_t i = 0; i < codes.size(); ++i) {
        words[i / 2] |= ((codes[i] & std::byte{15}) ^ std::byte{8}) << i % 2 * 4;
      }
      ExpectPacks("ascend-w4a8", "ct-int4-channel", "weight",
                  {DType::kI32, shape.rows, shape.columns / 8}, words,
                  f.Bytes("out." + w + "_weight", e, kExperts));
      const Image scales = f.Bytes("in." + w + "_weight_scale", e, kExperts);
      ExpectPacks("ascend-w4a8", "ct-int4-channel", "scale", {DType::kBF16, shape.rows, 1}, scales,
                  f.Bytes("out." + w + "_weight_scale", e, kExperts));
      const auto k = static_cast<size_t>(shape.columns), rows = static_cast<size_t>(shape.rows);
      for (size_t n = 0; n < rows; ++n) {
        uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char*>(&bits) + 2, &scales[2 * n], 2);
        float scale = 0;
        std::memcpy(&scale, &bits, 4);
        std::vector<int8_t> row(k);
        std::memcpy(row.data(), &codes[n * k], k);
        EXPECT_EQ(ascend::ScaleBiasOfCodes(scale, row), biases[e * rows + n]);
      }
    }
  }
}

}  // namespace

std::vector<VendorCheck> OtherChecks() {
  return {
      {"blockscale-128x4", [](const std::string& f) { BlockScales(f, 1); }},
      {"blockscale-128x4-tails", [](const std::string& f) { BlockScales(f, 1); }},
      {"blockscale-128x4-experts", [](const std::string& f) { BlockScales(f, 3); }},
      {"mla-absorb", MlaAbsorb},
      {"vllm-cpu-moe-vec", CpuExperts},
      {"triton-kernels-mxfp4", [](const std::string& f) { Triton(f, 2, true); }},
      {"triton-kernels-mxfp4-tails", [](const std::string& f) { Triton(f, 1, false); }},
      {"modelslim-w4a8", ModelSlim},
      {"ascend-w4a8-from-compressed-tensors", CtForAscend},
  };
}

}  // namespace assay::kernels
