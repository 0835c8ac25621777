// Every vector of goldens/formats and every quantised weight of goldens/quantised.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "harness/checkpoint/checkpoint.h"
#include "kernels/methods/numbers.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {
namespace {

std::unique_ptr<SafetensorsFile> Open(const std::string& name) {
  auto file = SafetensorsFile::Open("goldens/formats/" + name + ".safetensors");
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? std::move(*file) : nullptr;
}

std::vector<double> Doubles(const TensorView& view) {
  std::vector<double> values(view.bytes.size() / 8);
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

// All tensors of the file but what is for comparing, by suffix.
PartViews PartsIn(const SafetensorsFile& file) {
  PartViews parts;
  for (const auto& [name, view] : file.tensors()) {
    if (name != "expected" && name != "codes" && name != "library_default") {
      parts["." + name] = view;
    }
  }
  return parts;
}

struct Vector {
  const char* file;
  const char* method;
};

constexpr Vector kVectors[] = {
    {"awq-int4-g32-asym", "awq-int4-g32-asym"},
    {"ct-fp8-block128", "ct-fp8-block128"},
    {"ct-fp8-block16x32", "ct-fp8-block16x32"},
    {"ct-fp8-channel", "ct-fp8-channel"},
    {"ct-fp8-tensor", "ct-fp8-tensor"},
    {"ct-int3-g32-sym", "ct-int3-g32"},
    {"ct-int4-channel-asym", "ct-int4-channel-asym"},
    {"ct-int4-channel-sym", "ct-int4-channel"},
    {"ct-int4-g128-sym", "ct-int4-g128"},
    {"ct-int4-g32-actorder-group", "ct-int4-g32-actorder-group"},
    {"ct-int4-g32-asym", "ct-int4-g32-asym"},
    {"ct-int4-g32-sym", "ct-int4-g32"},
    {"ct-int4-one-group-sym", "ct-int4-one-group"},
    {"ct-int5-channel-asym", "ct-int5-channel-asym"},
    {"ct-int6-g32-sym", "ct-int6-g32"},
    {"ct-int8-g32-sym", "ct-int8-g32"},
    {"ct-mxfp4", "ct-mxfp4"},
    {"ct-mxfp4-extreme-scales", "ct-mxfp4"},
    {"ct-mxfp8", "ct-mxfp8"},
    {"ct-nvfp4", "ct-nvfp4"},
    {"ct-old-int3-g32-sym", "ct-old-int3-g32"},
    {"ct-old-int6-g32-sym", "ct-old-int6-g32"},
    {"ct-w8a8-channel", "ct-w8a8-channel"},
    {"ct-w8a8-channel-asym", "ct-w8a8-channel-asym"},
    {"ct-w8a8-tensor", "ct-w8a8-tensor"},
    {"deepseek-fp8-block128", "deepseek-fp8-block128"},
    {"deepseek-fp8-block32", "deepseek-fp8-block32"},
    {"deepseek-v4-mxfp4", "deepseek-v4-mxfp4"},
    {"gptq-int4-g32-actorder", "gptq-int4-g32-actorder"},
    {"gptq-int4-g32-sym", "gptq-int4-g32"},
    {"gptq-int4-g64-asym", "gptq-int4-g64-asym"},
    {"modelopt-nvfp4", "modelopt-nvfp4"},
};

// README: equality is exact but for modelopt-nvfp4, whose converter rounds the reciprocal of the
// scale to float.
double RelativeBound(const Vector& vector) {
  return std::string_view(vector.file) == "modelopt-nvfp4" ? 0x1p-23 : 0;
}

TEST(Vectors, DecodeToWhatTheLibrarySays) {
  for (const Vector& vector : kVectors) {
    SCOPED_TRACE(vector.file);
    const auto file = Open(vector.file);
    ASSERT_NE(file, nullptr);
    const TensorView* expected = file->Find("expected");
    ASSERT_NE(expected, nullptr);
    const std::vector<double> want = Doubles(*expected);
    std::vector<double> got(want.size());
    const Status status = Decode(ParseScheme(vector.method).value(), PartsIn(*file),
                                 expected->shape[0], expected->shape[1], got.data());
    ASSERT_TRUE(status.ok()) << status.error().message;
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - want[i]), RelativeBound(vector) * std::fabs(want[i]))
          << i << ": " << got[i] << " for " << want[i];
      ASSERT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i;
    }
  }
}

