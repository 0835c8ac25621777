// Methods whose tensors contradict each other, the config or the description: one clear error that
// names the tensor, the axis, the unit and both extents. And what no library's file of goldens has:
// ModelSlim, Quark, static activations, tensors of all experts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "harness/shard/listing.h"
#include "harness/shard/test_model.h"

namespace assay::shard {
namespace {

// One linear "m" of [n, k] and its tensors.
struct Rig {
  Spec spec;
  QuantConfig quant;
  std::shared_ptr<MemorySource> source = std::make_shared<MemorySource>();
  Selection selection;
  Rig(int64_t n, int64_t k) {
    spec.name = "L0.mlp.down";
    spec.source = "m";
    spec.n = n, spec.k = k;
    spec.cut = Cut::kSharedColumns;
  }
  Rig& Put(const std::string& suffix, DType dtype, std::vector<int64_t> shape) {
    PutTensor(source.get(), "m." + suffix, dtype, std::move(shape));
    return *this;
  }
  Rig& Numbers(const std::string& suffix, const std::vector<int32_t>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(int32_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    source->Put("m." + suffix, DType::kI32, {static_cast<int64_t>(values.size())}, bytes);
    return *this;
  }
  Rig& Scales(const std::string& suffix, DType dtype, int64_t n, int64_t groups, int bad = -1) {
    std::vector<std::byte> bytes(static_cast<size_t>(n * groups), std::byte{127});
    if (bad >= 0) bytes[static_cast<size_t>(bad)] = std::byte{255};
    source->Put("m." + suffix, dtype, {n, groups}, bytes);
    return *this;
  }
};

struct Outcome {
  std::vector<Listed> listed;
  std::string error;
  ErrorKind kind = ErrorKind::kBadInput;
};

Outcome ListOf(const Rig& rig) {
  Outcome outcome;
  const Status status =
      ListLinear(rig.spec, rig.quant, *rig.source, rig.selection, &outcome.listed);
  if (!status) {
    outcome.error = status.error().message;
    outcome.kind = status.error().kind;
  }
  return outcome;
}

struct Mistake {
  const char* name;
  std::function<Rig()> make;
  std::vector<std::string> says;
  ErrorKind kind = ErrorKind::kBadInput;
};
void PrintTo(const Mistake& mistake, std::ostream* os) { *os << mistake.name; }

QuantConfig Config(const char* method, int bits, int64_t group) {
  QuantConfig quant;
  quant.method = method;
  quant.bits = bits;
  quant.group_size = group;
  return quant;
}

std::vector<int32_t> Counting(int64_t k, int64_t group) {
  std::vector<int32_t> order;
  for (int64_t i = 0; i < k; ++i) order.push_back(static_cast<int32_t>(i / group));
  return order;
}

// A legal layer of each method, [64, 128].
Rig Gptq() {
  Rig rig(64, 128);
  rig.quant = Config("gptq", 4, 32);
  rig.Put("qweight", DType::kI32, {16, 64}).Put("qzeros", DType::kI32, {4, 8});
  return rig.Put("scales", DType::kF16, {4, 64}).Numbers("g_idx", Counting(128, 32));
}
Rig Awq() {
  Rig rig(64, 128);
  rig.quant = Config("awq", 4, 32);
  rig.quant.symmetric = false;
  rig.Put("qweight", DType::kI32, {128, 8}).Put("qzeros", DType::kI32, {4, 8});
  return rig.Put("scales", DType::kF16, {4, 64});
}
Rig W8a8() {
  Rig rig(64, 128);
  rig.quant = Config("compressed-tensors", 8, 0);
  rig.quant.weight_type = "int", rig.quant.strategy = "channel";
  return rig.Put("weight", DType::kI8, {64, 128}).Put("weight_scale", DType::kF32, {64, 1});
}
Rig Fp8() {
  Rig rig(64, 128);
  rig.quant = Config("fp8", 8, 0);
  rig.quant.weight_type = "float", rig.quant.strategy = "block";
  rig.quant.block_n = rig.quant.block_k = 32;
  rig.Put("weight", DType::kF8E4M3, {64, 128});
  return rig.Put("weight_scale_inv", DType::kF32, {2, 4});
}
Rig Slim(const char* type) {
  Rig rig(64, 128);
  rig.quant.method = "modelslim";
  rig.quant.description = {{"m.weight", type}};
  const bool four = std::string(type).starts_with("W4");
  rig.Put("weight", DType::kI8, {four ? 32 : 64, 128}).Put("weight_scale", DType::kF32, {64, 1});
  return rig.Put("weight_offset", DType::kF32, {64, 1});
}
Rig SlimStatic() {
  Rig rig = Slim("W8A8");
  rig.Put("input_scale", DType::kF32, {1}).Put("input_offset", DType::kF32, {1});
  return rig.Put("deq_scale", DType::kF32, {64}).Put("quant_bias", DType::kI32, {64});
}
Rig Quark() {
  Rig rig(64, 128);
  return rig.Put("weight", DType::kU8, {64, 64}).Scales("weight_scale", DType::kU8, 64, 4);
}
Rig Nvfp4() {
  Rig rig(64, 128);
  rig.Put("weight_packed", DType::kU8, {64, 64}).Put("weight_scale", DType::kF8E4M3, {64, 8});
  return rig.Put("weight_global_scale", DType::kF32, {1});
}

TEST(HostileMethods, TheLegalLayersAreLegal) {
  const std::vector<std::pair<Rig, std::string>> rigs = [] {
    std::vector<std::pair<Rig, std::string>> all;
    all.emplace_back(Gptq(), "gptq-int4-g32");
    all.emplace_back(Awq(), "awq-int4-g32-asym");
    all.emplace_back(W8a8(), "ct-w8a8-channel");
    all.emplace_back(Fp8(), "deepseek-fp8-block32");
    all.emplace_back(Slim("W4A8_DYNAMIC"), "modelslim-w4a8");
    all.emplace_back(Slim("W8A8_DYNAMIC"), "modelslim-w8a8");
    all.emplace_back(SlimStatic(), "modelslim-w8a8");
    all.emplace_back(Quark(), "quark-mxfp4");
    all.emplace_back(Nvfp4(), "ct-nvfp4");
    return all;
  }();
  for (const auto& [rig, method] : rigs) {
    const Outcome outcome = ListOf(rig);
    ASSERT_FALSE(outcome.listed.empty()) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    for (const Listed& entry : outcome.listed) EXPECT_EQ(entry.component.method, method);
  }
}

// With one output a row's scale and the tensor's look alike: the config decides.
TEST(HostileMethods, OfOneOutputTheConfigSaysWhatAScaleStandsFor) {
  for (const char* strategy : {"channel", "tensor"}) {
    Rig rig(1, 128);
    rig.quant = Config("compressed-tensors", 8, 0);
    rig.quant.weight_type = "int", rig.quant.strategy = strategy;
    rig.Put("weight", DType::kI8, {1, 128}).Put("weight_scale", DType::kF32, {1, 1});
    const Outcome outcome = ListOf(rig);
    ASSERT_EQ(outcome.listed.size(), 2u) << outcome.error;
    EXPECT_EQ(outcome.listed[1].component.method, fmt::format("ct-w8a8-{}", strategy));
    EXPECT_EQ(outcome.listed[1].component.row_along,
              std::string(strategy) == "channel" ? Along::kN : Along::kNone);
  }
}

// With k = g one scale a row and one of a group look alike.
TEST(HostileMethods, OfOneGroupTheConfigSaysWhatAScaleStandsFor) {
  for (const char* strategy : {"channel", "group"}) {
    Rig rig(8, 32);
    rig.quant = Config("compressed-tensors", 4, 0);
    rig.quant.weight_type = "int", rig.quant.strategy = strategy;
    if (std::string(strategy) == "group") rig.quant.group_size = 32;
    rig.Put("weight_packed", DType::kI32, {8, 4}).Put("weight_scale", DType::kBF16, {8, 1});
    PutShape(rig.source.get(), "m", 8, 32);
    const Outcome outcome = ListOf(rig);
    ASSERT_EQ(outcome.listed.size(), 2u) << outcome.error;
    const bool group = std::string(strategy) == "group";
    EXPECT_EQ(outcome.listed[1].component.method, group ? "ct-int4-g32" : "ct-int4-channel");
    EXPECT_EQ(outcome.listed[1].component.column_along, group ? Along::kK : Along::kNone);
  }
}

// The producers' own config is coarser than their files: GLM's FP8 has a scale a row.
TEST(HostileMethods, OutsideCompressedTensorsTheShapeDecides) {
  Rig rig(64, 128);
  rig.quant = Config("fp8", 8, 0);
  rig.quant.weight_type = "float", rig.quant.strategy = "tensor";
  rig.Put("weight", DType::kF8E4M3, {64, 128}).Put("weight_scale", DType::kF32, {64});
  const Outcome outcome = ListOf(rig);
  ASSERT_EQ(outcome.listed.size(), 2u) << outcome.error;
  EXPECT_EQ(outcome.listed[1].component.method, "ct-fp8-channel");
}

class Hostile : public testing::TestWithParam<Mistake> {};

TEST_P(Hostile, MistakeIsNamed) {
  const Outcome outcome = ListOf(GetParam().make());
  ASSERT_NE(outcome.error, "");
  EXPECT_EQ(outcome.kind, GetParam().kind) << outcome.error;
  for (const std::string& part : GetParam().says) {
    EXPECT_NE(outcome.error.find(part), std::string::npos) << part << " not in: " << outcome.error;
  }
}

std::vector<int32_t> Broken(size_t at, int32_t value) {
  std::vector<int32_t> order = Counting(128, 32);
  order[at] = value;
  return order;
}

INSTANTIATE_TEST_SUITE_P(
    All, Hostile,
    testing::Values(
        Mistake{"GroupNumberOutOfRange",
                [] { return Gptq().Numbers("g_idx", Broken(5, 4)); },
                {"m.g_idx", "element 5 is of group 4", "0 to 3"}},
        Mistake{"GroupNumberNegative",
                [] { return Gptq().Numbers("g_idx", Broken(0, -1)); },
                {"m.g_idx", "element 0 is of group -1"}},
        Mistake{"GroupTooFull",
                [] { return Gptq().Numbers("g_idx", Broken(0, 1)); },
                {"m.g_idx", "group 0 has 31 elements, expected 32 elements"}},
        Mistake{"OrderTooShort",
                [] { return Gptq().Numbers("g_idx", Counting(96, 32)); },
                {"m.g_idx", "axis k has 96 elements, expected 128 elements"}},
        Mistake{"DescActWithoutOrder",
                [] {
                  Rig rig = Awq();
                  rig.quant = Config("gptq", 4, 32);
                  rig.quant.desc_act = true;
                  return rig.Put("qweight", DType::kI32, {16, 64});
                },
                {"m.g_idx", "missing", "desc_act"}},
        Mistake{"GptqZerosUnpacked",
                [] {
                  return Gptq().Put("qzeros", DType::kI32, {4, 64});
                },
                {"m.qzeros", "axis n has 64 words, expected 8 words"}},
        Mistake{"GptqScalesOfAnotherGroup",
                [] {
                  return Gptq().Put("scales", DType::kF16, {2, 64});
                },
                {"m.scales", "axis k has 2 groups, expected 4 groups"}},
        Mistake{"GptqCalledAwq",
                [] {
                  Rig rig = Gptq();
                  rig.quant.method = "awq";
                  return rig;
                },
                {"m.qweight", "gptq stores it", "'awq'"}},
        Mistake{"AwqCalledGptq",
                [] {
                  Rig rig = Awq();
                  rig.quant.method = "gptq";
                  return rig;
                },
                {"m.qweight", "awq stores it", "'gptq'"}},
        Mistake{"QweightOfNeither",
                [] {
                  return Awq().Put("qweight", DType::kI32, {128, 64});
                },
                {"m.qweight", "axis n has 64 words, expected 8 words"}},
        Mistake{"GptqBiasThatIsNotZero",
                [] { return Gptq().Put("bias", DType::kF16, {64}); },
                {"m.bias", "not zero", "no bias"}},
        Mistake{"W8a8ScaleOfTheTensorForChannels",
                [] { return W8a8().Put("weight_scale", DType::kF32, {1}); },
                {"m.weight_scale", "axis n has 1 elements", "strategy channel", "64 elements"}},
        Mistake{"W8a8ZeroPointsThatTheConfigDenies",
                [] {
                  return W8a8().Put("weight_zero_point", DType::kI8, {64, 1});
                },
                {"weight_zero_point", "symmetric: true"}},
        Mistake{"W8a8CalledFloat",
                [] {
                  Rig rig = W8a8();
                  rig.quant.weight_type = "float";
                  return rig;
                },
                {"m.weight", "I8 holds integers", "'float'"}},
        Mistake{"Fp8BlocksOfAnotherSize",
                [] {
                  return Fp8().Put("weight_scale_inv", DType::kF32, {1, 1});
                },
                {"m.weight_scale_inv", "axis n has 1 blocks, expected 2 blocks"}},
        Mistake{"Fp8WithoutABlock",
                [] {
                  Rig rig = Fp8();
                  rig.quant.block_n = rig.quant.block_k = 0;
                  return rig;
                },
                {"m.weight_scale_inv", "weight_block_size"}},
        Mistake{"Fp8ScaleInverseBesideBf16",
                [] {
                  return Fp8().Put("weight", DType::kBF16, {64, 128});
                },
                {"m.weight_scale_inv", "BF16", "F8_E4M3"},
                ErrorKind::kUnsupported},
        Mistake{"TwoScales",
                [] {
                  return Fp8().Put("weight_scale", DType::kF32, {64, 1});
                },
                {"m.weight_scale ", "no part of deepseek-fp8-block32"}},
        Mistake{"SlimDescribedAsFourBits",
                [] {
                  Rig rig = Slim("W8A8_DYNAMIC");
                  rig.quant.description["m.weight"] = "W4A8_DYNAMIC";
                  return rig;
                },
                {"m.weight", "axis n has 64 words, expected 32 words"}},
        Mistake{"SlimDescribedAsFloat",
                [] {
                  Rig rig = Slim("W8A8_DYNAMIC");
                  rig.quant.description["m.weight"] = "FLOAT";
                  return rig;
                },
                {"m.weight", "I8", "FLOAT"}},
        Mistake{"SlimOfAnUnknownKind",
                [] {
                  Rig rig = Slim("W8A8_DYNAMIC");
                  rig.quant.description["m.weight"] = "W8A8_MXFP8";
                  return rig;
                },
                {"m.weight", "W8A8_MXFP8", "W4A8_DYNAMIC"},
                ErrorKind::kUnsupported},
        Mistake{"SlimStaticWithoutItsInputs",
                [] { return Slim("W8A8"); },
                {"m.input_scale", "missing"}},
        Mistake{"SlimSecondScaleOfEightBits",
                [] {
                  return Slim("W8A8_DYNAMIC").Put("weight_scale_second", DType::kF32, {64, 4});
                },
                {"m.weight_scale_second", "W8A8"}},
        Mistake{"SlimScaleOfPackedRows",
                [] {
                  return Slim("W4A8_DYNAMIC").Put("weight_scale", DType::kF32, {32, 1});
                },
                {"m.weight_scale", "axis n has 32 elements, expected 64 elements"}},
        Mistake{"QuarkExponent255",
                [] { return Quark().Scales("weight_scale", DType::kU8, 64, 4, 4 * 7 + 2); },
                {"m.weight_scale", "row 7, group 2 is 255", "0 to 254"}},
        Mistake{"QuarkCodesUnpacked",
                [] {
                  return Quark().Put("weight", DType::kU8, {64, 128});
                },
                {"m.weight", "axis k has 128 words, expected 64 words"}},
        Mistake{"Nvfp4GroupsOf32",
                [] {
                  return Nvfp4().Put("weight_scale", DType::kF8E4M3, {64, 4});
                },
                {"m.weight_scale", "axis k has 4 groups, expected 8 groups"}},
        Mistake{"Nvfp4WithoutAGlobalScale",
                [] {
                  Rig rig(64, 128);
                  rig.Put("weight_packed", DType::kU8, {64, 64});
                  return rig.Put("weight_scale", DType::kF8E4M3, {64, 8});
                },
                {"m.weight_global_scale", "missing"}},
        Mistake{"Nvfp4GlobalScaleARow",
                [] { return Nvfp4().Put("weight_global_scale", DType::kF32, {64}); },
                {"m.weight_global_scale", "64 elements, expected 1 elements"}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace assay::shard
