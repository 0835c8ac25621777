// The ops of a decoder, each on one rank. An op computes, rounds to the contract's type, says which
// kernel ran, and gives its tap. Matrices are [rows, this rank's columns].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engines/native/session.h"
#include "kernels/engines/native/values.h"

namespace assay::kernels::native {

// "L1.moe.e5.gate": layer 1, expert 5, path "moe.gate". −1 where the tap has none.
struct TapName {
  int64_t layer = -1;
  int64_t expert = -1;
  std::string path;
};
TapName ParseTap(std::string_view tap);
std::string LayerTap(int64_t layer, std::string_view rest);  // "L1." + rest

// The parameter that an op's tap takes: `attn.partial` has the weight of `attn.out`.
std::string ParameterOf(std::string_view tap);
DType LinearTypeOf(std::string_view tap);

// y = x Wᵀ + bias for each tap; neighbours of one merged parameter run as one matrix. Where the
// weight's kernel takes 8-bit activations, x is quantised once, and each tap gives its codes.
Matrices LinearOps(Session& s, int rank, const std::vector<std::string>& taps, const Matrix& x);
Matrix LinearOp(Session& s, int rank, const std::string& tap, const Matrix& x);

// RMSNorm over runs of the weight's length: a row, or each head of a row.
Matrix NormOp(Session& s, int rank, const std::string& tap, const Matrix& x);

// Rotates `dim` elements at `offset` of each of a row's heads; row i is position first + i.
struct RopeShape {
  int64_t heads, head_stride, offset;
};
Matrix RopeOp(Session& s, int rank, const std::string& tap, const Matrix& x, RopeShape shape,
              int64_t first_position);

Matrix ActOp(Session& s, int rank, const std::string& tap, const Matrix& gate, const Matrix& up);
Matrix AddOp(Session& s, int rank, const std::string& tap, const Matrix& a, const Matrix& b);

// Columns [begin, begin + count) of every row.
Matrix ColumnsOf(Memory& memory, const Matrix& x, int64_t begin, int64_t count);
Matrix RowsOf(Memory& memory, const Matrix& x, const std::vector<int64_t>& rows);

}  // namespace assay::kernels::native
