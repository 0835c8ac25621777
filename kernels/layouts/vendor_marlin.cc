// vLLM's and GPTQModel's Marlin.
#include "kernels/layouts/marlin.h"
#include "kernels/layouts/vendor_checks.h"
#include "kernels/layouts/vendor_file.h"

namespace assay::kernels {
namespace {

// Codes [K, N], one a byte, as compressed-tensors' words [N, K·bits/32].
Image RowWords(const Image& codes, int64_t k, int64_t n, int bits) {
  Image words(codes.size() * static_cast<size_t>(bits) / 8);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t bit = (row * k + i) * bits;
      words[static_cast<size_t>(bit / 8)] |= codes[static_cast<size_t>(i * n + row)] << bit % 8;
    }
  }
  return words;
}

// Values [rows, columns] of `size` bytes as [columns, rows].
Image Transposed(const Image& in, int64_t rows, int64_t columns, int64_t size) {
  Image out(in.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(&out[static_cast<size_t>((c * rows + r) * size)],
                  &in[static_cast<size_t>((r * columns + c) * size)], static_cast<size_t>(size));
    }
  }
  return out;
}

// `method` is the suffix: "g32", "channel".
void Int(const std::string& file, int bits, const std::string& method) {
  VendorFile f(file);
  const int64_t k = f.Number("k"), n = f.Number("n");
  EXPECT_EQ(f.Number("bits"), bits);
  const std::string gptq = "gptq-int" + std::to_string(bits) + "-" + method;
  const std::string ct = "ct-int" + std::to_string(bits) + "-" + method;
  const Image engines = f.Bytes("marlin_qweight"), scales = f.Bytes("marlin_scales");
  ExpectPacks("marlin", gptq, "weight", f.Shape("qweight"), f.Bytes("qweight"), engines);
  const Image words = RowWords(f.Bytes("codes"), k, n, bits);
  const StoredShape by_rows = {DType::kI32, n, k * bits / 32};
  ExpectPacks("marlin", ct, "weight", by_rows, words, engines);
  const StoredShape shape = f.Shape("scales");
  ExpectPacks("marlin", gptq, "scale", shape, f.Bytes("scales"), scales);
  ExpectPacks("marlin", ct, "scale", {shape.dtype, n, shape.rows},
              Transposed(f.Bytes("scales"), shape.rows, n, 2), scales);
  // One method's bytes read as the other's are not Marlin's, nor is the plain order.
  ExpectDiffers("marlin", gptq, "weight", {DType::kI32, k * bits / 32, n}, words, engines);
  ExpectDiffers("row", gptq, "weight", f.Shape("qweight"), f.Bytes("qweight"), engines);
  ExpectDiffers("row", gptq, "scale", shape, f.Bytes("scales"), scales);
}

// Scales of a rank that has one group take the permutation by channel; packed as the first of two
// groups they would not.
void OneGroup(const std::string& file) {
  Int(file, 4, "g128");  // of a checkpoint with groups of 128 the rank has K = 128
  VendorFile f(file);
  f.Bytes("codes"), f.Bytes("qweight"), f.Bytes("marlin_qweight");
  const StoredShape shape = f.Shape("scales");
  EXPECT_EQ(shape.rows, 1);
  Image twice = f.Bytes("scales");
  const Image once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  const Layout* layout = FindLayout("marlin", "gptq-int4-g128", "scale");
  ASSERT_NE(layout, nullptr);
  Image by_groups = Packed(*layout, {shape.dtype, 2, shape.columns}, twice);
  by_groups.resize(once.size());
  EXPECT_FALSE(by_groups == f.Bytes("marlin_scales")) << "the permutation by groups is not due";
}

void Actorder(const std::string& file) {
  VendorFile f(file);
  const int64_t k = f.Number("k"), n = f.Number("n");
  const std::vector<int32_t> g_idx = f.Values<int32_t>("g_idx");
  const std::vector<int32_t> order = marlin::SortedOrder(g_idx);
  EXPECT_EQ(order, f.Values<int32_t>("sort_indices"));
  Image groups = f.Bytes("sorted_g_idx");
  const Image indices = f.Bytes("sort_indices");
  groups.insert(groups.end(), indices.begin(), indices.end());
  ExpectPacks("marlin", "gptq-int4-g32-actorder", "g_idx", f.Shape("g_idx"), f.Bytes("g_idx"),
              groups);
  const Image engines = f.Bytes("marlin_qweight");
  StoredShape shape = f.Shape("qweight");
  shape.order = order;
  ExpectPacks("marlin", "gptq-int4-g32-actorder", "weight", shape, f.Bytes("qweight"), engines);
  StoredShape by_rows = {DType::kI32, n, k / 8};
  by_rows.order = order;
  ExpectPacks("marlin", "ct-int4-g32-actorder-group", "weight", by_rows,
              RowWords(f.Bytes("codes"), k, n, 4), engines);
  ExpectDiffers("marlin", "gptq-int4-g32", "weight", f.Shape("qweight"), f.Bytes("qweight"),
                engines);
  // Without the order, or with one that is none, the layout is refused.
  const Layout* layout = FindLayout("marlin", "gptq-int4-g32-actorder", "weight");
  EXPECT_EQ(layout->bytes(f.Shape("qweight")), -1);
  std::vector<int32_t> twice = order;
  twice[1] = twice[0];
  shape.order = twice;
  EXPECT_EQ(layout->bytes(shape), -1);
  shape.order = std::span(order).first(order.size() - 1);
  EXPECT_EQ(layout->bytes(shape), -1);
}