// The values under the vendor's scales give the vendor's own bytes.
TEST(Vectors, EncodeToTheVendorsBytes) {
  std::set<std::string> exact;
  for (const Vector& vector : kVectors) {
    SCOPED_TRACE(vector.file);
    const auto file = Open(vector.file);
    ASSERT_NE(file, nullptr);
    const TensorView* expected = file->Find("expected");
    const Result<PackedPart> codes =
        Encode(ParseScheme(vector.method).value(), Doubles(*expected).data(), expected->shape[0],
               expected->shape[1], PartsIn(*file));
    ASSERT_TRUE(codes.ok()) << codes.error().message;
    const TensorView* theirs = file->Find(codes->spec.suffix.substr(1));
    ASSERT_NE(theirs, nullptr);
    EXPECT_EQ(theirs->dtype, codes->spec.dtype);
    EXPECT_EQ(theirs->shape, codes->spec.shape);
    ASSERT_EQ(theirs->bytes.size(), codes->bytes.size());
    for (size_t i = 0; i < codes->bytes.size(); ++i) {
      ASSERT_EQ(codes->bytes[i], theirs->bytes[i]) << i;
    }
  }
}

// The names, types and shapes that producers write are those that PartsOf lists. The types of
// scales differ between producers; those of codes do not.
TEST(Vectors, HaveThePartsThatPartsOfLists) {
  for (const Vector& vector : kVectors) {
    SCOPED_TRACE(vector.file);
    const auto file = Open(vector.file);
    const TensorView* expected = file->Find("expected");
    const auto specs =
        PartsOf(ParseScheme(vector.method).value(), expected->shape[0], expected->shape[1]);
    ASSERT_TRUE(specs.ok()) << specs.error().message;
    const PartViews parts = PartsIn(*file);
    EXPECT_EQ(specs->size(), parts.size());
    for (const PartSpec& spec : *specs) {
      ASSERT_TRUE(parts.contains(spec.suffix)) << spec.suffix;
      EXPECT_EQ(parts.at(spec.suffix).shape, spec.shape) << spec.suffix;
      if (spec.part == "scale") continue;
      EXPECT_EQ(parts.at(spec.suffix).dtype, spec.dtype) << spec.suffix;
    }
  }
}

TEST(Vectors, GptOssDecodesEveryExpert) {
  for (const std::string name : {"down_proj", "gate_up_proj"}) {
    const auto file = Open("gptoss-mxfp4-" + name);
    ASSERT_NE(file, nullptr);
    const TensorView* expected = file->Find("expected");  // [E, in, out]
    const std::vector<double> want = Doubles(*expected);
    const int64_t k = expected->shape[1], n = expected->shape[2];
    const Scheme scheme = ParseScheme("gptoss-mxfp4").value();
    for (int64_t e = 0; e < expected->shape[0]; ++e) {
      PartViews parts;
      for (const std::string suffix : {"_blocks", "_scales"}) {
        TensorView view = *file->Find(name + suffix);
        const size_t size = view.bytes.size() / static_cast<size_t>(view.shape[0]);
        view.bytes = view.bytes.subspan(size * static_cast<size_t>(e), size);
        view.shape.erase(view.shape.begin());
        parts[suffix] = view;
      }
      std::vector<double> got(static_cast<size_t>(n * k));
      const Status status = Decode(scheme, parts, n, k, got.data());
      ASSERT_TRUE(status.ok()) << status.error().message;
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t c = 0; c < k; ++c) {
          ASSERT_EQ(got[r * k + c], want[(e * k + c) * n + r]) << r << "," << c;
        }
      }
      const Result<PackedPart> codes = Encode(scheme, got.data(), n, k, parts);
      ASSERT_TRUE(codes.ok());
      EXPECT_EQ(
          std::memcmp(codes->bytes.data(), parts["_blocks"].bytes.data(), codes->bytes.size()), 0);
    }
  }
}

