#include "kernels/engines/native/values.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

const char* NameOfTensor(const assay_tensor& tensor) {
  return tensor.name == nullptr ? "a tensor without a name" : tensor.name;
}

[[noreturn]] void BadTensor(const assay_tensor& tensor, const std::string& why) {
  EngineError error(ASSAY_FAILED, fmt::format("{}: {}", NameOfTensor(tensor), why));
  error.tensor = NameOfTensor(tensor);
  throw error;
}

// Values of the tensor; its bytes must be exactly theirs.
int64_t CheckedCount(const assay_tensor& tensor) {
  if (tensor.ndim > 4) BadTensor(tensor, fmt::format("{} axes; at most 4", tensor.ndim));
  if (tensor.dtype > ASSAY_U64) BadTensor(tensor, fmt::format("type {} is unknown", tensor.dtype));
  int64_t count = 1;
  for (uint32_t i = 0; i < tensor.ndim; ++i) count = CheckedProduct(count, tensor.shape[i]);
  const int64_t bytes = CheckedProduct(count, SizeOf(static_cast<DType>(tensor.dtype)).count());
  if (static_cast<uint64_t>(bytes) != tensor.bytes) {
    BadTensor(tensor, fmt::format("{} bytes, its shape needs {}", tensor.bytes, bytes));
  }
  if (tensor.data == nullptr && bytes > 0) BadTensor(tensor, "data is NULL");
  return count;
}

float FromF16(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}

uint16_t ToF16(float value) {
  const auto half = static_cast<_Float16>(value);
  return std::bit_cast<uint16_t>(half);
}

template <class Stored, class Convert>
void ReadAs(const assay_tensor& tensor, int64_t count, Convert convert, float* out) {
  const auto* from = static_cast<const std::byte*>(tensor.data);
  for (int64_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
    out[i] = convert(value);
  }
}

template <class Stored, class Convert>
void WriteAs(const Matrix& matrix, Convert convert, assay_tensor* tensor) {
  auto* to = static_cast<std::byte*>(tensor->data);
  for (int64_t i = 0; i < matrix.count(); ++i) {
    const Stored value = convert(matrix.values[i]);
    std::memcpy(to + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
}

}  // namespace

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

void Matrix::Round() {
  if (type != DType::kBF16) return;
  for (int64_t i = 0; i < count(); ++i) values[i] = FromBf16(ToBf16(values[i]));
}

Matrix Copy(Memory& memory, const Matrix& matrix) {
  Matrix copy(memory, matrix.rows, matrix.columns, matrix.type);
  if (matrix.count() > 0) {
    std::memcpy(copy.data(), matrix.data(), static_cast<size_t>(matrix.values.bytes()));
  }
  return copy;
}

Array<uint16_t> Bf16Of(Memory& memory, const Matrix& matrix) {
  Array<uint16_t> bits(memory, matrix.count());
  for (int64_t i = 0; i < matrix.count(); ++i) bits[i] = ToBf16(matrix.values[i]);
  return bits;
}

Matrix ReadMatrix(Memory& memory, const assay_tensor& tensor, bool last_axis) {
  const int64_t count = CheckedCount(tensor);
  int64_t columns = 1;
  if (tensor.ndim > 0) {
    const uint32_t kept = last_axis ? tensor.ndim - 1 : 1;
    for (uint32_t i = kept; i < tensor.ndim; ++i) columns *= tensor.shape[i];
  }
  const int64_t rows = columns == 0 ? 0 : count / columns;
  Matrix matrix(memory, rows, columns, DType::kF32);
  float* out = matrix.data();
  switch (tensor.dtype) {
    case ASSAY_F64:
      ReadAs<double>(
          tensor, count, [](double v) { return static_cast<float>(v); }, out);
      break;
    case ASSAY_F32:
      ReadAs<float>(
          tensor, count, [](float v) { return v; }, out);
      break;
    case ASSAY_F16:
      ReadAs<uint16_t>(tensor, count, FromF16, out);
      break;
    case ASSAY_BF16:
      matrix.type = DType::kBF16;
      ReadAs<uint16_t>(tensor, count, FromBf16, out);
      break;
    default:
      BadTensor(tensor, fmt::format("its type is {}; allowed are F64, F32, F16, BF16",
                                    NameOf(static_cast<DType>(tensor.dtype))));
  }
  return matrix;
}

std::vector<int32_t> ReadIds(const assay_tensor& tensor) {
  if (tensor.dtype != ASSAY_I32) BadTensor(tensor, "ids are I32");
  std::vector<int32_t> ids(static_cast<size_t>(CheckedCount(tensor)));
  if (!ids.empty()) std::memcpy(ids.data(), tensor.data, ids.size() * sizeof(int32_t));
  return ids;
}

void WriteMatrix(const Matrix& matrix, assay_tensor* tensor) {
  if (CheckedCount(*tensor) != matrix.count()) {
    BadTensor(*tensor,
              fmt::format("its shape does not hold [{}, {}]", matrix.rows, matrix.columns));
  }
  switch (tensor->dtype) {
    case ASSAY_F64:
      return WriteAs<double>(
          matrix, [](float v) { return double{v}; }, tensor);
    case ASSAY_F32:
      return WriteAs<float>(
          matrix, [](float v) { return v; }, tensor);
    case ASSAY_F16:
      return WriteAs<uint16_t>(matrix, ToF16, tensor);
    case ASSAY_BF16:
      return WriteAs<uint16_t>(matrix, ToBf16, tensor);
    default:
      BadTensor(*tensor, fmt::format("its type is {}; allowed are F64, F32, F16, BF16",
                                     NameOf(static_cast<DType>(tensor->dtype))));
  }
}

void WriteIds(const std::vector<int32_t>& ids, assay_tensor* tensor) {
  if (tensor->dtype != ASSAY_I32) BadTensor(*tensor, "ids are I32");
  if (CheckedCount(*tensor) != static_cast<int64_t>(ids.size())) {
    BadTensor(*tensor, fmt::format("its shape does not hold {} ids", ids.size()));
  }
  if (!ids.empty()) std::memcpy(tensor->data, ids.data(), ids.size() * sizeof(int32_t));
}

std::vector<std::byte> BytesOf(const Matrix& matrix) {
  assay_tensor tensor{};
  tensor.dtype = static_cast<uint32_t>(matrix.type);
  tensor.ndim = 2;
  tensor.shape[0] = matrix.rows;
  tensor.shape[1] = matrix.columns;
  std::vector<std::byte> bytes(static_cast<size_t>(matrix.count() * SizeOf(matrix.type).count()));
  tensor.data = bytes.data();
  tensor.bytes = bytes.size();
  WriteMatrix(matrix, &tensor);
  return bytes;
}

}  // namespace assay::kernels::native
