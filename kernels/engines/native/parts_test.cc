// The engine's small parts.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <vector>

#include "harness/abi/contract.h"
#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/kv_cache.h"
#include "kernels/engines/native/ops.h"
#include "kernels/engines/native/rope_table.h"
#include "kernels/engines/native/thread_pool.h"
#include "kernels/engines/native/values.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

TEST(Values, Bf16RoundsAsTheContractSays) {
  // Around every bf16 number's neighbours and ties, both signs, subnormals included.
  int checked = 0;
  for (uint32_t top = 0; top < 0x10000; top += 37) {
    for (uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const float value = std::bit_cast<float>((top << 16) | low);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(FromBf16(ToBf16(value))));
        continue;
      }
      EXPECT_EQ(static_cast<double>(FromBf16(ToBf16(value))), RoundTo(value, DType::kBF16));
      ++checked;
    }
  }
  EXPECT_GT(checked, 10000);
  // A NaN whose payload lies in the lower half stays one.
  EXPECT_TRUE(std::isnan(FromBf16(ToBf16(std::bit_cast<float>(0x7F800001u)))));
}

assay_tensor Tensor(uint32_t dtype, std::vector<int64_t> shape, void* data, uint64_t bytes) {
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = "t";
  tensor.dtype = dtype;
  tensor.ndim = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), tensor.shape);
  tensor.data = data;
  tensor.bytes = bytes;
  return tensor;
}

TEST(Values, TensorsAreReadInEveryFloatingType) {
  Memory memory(nullptr);
  std::vector<double> f64 = {1, -2, 3, 0.5, 5, 6};
  std::vector<float> f32(f64.begin(), f64.end());
  std::vector<uint16_t> bf16, f16 = {0x3C00, 0xC000, 0x4200, 0x3800, 0x4500, 0x4600};
  for (float value : f32) bf16.push_back(ToBf16(value));
  for (const assay_tensor& tensor :
       {Tensor(ASSAY_F64, {2, 3}, f64.data(), 48), Tensor(ASSAY_F32, {2, 3, 1}, f32.data(), 24),
        Tensor(ASSAY_BF16, {2, 3}, bf16.data(), 12), Tensor(ASSAY_F16, {2, 3}, f16.data(), 12)}) {
    const Matrix matrix = ReadMatrix(memory, tensor);
    ASSERT_EQ(matrix.rows, 2);
    ASSERT_EQ(matrix.columns, 3);
    EXPECT_TRUE(std::equal(f32.begin(), f32.end(), matrix.data()));
    std::vector<std::byte> out(48);
    assay_tensor back = Tensor(tensor.dtype, {6}, out.data(), tensor.bytes);
    WriteMatrix(matrix, &back);
    EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(tensor.bytes),
                           static_cast<const std::byte*>(tensor.data)));
  }
}

TEST(Values, BadTensorsAreRefused) {
  Memory memory(nullptr);
  std::vector<float> data(6);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const assay_tensor& tensor :
       {Tensor(ASSAY_F32, {2, 3}, data.data(), 20), Tensor(ASSAY_F32, {2, -3}, data.data(), 24),
        Tensor(ASSAY_F32, {2, huge}, data.data(), 24), Tensor(ASSAY_I32, {2, 3}, data.data(), 24),
        Tensor(99, {2, 3}, data.data(), 24), Tensor(ASSAY_F32, {2, 3}, nullptr, 24)}) {
    EXPECT_THROW(ReadMatrix(memory, tensor), EngineError);
  }
  EXPECT_THROW(ReadIds(Tensor(ASSAY_F32, {6}, data.data(), 24)), EngineError);
}

TEST(Taps, NamesAreTakenApart) {
  const TapName expert = ParseTap("L12.moe.e34.gate");
  EXPECT_EQ(expert.layer, 12);
  EXPECT_EQ(expert.expert, 34);
  EXPECT_EQ(expert.path, "moe.gate");
  EXPECT_EQ(ParseTap("L1.moe.partial").path, "moe.partial");
  EXPECT_EQ(ParseTap("L1.moe.partial").expert, -1);
  EXPECT_EQ(ParseTap("final_norm").layer, -1);
  EXPECT_EQ(ParseTap("L99999999999999999999.x").layer, -1);
  EXPECT_EQ(ParameterOf("L3.attn.partial"), "L3.attn.out");
  EXPECT_EQ(ParameterOf("L3.moe.partial"), "L3.moe.partial");
}

