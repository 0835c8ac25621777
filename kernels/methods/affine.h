// Integer codes: value = (code − zero)·scale. How producers choose scale and zero of a group.
// Private to this room.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::kernels {

struct Affine {
  double scale = 1;
  int zero = 0;
};

struct AffineRule {
  int code_min = 0, code_max = 0;
  bool asymmetric = false;
  int zero = 0;           // symmetric: the zero of every group
  double divisor = 1;     // symmetric: scale = largest magnitude / divisor
  double zero_group = 1;  // the scale of a group of zeros
  DType scale_dtype = DType::kF32;
  int zero_min = 0;  // asymmetric: the least zero point that can be stored
};

// From the extremes of a group. Error: the scale is beyond its type (message without a place).
Result<Affine> ChooseAffine(double least, double most, const AffineRule& rule);

// The code nearest to `steps` from the zero point, ties to even, within [least, most]. A NaN, from
// a step of 0, is 0.
int CodeOf(double steps, int zero, int least, int most);

// The extremes of each of `count` groups of one row.
class Extremes {
 public:
  explicit Extremes(int64_t count) : least_(count), most_(count) {}
  void Clear() {
    least_.assign(least_.size(), 0);
    most_.assign(most_.size(), 0);
  }
  void Add(int64_t group, double value) {
    if (value < least_[group]) least_[group] = value;
    if (value > most_[group]) most_[group] = value;
  }
  double least(int64_t group) const { return least_[group]; }
  double most(int64_t group) const { return most_[group]; }
  double amax(int64_t group) const {
    return -least_[group] > most_[group] ? -least_[group] : most_[group];
  }

 private:
  std::vector<double> least_, most_;
};

}  // namespace assay::kernels
