// Every row against its library's codes and scales of the same awkward activations, bit for bit.
#include "reference/quantisers/variants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/checkpoint/safetensors.h"
#include "reference/methods/method.h"

namespace assay::reference {
namespace {

constexpr const char* kFolder = "goldens/activations";

// The file of a row is named after it but where the library's name is longer, or comes first.
std::string FileOf(std::string name) {
  if (name.ends_with("-triton")) return name + "-kernels";
  if (name.ends_with("-gguf")) return "gguf-" + name.substr(0, name.size() - 5);
  return name;
}

std::unique_ptr<SafetensorsFile> OpenFile(const std::string& stem) {
  auto file = SafetensorsFile::Open(std::string(kFolder) + "/" + stem + ".safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  return std::move(*file);
}

// What a library made: codes a byte each, scales by value.
struct Made {
  std::vector<uint8_t> codes;
  std::vector<double> scales;
  std::vector<int32_t> zeros;
  double global = 1;
  friend bool operator==(const Made&, const Made&) = default;
};

Tensor Inputs(const std::string& type, int64_t rows) {
  static const auto file = OpenFile("inputs");
  const TensorView* view = file->Find(type);
  Tensor x;
  x.shape = {rows, view->shape[1]};
  x.data.resize(static_cast<size_t>(rows * view->shape[1]));
  DecodeFloats(*view, 0, rows * view->shape[1], x.data.data());
  return x;
}
DType TypeOf(const std::string& name) { return name == "bf16" ? DType::kBF16 : DType::kF32; }

std::vector<uint8_t> Bytes(const TensorView& view) {
  std::vector<uint8_t> bytes(view.bytes.size());
  std::memcpy(bytes.data(), view.bytes.data(), bytes.size());
  return bytes;
}

// ggml's blocks of 32: a scale (fp16, or E8M0), then the codes; of two in a byte the first half is
// in the low bits.
Made FromBlocks(const TensorView& view, bool q8) {
  const std::vector<uint8_t> bytes = Bytes(view);
  Made made;
  for (size_t at = 0; at < bytes.size(); at += q8 ? 34 : 17) {
    if (q8) {
      made.scales.push_back(FromHalf(static_cast<uint16_t>(bytes[at] | bytes[at + 1] << 8)));
      made.codes.insert(made.codes.end(), &bytes[at + 2], &bytes[at] + 34);
      continue;
    }
    made.scales.push_back(FromE8M0(bytes[at]));
    for (const int shift : {0, 4}) {
      for (size_t i = 1; i < 17; ++i) {
        made.codes.push_back(static_cast<uint8_t>(bytes[at + i] >> shift & 15));
      }
    }
  }
  made.zeros.assign(made.scales.size(), 0);
  return made;
}

std::vector<double> Scales(const TensorView& view) {
  std::vector<double> scales;
  if (view.dtype == DType::kU8 || view.dtype == DType::kF8E4M3) {
    for (const uint8_t byte : Bytes(view)) {
      scales.push_back(view.dtype == DType::kU8 ? FromE8M0(byte) : FromFloat8(byte, Float8::kE4M3));
    }
    return scales;
  }
  scales.resize(view.bytes.size() / static_cast<size_t>(SizeOf(view.dtype).count()));
  DecodeFloats(view, 0, static_cast<int64_t>(scales.size()), scales.data());
  return scales;
}

// One file's, of one type of input; nullopt where it has none.
std::optional<Made> Library(const std::string& stem, const std::string& type) {
  const auto file = OpenFile(stem);
  const auto find = [&](const char* part) { return file->Find(type + part); };
  if (stem.starts_with("gguf-")) {
    if (find(".q") == nullptr) return std::nullopt;
    return FromBlocks(*find(".q"), stem == "gguf-q8_0");
  }
  Made made;
  made.scales = Scales(*find(".scale"));
  made.zeros.assign(made.scales.size(), 0);
  if (const TensorView* zeros = find(".zero")) {
    std::memcpy(made.zeros.data(), zeros->bytes.data(), zeros->bytes.size());
  }
  if (const TensorView* global = find(".global_scale")) made.global = Scales(*global)[0];
  if (const TensorView* values = find(".values")) {  // E2M1 as numbers
    std::vector<double> numbers(values->bytes.size() / 4);
    DecodeFloats(*values, 0, static_cast<int64_t>(numbers.size()), numbers.data());
    for (const double number : numbers) {
      unsigned code = 0;
      while (FromE2M1(code) != std::fabs(number)) ++code;
      made.codes.push_back(static_cast<uint8_t>(code | (std::signbit(number) ? 8u : 0u)));
    }
    return made;
  }
  made.codes = Bytes(*find(".q"));
  if (find(".q")->dtype == DType::kU8) {
    std::vector<uint8_t> each;
    for (const uint8_t byte : made.codes) {
      each.push_back(byte & 15);
      each.push_back(byte >> 4);
    }
    made.codes = each;
  }
  return made;
}

Made Ours(const ActVariant& variant, const std::string& type, int64_t rows) {
  auto made = QuantiseAs(Inputs(type, rows), TypeOf(type), variant);
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return {};
  }
  return {std::move(made->codes), std::move(made->scales.data), std::move(made->zeros),
          made->global};
}

// The first element or scale that differs, in words; empty: none.
std::string Difference(const Made& want, const Made& got, int64_t columns) {
  if (want.codes.size() != got.codes.size() || want.scales.size() != got.scales.size()) {
    return "another number of codes or scales";
  }
  const auto rows = want.codes.size() / static_cast<size_t>(columns);
  if (want.global != got.global) return "another global scale";
  for (size_t i = 0; i < want.scales.size(); ++i) {
    if (std::bit_cast<uint64_t>(want.scales[i]) != std::bit_cast<uint64_t>(got.scales[i]) ||
        want.zeros[i] != got.zeros[i]) {
      return "row " + std::to_string(i / (want.scales.size() / rows)) + ", scale " +
             std::to_string(i % (want.scales.size() / rows)) + ": " +
             std::to_string(std::log2(want.scales[i])) + " is " +
             std::to_string(std::log2(got.scales[i])) + " (log2)";
    }
  }
  for (size_t i = 0; i < want.codes.size(); ++i) {
    if (want.codes[i] != got.codes[i]) {
      return "row " + std::to_string(i / static_cast<size_t>(columns)) + ", element " +
             std::to_string(i % static_cast<size_t>(columns)) + ": code " +
             std::to_string(want.codes[i]) + " is " + std::to_string(got.codes[i]);
    }
  }
  return "";
}

constexpr int64_t kColumns = 512;
int64_t RowsOf(const Made& made) { return static_cast<int64_t>(made.codes.size()) / kColumns; }

TEST(Variants, EachIsItsLibrarysBitForBit) {
  for (const ActVariant& variant : ActVariants()) {
    int compared = 0;
    for (const char* type : {"bf16", "fp32"}) {
      const auto want = Library(FileOf(std::string(variant.name)), type);
      if (!want) continue;
      EXPECT_EQ(Difference(*want, Ours(variant, type, RowsOf(*want)), kColumns), "")
          << variant.name << " " << type;
      ++compared;
    }
    EXPECT_EQ(compared, variant.name.ends_with("-gguf") ? 1 : 2) << variant.name;
  }
}

TEST(Variants, EveryFileHasARowAndEveryRowAFile) {
  std::set<std::string> files, rows;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".safetensors") continue;
    if (entry.path().stem() != "inputs") files.insert(entry.path().stem());
  }
  for (const ActVariant& variant : ActVariants()) {
    EXPECT_TRUE(rows.insert(FileOf(std::string(variant.name))).second) << variant.name;
    EXPECT_EQ(FindActVariant(variant.name), &variant);
  }
  EXPECT_EQ(files, rows);
  EXPECT_EQ(files.size(), 32u);
  EXPECT_EQ(FindActVariant("mxfp4-rceil"), nullptr);
}

