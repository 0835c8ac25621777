// Every storage method as its own library wrote it (goldens/formats): which parts it has, in which
// units and extents, written out by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>


#include "harness/checkpoint/safetensors.h"
#include "harness/shard/listing.h"
#include "harness/units/scheme.h"

namespace assay::shard {
namespace {

// A part's line: suffix, type, rows along which axis in which unit, columns likewise.
std::string Line(const Component& c) {
  const auto along = [](Along a) { return a == Along::kN ? "n" : a == Along::kK ? "k" : "-"; };
  const auto each = [](int64_t elements, int64_t values) {
    return values == 1 ? fmt::format("{}", elements) : fmt::format("{}/{}", elements, values);
  };
  const std::string suffix = c.name.substr(c.name.rfind('.') + 1);
  return fmt::format(
      "{} {} [{} {}:{}x{}, {} {}:{}x{}]", suffix, NameOf(c.dtype), c.rows, along(c.row_along),
      c.row_unit, each(c.elements_per_row.count(), c.rows_per_unit), c.columns,
      along(c.column_along), c.unit, each(c.column_elements.count(), c.columns_per_unit));
}

struct Case {
  const char* file;
  const char* method;
  int64_t n, k;
  QuantConfig quant;
  std::vector<std::string> lines;
};

void PrintTo(const Case& one, std::ostream* os) { *os << one.file; }

QuantConfig Ct(const char* format, const char* type, int bits, const char* strategy, int64_t group,
               bool symmetric, const char* actorder = "") {
  QuantConfig quant;
  quant.method = "compressed-tensors";
  quant.format = format;
  quant.weight_type = type;
  quant.bits = bits;
  quant.strategy = strategy;
  quant.group_size = group;
  quant.symmetric = symmetric;
  quant.actorder = actorder;
  quant.targets = {"Linear"};
  return quant;
}
QuantConfig Packed(int bits, const char* strategy, int64_t group, bool symmetric,
                   const char* actorder = "") {
  return Ct("pack-quantized", "int", bits, strategy, group, symmetric, actorder);
}
QuantConfig Blocks(QuantConfig quant, int64_t n, int64_t k) {
  quant.block_n = n, quant.block_k = k;
  return quant;
}
QuantConfig Other(const char* method, int bits, int64_t group, bool symmetric, bool desc = false) {
  QuantConfig quant;
  quant.method = method;
  quant.bits = bits;
  quant.group_size = group;
  quant.symmetric = symmetric;
  quant.desc_act = desc;
  return quant;
}

Spec SpecOf(int64_t n, int64_t k) {
  Spec spec;
  spec.name = "L0.mlp.up";
  spec.source = "m";
  spec.n = n, spec.k = k;
  spec.cut = Cut::kSharedRows;
  return spec;
}

// The file's tensors but for those that say what is expected.
MemorySource SourceOf(const std::string& file) {
  MemorySource source;
  const auto open = SafetensorsFile::Open("goldens/formats/" + file + ".safetensors");
  EXPECT_TRUE(open.ok()) << open.error().message;
  if (!open) return source;
  for (const std::string& name : (*open)->Names()) {
    if (name == "expected" || name == "codes" || name == "library_default") continue;
    const TensorView& view = *(*open)->Find(name);
    source.Put("m." + name, view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()});
  }
  return source;
}

class Formats : public testing::TestWithParam<Case> {};

TEST_P(Formats, PartsUnitsAndExtents) {
  const Case& one = GetParam();
  const MemorySource source = SourceOf(one.file);
  std::vector<Listed> listed;
  const Status status = ListLinear(SpecOf(one.n, one.k), one.quant, source, {}, &listed);
  ASSERT_TRUE(status.ok()) << status.error().message;
  std::vector<std::string> lines;
  for (const Listed& entry : listed) {
    const Component& c = entry.component;
    lines.push_back(Line(c));
    EXPECT_EQ(c.method, one.method);
    EXPECT_TRUE(ParseScheme(c.method).has_value()) << c.method;
    EXPECT_EQ(c.row_along == Along::kN ? c.row_extent.count() : one.n, one.n) << c.name;
    EXPECT_EQ(c.row_along == Along::kK ? c.row_extent.count() : one.k, one.k) << c.name;
    EXPECT_EQ(c.column_along == Along::kN ? c.row_elements.count() : one.n, one.n) << c.name;
    EXPECT_EQ(c.column_along == Along::kK ? c.row_elements.count() : one.k, one.k) << c.name;
  }
  EXPECT_EQ(lines, one.lines);
}

// A tensor that no method has beside this weight: nobody would load it.
TEST_P(Formats, AStrayTensorIsAnError) {
  const Case& one = GetParam();
  MemorySource source = SourceOf(one.file);
  source.Put("m.weight_scale_second", DType::kI8, {1}, std::vector<std::byte>(1));
  std::vector<Listed> listed;
  const Status status = ListLinear(SpecOf(one.n, one.k), one.quant, source, {}, &listed);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("weight_scale_second"), std::string::npos)
      << status.error().message;
}

