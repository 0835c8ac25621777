// Which members of a merged parameter are one matrix, and where their parts begin in it; and that a
// second load in another type leaves nothing of the first.
#include <gtest/gtest.h>

#include <cstring>

#include "harness/units/scheme.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_shards.h"
#include "kernels/methods/convert.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kLlama = "goldens/checkpoints/llama-mini";

Converted Made(const Shipped& from, const std::string& method) {
  auto made = MakeConverted(*from.checkpoint, from.source.config_json, *ParseScheme(method));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(*made);
}

struct Loaded {
  explicit Loaded(const Converted& made) : driver(NativeEngine()) {
    EXPECT_EQ(driver.Open(made.config_json, {}), ASSAY_OK) << driver.error().message;
    EXPECT_EQ(driver.Load(0, *made.source, made.source->Names()), ASSAY_OK)
        << driver.error().message;
  }
  assay_shard Of(const std::string& component) {
    assay_shard shard;
    EXPECT_EQ(driver.Export(0, component, &shard), ASSAY_OK) << driver.error().message;
    return shard;
  }
  Driver driver;
};

// A scalar of the whole tensor is a row of its own for each member; block scales are rows of
// blocks.
TEST(JoinedParts, ScalarsAreOneSlotAMember) {
  const Shipped llama(kLlama);
  for (const auto& [method, scalar] : {std::pair{"ct-nvfp4", "global_scale"},
                                       {"ct-w8a8-tensor", "scale"},
                                       {"modelopt-nvfp4", "global_scale"},
                                       {"ct-fp8-tensor", "scale"}}) {
    SCOPED_TRACE(method);
    const Converted made = Made(llama, method);
    Loaded loaded(made);
    const assay_shard gate = loaded.Of("L0.mlp.gate.weight"), up = loaded.Of("L0.mlp.up.weight");
    EXPECT_STREQ(gate.method, method);
    EXPECT_EQ(gate.data, up.data);
    EXPECT_EQ(up.first_row, gate.rows);
    const std::string part = std::string(".") + scalar;
    const assay_shard one = loaded.Of("L0.mlp.gate" + part), two = loaded.Of("L0.mlp.up" + part);
    EXPECT_EQ(one.total_rows, 2);
    EXPECT_EQ(one.first_row, 0);
    EXPECT_EQ(two.first_row, 1);
    EXPECT_EQ(two.rows, 1);
    const auto width = static_cast<size_t>(SizeOf(static_cast<DType>(two.dtype)).count());
    const TensorView* stored = nullptr;
    for (const char* suffix : {".weight_global_scale", ".weight_scale_2", ".weight_scale"}) {
      const std::string name = std::string("model.layers.0.mlp.up_proj") + suffix;
      if (stored == nullptr) stored = made.source->Find(name);
    }
    ASSERT_NE(stored, nullptr);
    ASSERT_EQ(stored->bytes.size(), width);
    EXPECT_EQ(
        std::memcmp(static_cast<const std::byte*>(two.data) + width, stored->bytes.data(), width),
        0);
  }
}

// N lies along columns, or the inputs have an order: nothing is joined.
TEST(JoinedParts, WhatIsNotRowsStandsAlone) {
  const Shipped k2("goldens/checkpoints/k2-mini");
  for (const char* method : {"gptq-int4-g32", "awq-int4-g32-asym", "ct-int4-g32-actorder-group"}) {
    SCOPED_TRACE(method);
    const Converted made = Made(k2, method);
    Loaded loaded(made);
    const assay_shard gate = loaded.Of("L1.moe.e2.gate.weight"),
                      up = loaded.Of("L1.moe.e2.up.weight");
    EXPECT_STREQ(gate.method, method);
    EXPECT_NE(gate.data, up.data);
    EXPECT_EQ(gate.total_rows, gate.rows);
    EXPECT_EQ(up.first_row, 0);
  }
  const Converted grouped = Made(k2, "ct-int4-g32");
  Loaded loaded(grouped);
  EXPECT_EQ(loaded.Of("L1.moe.e2.gate.weight").data, loaded.Of("L1.moe.e2.up.weight").data);
}

// GPTQ's tools write a bias of zeros where the model has none: it is passed over, and no other is.
TEST(JoinedParts, ABiasOfZerosIsNoParameter) {
  const Shipped k2("goldens/checkpoints/k2-mini");
  const Converted made = Made(k2, "gptq-int4-g32");
  MemorySource source;
  for (const std::string& name : made.source->Names()) {
    const TensorView& view = *made.source->Find(name);
    source.Put(name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
  }
  const std::string module = "model.layers.1.mlp.experts.2.down_proj";
  ASSERT_NE(source.Find(module + ".qweight"), nullptr);
  std::vector<std::byte> bias(96 * 2);
  for (const bool zero : {true, false}) {
    bias[7] = zero ? std::byte{0} : std::byte{0x3C};
    source.Put(module + ".bias", DType::kF16, {96}, bias);
    Driver driver(NativeEngine());
    ASSERT_EQ(driver.Open(made.config_json, {}), ASSAY_OK);
    EXPECT_EQ(driver.Load(0, source, source.Names()), zero ? ASSAY_OK : ASSAY_REFUSED)
        << driver.error().message;
    if (!zero) {
      EXPECT_EQ(driver.error().tensor, module + ".bias");
    }
  }
}

TEST(JoinedParts, ASecondLoadInAnotherTypeReplacesEverything) {
  const Shipped llama(kLlama);
  const Converted wide = Made(llama, "f32");
  Driver driver(NativeEngine());
  ASSERT_EQ(driver.Open(llama.source.config_json, {}), ASSAY_OK);
  ASSERT_EQ(driver.LoadAll(*llama.checkpoint), ASSAY_OK) << driver.error().message;
  assay_shard shard;
  ASSERT_EQ(driver.Export(0, "L0.mlp.down.weight", &shard), ASSAY_OK);
  EXPECT_EQ(shard.dtype, static_cast<uint32_t>(ASSAY_BF16));
  const int64_t held = driver.live_allocations;
  Source source{llama.source.config_json, llama.source.config, wide.source.get()};
  std::string why;
  const Held now = LoadAndCompare(driver, source, {.tp = 1}, &why);
  EXPECT_GT(now.compared, 0) << why;
  EXPECT_GT(now.of.at("f32"), 0);
  ASSERT_EQ(driver.Export(0, "L0.mlp.down.weight", &shard), ASSAY_OK);
  EXPECT_EQ(shard.dtype, static_cast<uint32_t>(ASSAY_F32));
  EXPECT_EQ(driver.live_allocations, held);
}

}  // namespace
}  // namespace assay::kernels::native