void Padded(const std::string& file) {
  VendorFile f(file);
  const int64_t k = f.Number("k"), n = f.Number("n"), group = f.Number("group");
  const marlin::Extents padded = marlin::Padded(n, k, group);
  EXPECT_EQ(padded.n, f.Number("padded_n"));
  EXPECT_EQ(padded.k, f.Number("padded_k"));
  EXPECT_EQ(f.Shape("padded_qweight").columns, padded.n);
  EXPECT_EQ(f.Shape("padded_scales").columns, padded.n);
  StoredShape weight = f.Shape("qweight"), scale = f.Shape("scales");
  weight.group = scale.group = group;
  scale.k = k;
  const Image engines = f.Bytes("marlin_qweight"), scales = f.Bytes("marlin_scales");
  ExpectPacks("marlin-padded", "gptq-int4-g16", "weight", weight, f.Bytes("qweight"), engines);
  ExpectPacks("marlin-padded", "gptq-int4-g16", "scale", scale, f.Bytes("scales"), scales);
  const StoredShape by_rows = {DType::kI32, n, k / 8, k, group};
  ExpectPacks("marlin-padded", "ct-int4-g16", "weight", by_rows,
              RowWords(f.Bytes("codes"), k, n, 4), engines);
  const StoredShape row_scales = {scale.dtype, n, scale.rows, k, group};
  ExpectPacks("marlin-padded", "ct-int4-g16", "scale", row_scales,
              Transposed(f.Bytes("scales"), scale.rows, n, 2), scales);
  // What is already padded is what "marlin" makes of it.
  ExpectPacks("marlin", "gptq-int4-g16", "weight", f.Shape("padded_qweight"),
              f.Bytes("padded_qweight"), engines);
  ExpectPacks("marlin", "gptq-int4-g16", "scale", f.Shape("padded_scales"),
              f.Bytes("padded_scales"), scales);
  ExpectDiffers("marlin", "gptq-int4-g16", "weight", f.Shape("qweight"), f.Bytes("qweight"),
                engines);
}

// AWQ's zero points [groups, N], one a byte, as compressed-tensors' words [N / 8, groups].
Image ZeroWords(const Image& zeros, int64_t groups, int64_t n) {
  Image words(zeros.size() / 2);
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < n; ++i) {
      const auto byte = static_cast<size_t>((i / 8 * groups + g) * 4 + i % 8 / 2);
      words[byte] |= zeros[static_cast<size_t>(g * n + i)] << i % 2 * 4;
    }
  }
  return words;
}

void Awq(const std::string& file, const std::string& group) {
  VendorFile f(file);
  const int64_t k = f.Number("k"), n = f.Number("n");
  const std::string awq = "awq-int4-" + group + "-asym", ct = "ct-int4-" + group + "-asym";
  const Image engines = f.Bytes("marlin_qweight"), zeros = f.Bytes("marlin_qzeros");
  ExpectPacks("marlin", awq, "weight", f.Shape("qweight"), f.Bytes("qweight"), engines);
  ExpectPacks("marlin", ct, "weight", {DType::kI32, n, k / 8}, RowWords(f.Bytes("codes"), k, n, 4),
              engines);
  ExpectPacks("marlin", awq, "zero", f.Shape("qzeros"), f.Bytes("qzeros"), zeros);
  const StoredShape shape = f.Shape("scales");
  const Image words = ZeroWords(f.Bytes("zeros"), shape.rows, n);
  ExpectPacks("marlin", ct, "zero", {DType::kI32, n / 8, shape.rows}, words, zeros);
  ExpectPacks("marlin", awq, "scale", shape, f.Bytes("scales"), f.Bytes("marlin_scales"));
  // The order within an AWQ word is not compressed-tensors'.
  ExpectDiffers("marlin", awq, "zero", f.Shape("qzeros"), words, zeros);
  // A rank that has one group only: scales take the permutation by channel, zero points do not.
  const auto one = [](const Image& all, int64_t rows) {
    return Image(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size()) / rows);
  };
  ExpectPacks("marlin", awq, "zero", {DType::kI32, 1, n / 8}, one(f.Bytes("qzeros"), shape.rows),
              one(zeros, shape.rows));
  ExpectDiffers("marlin", awq, "scale", {shape.dtype, 1, n}, one(f.Bytes("scales"), shape.rows),
                one(f.Bytes("marlin_scales"), shape.rows));
}

