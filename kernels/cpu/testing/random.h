// Test data as a function of (seed, index) alone.
#pragma once

#include <cmath>
#include <cstdint>

namespace assay::kernels::testing {

inline uint64_t Hash(uint64_t seed, uint64_t index) {  // splitmix64 over both
  uint64_t z = seed * 0x9E3779B97F4A7C15u + index + 0x632BE59BD9B4E019u;
  for (int i = 0; i < 2; ++i) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return z;
}

// In [0, 1).
inline double Uniform(uint64_t seed, uint64_t index) {
  return static_cast<double>(Hash(seed, index) >> 11) * 0x1p-53;
}

inline double Normal(uint64_t seed, uint64_t index) {  // Box-Muller
  const double u = 1 - Uniform(seed, 2 * index), v = Uniform(seed, 2 * index + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

}  // namespace assay::kernels::testing