struct GgufVectors {
  std::unique_ptr<GgufFile> file;
  std::unique_ptr<SafetensorsFile> expected;
};

GgufVectors OpenGguf() {
  GgufVectors vectors;
  auto file = GgufFile::Open("goldens/formats/formats.gguf");
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  if (file.ok()) vectors.file = std::move(*file);
  vectors.expected = Open("gguf-expected");
  return vectors;
}

// "raw.q4_k" is of method "gguf-q4_k"; "plain.bf16" of "bf16".
Scheme SchemeOfTensor(const std::string& name) {
  const std::string type = name.substr(name.find('.') + 1);
  return ParseScheme(name.starts_with("plain.") ? type : "gguf-" + type).value();
}

TEST(Vectors, GgufDecodesWithinItsReadersRounding) {
  const GgufVectors vectors = OpenGguf();
  int tensors = 0;
  for (const auto& [name, expected] : vectors.expected->tensors()) {
    if (name.starts_with("input.")) continue;
    SCOPED_TRACE(name);
    ++tensors;
    const std::vector<double> want = Doubles(expected);
    std::vector<double> got(want.size());
    const Scheme scheme = SchemeOfTensor(name);
    const TensorView* view = vectors.file->Find(name);
    ASSERT_NE(view, nullptr);
    const Status status =
        Decode(scheme, {{".weight", *view}}, expected.shape[0], expected.shape[1], got.data());
    ASSERT_TRUE(status.ok()) << status.error().message;
    const size_t block = static_cast<size_t>(ElementsOf(scheme.dtype).count());
    for (size_t b = 0; b < want.size(); b += block) {
      double largest = 0;
      for (size_t i = b; i < b + block; ++i) largest = std::max(largest, std::fabs(want[i]));
      // README: gguf-py works in float, 2^-21 of the block's largest value.
      for (size_t i = b; i < b + block; ++i) {
        ASSERT_LE(std::fabs(got[i] - want[i]), 0x1p-21 * largest) << i;
      }
    }
  }
  EXPECT_EQ(tensors, 19);
}

TEST(Vectors, GgufPacksToTheBytesOfItsWriter) {
  const GgufVectors vectors = OpenGguf();
  int tensors = 0;
  for (const auto& [name, input] : vectors.expected->tensors()) {
    if (!name.starts_with("input.")) continue;
    SCOPED_TRACE(name);
    ++tensors;
    const std::string type = name.substr(6);
    std::vector<float> w(input.bytes.size() / 4);
    std::memcpy(w.data(), input.bytes.data(), input.bytes.size());
    const auto packed =
        Pack(ParseScheme("gguf-" + type).value(), w.data(), input.shape[0], input.shape[1]);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    const TensorView* theirs = vectors.file->Find("quantised." + type);
    ASSERT_NE(theirs, nullptr);
    ASSERT_EQ(packed->size(), 1u);
    EXPECT_EQ(packed->front().spec.shape, theirs->shape);
    ASSERT_EQ(packed->front().bytes.size(), theirs->bytes.size());
    for (size_t i = 0; i < theirs->bytes.size(); ++i) {
      ASSERT_EQ(packed->front().bytes[i], theirs->bytes[i]) << i;
    }
  }
  EXPECT_EQ(tensors, 6);
}

