// Every storage format's recorded tensors (goldens/formats), decoded, against what other people's
// code made of them; and what a mistake of convention would cost.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "harness/checkpoint/safetensors.h"
#include "reference/methods/methods_test_support.h"

namespace assay::reference {
namespace {

using testing_support::AllRows;
using testing_support::ConfigOf;
using testing_support::Differing;
using testing_support::MustOpen;
using testing_support::Parts;

const std::string kFolder = "goldens/formats/";

struct Vector {
  std::string file;
  std::string method;
  // Stated relative difference of `expected` from the exact product; 0: equal.
  double stated = 0;
};
// ModelOpt's tensors were read by a library that rounds 1 / weight_scale_2 to fp32.
constexpr double kReciprocal = 0x1p-23;

const Vector kVectors[] = {
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
    {"gptoss-mxfp4-down_proj", "gptoss-mxfp4"},
    {"gptoss-mxfp4-gate_up_proj", "gptoss-mxfp4"},
    {"gptq-int4-g32-actorder", "gptq-int4-g32-actorder"},
    {"gptq-int4-g32-sym", "gptq-int4-g32"},
    {"gptq-int4-g64-asym", "gptq-int4-g64-asym"},
    {"modelopt-nvfp4", "modelopt-nvfp4", kReciprocal},
};
// Files that are no weights of one method: read by other tests.
const std::set<std::string> kOtherFiles = {"float-rounding", "float-tables", "gguf-expected"};

// Methods of which nobody's tensors are recorded here; what stands for them.
const std::pair<const char*, const char*> kWithoutVector[] = {
    {"awq-int4-g32", "AWQ's GEMM packer always writes zero points; made_test"},
    {"bf16", "plain_test"},
    {"f16", "plain_test"},
    {"f32", "plain_test"},
    {"ct-fp8-channel-fnuz", "libraries keep no fnuz files; made_test, codes by float-tables"},
    {"ct-int2-g32", "made_test; the packing is that of 4 and 8 bits"},
    {"ct-int4-g32-asym-actorder-group", "made_test; both halves have vectors"},
    {"ct-int5-g32", "ct-int5-channel-asym has the packing; made_test"},
    {"ct-int7-g32", "made_test; the packing is that of 3, 5 and 6 bits"},
    {"ct-old-int5-g32", "made_test; 3 and 6 bits have vectors"},
    {"ct-old-int7-g32", "made_test; 3 and 6 bits have vectors"},
    {"ct-w8a8-tensor-asym", "made_test; both halves have vectors"},
    {"deepseek-fp8-block128-fnuz", "made_test, codes by float-tables"},
    {"gptq-int4-channel", "made_test"},
    {"gptq-int4-g32-asym-actorder", "made_test; both halves have vectors"},
    {"gptq-int8-g32", "made_test; packed words in goldens/layouts/marlin-int8-g128"},
    {"gptq-v2-int4-g32", "made_test; the v1 vectors with other zeros"},
    {"gptq-v2-int4-g32-asym", "made_test; the v1 vectors with other zeros"},
    {"modelslim-w4a8", "no library to ask; goldens/layouts/ascend-w4a8, made_test"},
    {"modelslim-w4a8-g256", "no library to ask; made_test"},
    {"modelslim-w8a8", "no library to ask; made_test"},
    {"quark-mxfp4", "the bytes of ct-mxfp4 under other names, below"},
};

std::unique_ptr<SafetensorsFile> OpenFile(const std::string& name) {
  auto file = SafetensorsFile::Open(kFolder + name + ".safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  return std::move(*file);
}

// One matrix of a vector: its parts and the values that are expected of it, [rows, columns].
struct Matrix {
  Parts parts;
  int64_t rows = 0, columns = 0;
  std::vector<double> expected;
};

TensorView Slab(const TensorView& view, int64_t index) {
  TensorView slab = view;
  slab.shape.erase(slab.shape.begin());
  const size_t size = view.bytes.size() / static_cast<size_t>(view.shape[0]);
  slab.bytes = view.bytes.subspan(static_cast<size_t>(index) * size, size);
  return slab;
}

// gpt-oss: `expected` is [experts, in, out], the transpose.
std::vector<Matrix> Experts(const SafetensorsFile& file, const std::string& module) {
  const TensorView& expected = *file.Find("expected");
  std::vector<Matrix> matrices(static_cast<size_t>(expected.shape[0]));
  for (size_t e = 0; e < matrices.size(); ++e) {
    Matrix& matrix = matrices[e];
    matrix.rows = expected.shape[2];
    matrix.columns = expected.shape[1];
    for (const char* suffix : {"blocks", "scales"}) {
      matrix.parts.Set(suffix, Slab(*file.Find(module + "_" + suffix), static_cast<int64_t>(e)));
    }
    const int64_t size = matrix.rows * matrix.columns;
    std::vector<double> transposed(static_cast<size_t>(size));
    DecodeFloats(expected, static_cast<int64_t>(e) * size, size, transposed.data());
    for (int64_t n = 0; n < matrix.rows; ++n) {
      for (int64_t k = 0; k < matrix.columns; ++k) {
        matrix.expected.push_back(transposed[static_cast<size_t>(k * matrix.rows + n)]);
      }
    }
  }
  return matrices;
}

std::vector<Matrix> Matrices(const SafetensorsFile& file, const Vector& vector) {
  if (vector.method == "gptoss-mxfp4") {
    return Experts(file, vector.file.substr(std::string("gptoss-mxfp4-").size()));
  }
  std::vector<Matrix> one(1);
  one[0].parts = Parts(file);
  const TensorView& expected = *file.Find("expected");
  one[0].rows = expected.shape[0];
  one[0].columns = expected.shape[1];
  one[0].expected.resize(static_cast<size_t>(one[0].rows * one[0].columns));
  DecodeFloats(expected, 0, one[0].rows * one[0].columns, one[0].expected.data());
  return one;
}

std::unique_ptr<Decoder> Open(const Matrix& matrix, const std::string& method) {
  return MustOpen(matrix.parts, ConfigOf(method), matrix.rows, matrix.columns);
}

double WorstRelative(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::fabs(found[i] - expected[i]);
    if (difference > 0) worst = std::max(worst, difference / std::fabs(expected[i]));
  }
  return worst;
}

TEST(Vectors, EveryOneIsReproduced) {
  for (const Vector& vector : kVectors) {
    const auto file = OpenFile(vector.file);
    for (const Matrix& matrix : Matrices(*file, vector)) {
      const auto decoder = Open(matrix, vector.method);
      EXPECT_EQ(decoder->method(), vector.method);
      EXPECT_TRUE(decoder->quantised()) << vector.file;
      const Status values = decoder->CheckValues();
      EXPECT_TRUE(values.ok()) << values.error().message;
      const std::vector<double> found = AllRows(*decoder);
      if (vector.stated == 0) {
        EXPECT_EQ(Differing(found, matrix.expected), 0) << vector.file;
      } else {
        EXPECT_LE(WorstRelative(found, matrix.expected), vector.stated) << vector.file;
      }
    }
  }
}

TEST(Vectors, EveryFileIsInTheList) {
  std::set<std::string> listed = kOtherFiles;
  for (const Vector& vector : kVectors) listed.insert(vector.file);
  std::set<std::string> there;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".safetensors") there.insert(entry.path().stem().string());
  }
  EXPECT_EQ(listed, there);
}

