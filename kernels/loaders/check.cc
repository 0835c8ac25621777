#include "kernels/loaders/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/memory.h"

namespace assay::kernels {
namespace {

// An extent on one side: in the ABI's unit, and in words where those say more.
struct Side {
  int64_t extent;
  std::string unit;        // "element", "word", "byte", "group", "dimension"
  std::string words = "";  // "packed bytes (u4x2)"

  std::string Said() const {
    return fmt::format("{} {}", extent, words.empty() ? unit + "s" : words);
  }
};

[[noreturn]] void Refuse(std::string_view tensor, std::string_view axis, const Side& got,
                         const Side& expected, std::string_view why) {
  const std::string where = axis.empty() ? "" : fmt::format("axis {} has ", axis);
  EngineError error(ASSAY_REFUSED, fmt::format("{}: {}{}, the parameter takes {}: {}", tensor,
                                               where, got.Said(), expected.Said(), why));
  error.tensor = std::string(tensor);
  error.axis = std::string(axis);
  error.got = got.extent;
  error.got_unit = got.unit;
  error.expected = expected.extent;
  error.expected_unit = expected.unit;
  throw error;
}

// A type has no extent: the message alone says what stood where.
[[noreturn]] void RefuseType(const TensorView& tensor, DType expected, int status) {
  EngineError error(status, fmt::format("{}: stored as {}, the parameter takes {}", tensor.name,
                                        NameOf(tensor.dtype), NameOf(expected)));
  error.tensor = tensor.name;
  throw error;
}

bool IsDense(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// What is in the file decides, not what was expected: compressed-tensors says it by the name, the
// others by the type.
bool IsPackedInFile(const TensorView& tensor) {
  return tensor.name.ends_with(".weight_packed") || tensor.dtype == DType::kI8 ||
         IsBlock(tensor.dtype);
}

// "packed bytes (u4x2)": both sides are told in what they are made of.
std::string BytesOf(DType dtype) {
  if (IsBlock(dtype)) return fmt::format("bytes of blocks ({})", NameOf(dtype));
  return "packed bytes (u4x2)";
}

// Libraries disagree on what 255 is, so nothing may be computed with it.
void CheckExponents(const TensorView& tensor) {
  const auto found = std::find(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0xFF});
  if (found == tensor.bytes.end()) return;
  const auto at = found - tensor.bytes.begin();
  const int64_t columns = tensor.shape.back();
  EngineError error(ASSAY_REFUSED,
                    fmt::format("{}: scale 255 at row {}, group {}; allowed is 0 to 254",
                                tensor.name, at / columns, at % columns));
  error.tensor = tensor.name;
  error.axis = "k";
  error.got_unit = error.expected_unit = "group";
  error.got = 255;
  error.expected = 254;
  throw error;
}

}  // namespace

void CheckTensor(const ParameterSpec& spec, const TensorView& tensor) {
  const size_t dimensions = spec.vector ? 1 : 2;
  if (tensor.shape.size() != dimensions) {
    Refuse(tensor.name, "", {static_cast<int64_t>(tensor.shape.size()), "dimension"},
           {static_cast<int64_t>(dimensions), "dimension"}, "another number of axes");
  }
  const int64_t got_columns = spec.vector ? 1 : tensor.shape[1];
  const bool packed = spec.packing.elements.count() > 1;
  if (packed != IsPackedInFile(tensor)) {
    const char* kElements = "unpacked elements";
    if (packed) {
      Refuse(tensor.name, "k", {got_columns, "element", kElements},
             {spec.columns * spec.packing.bytes.count(), "byte", BytesOf(spec.dtype)},
             "the tensor is unpacked and the parameter packed");
    }
    Refuse(
        tensor.name, "k",
        {CheckedProduct(got_columns, SizeOf(tensor.dtype).count()), "byte", BytesOf(tensor.dtype)},
        {spec.columns, "element", kElements}, "the tensor is packed and the parameter unpacked");
  }
  if (tensor.dtype != spec.dtype) {
    // Another floating type is a legal checkpoint that this engine has no kernels for.
    const bool legal = IsDense(tensor.dtype) && IsDense(spec.dtype);
    RefuseType(tensor, spec.dtype, legal ? ASSAY_UNSUPPORTED : ASSAY_REFUSED);
  }
  if (tensor.shape[0] != spec.rows) {
    Refuse(tensor.name, "n", {tensor.shape[0], "element"}, {spec.rows, "element"},
           "another number of rows");
  }
  if (got_columns != spec.columns) {
    Refuse(tensor.name, "k", {got_columns, spec.unit}, {spec.columns, spec.unit},
           "another number of columns");
  }
  const int64_t bytes =
      CheckedProduct(CheckedProduct(spec.rows, spec.columns), SizeOf(spec.dtype).count());
  if (static_cast<int64_t>(tensor.bytes.size()) != bytes) {
    Refuse(tensor.name, "", {static_cast<int64_t>(tensor.bytes.size()), "byte"}, {bytes, "byte"},
           "another size");
  }
  if (tensor.dtype == DType::kF8E8M0) CheckExponents(tensor);
}

void CheckWeightShape(const TensorView& tensor, int64_t n, int64_t k) {
  std::array<int64_t, 2> stored{};
  std::array<int32_t, 2> narrow{};
  const bool is_narrow = tensor.dtype == DType::kI32;
  if ((tensor.dtype != DType::kI64 && !is_narrow) || tensor.shape != std::vector<int64_t>{2} ||
      tensor.bytes.size() != (is_narrow ? sizeof narrow : sizeof stored)) {
    EngineError error(ASSAY_REFUSED, fmt::format("{}: allowed is I64 [2] or I32 [2]", tensor.name));
    error.tensor = tensor.name;
    throw error;
  }
  if (is_narrow) {
    std::memcpy(narrow.data(), tensor.bytes.data(), sizeof narrow);
    std::copy(narrow.begin(), narrow.end(), stored.begin());
  } else {
    std::memcpy(stored.data(), tensor.bytes.data(), sizeof stored);
  }
  if (stored[0] != n) {
    Refuse(tensor.name, "n", {stored[0], "element"}, {n, "element"}, "the config says otherwise");
  }
  if (stored[1] != k) {
    Refuse(tensor.name, "k", {stored[1], "element"}, {k, "element"}, "the config says otherwise");
  }
}

}  // namespace assay::kernels
