// GGUF files: llama.cpp's names, permuted rows, norms in fp32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

const char* BestTier() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

std::unique_ptr<Checkpoint> Converted(const std::string& model, const GgufConversion& how) {
  const auto checkpoint = OpenCheckpoint("goldens/checkpoints/" + model);
  auto writer = ConvertToGguf(*checkpoint, how);
  EXPECT_TRUE(writer.ok());
  const std::string path = testing::TempDir() + "/" + model + ".gguf";
  const std::string bytes = writer->Bytes();
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  return OpenCheckpoint(path);
}

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<double> logits;
  int64_t vocab = 0;
};

Golden ReadGolden(const std::string& model) {
  auto file = SafetensorsFile::Open("goldens/goldens/" + model + "/logits.safetensors");
  EXPECT_TRUE(file.ok());
  const TensorView& tokens = *(*file)->Find("tokens.t33");
  const TensorView& logits = *(*file)->Find("logits.t33");
  Golden golden;
  golden.vocab = logits.shape[1];
  for (int64_t i = 0; i < tokens.shape[0]; ++i) {
    int64_t wide = 0;
    int32_t narrow = 0;
    if (tokens.dtype == DType::kI64) {
      std::memcpy(&wide, tokens.bytes.data() + 8 * i, 8);
      narrow = static_cast<int32_t>(wide);
    } else {
      std::memcpy(&narrow, tokens.bytes.data() + 4 * i, 4);
    }
    golden.tokens.push_back(narrow);
  }
  golden.logits.resize(logits.bytes.size() / sizeof(double));
  std::memcpy(golden.logits.data(), logits.bytes.data(), logits.bytes.size());
  return golden;
}

// Largest difference from the golden over the largest logit.
double Distance(const std::vector<float>& logits, const Golden& golden) {
  double scale = 0, worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    scale = std::max(scale, std::fabs(golden.logits[i]));
    worst = std::max(worst, std::fabs(golden.logits[i] - logits[i]));
  }
  return worst / scale;
}

struct Case {
  const char* model;
  int tp;
};

class Gguf : public testing::TestWithParam<Case> {};

// The same model: logits as near to the golden as model_test demands of the checkpoint itself
// (about 12 roundings to bf16 a layer).
TEST_P(Gguf, IsTheModelItWasMadeFrom) {
  const Golden golden = ReadGolden(GetParam().model);
  const auto checkpoint = Converted(GetParam().model, {.matrices = DType::kBF16});
  for (const char* tier : {"scalar", BestTier()}) {
    Driver driver(NativeEngine());
    Wishes wishes;
    wishes.tp = GetParam().tp;
    wishes.tier = tier;
    ASSERT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK) << driver.error().message;
    ASSERT_EQ(driver.LoadAll(*checkpoint), ASSAY_OK) << driver.error().message;
    const auto logits = driver.Logits(golden.tokens, 0, golden.vocab);
    const double roundings = 12.0 * static_cast<double>(checkpoint->config().layers) + 2;
    EXPECT_LE(Distance(logits, golden), roundings * 0x1p-8) << GetParam().model;
    // Exported norms are the file's fp32, not what they became for use.
    assay_shard norm;
    ASSERT_EQ(driver.Export(0, "L1.post_norm.weight", &norm), ASSAY_OK);
    const TensorView& stored = *checkpoint->Find("blk.1.ffn_norm.weight");
    EXPECT_EQ(norm.dtype, static_cast<uint32_t>(ASSAY_F32));
    ASSERT_EQ(norm.bytes, stored.bytes.size());
    EXPECT_EQ(std::memcmp(norm.data, stored.bytes.data(), norm.bytes), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Gguf,
                         testing::Values(Case{"llama-mini", 1}, Case{"llama-mini", 3},
                                         Case{"qwen2-mini", 1}, Case{"qwen3-mini", 2}),
                         [](const auto& info) { return "case" + std::to_string(info.index); });

// Control: in a Llama's file rows of q and k are permuted, and the engine rotates neighbours; rows
// in Hugging Face's order give another model.
TEST(GgufRope, OrderOfRowsMatters) {
  const Golden golden = ReadGolden("llama-mini");
  const auto checkpoint = Converted("llama-mini", {.matrices = DType::kBF16});
  const auto plain = OpenCheckpoint("goldens/checkpoints/llama-mini");
  MemorySource source;
  for (const std::string& name : checkpoint->Names()) {
    const TensorView& view = *checkpoint->Find(name);
    source.Put(name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
  }
  for (int64_t layer = 0; layer < checkpoint->config().layers; ++layer) {
    for (const std::string part : {"q", "k"}) {
      const TensorView& view = *plain->Find("model.layers." + std::to_string(layer) +
                                            ".self_attn." + part + "_proj.weight");
      source.Put("blk." + std::to_string(layer) + ".attn_" + part + ".weight", view.dtype,
                 view.shape, {view.bytes.begin(), view.bytes.end()});
    }
  }
  Driver driver(NativeEngine());
  ASSERT_EQ(driver.Open(checkpoint->config_json(), {}), ASSAY_OK);
  ASSERT_EQ(driver.Load(0, source, source.Names()), ASSAY_OK) << driver.error().message;
  const auto logits = driver.Logits(golden.tokens, 0, golden.vocab);
  const double roundings = 12.0 * static_cast<double>(checkpoint->config().layers) + 2;
  EXPECT_GT(Distance(logits, golden), roundings * 0x1p-8);
}

}  // namespace
}  // namespace assay::kernels::native