// One that differs only in sizes stands for the others of its kind.
std::string Kind(const std::string& id) {
  Scheme scheme = *ParseScheme(id);
  if (scheme.group > 0) scheme.group = 32;
  if (scheme.block_n == scheme.block_k && scheme.block_n > 0) {
    scheme.block_n = scheme.block_k = 128;
  }
  return NameOf(scheme);
}

TEST(Vectors, EveryMethodHasOneOrAReason) {
  std::set<std::string> covered;
  for (const Vector& vector : kVectors) covered.insert(Kind(vector.method));
  for (const auto& [id, reason] : kWithoutVector) {
    EXPECT_FALSE(covered.contains(Kind(id))) << id << " has a vector";
    covered.insert(Kind(id));
  }
  for (const std::string& id : KnownSchemes()) {
    if (id.starts_with("gguf-")) continue;  // blocks_test
    EXPECT_TRUE(covered.contains(Kind(id))) << id;
  }
}

// Codes as the library unpacked them: a whole row's zero point and scale are out of the way.
TEST(Vectors, CodesAreTheLibrarys) {
  int seen = 0;
  for (const Vector& vector : kVectors) {
    const auto file = OpenFile(vector.file);
    const TensorView* codes = file->Find("codes");
    if (codes == nullptr) continue;
    ++seen;
    Matrix matrix = std::move(Matrices(*file, vector)[0]);
    // Scales of 1, zero points of 0.
    const TensorView& scale = matrix.parts.At("weight_scale");
    matrix.parts.Put("weight_scale", DType::kF32, scale.shape,
                     std::vector<float>(scale.bytes.size() / 2, 1.0f));
    QuantConfig config = ConfigOf(vector.method);
    matrix.parts.Remove("weight_zero_point");
    config.symmetric = true;
    const auto found = AllRows(*MustOpen(matrix.parts, config, matrix.rows, matrix.columns));
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], static_cast<int8_t>(codes->bytes[i])) << vector.file << " " << i;
    }
  }
  EXPECT_EQ(seen, 13);
}

