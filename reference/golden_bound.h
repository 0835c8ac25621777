// How far two double-precision evaluations of one chain may be apart: measured, not assumed. The
// chain is run again with every op's result moved, up or down at random, by all that a
// double-precision evaluation in any order may be wrong by (first order, numerics.md §1.3 with
// u = 2^-53); what reaches a tap is how the model amplifies it.
#pragma once

#include <map>
#include <string>

#include "reference/oracle.h"

namespace assay::reference {

struct Amplification {
  // Largest |moved − plain| of each tap, over all runs.
  std::map<std::string, double> deviation;
  int runs = 0;
};

// Unit roundoff times the roundings of one element: what one evaluation of the op may be wrong by.
double DoubleError(const Node& node, const Evaluation& evaluation, size_t element,
                   const Step& step);

// What a golden stores of the logits; its results are measured beside the taps, by their names.
using Derive = std::map<std::string, Tensor> (*)(const Tensor& logits);

// `plain`: the chain's own trace, one prefill. The number of runs follows from its size alone.
// `derive` may be null.
Result<Amplification> MeasureAmplification(const Oracle& oracle, const RunRequest& request,
                                           const Trace& plain, Derive derive = nullptr);

// In units of a tap's largest golden value: rounding of the type that the file stores, and twice
// the deviation (the golden is such an evaluation, and so is the oracle's). Integers: 0.
double GoldenBound(DType stored, double deviation, double largest);
std::string PrintGoldenBound(const Amplification& amplification);

}  // namespace assay::reference