// What a contract may name is what there is here.
TEST(Variants, AreThoseThatAContractMayName) {
  for (const char* act : {"amxfp4", "amxfp8"}) {
    std::set<std::string_view> ours;
    for (const ActVariant& variant : ActVariants()) {
      if (variant.act == act) ours.insert(variant.name);
    }
    const auto theirs = ActVariantNames(act);
    EXPECT_EQ(ours, (std::set<std::string_view>(theirs.begin(), theirs.end()))) << act;
    EXPECT_EQ(ours.size(), theirs.size());
  }
}

// A name that made no difference would not be worth stating. One pair is one function.
TEST(Variants, NoOtherRowMakesALibrarysBytes) {
  std::set<std::pair<std::string, std::string>> same;
  for (const ActVariant& of : ActVariants()) {
    for (const ActVariant& other : ActVariants()) {
      if (of.name == other.name) continue;
      bool equal = true;
      for (const char* type : {"bf16", "fp32"}) {
        const auto want = Library(FileOf(std::string(of.name)), type);
        if (want) equal = equal && *want == Ours(other, type, RowsOf(*want));
      }
      if (equal) same.insert({std::string(of.name), std::string(other.name)});
    }
  }
  const std::string a = "mxfp8-rceil-aiter", b = "mxfp8-round-up-triton";
  EXPECT_EQ(same, (std::set<std::pair<std::string, std::string>>{{a, b}, {b, a}}));
}

TEST(Variants, ADifferenceOfOneBitIsSeen) {
  const ActVariant* variant = FindActVariant("mxfp4-rceil-aiter");
  const Made want = *Library("mxfp4-rceil-aiter", "bf16");
  Made code = want, scale = want, zero = want, global = want;
  code.codes[700] ^= 8;
  scale.scales[20] *= 2;
  zero.zeros[3] = 1;
  EXPECT_EQ(Difference(want, Ours(*variant, "bf16", 12), kColumns), "");
  EXPECT_NE(Difference(want, code, kColumns).find("row 1, element 188"), std::string::npos);
  EXPECT_NE(Difference(want, scale, kColumns).find("row 1, scale 4"), std::string::npos);
  global.global = 2;
  EXPECT_NE(Difference(want, zero, kColumns), "");
  EXPECT_NE(Difference(want, global, kColumns), "");
}

