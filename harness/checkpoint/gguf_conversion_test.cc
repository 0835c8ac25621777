// The tests' own converter is what other rooms' goldens stand on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

Result<std::unique_ptr<Checkpoint>> Open(const TempFolder& folder, const GgufWriter& writer) {
  return Checkpoint::Open(folder.Write("m.gguf", writer.Bytes()));
}

std::vector<float> RowsOf(const TensorView& view) {
  std::vector<float> values(view.bytes.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, view.bytes.data() + 2 * i, 2);
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

// llama.cpp's permutation, written out a second time: rows [head][half][pair] to
// [head][pair][half].
TEST(GgufConversion, PermutesRowsOfQAndKOfALlamaOnly) {
  const TempFolder folder;
  for (const char* model : {"llama-mini", "qwen3-mini"}) {
    SCOPED_TRACE(model);
    const auto original = Checkpoint::Open(fmt::format("goldens/checkpoints/{}", model));
    const auto converted = Open(folder, *ConvertToGguf(**original, {}));
    ASSERT_TRUE(converted.ok()) << converted.error().message;
    const int64_t heads = (*original)->config().heads, d = (*original)->config().head_dim;
    const int64_t hidden = (*original)->config().hidden;
    const bool llama = (*original)->config().family == Family::kLlama;
    const auto a = RowsOf(*(*original)->Find("model.layers.1.self_attn.q_proj.weight"));
    const auto b = RowsOf(*(*converted)->Find("blk.1.attn_q.weight"));
    ASSERT_EQ(a.size(), b.size());
    size_t moved = 0;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t half = 0; half < 2; ++half) {
        for (int64_t pair = 0; pair < d / 2; ++pair) {
          const int64_t from = head * d + half * (d / 2) + pair;
          const int64_t to = llama ? head * d + pair * 2 + half : from;
          moved += from != to;
          for (int64_t k = 0; k < hidden; k += 7) {
            ASSERT_EQ(b[static_cast<size_t>(to * hidden + k)],
                      a[static_cast<size_t>(from * hidden + k)]);
          }
        }
      }
    }
    EXPECT_EQ(moved > 0, llama);
    EXPECT_TRUE(
        std::ranges::equal((*original)->Find("model.layers.1.self_attn.v_proj.weight")->bytes,
                           (*converted)->Find("blk.1.attn_v.weight")->bytes));
    EXPECT_EQ((*converted)->Find("blk.0.attn_norm.weight")->dtype, DType::kF32);
    EXPECT_EQ((*converted)->Names().size(), (*original)->Names().size());
  }
}

TEST(GgufConversion, ChangesTypesAndTakesBlocks) {
  const TempFolder folder;
  const auto original = Checkpoint::Open("goldens/checkpoints/llama-mini");
  ASSERT_TRUE(original.ok());
  GgufConversion conversion;
  conversion.matrices = DType::kF32;
  conversion.replace = [](const GgufTensor& matrix) -> std::optional<GgufTensor> {
    if (matrix.name != "blk.0.ffn_down.weight") return std::nullopt;
    return GgufTensor{matrix.name,
                      DType::kQ8_0,
                      {matrix.shape[0], matrix.shape[1] / 32},
                      std::vector<std::byte>(matrix.shape[0] * matrix.shape[1] / 32 * 34)};
  };
  const auto converted = Open(folder, *ConvertToGguf(**original, conversion));
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ((*converted)->Find("blk.0.ffn_up.weight")->dtype, DType::kF32);
  EXPECT_EQ((*converted)->Find("blk.0.ffn_down.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ((*converted)->Find("blk.0.ffn_down.weight")->shape, (std::vector<int64_t>{144, 12}));
  const auto moe = Checkpoint::Open("goldens/checkpoints/k2-mini");
  ASSERT_TRUE(moe.ok());
  EXPECT_FALSE(ConvertToGguf(**moe, {}).ok());
}

// A copy of llama-mini in which one tensor has another name or type.
Result<GgufWriter> ConvertChanged(std::string_view of, std::string_view name, DType dtype) {
  const TempFolder folder;
  const auto original = Checkpoint::Open("goldens/checkpoints/llama-mini");
  MemorySource source;
  for (const std::string& each : (*original)->Names()) {
    const TensorView& view = *(*original)->Find(each);
    const bool changed = each == of;
    const DType type = changed ? dtype : view.dtype;
    const size_t size = view.bytes.size() / static_cast<size_t>(SizeOf(view.dtype).count()) *
                        static_cast<size_t>(SizeOf(type).count());
    std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
    bytes.resize(size);
    source.Put(changed ? std::string(name) : each, type, view.shape, std::move(bytes));
  }
  std::vector<TensorView> views;
  for (const std::string& each : source.Names()) views.push_back(*source.Find(each));
  const Status written = WriteSafetensors(folder.Path("model.safetensors"), views, {});
  EXPECT_TRUE(written.ok());
  folder.Write("config.json", ReadBytes("goldens/checkpoints/llama-mini/config.json"));
  const auto checkpoint = Checkpoint::Open(folder.path());
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  return checkpoint.ok() ? ConvertToGguf(**checkpoint, {}) : checkpoint.error();
}

TEST(GgufConversion, RefusesOtherTypesAndNames) {
  const std::string norm = "model.layers.0.input_layernorm.weight";
  EXPECT_TRUE(ConvertChanged(norm, norm, DType::kF32).ok());  // control
  for (DType dtype : {DType::kF64, DType::kI64, DType::kU8}) {
    const auto converted = ConvertChanged(norm, norm, dtype);
    ASSERT_FALSE(converted.ok());
    EXPECT_TRUE(Says(converted.error(), {norm, "allowed are F32, F16 and BF16"}));
  }
  for (const char* name : {"model.layers.0", "model.layers.0.weight", "weight"}) {
    const auto converted = ConvertChanged(norm, name, DType::kBF16);
    ASSERT_FALSE(converted.ok());
    EXPECT_TRUE(Says(converted.error(), {name, "has no name in GGUF"}));
  }
}

}  // namespace
}  // namespace assay