const QuantConfig kW8a8 = Ct("int-quantized", "int", 8, "channel", 0, true);
const QuantConfig kFp8 = Ct("float-quantized", "float", 8, "channel", 0, true);
const QuantConfig kNone;

INSTANTIATE_TEST_SUITE_P(
    All, Formats,
    testing::Values(
        Case{"ct-int4-g32-sym",
             "ct-int4-g32",
             13,
             160,
             Packed(4, "group", 32, true),
             {"weight I32 [13 n:elementx1, 20 k:wordx8]",
              "scale BF16 [13 n:elementx1, 5 k:groupx32]"}},
        Case{"ct-int4-g128-sym",
             "ct-int4-g128",
             9,
             384,
             Packed(4, "group", 128, true),
             {"weight I32 [9 n:elementx1, 48 k:wordx8]",
              "scale BF16 [9 n:elementx1, 3 k:groupx128]"}},
        Case{"ct-int4-g32-asym",
             "ct-int4-g32-asym",
             13,
             96,
             Packed(4, "group", 32, false),
             {"weight I32 [13 n:elementx1, 12 k:wordx8]",
              "scale BF16 [13 n:elementx1, 3 k:groupx32]", "zero I32 [2 n:wordx8, 3 k:groupx32]"}},
        Case{"ct-int4-channel-sym",
             "ct-int4-channel",
             11,
             52,
             Packed(4, "channel", 0, true),
             {"weight I32 [11 n:elementx1, 7 k:wordx8]",
              "scale BF16 [11 n:elementx1, 1 -:groupx1]"}},
        Case{"ct-int4-channel-asym",
             "ct-int4-channel-asym",
             19,
             44,
             Packed(4, "channel", 0, false),
             {"weight I32 [19 n:elementx1, 6 k:wordx8]", "scale BF16 [19 n:elementx1, 1 -:groupx1]",
              "zero I32 [3 n:wordx8, 1 -:groupx1]"}},
        // One group a row that the config states in elements, and one that it states as "all".
        Case{
            "ct-int4-one-group-sym",
            "ct-int4-g32",
            5,
            32,
            Packed(4, "group", 32, true),
            {"weight I32 [5 n:elementx1, 4 k:wordx8]", "scale BF16 [5 n:elementx1, 1 k:groupx32]"}},
        Case{
            "ct-int4-one-group-sym",
            "ct-int4-one-group",
            5,
            32,
            Packed(4, "group", -1, true),
            {"weight I32 [5 n:elementx1, 4 k:wordx8]", "scale BF16 [5 n:elementx1, 1 k:groupx32]"}},
        Case{
            "ct-int4-g32-actorder-group",
            "ct-int4-g32-actorder-group",
            10,
            128,
            Packed(4, "group", 32, true, "group"),
            {"weight I32 [10 n:elementx1, 16 k:wordx8]", "scale BF16 [10 n:elementx1, 4 -:groupx1]",
             "g_idx I32 [128 k:elementx1, 1 -:elementx1]"}},
        Case{"ct-int3-g32-sym",
             "ct-int3-g32",
             9,
             96,
             Packed(3, "group", 32, true),
             {"weight I32 [9 n:elementx1, 9 k:wordx32/3]",
              "scale BF16 [9 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-old-int3-g32-sym",
             "ct-old-int3-g32",
             6,
             96,
             Packed(3, "group", 32, true),
             {"weight I32 [6 n:elementx1, 10 k:wordx10]",
              "scale BF16 [6 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-int5-channel-asym",
             "ct-int5-channel-asym",
             12,
             44,
             Packed(5, "channel", 0, false),
             {"weight I32 [12 n:elementx1, 7 k:wordx32/5]",
              "scale BF16 [12 n:elementx1, 1 -:groupx1]", "zero I32 [2 n:wordx32/5, 1 -:groupx1]"}},
        Case{"ct-int6-g32-sym",
             "ct-int6-g32",
             7,
             64,
             Packed(6, "group", 32, true),
             {"weight I32 [7 n:elementx1, 12 k:wordx16/3]",
              "scale BF16 [7 n:elementx1, 2 k:groupx32]"}},
        Case{"ct-old-int6-g32-sym",
             "ct-old-int6-g32",
             6,
             96,
             Packed(6, "group", 32, true),
             {"weight I32 [6 n:elementx1, 20 k:wordx5]",
              "scale BF16 [6 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-int8-g32-sym",
             "ct-int8-g32",
             7,
             96,
             Packed(8, "group", 32, true),
             {"weight I32 [7 n:elementx1, 24 k:wordx4]",
              "scale BF16 [7 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-w8a8-channel",
             "ct-w8a8-channel",
             10,
             300,
             kW8a8,
             {"weight I8 [10 n:elementx1, 300 k:elementx1]",
              "scale F32 [10 n:elementx1, 1 -:groupx1]"}},
        Case{"ct-w8a8-channel-asym",
             "ct-w8a8-channel-asym",
             10,
             70,
             Ct("int-quantized", "int", 8, "channel", 0, false),
             {"weight I8 [10 n:elementx1, 70 k:elementx1]",
              "scale F32 [10 n:elementx1, 1 -:groupx1]", "zero I8 [10 n:elementx1, 1 -:groupx1]"}},
        Case{"ct-w8a8-tensor",
             "ct-w8a8-tensor",
             6,
             270,
             Ct("int-quantized", "int", 8, "tensor", 0, true),
             {"weight I8 [6 n:elementx1, 270 k:elementx1]",
              "scale F32 [1 -:elementx1, 1 -:elementx1]"}},
        Case{"ct-fp8-channel",
             "ct-fp8-channel",
             11,
             60,
             kFp8,
             {"weight F8_E4M3 [11 n:elementx1, 60 k:elementx1]",
              "scale BF16 [11 n:elementx1, 1 -:groupx1]"}},
        Case{"ct-fp8-tensor",
             "ct-fp8-tensor",
             7,
             50,
             Ct("float-quantized", "float", 8, "tensor", 0, true),
             {"weight F8_E4M3 [7 n:elementx1, 50 k:elementx1]",
              "scale F32 [1 -:elementx1, 1 -:elementx1]"}},
        Case{"ct-fp8-block128",
             "ct-fp8-block128",
             150,
             200,
             Blocks(Ct("float-quantized", "float", 8, "block", 0, true), 128, 128),
             {"weight F8_E4M3 [150 n:elementx1, 200 k:elementx1]",
              "scale BF16 [2 n:blockx128, 2 k:blockx128]"}},
        Case{"ct-fp8-block16x32",
             "ct-fp8-block16x32",
             40,
             80,
             Blocks(Ct("float-quantized", "float", 8, "block", 0, true), 16, 32),
             {"weight F8_E4M3 [40 n:elementx1, 80 k:elementx1]",
              "scale F32 [3 n:blockx16, 3 k:blockx32]"}},
        Case{"ct-mxfp4",
             "ct-mxfp4",
             7,
             96,
             Ct("mxfp4-pack-quantized", "float", 4, "group", 32, true),
             {"weight U8 [7 n:elementx1, 48 k:wordx2]", "scale U8 [7 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-mxfp4-extreme-scales",
             "ct-mxfp4",
             7,
             96,
             kNone,
             {"weight U8 [7 n:elementx1, 48 k:wordx2]", "scale U8 [7 n:elementx1, 3 k:groupx32]"}},
        Case{"ct-mxfp8",
             "ct-mxfp8",
             5,
             288,
             Ct("mxfp8-quantized", "float", 8, "group", 32, true),
             {"weight F8_E4M3 [5 n:elementx1, 288 k:elementx1]",
              "scale U8 [5 n:elementx1, 9 k:groupx32]"}},
        Case{"ct-nvfp4",
             "ct-nvfp4",
             6,
             80,
             Ct("nvfp4-pack-quantized", "float", 4, "tensor_group", 16, true),
             {"weight U8 [6 n:elementx1, 40 k:wordx2]",
              "scale F8_E4M3 [6 n:elementx1, 5 k:groupx16]",
              "global_scale F32 [1 -:elementx1, 1 -:elementx1]"}},
        Case{"modelopt-nvfp4",
             "modelopt-nvfp4",
             6,
             80,
             Other("modelopt", 0, 16, true),
             {"weight U8 [6 n:elementx1, 40 k:wordx2]",
              "scale F8_E4M3 [6 n:elementx1, 5 k:groupx16]",
              "global_scale F32 [1 -:elementx1, 1 -:elementx1]",
              "input_scale F32 [1 -:elementx1, 1 -:elementx1]"}},
        Case{"deepseek-fp8-block128",
             "deepseek-fp8-block128",
             150,
             200,
             Blocks(Other("fp8", 8, 0, true), 128, 128),
             {"weight F8_E4M3 [150 n:elementx1, 200 k:elementx1]",
              "scale F32 [2 n:blockx128, 2 k:blockx128]"}},
        Case{"deepseek-fp8-block32",
             "deepseek-fp8-block32",
             80,
             72,
             Blocks(Other("fp8", 8, 0, true), 32, 32),
             {"weight F8_E4M3 [80 n:elementx1, 72 k:elementx1]",
              "scale F32 [3 n:blockx32, 3 k:blockx32]"}},
        Case{"deepseek-v4-mxfp4",
             "deepseek-v4-mxfp4",
             24,
             160,
             kNone,
             {"weight I8 [24 n:elementx1, 80 k:wordx2]",
              "scale F8_E8M0 [24 n:elementx1, 5 k:groupx32]"}},
        Case{
            "gptq-int4-g32-sym",
            "gptq-int4-g32",
            64,
            128,
            Other("gptq", 4, 32, true),
            {"weight I32 [16 k:wordx8, 64 n:elementx1]", "scale F16 [4 k:groupx32, 64 n:elementx1]",
             "zero I32 [4 k:groupx32, 8 n:wordx8]", "g_idx I32 [128 k:elementx1, 1 -:elementx1]"}},
        Case{
            "gptq-int4-g64-asym",
            "gptq-int4-g64-asym",
            32,
            192,
            Other("gptq", 4, 64, false),
            {"weight I32 [24 k:wordx8, 32 n:elementx1]", "scale F16 [3 k:groupx64, 32 n:elementx1]",
             "zero I32 [3 k:groupx64, 4 n:wordx8]", "g_idx I32 [192 k:elementx1, 1 -:elementx1]"}},
        Case{"gptq-int4-g32-actorder",
             "gptq-int4-g32-actorder",
             32,
             128,
             Other("gptq", 4, 32, true, true),
             {"weight I32 [16 k:wordx8, 32 n:elementx1]", "scale F16 [4 -:groupx1, 32 n:elementx1]",
              "zero I32 [4 -:groupx1, 4 n:wordx8]", "g_idx I32 [128 k:elementx1, 1 -:elementx1]"}},
        // The same order in a file whose config does not admit it.
        Case{"gptq-int4-g32-actorder",
             "gptq-int4-g32-actorder",
             32,
             128,
             Other("gptq", 4, 32, true),
             {"weight I32 [16 k:wordx8, 32 n:elementx1]", "scale F16 [4 -:groupx1, 32 n:elementx1]",
              "zero I32 [4 -:groupx1, 4 n:wordx8]", "g_idx I32 [128 k:elementx1, 1 -:elementx1]"}},
        Case{"awq-int4-g32-asym",
             "awq-int4-g32-asym",
             64,
             96,
             Other("awq", 4, 32, false),
             {"weight I32 [96 k:elementx1, 8 n:wordx8]", "scale F16 [3 k:groupx32, 64 n:elementx1]",
              "zero I32 [3 k:groupx32, 8 n:wordx8]"}}),
    [](const auto& info) {
      std::string name = fmt::format("{}_{}", info.param.file, info.index);
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

}  // namespace
}  // namespace assay::shard
