// Activations: fp32 numbers that hold values of their contract's type, and the way to and from the
// C ABI's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/units/dtype.h"
#include "kernels/loaders/memory.h"

namespace assay::kernels::native {

// Nearest, ties to even; NaN stays NaN.
uint16_t ToBf16(float value);
float FromBf16(uint16_t bits);

// [rows, columns]. `type` is the contract's: every value is one of that type once Round() ran.
struct Matrix {
  Matrix() = default;
  Matrix(Memory& memory, int64_t rows, int64_t columns, DType type)
      : values(memory, CheckedProduct(rows, columns)), rows(rows), columns(columns), type(type) {}
  float* data() { return values.data(); }
  const float* data() const { return values.data(); }
  float* row(int64_t i) { return values.data() + i * columns; }
  const float* row(int64_t i) const { return values.data() + i * columns; }
  int64_t count() const { return rows * columns; }
  bool empty() const { return values.data() == nullptr; }
  void Round();  // to `type`

  Array<float> values;
  int64_t rows = 0, columns = 0;
  DType type = DType::kF32;
};
using Matrices = std::vector<Matrix>;  // one a rank

Matrix Copy(Memory& memory, const Matrix& matrix);
// bf16 bits of each value, rounded: what enters a linear kernel.
Array<uint16_t> Bf16Of(Memory& memory, const Matrix& matrix);

// 8-bit activations of one input, as ElementwiseKernels::quantise makes them.
struct QuantisedRows {
  int64_t rows = 0, columns = 0;
  int64_t group = 0;    // elements along a row that share a scale
  Array<int8_t> codes;  // [rows, columns]
  Array<float> scales;  // [rows, columns/32]
  Array<int32_t> sums;  // [rows, columns/32]
};

// An input tensor as fp32. [a, b, c] is read as [a, b·c] unless `last_axis` keeps the last axis
// whole: [a·b, c]. Throws EngineError for a type that is not floating, or a shape and size that do
// not fit.
Matrix ReadMatrix(Memory& memory, const assay_tensor& tensor, bool last_axis = false);
std::vector<int32_t> ReadIds(const assay_tensor& tensor);
// Converts to the tensor's type and fills it. Throws EngineError unless it has matrix.count()
// values and a floating type.
void WriteMatrix(const Matrix& matrix, assay_tensor* tensor);
void WriteIds(const std::vector<int32_t>& ids, assay_tensor* tensor);
// Bytes of a matrix in its own type, BF16 or F32.
std::vector<std::byte> BytesOf(const Matrix& matrix);

}  // namespace assay::kernels::native
