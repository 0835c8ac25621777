// What a mistake of convention would cost, made on recorded tensors; and the codes of small floats.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/methods/vectors.h"

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

TEST(Conventions, MistakesOfConventionShow) {
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
TEST(Conventions, OldPackingIsNotReadAsNew) {
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
