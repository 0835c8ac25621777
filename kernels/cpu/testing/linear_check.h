// One checker for every row of the registry: data, a plain double loop, the bound that follows from
// the row's own declaration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/testing/guarded.h"
#include "kernels/registry.h"

namespace assay::kernels::testing {

enum class Fill {
  kNormal,    // normal values, scales spread log-normally
  kPositive,  // the same without signs: errors add up instead of cancelling
  kInteger,   // every partial sum is exact: any order gives the same bits
  kCodes,     // each value of a 4-bit code under both signs of x; zero and one-hot groups; −0
  kExtreme,   // exponents over the whole of bf16, subnormals included
};

struct LinearCase {
  int64_t m = 1, n = 1, k = 1;
  Fill fill = Fill::kNormal;
  uint64_t seed = 1;
  std::string Print() const;
};

// A case's data for one row: x, the weights packed into the row's layout, and W as floats.
class LinearData {
 public:
  LinearData(const LinearKernel& row, const LinearCase& c, Guard guard = Guard::kBehind,
             size_t slack = 0);
  WeightView View();
  const uint16_t* x() { return x_.as<uint16_t>(); }
  std::vector<float> Run(LinearFn run);  // y [m, n] of one call over all rows
  // y of a call for each [splits[i], splits[i+1]), each with an output of its own.
  std::vector<float> RunSplit(LinearFn run, const std::vector<int64_t>& splits);
  // Empty, or the first element that is wrong, with the bound's derivation.
  std::string Check(const std::vector<float>& y);
  // Whether every partial sum of output (token, row) is exact in fp32, whatever the order.
  bool ExactInAnyOrder(int64_t token, int64_t row) const;
  float Expected(int64_t token, int64_t row) const;

 private:
  void FillX();
  void FillWeights();

  const LinearKernel& row_;
  LinearCase c_;
  Guard guard_;
  int64_t group_ = 0;
  Guarded x_, codes_, scales_;
  std::vector<float> w_;  // [n, k], what the stored weights mean
};

}  // namespace assay::kernels::testing