Tensor Row(std::vector<double> values) {
  Tensor x;
  x.shape = {1, static_cast<int64_t>(values.size())};
  x.data = std::move(values);
  return x;
}
MadeActivation Of(const char* name, std::vector<double> values, size_t group) {
  values.resize(group, 0);
  auto made = QuantiseAs(Row(std::move(values)), DType::kF32, *FindActVariant(name));
  if (!made) {
    ADD_FAILURE() << made.error().message;
    std::abort();
  }
  return std::move(*made);
}

// By hand: amax 6 is one step of scale 1 in every rule of MXFP4; 7 is not.
TEST(Variants, ScalesAndTiesByHand) {
  struct Case {
    const char* name;
    double scale_of_7, five, quarter;
  };
  // 5 lies between 4 and 6, 0.25 between 0 and 0.5.
  for (const auto& [name, scale_of_7, five, quarter] :
       {Case{"mxfp4-floor-torchao", 1, 4, 0}, Case{"mxfp4-ceil-torchao", 2, 4, 0},
        Case{"mxfp4-even-torchao", 2, 4, 0}, Case{"mxfp4-rceil-torchao", 2, 4, 0},
        Case{"mxfp4-round-up-triton", 2, 6, 0.5}, Case{"mxfp4-round-down-triton", 1, 6, 0.5},
        Case{"mxfp4-gguf", 1, 4, 0}}) {
    const bool ceil = std::string_view(name) == "mxfp4-ceil-torchao";
    const auto six = Of(name, {6, 5, 0.25, -5, 0.5}, 32);
    if (!ceil) {
      EXPECT_EQ(six.scales.data[0], 1) << name;
      EXPECT_EQ(six.values.data[0], 6) << name;
      EXPECT_EQ(six.values.data[1], five) << name;
      EXPECT_EQ(six.values.data[2], quarter) << name;
      EXPECT_EQ(six.values.data[3], -five) << name;
    }
    EXPECT_EQ(Of(name, {7}, 32).scales.data[0], scale_of_7) << name;
  }
  EXPECT_EQ(Of("mxfp4-ceil-torchao", {6}, 32).scales.data[0], 2);
  EXPECT_EQ(Of("mxfp8-rceil-aiter", {448}, 32).scales.data[0], 1);
  EXPECT_EQ(Of("mxfp8-rceil-aiter", {449}, 32).scales.data[0], 2);
  EXPECT_EQ(Of("mxfp8-floor-no-emax-sglang-kt", {448}, 32).scales.data[0], 256);
}

TEST(Variants, ZeroPointsAndGlobalScalesEnterTheValues) {
  const auto int8 = Of("int8-token-asym-vllm-cpu", {0, 255, 51}, 3);
  EXPECT_EQ(int8.zeros[0], -128);
  EXPECT_EQ(int8.values.data, (std::vector<double>{0, 255, 51}));
  const auto torchao = Of("nvfp4-torchao", {2688, 1344}, 16);
  EXPECT_EQ(torchao.global, 1);
  EXPECT_EQ(torchao.values.data[0], 2688);
  EXPECT_EQ(torchao.values.data[1], 1344);
  const auto vllm = Of("nvfp4-vllm", {1344, 672}, 16);
  EXPECT_EQ(vllm.global, 2);
  EXPECT_EQ(vllm.values.data[1], 672);
}

TEST(Variants, RefusesWhatNobodysVectorsSay) {
  const ActVariant& mx = *FindActVariant("mxfp4-rceil-aiter");
  Tensor x = Row(std::vector<double>(64, 1));
  EXPECT_TRUE(QuantiseAs(x, DType::kBF16, mx).ok());
  EXPECT_FALSE(QuantiseAs(x, DType::kF16, mx).ok());
  EXPECT_FALSE(QuantiseAs(Row(std::vector<double>(48, 1)), DType::kF32, mx).ok());
  x.data[3] = 1 + 0x1p-9;
  EXPECT_TRUE(QuantiseAs(x, DType::kF32, mx).ok());
  EXPECT_FALSE(QuantiseAs(x, DType::kBF16, mx).ok());
  for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
    x.data[3] = bad;
    const auto made = QuantiseAs(x, DType::kF32, mx);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().kind, ErrorKind::kUnsupported);
  }
  // Nothing but zeros: a group has an answer, the scale of a whole tensor has none.
  const Tensor zeros = Row(std::vector<double>(32, 0));
  EXPECT_TRUE(QuantiseAs(zeros, DType::kF32, mx).ok());
  for (const char* name : {"nvfp4-torchao", "nvfp4-vllm"}) {
    EXPECT_FALSE(QuantiseAs(zeros, DType::kF32, *FindActVariant(name)).ok()) << name;
  }
}

}  // namespace
}  // namespace assay::reference
