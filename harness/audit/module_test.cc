// Methods and misfits by names, types and shapes, held against the vendors' own files.
#include "harness/audit/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "harness/audit/listing.h"
#include "harness/checkpoint/safetensors.h"

namespace assay::audit {
namespace {

namespace fs = std::filesystem;

// The config that a vendor's file of that name would come with.
ModelConfig ConfigFor(const std::string& id) {
  ModelConfig config;
  QuantConfig& quant = config.quant;
  const auto has = [&](const char* part) { return id.find(part) != id.npos; };
  quant.method = has("gptq") ? "gptq" : has("awq") ? "awq" : "compressed-tensors";
  if (const size_t at = id.find("int"); at != id.npos) quant.bits = id[at + 3] - '0';
  for (const int group : {32, 64, 128}) {
    const bool stated =
        has(("-g" + std::to_string(group)).c_str()) || (group == 32 && has("one-group"));
    if (!stated) continue;
    quant.group_size = group;
    quant.strategy = "group";
  }
  if (has("channel")) quant.strategy = "channel";
  if (has("block128")) quant.block_n = quant.block_k = 128;
  if (has("deepseek-fp8-block32")) quant.block_n = quant.block_k = 32;
  if (has("block16x32")) {
    quant.block_n = 16;
    quant.block_k = 32;
  }
  quant.symmetric = !has("asym");
  quant.desc_act = has("gptq") && has("actorder");
  return config;
}

// A file's name is its method's id, but for "-sym" and a tensor's name (interfaces.md).
std::string IdOf(std::string stem) {
  for (const char* part : {"-sym", "-extreme-scales", "-down_proj", "-gate_up_proj"}) {
    if (const size_t at = stem.find(part); at != stem.npos) stem.erase(at);
  }
  return stem;
}

std::string ModuleName(const std::string& stem) {
  if (stem.ends_with("gate_up_proj")) return "gate_up_proj";
  return stem.ends_with("down_proj") ? "down_proj" : "";
}

TEST(Module, EveryVendorsFileIsKnownByItsTensors) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator("goldens/formats")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".safetensors" || stem.starts_with("float-") ||
        stem.starts_with("gguf-")) {
      continue;
    }
    const auto file = SafetensorsFile::Open(entry.path().string());
    ASSERT_TRUE(file.ok());
    const ModelConfig config = ConfigFor(stem);
    const auto module = ReadModule(ModuleName(stem), **file, &config);
    ASSERT_TRUE(module.has_value()) << stem;
    // One group a row is a group of all of k, where the config states its size.
    const std::string due = stem == "ct-int4-one-group-sym" ? "ct-int4-g32" : IdOf(stem);
    EXPECT_EQ(module->method, due) << stem;
    for (const Finding& finding : CheckModule(*module)) {
      ADD_FAILURE() << stem << ": " << finding.tensor << ": " << finding.detail;
    }
    if (module->shape != nullptr) {
      const auto lie = CheckStatedShape(*module, *module->shape, module->shape->bytes);
      EXPECT_FALSE(lie.has_value()) << stem << ": " << lie->detail;
    }
    if (module->g_idx != nullptr) {
      const GIdx g_idx = CheckGIdx(&*module, *module->g_idx, module->g_idx->bytes);
      EXPECT_FALSE(g_idx.finding.has_value()) << stem << ": " << g_idx.finding->detail;
      EXPECT_EQ(g_idx.identity, !stem.ends_with("actorder") && !stem.ends_with("actorder-group"))
          << stem;
    }
    ++count;
  }
  EXPECT_GE(count, 30u);
}

class Source : public MemorySource {
 public:
  void Add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    Put(name, dtype, shape,
        std::vector<std::byte>(static_cast<size_t>(StoredBytes(dtype, shape)->count())));
  }
};

