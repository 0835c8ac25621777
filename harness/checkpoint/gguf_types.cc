#include "harness/checkpoint/gguf_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace assay {
namespace {

// ggml's enum ggml_type. Numbers are never given again: those of types that were removed stay.
constexpr std::array<GgmlType, 42> kTypes = {{
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2", std::nullopt},
    {5, "Q4_3", std::nullopt},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", std::nullopt},
    {10, "Q2_K", DType::kQ2K},
    {11, "Q3_K", DType::kQ3K},
    {12, "Q4_K", DType::kQ4K},
    {13, "Q5_K", DType::kQ5K},
    {14, "Q6_K", DType::kQ6K},
    {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt},
    {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt},
    {21, "IQ3_S", std::nullopt},
    {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", std::nullopt},
    {24, "I8", DType::kI8},
    {25, "I16", DType::kI16},
    {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},
    {28, "F64", DType::kF64},
    {29, "IQ1_M", std::nullopt},
    {30, "BF16", DType::kBF16},
    {31, "Q4_0_4_4", std::nullopt},
    {32, "Q4_0_4_8", std::nullopt},
    {33, "Q4_0_8_8", std::nullopt},
    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},
    {36, "IQ4_NL_4_4", std::nullopt},
    {37, "IQ4_NL_4_8", std::nullopt},
    {38, "IQ4_NL_8_8", std::nullopt},
    {39, "MXFP4", DType::kMxfp4Block},
    {40, "NVFP4", DType::kNvfp4Block},
    {41, "Q1_0", std::nullopt},
}};

}  // namespace

const GgmlType* FindGgmlType(uint32_t code) {
  return code < kTypes.size() ? &kTypes[code] : nullptr;
}

std::optional<uint32_t> GgmlCodeOf(DType dtype) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const GgmlType& type) { return type.dtype == dtype; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->code);
}

std::string ReadableGgmlTypes() {
  std::string text;
  for (const GgmlType& type : kTypes) {
    if (!type.dtype) continue;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", type.name, type.code);
  }
  return text;
}

}  // namespace assay
