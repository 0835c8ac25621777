// What weights and activations of a test hold, each value a function of (case, tensor, index).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/testing/linear_check.h"
#include "kernels/methods/methods.h"

namespace assay::kernels::testing {

double ActivationOf(const LinearCase& c, uint64_t i);
double WeightOf(const LinearCase& c, uint64_t i);  // of a method without codes

// Weights of a method with codes, as the checkpoint stores them, and what they mean.
struct StoredWeights {
  std::vector<std::byte> weights, scales;
  std::vector<double> scaled, minima;  // [n, k]
};
StoredWeights MakeWeights(const Method& method, const LinearCase& c);

}  // namespace assay::kernels::testing