// One wrong extent in each tensor of a module is named, with what it must be.
TEST(Module, WhatDoesNotFitIsNamed) {
  struct Case {
    const char* method;
    std::vector<std::pair<const char*, std::pair<DType, std::vector<int64_t>>>> tensors;
    const char* wrong;  // which one gets another extent
    size_t axis;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"ct-int4-g32",
       {{"weight_packed", {DType::kI32, {16, 12}}},
        {"weight_scale", {DType::kBF16, {16, 3}}},
        {"weight_shape", {DType::kI64, {2}}}},
       "weight_scale",
       0,
       "it must be [16, 3]"},
      {"ct-int4-g32-asym",
       {{"weight_packed", {DType::kI32, {16, 12}}},
        {"weight_scale", {DType::kBF16, {16, 3}}},
        {"weight_zero_point", {DType::kI32, {2, 3}}},
        {"weight_shape", {DType::kI64, {2}}}},
       "weight_zero_point",
       0,
       "it must be [2, 3]"},
      {"deepseek-fp8-block128",
       {{"weight", {DType::kF8E4M3, {300, 200}}}, {"weight_scale_inv", {DType::kF32, {3, 2}}}},
       "weight_scale_inv",
       1,
       "it must be [3, 2]"},
      {"ct-mxfp4",
       {{"weight_packed", {DType::kU8, {8, 48}}}, {"weight_scale", {DType::kU8, {8, 3}}}},
       "weight_scale",
       1,
       "it must be [8, 3]"},
      {"gptq-int4-g32",
       {{"qweight", {DType::kI32, {8, 24}}},
        {"qzeros", {DType::kI32, {2, 3}}},
        {"scales", {DType::kF16, {2, 24}}},
        {"g_idx", {DType::kI32, {64}}}},
       "qzeros",
       1,
       "it must be [2, 3]"},
      {"awq-int4-g32-asym",
       {{"qweight", {DType::kI32, {64, 3}}},
        {"qzeros", {DType::kI32, {2, 3}}},
        {"scales", {DType::kF16, {2, 24}}}},
       "scales",
       0,
       "it must be [2, 24]"},
      {"gptoss-mxfp4",
       {{"weight_blocks", {DType::kU8, {2, 8, 3, 16}}}, {"weight_scales", {DType::kU8, {2, 8, 3}}}},
       "weight_scales",
       2,
       "it must be [2, 8, 3]"},
  };
  for (const Case& each : cases) {
    const bool fused = std::string_view(each.method) == "gptoss-mxfp4";
    const std::string name = fused ? "m.weight" : "m";
    const ModelConfig config = ConfigFor(each.method);
    for (const bool broken : {false, true}) {
      Source source;
      for (const auto& [suffix, what] : each.tensors) {
        auto shape = what.second;
        if (broken && std::string_view(suffix) == each.wrong) ++shape[each.axis];
        source.Add(std::string("m.") + suffix, what.first, shape);
      }
      const auto module = ReadModule(name, source, &config);
      ASSERT_TRUE(module.has_value()) << each.method;
      const auto findings = CheckModule(*module);
      if (!broken) {
        EXPECT_EQ(module->method, each.method);
        EXPECT_TRUE(findings.empty()) << each.method << ": " << findings[0].detail;
        continue;
      }
      ASSERT_EQ(findings.size(), 1u) << each.method;
      EXPECT_EQ(findings[0].tensor, std::string("m.") + each.wrong);
      EXPECT_NE(findings[0].detail.find(each.says), std::string::npos) << findings[0].detail;
    }
  }
}