TEST(Vectors, QuarksAreCompressedTensorsBytesUnderOtherNames) {
  const auto file = OpenFile("ct-mxfp4");
  Matrix matrix = std::move(Matrices(*file, {"ct-mxfp4", "ct-mxfp4"})[0]);
  matrix.parts.Set("weight", matrix.parts.At("weight_packed"));
  matrix.parts.Remove("weight_packed");
  const auto decoder = Open(matrix, "quark-mxfp4");
  EXPECT_EQ(decoder->method(), "quark-mxfp4");
  EXPECT_EQ(Differing(AllRows(*decoder), matrix.expected), 0);
}

TEST(Vectors, OneGroupIsAlsoAGroupOfThatSize) {
  const auto file = OpenFile("ct-int4-one-group-sym");
  const Matrix matrix = std::move(Matrices(*file, {"ct-int4-one-group-sym", ""})[0]);
  for (const char* method : {"ct-int4-g32", "ct-int4-one-group", "ct-int4-channel"}) {
    const auto decoder = Open(matrix, method);
    EXPECT_EQ(decoder->method(), method);  // the config decides
    EXPECT_EQ(Differing(AllRows(*decoder), matrix.expected), 0) << method;
  }
}

// Mistakes of convention, each made on the stored bytes or the config of a vector: how many of its
// values then differ, in parts of one.
struct Mistake {
  const char* name;
  Vector vector;
  void (*make)(Matrix* matrix, QuantConfig* config);
};

void SwapNibbles(Matrix* matrix, const std::string& suffix) {
  for (std::byte& byte : matrix->parts.Own(suffix)) byte = byte << 4 | byte >> 4;
}
void AddToWords(Matrix* matrix, const std::string& suffix, uint32_t what) {
  std::vector<std::byte>& bytes = matrix->parts.Own(suffix);
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + at, 4);
    word += what;
    std::memcpy(bytes.data() + at, &word, 4);
  }
}