// Random blocks too: where a step is not 0, values give their own codes back.
TEST(Vectors, GgufEncodesItsOwnValuesToTheSameValues) {
  const GgufVectors vectors = OpenGguf();
  for (const auto& [name, expected] : vectors.expected->tensors()) {
    if (!name.starts_with("raw.")) continue;
    SCOPED_TRACE(name);
    const Scheme scheme = SchemeOfTensor(name);
    const PartViews parts = {{".weight", *vectors.file->Find(name)}};
    const int64_t n = expected.shape[0], k = expected.shape[1];
    std::vector<double> values(static_cast<size_t>(n * k)), again(values.size());
    ASSERT_TRUE(Decode(scheme, parts, n, k, values.data()).ok());
    const Result<PackedPart> codes = Encode(scheme, values.data(), n, k, parts);
    ASSERT_TRUE(codes.ok()) << codes.error().message;
    ASSERT_TRUE(Decode(scheme, ViewsOf({*codes}, "x"), n, k, again.data()).ok());
    EXPECT_EQ(values, again);
  }
}

TEST(Vectors, NoFileOfFormatsIsLeftOut) {
  std::set<std::string> known = {"float-tables", "float-rounding", "gguf-expected",
                                 "gptoss-mxfp4-down_proj", "gptoss-mxfp4-gate_up_proj"};
  for (const Vector& vector : kVectors) known.insert(vector.file);
  for (const auto& entry : std::filesystem::directory_iterator("goldens/formats")) {
    if (entry.path().extension() != ".safetensors") continue;
    EXPECT_TRUE(known.contains(entry.path().stem())) << entry.path();
  }
}

TEST(Vectors, TablesOfSmallFloats) {
  const auto file = Open("float-tables");
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const std::vector<double> fn = Doubles(*file->Find("e4m3fn")),
                            fnuz = Doubles(*file->Find("e4m3fnuz")),
                            e8m0 = Doubles(*file->Find("e8m0")),
                            e2m1 = Doubles(*file->Find("e2m1"));
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_TRUE(same(FromE4m3(byte, false), fn[code])) << code;
    EXPECT_TRUE(same(FromE4m3(byte, true), fnuz[code])) << code;
    EXPECT_TRUE(same(FromE8m0(byte), e8m0[code])) << code;
    EXPECT_TRUE(std::isnan(fn[code]) || ToE4m3(fn[code], false) == byte) << code;
    EXPECT_TRUE(std::isnan(fnuz[code]) || ToE4m3(fnuz[code], true) == byte) << code;
  }
  for (int code = 0; code < 16; ++code) {
    EXPECT_EQ(FromE2m1(code), e2m1[code]);
    EXPECT_EQ(ToE2m1(e2m1[code]), code);
  }
}

TEST(Vectors, RoundingToSmallFloats) {
  const auto file = Open("float-rounding");
  const TensorView* x = file->Find("x");
  int saturated = 0;
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    const double value = LoadValue(DType::kF32, x->bytes.data(), i);
    if (!std::isfinite(value)) continue;
    const auto at = [&](const char* name) {
      return std::to_integer<uint8_t>(file->Find(name)->bytes[static_cast<size_t>(i)]);
    };
    EXPECT_EQ(ToE4m3(value, false), at("torch_e4m3fn")) << value;
    // ml_dtypes makes a NaN of what torch, and Pack, saturate.
    if (at("e4m3fnuz") == 0x80) {
      ++saturated;
      EXPECT_EQ(ToE4m3(value, true) & 0x7F, 0x7F) << value;
    } else {
      EXPECT_EQ(ToE4m3(value, true), at("e4m3fnuz")) << value;
    }
    for (const auto& [name, dtype] : {std::pair{"bf16", DType::kBF16}, {"f16", DType::kF16}}) {
      uint16_t theirs, ours;
      std::memcpy(&theirs, file->Find(name)->bytes.data() + 2 * i, 2);
      if (dtype == DType::kF16 && (theirs & 0x7FFF) == 0x7C00) continue;  // Pack refuses these
      StoreValue(dtype, value, reinterpret_cast<std::byte*>(&ours), 0);
      EXPECT_EQ(ours, theirs) << name << " " << value;
    }
  }
  EXPECT_GT(saturated, 0);
}

}  // namespace
}  // namespace assay::kernels