void Fp8(const std::string& file) {
  VendorFile f(file);
  const Image engines = f.Bytes("marlin_qweight");
  ExpectPacks("marlin", "ct-fp8-channel", "weight", f.Shape("weight"), f.Bytes("weight"), engines);
  EXPECT_EQ(f.Bytes("qweight").size(), engines.size());  // the engine's step in between
  const StoredShape shape = f.Shape("scales");
  ExpectPacks("marlin", "ct-fp8-channel", "scale", {shape.dtype, shape.columns, 1},
              f.Bytes("scales"), f.Bytes("marlin_scales"));
  std::vector<uint16_t> biased = f.Values<uint16_t>("marlin_scales");
  const std::vector<uint16_t> plain = biased;
  for (uint16_t& scale : biased) scale = marlin::FusedExponentBiasBf16(scale);
  EXPECT_EQ(biased, f.Values<uint16_t>("marlin_scales_with_exponent_bias"));
  EXPECT_NE(biased, plain);
}

void Mxfp4(const std::string& file) {
  VendorFile f(file);
  StoredShape weight = f.Shape("weight"), scale = f.Shape("scales");
  for (const char* method : {"ct-mxfp4", "quark-mxfp4", "gptoss-mxfp4", "deepseek-v4-mxfp4"}) {
    const bool deepseek = std::string_view(method) == "deepseek-v4-mxfp4";
    weight.dtype = deepseek ? DType::kI8 : DType::kU8;
    scale.dtype = deepseek ? DType::kF8E8M0 : DType::kU8;
    ExpectPacks("marlin", method, "weight", weight, f.Bytes("weight"), f.Bytes("marlin_qweight"));
    ExpectPacks("marlin", method, "scale", scale, f.Bytes("scales"), f.Bytes("marlin_scales"));
  }
  ExpectDiffers("row", "ct-mxfp4", "scale", scale, f.Bytes("scales"), f.Bytes("marlin_scales"));
}

void Nvfp4(const std::string& file) {
  VendorFile f(file);
  Image scales = f.Bytes("marlin_scales");
  const Image factor = f.Bytes("scale_factor");
  scales.insert(scales.end(), factor.begin(), factor.end());
  for (const char* method : {"ct-nvfp4", "modelopt-nvfp4"}) {
    ExpectPacks("marlin", method, "weight", f.Shape("weight"), f.Bytes("weight"),
                f.Bytes("marlin_qweight"));
    ExpectPacks("marlin", method, "scale", f.Shape("scales"), f.Bytes("scales"), scales);
  }
  // MXFP4's rule leaves the codes as they are.
  StoredShape bytes = f.Shape("scales");
  bytes.dtype = DType::kU8;
  ExpectDiffers("marlin", "ct-mxfp4", "scale", bytes, f.Bytes("scales"), f.Bytes("marlin_scales"));
  const float global = f.Values<float>("global_scale")[0];
  const float f2 = f.Values<float>("scale_factor")[0];
  EXPECT_EQ(marlin::Nvfp4GlobalScaleBf16(global, f2), f.Values<uint16_t>("marlin_global_scale")[0]);
  EXPECT_NE(marlin::Nvfp4GlobalScaleBf16(global, 1), f.Values<uint16_t>("marlin_global_scale")[0]);
}

}  // namespace

std::vector<VendorCheck> MarlinChecks() {
  return {
      {"marlin-int4-g32", [](const std::string& f) { Int(f, 4, "g32"); }},
      {"marlin-int4-g128", [](const std::string& f) { Int(f, 4, "g128"); }},
      {"marlin-int4-channel", [](const std::string& f) { Int(f, 4, "channel"); }},
      {"marlin-int4-g16-k144-n192", [](const std::string& f) { Int(f, 4, "g16"); }},
      {"marlin-int8-g128", [](const std::string& f) { Int(f, 8, "g128"); }},
      {"marlin-int8-channel", [](const std::string& f) { Int(f, 8, "channel"); }},
      {"marlin-int4-one-group", OneGroup},
      {"marlin-int4-g32-actorder", Actorder},
      {"marlin-int4-g16-padded", Padded},
      {"awq-marlin-g32", [](const std::string& f) { Awq(f, "g32"); }},
      {"awq-marlin-g128", [](const std::string& f) { Awq(f, "g128"); }},
      {"marlin-fp8-channel", Fp8},
      {"marlin-mxfp4", Mxfp4},
      {"marlin-nvfp4", Nvfp4},
  };
}

}  // namespace assay::kernels