TEST(Roles, PlacesAreInTheFilesOwnUnits) {
  const auto place = [](const char* name, DType dtype, std::vector<int64_t> shape, uint64_t index,
                        uint64_t unit = 0) {
    const TensorView view{name, dtype, std::move(shape), {}, "f"};
    Source none;
    none.Add("m.weight", DType::kF8E4M3, {1, 1});
    return PlaceOf(view, RoleOf(view, none), index, unit);
  };
  EXPECT_EQ(place("m.weight_scale", DType::kBF16, {8, 4}, 17), "row 4, group 1");
  EXPECT_EQ(place("m.weight_scale", DType::kF32, {8}, 5), "row 5");
  EXPECT_EQ(place("m.weight_scale", DType::kF32, {1}, 0), "");
  EXPECT_EQ(place("m.weight_scale_inv", DType::kF32, {3, 2}, 5), "block row 2, block column 1");
  EXPECT_EQ(place("m.scales", DType::kF16, {4, 24}, 30), "group 1, column 6");
  EXPECT_EQ(place("m.weight_packed", DType::kI32, {8, 16}, 7, 4), "row 1, group 3");
  EXPECT_EQ(place("m_blocks", DType::kU8, {2, 3, 4, 16}, 17, 16), "expert 1, row 1, group 1");
  EXPECT_EQ(place("blk.0.ffn_up_exps.weight", DType::kQ4_0, {2, 3, 4}, 23),
            "expert 1, row 2, block 3");
  EXPECT_EQ(place("m.weight", DType::kBF16, {3, 5}, 14), "row 2, column 4");
  EXPECT_EQ(place("m.bias", DType::kBF16, {3}, 2), "element 2");
}

TEST(Module, WhatIsMissingIsNamed) {
  Source source;
  source.Add("m.weight_packed", DType::kI32, {16, 12});
  auto module = ReadModule("m", source, nullptr);
  ASSERT_TRUE(module.has_value());
  auto findings = CheckModule(*module);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].detail.find("scale"), std::string::npos);
  source.Add("m.weight_scale", DType::kBF16, {16, 3});
  module = ReadModule("m", source, nullptr);
  findings = CheckModule(*module);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].detail.find("weight_shape"), std::string::npos);
}

// A name with any suffix, any type, any shape: never a crash, never an overflow.
TEST(Module, AnyShapeIsSurvived) {
  const std::vector<std::vector<int64_t>> shapes = {
      {},     {0},       {1},           {INT64_MAX},    {0, 0}, {1, INT64_MAX}, {INT64_MAX, 1},
      {3, 5}, {2, 2, 2}, {2, 2, 2, 16}, {1, 1, 1, 1, 1}};
  const char* suffixes[] = {"weight_packed",    "weight_scale", "weight_zero_point",
                            "weight_shape",     "weight_g_idx", "qweight",
                            "qzeros",           "scales",       "weight",
                            "weight_scale_inv", "scale",        "weight_offset"};
  const DType types[] = {DType::kI32, DType::kU8,     DType::kI8,   DType::kF8E4M3,
                         DType::kF32, DType::kF8E8M0, DType::kQ4_1, DType::kI64};
  std::vector<TensorView> views;
  class Views : public TensorSource {
   public:
    std::vector<TensorView> views;
    const TensorView* Find(std::string_view name) const override {
      for (const TensorView& view : views) {
        if (view.name == name) return &view;
      }
      return nullptr;
    }
    std::vector<std::string> Names() const override { return {}; }
  };
  uint64_t state = 1;
  const auto pick = [&](size_t count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % count;
  };
  size_t modules = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Views source;
    for (const char* suffix : suffixes) {
      if (pick(3) == 0) continue;
      source.views.push_back({std::string("m.") + suffix,
                              types[pick(std::size(types))],
                              shapes[pick(shapes.size())],
                              {},
                              "f"});
    }
    ModelConfig config;
    config.quant.group_size = static_cast<int64_t>(pick(3)) * 32;
    config.quant.bits = static_cast<int>(pick(9));
    const auto module = ReadModule("m", source, &config);
    for (const TensorView& view : source.views) {
      const Role role = RoleOf(view, source);
      LensOf(view, role, source, module ? module->coding : Coding());
      PlaceOf(view, role, 12345, pick(2) * 4);
    }
    if (!module) continue;
    ++modules;
    CheckModule(*module);
    std::vector<std::byte> bytes(pick(64), static_cast<std::byte>(pick(256)));
    if (module->shape != nullptr) CheckStatedShape(*module, *module->shape, bytes);
    if (module->g_idx != nullptr) CheckGIdx(&*module, *module->g_idx, bytes);
  }
  EXPECT_GT(modules, 1000u);
}

}  // namespace
}  // namespace assay::audit