const Mistake kMistakes[] = {
    {"GPTQ's zeros without + 1",
     {"gptq-int4-g64-asym", "gptq-int4-g64-asym"},
     [](Matrix*, QuantConfig* config) { config->v2 = true; }},
    {"AWQ's zeros with + 1",
     {"awq-int4-g32-asym", "awq-int4-g32-asym"},
     [](Matrix* matrix, QuantConfig*) { AddToWords(matrix, "qzeros", 0x11111111u); }},
    {"AWQ's columns in GPTQ's order",
     {"awq-int4-g32-asym", "awq-int4-g32-asym"},
     [](Matrix* matrix, QuantConfig*) {
       std::vector<std::byte>& bytes = matrix->parts.Own("qweight");
       for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
         uint32_t word, sorted = 0;
         std::memcpy(&word, bytes.data() + at, 4);
         constexpr uint32_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
         for (uint32_t j = 0; j < 8; ++j) sorted |= (word >> (4 * j) & 15u) << (4 * kOrder[j]);
         std::memcpy(bytes.data() + at, &sorted, 4);
       }
     }},
    {"act-order ignored",
     {"gptq-int4-g32-actorder", "gptq-int4-g32-actorder"},
     [](Matrix* matrix, QuantConfig*) {
       std::vector<int32_t> sorted;
       for (int32_t k = 0; k < matrix->columns; ++k) sorted.push_back(k / 32);
       matrix->parts.Put("g_idx", DType::kI32, {matrix->columns}, sorted);
     }},
    {"compressed-tensors' act-order ignored",
     {"ct-int4-g32-actorder-group", "ct-int4-g32-actorder-group"},
     [](Matrix* matrix, QuantConfig* config) {
       matrix->parts.Remove("weight_g_idx");
       config->actorder = "";
     }},
    {"zero points of compressed-tensors off by one",
     {"ct-int4-g32-asym", "ct-int4-g32-asym"},
     [](Matrix* matrix, QuantConfig*) { AddToWords(matrix, "weight_zero_point", 0x11111111u); }},
    {"zero points dropped",
     {"ct-int4-channel-asym", "ct-int4-channel-asym"},
     [](Matrix* matrix, QuantConfig* config) {
       matrix->parts.Remove("weight_zero_point");
       config->symmetric = true;
     }},
    {"W8A8's zero points dropped",
     {"ct-w8a8-channel-asym", "ct-w8a8-channel-asym"},
     [](Matrix* matrix, QuantConfig* config) {
       matrix->parts.Remove("weight_zero_point");
       config->symmetric = true;
     }},
    {"nibbles of MXFP4 swapped",
     {"ct-mxfp4", "ct-mxfp4"},
     [](Matrix* matrix, QuantConfig*) { SwapNibbles(matrix, "weight_packed"); }},
    {"nibbles of DeepSeek-V4 swapped",
     {"deepseek-v4-mxfp4", "deepseek-v4-mxfp4"},
     [](Matrix* matrix, QuantConfig*) { SwapNibbles(matrix, "weight"); }},
    {"nibbles of NVFP4 swapped",
     {"ct-nvfp4", "ct-nvfp4"},
     [](Matrix* matrix, QuantConfig*) { SwapNibbles(matrix, "weight_packed"); }},
    {"the global scale multiplied",
     {"ct-nvfp4", "ct-nvfp4"},
     [](Matrix* matrix, QuantConfig* config) {
       matrix->parts.Set("weight", matrix->parts.At("weight_packed"));
       matrix->parts.Set("weight_scale_2", matrix->parts.At("weight_global_scale"));
       matrix->parts.Remove("weight_packed");
       matrix->parts.Remove("weight_global_scale");
       config->method = "modelopt";
     }},
    {"DeepSeek's scale divided",
     {"deepseek-fp8-block32", "deepseek-fp8-block32"},
     [](Matrix* matrix, QuantConfig*) {
       std::vector<std::byte>& bytes = matrix->parts.Own("weight_scale_inv");
       for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
         float scale;
         std::memcpy(&scale, bytes.data() + at, 4);
         scale = 1 / scale;
         std::memcpy(bytes.data() + at, &scale, 4);
       }
     }},
    {"fnuz codes read as E4M3",
     {"deepseek-fp8-block32", "deepseek-fp8-block32"},
     [](Matrix*, QuantConfig* config) { config->fnuz = true; }},
    {"codes without their offset",
     {"ct-int4-g32-sym", "ct-int4-g32"},
     [](Matrix* matrix, QuantConfig*) {
       for (std::byte& byte : matrix->parts.Own("weight_packed")) byte ^= std::byte{0x88};
     }},
};

