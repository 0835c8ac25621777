// One checker for every row of the registry: data, a plain double loop, the bound that follows from
// the row's own declaration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/testing/guarded.h"
#include "kernels/registry.h"

namespace assay::kernels::testing {

enum class Fill {
  kNormal,     // normal values, scales spread log-normally
  kPositive,   // the same without signs: errors add up instead of cancelling
  kInteger,    // every partial sum is exact: any order gives the same bits
  kCodes,      // each value of a code under both signs of x; zero and one-hot groups; −0
  kExtreme,    // exponents over the whole range of x's and the scales' types, subnormals included
  kEveryCode,  // rows of one code each, under the least and the largest scales; one-hot tokens
};

struct LinearCase {
  int64_t m = 1, n = 1, k = 1;
  Fill fill = Fill::kNormal;
  uint64_t seed = 1;
  std::string Print() const;
};

// A case's data for one row: activations as the row takes them, the weights packed into the row's
// layout, and what both mean as doubles.
class LinearData {
 public:
  LinearData(const LinearKernel& row, const LinearCase& c, Guard guard = Guard::kBehind,
             size_t slack = 0);
  WeightView View();
  // From a token on.
  Activations x(int64_t token = 0);
  std::vector<float> Run(LinearFn run);  // y [m, n] of one call over all rows
  // y of a call for each [splits[i], splits[i+1]), each with an output of its own.
  std::vector<float> RunSplit(LinearFn run, const std::vector<int64_t>& splits);
  // Empty, or the first element that is wrong, with the bound's derivation.
  std::string Check(const std::vector<float>& y) const;
  // Whether every partial sum of output (token, row) is exact in fp32, whatever the order.
  bool ExactInAnyOrder(int64_t token, int64_t row) const;
  float Expected(int64_t token, int64_t row) const;

 private:
  void FillX();
  void QuantiseX();    // to 8 bits with fp32 scales
  void QuantiseXMx();  // to FP8 or MXFP4 with E8M0 scales
  void FillWeights();
  void Pack(const std::byte* weights, const std::byte* scales);

  const LinearKernel& row_;
  LinearCase c_;
  Guard guard_;
  int64_t group_ = 0;  // of scales in a component of their own
  Guarded x_, x_codes_, x_scales_, x_sums_, codes_, scales_;
  std::vector<double> x_values_;  // [m, k]
  // [n, k]: code times scale, and the minimum that is added to it.
  std::vector<double> scaled_, minima_;
};

// How many codes a method's weights have: 16 or 256; 0 for bf16.
int CodesOf(const LinearKernel& row);
// Rows of a matrix are a multiple of this: 2 where gate and up are woven together.
int64_t RowUnitOf(const LinearKernel& row);
bool IsMx(std::string_view act);     // "amxfp8", "amxfp4"
double FloatFromE4m3(uint8_t code);  // a code that is not NaN

}  // namespace assay::kernels::testing