TEST(ThreadPool, EveryRowOnceAndOnTiles) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 8, 9, 64, 1000}) {
      for (int64_t tile : {1, 8, 16}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        std::atomic<bool> aligned = true;
        const int used = pool.Split(count, tile, [&](int64_t begin, int64_t end) {
          if (begin % tile != 0 || (end != count && end % tile != 0)) aligned = false;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const auto& hit : hits) EXPECT_EQ(hit, 1);
        EXPECT_TRUE(aligned);
        EXPECT_EQ(used, std::min<int64_t>(threads, (count + tile - 1) / tile));
      }
    }
  }
}

ModelConfig Rope(const char* type, double theta) {
  ModelConfig config;
  config.head_dim = 8;
  config.rope.type = type;
  config.rope.theta = theta;
  return config;
}

TEST(RopeTable, PlainAndLinear) {
  RopeTable plain(Rope("default", 10000), 8);
  ASSERT_EQ(plain.dim(), 8);
  for (int i = 0; i < 4; ++i) {
    const double angle = 7 * std::pow(10000.0, -i / 4.0);
    EXPECT_EQ(plain.Cos(7)[i], static_cast<float>(std::cos(angle)));
    EXPECT_EQ(plain.Sin(7)[i], static_cast<float>(std::sin(angle)));
  }
  ModelConfig config = Rope("linear", 10000);
  config.rope.factor = 4;
  RopeTable linear(config, 8);
  EXPECT_EQ(linear.Sin(28)[2], plain.Sin(7)[2]);
  EXPECT_THROW(RopeTable(Rope("longrope", 10000), 8), EngineError);
}

// Fast waves plain, slow ones interpolated, and the ends of the ramp where models.md says.
TEST(RopeTable, YarnAndLlama3) {
  ModelConfig config = Rope("yarn", 10000);
  config.rope.factor = 16;
  config.rope.original_max_position = 4096;
  RopeTable yarn(config, 64), plain(Rope("default", 10000), 64);
  // low = floor(64·ln(4096/(32·2π))/(2·ln 10000)) = 10, high = ceil(same with 1) = 23.
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(yarn.frequencies()[i], plain.frequencies()[i]);
  EXPECT_LT(yarn.frequencies()[11], plain.frequencies()[11]);
  for (int i = 23; i < 32; ++i) EXPECT_EQ(yarn.frequencies()[i], plain.frequencies()[i] / 16);
  EXPECT_GT(yarn.frequencies()[22], plain.frequencies()[22] / 16);
  EXPECT_DOUBLE_EQ(yarn.factor(), 0.1 * std::log(16.0) + 1);
  config.rope.mscale = config.rope.mscale_all_dim = 1;
  EXPECT_EQ(RopeTable(config, 64).factor(), 1);
  config.kv_lora = 8;
  config.qk_nope = config.qk_rope = 8;
  const double m = 0.1 * std::log(16.0) + 1;
  EXPECT_DOUBLE_EQ(SoftmaxScale(config), m * m / 4);

  ModelConfig llama = Rope("llama3", 500000);
  llama.rope.factor = 8;
  llama.rope.original_max_position = 8192;
  RopeTable stretched(llama, 128), base(Rope("default", 500000), 128);
  EXPECT_EQ(stretched.frequencies()[0], base.frequencies()[0]);
  EXPECT_EQ(stretched.frequencies()[63], base.frequencies()[63] / 8);
}

TEST(KvCache, GrowsAndForgets) {
  Memory memory(nullptr);
  KvCache cache;
  for (int step = 0; step < 5; ++step) {
    Matrix keys(memory, 3, 2, DType::kBF16), values(memory, 3, 1, DType::kBF16);
    for (int64_t i = 0; i < 6; ++i) keys.values[i] = static_cast<float>(10 * step + i);
    for (int64_t i = 0; i < 3; ++i) values.values[i] = static_cast<float>(-step);
    cache.Append(memory, keys, values);
  }
  EXPECT_EQ(cache.length(), 15);
  const Matrix keys = cache.Keys(memory);
  EXPECT_EQ(keys.row(3)[0], 10);
  EXPECT_EQ(keys.row(14)[1], 45);
  EXPECT_EQ(cache.Values(memory).row(14)[0], -4);
  cache.Truncate(4);
  cache.Truncate(9);  // not longer again
  EXPECT_EQ(cache.length(), 4);
  EXPECT_EQ(cache.Keys(memory).rows, 4);
}

}  // namespace
}  // namespace assay::kernels::native