TEST(Vectors, MistakesOfConventionShow) {
  for (const Mistake& mistake : kMistakes) {
    const auto file = OpenFile(mistake.vector.file);
    Matrix matrix = std::move(Matrices(*file, mistake.vector)[0]);
    QuantConfig config = ConfigOf(mistake.vector.method);
    mistake.make(&matrix, &config);
    const auto decoder = MustOpen(matrix.parts, config, matrix.rows, matrix.columns);
    const auto differing = Differing(AllRows(*decoder), matrix.expected);
    EXPECT_GT(differing, matrix.rows * matrix.columns / 2) << mistake.name;
  }
}

// A packing is not taken for the other: the width is part of the format.
TEST(Vectors, OldPackingIsNotReadAsNew) {
  for (const int bits : {3, 6}) {
    const std::string id = "ct-old-int" + std::to_string(bits) + "-g32";
    const auto file = OpenFile(id + "-sym");
    Matrix matrix = std::move(Matrices(*file, {id + "-sym", id})[0]);
    EXPECT_EQ(Open(matrix, id)->method(), id);
    // The same words, cut to the new width, are other codes.
    const int64_t old_width = matrix.parts.At("weight_packed").shape[1];
    const int64_t width = matrix.columns * bits / 32;
    std::vector<uint32_t> words;
    for (int64_t i = 0; i < matrix.rows * width; ++i) {
      uint32_t word;
      const int64_t at = i / width * old_width + i % width;
      std::memcpy(&word, matrix.parts.At("weight_packed").bytes.data() + 4 * at, 4);
      words.push_back(word);
    }
    matrix.parts.Put("weight_packed", DType::kI32, {matrix.rows, width}, words);
    const auto decoder = Open(matrix, id);
    EXPECT_EQ(decoder->method(), "ct-int" + std::to_string(bits) + "-g32");
    EXPECT_GT(Differing(AllRows(*decoder), matrix.expected), matrix.rows * matrix.columns / 2);
  }
}

TEST(FloatTables, EveryCodeOfEveryKind) {
  const auto file = OpenFile("float-tables");
  const auto table = [&](const std::string& name) {
    const TensorView& view = *file->Find(name);
    std::vector<double> values(static_cast<size_t>(view.shape[0]));
    DecodeFloats(view, 0, view.shape[0], values.data());
    return values;
  };
  const std::pair<const char*, Float8> kinds[] = {{"e4m3fn", Float8::kE4M3},
                                                  {"e4m3fnuz", Float8::kE4M3Fnuz},
                                                  {"e5m2", Float8::kE5M2},
                                                  {"e5m2fnuz", Float8::kE5M2Fnuz}};
  for (const auto& [name, kind] : kinds) {
    const std::vector<double> expected = table(name);
    ASSERT_EQ(expected.size(), 256u);
    int64_t others = 0;
    for (unsigned code = 0; code < 256; ++code) {
      EXPECT_TRUE(testing_support::SameDouble(FromFloat8(code, kind), expected[code]))
          << name << " " << code;
      const Float8 other = kind == Float8::kE4M3 ? Float8::kE4M3Fnuz : Float8::kE4M3;
      others += !testing_support::SameDouble(FromFloat8(code, other), expected[code]);
    }
    EXPECT_GT(others, 200) << name;  // the kinds differ nearly everywhere
  }
  const std::vector<double> e2m1 = table("e2m1"), e8m0 = table("e8m0");
  for (unsigned code = 0; code < 16; ++code) {
    EXPECT_TRUE(testing_support::SameDouble(FromE2M1(code), e2m1[code])) << code;
  }
  for (unsigned code = 0; code < kE8M0Nan; ++code) EXPECT_EQ(FromE8M0(code), e8m0[code]) << code;
  EXPECT_TRUE(std::isnan(e8m0[kE8M0Nan]));
}

}  // namespace
}  // namespace assay::reference
