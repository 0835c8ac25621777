// Every storage format's recorded tensors (goldens/formats), decoded, against what other people's
// code made of them.
#include "reference/methods/vectors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

namespace assay::reference {
namespace {

using testing_support::AllRows;
using testing_support::ConfigOf;
using testing_support::Differing;
using testing_support::Matrices;
using testing_support::Matrix;
using testing_support::MustOpen;
using testing_support::Open;
using testing_support::OpenFile;
using testing_support::Vector;

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
  for (const auto& entry : std::filesystem::directory_iterator("goldens/formats")) {
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

}  // namespace
}  // namespace assay::reference
