#include "harness/units/dtype.h"

#include <array>
#include <cassert>

namespace assay {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t bytes;
  int64_t elements = 1;
};

constexpr std::array<Row, 28> kRows = {{
    {DType::kF64, "F64", 8},
    {DType::kF32, "F32", 4},
    {DType::kF16, "F16", 2},
    {DType::kBF16, "BF16", 2},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kF8E8M0, "F8_E8M0", 1},
    {DType::kI64, "I64", 8},
    {DType::kI32, "I32", 4},
    {DType::kI16, "I16", 2},
    {DType::kI8, "I8", 1},
    {DType::kU8, "U8", 1},
    {DType::kBool, "BOOL", 1},
    {DType::kU16, "U16", 2},
    {DType::kU32, "U32", 4},
    {DType::kU64, "U64", 8},
    {DType::kQ4_0, "Q4_0", 18, 32},
    {DType::kQ4_1, "Q4_1", 20, 32},
    {DType::kQ5_0, "Q5_0", 22, 32},
    {DType::kQ5_1, "Q5_1", 24, 32},
    {DType::kQ8_0, "Q8_0", 34, 32},
    {DType::kQ2K, "Q2_K", 84, 256},
    {DType::kQ3K, "Q3_K", 110, 256},
    {DType::kQ4K, "Q4_K", 144, 256},
    {DType::kQ5K, "Q5_K", 176, 256},
    {DType::kQ6K, "Q6_K", 210, 256},
    {DType::kMxfp4Block, "MXFP4", 17, 32},
    {DType::kNvfp4Block, "NVFP4", 36, 64},
}};

const Row& RowOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  assert(index < kRows.size() && kRows[index].dtype == dtype);
  return kRows[index];
}

}  // namespace

Bytes SizeOf(DType dtype) { return Bytes(RowOf(dtype).bytes); }
Elements ElementsOf(DType dtype) { return Elements(RowOf(dtype).elements); }
std::string_view NameOf(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace assay
