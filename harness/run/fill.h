// Data for cells: a function of (seed, tensor name, index) alone, never of thread count or order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/store/trace.h"
#include "harness/units/status.h"

namespace assay::run {

enum class Fill {
  kExact,      // every fp32 partial sum is exact in any order: weights and activations generated
  kNormal,     // activations N(0, 1); weights the checkpoint's
  kLognormal,  // activations N(0, 1) times log-normal channels, a few of them ×12
  kExtreme,    // all codes and both signs, scales far apart: weights and activations generated
  kReal,       // activations of the oracle's own chain; weights the checkpoint's
};
Result<Fill> ParseFill(std::string_view name);

// 64 random bits that depend on nothing but the arguments.
uint64_t Draw(int64_t seed, uint64_t name_hash, int64_t index);
uint64_t HashName(std::string_view name);
// Uniform in (0, 1), and standard normal, from Draw.
double DrawUniform(int64_t seed, uint64_t name_hash, int64_t index);
double DrawNormal(int64_t seed, uint64_t name_hash, int64_t index);

// Activations [rows, columns] in bf16. kReal is not made here.
TapValue FillActivation(Fill fill, int64_t seed, const std::string& name, int64_t rows,
                        int64_t columns);

// Activations [rows, columns] that 8-bit codes hold exactly, in bf16: integers within ±127, and in
// each 32 of a row one of ±127, so that every group's scale is 1 (numerics.md §1.1).
TapValue FillCodes(int64_t seed, const std::string& name, int64_t rows, int64_t columns);

// Partial sums [rows, columns] in fp32 for a collective.
TapValue FillPartial(Fill fill, int64_t seed, const std::string& name, int64_t rows,
                     int64_t columns);
// One rank's partial sum of `name`. But for kExact a quarter of the elements hold, on two of the
// ranks, a value that cancels between them and is large enough for the order of the additions to
// show in the sum's first digits.
TapValue FillPartialOf(Fill fill, int64_t seed, const std::string& name, int rank, int ranks,
                       int64_t rows, int64_t columns);

// Token ids in [0, vocab).
std::vector<int32_t> FillTokens(int64_t seed, int64_t count, int64_t vocab);

// Whether this fill replaces the checkpoint's weights.
bool GeneratesWeights(Fill fill);

// A source of which some tensors are generated.
class SyntheticSource : public TensorSource {
 public:
  // Replaces more of them. Names that the base does not have are left out.
  virtual void Generate(const std::vector<std::string>& names) = 0;
};

// `base` with the named tensors replaced by generated ones of the same types and shapes; the others
// are base's own. Norm weights are near one, scales powers of two (exact) or far apart (extreme);
// weight_shape is copied. `base` must outlive the result.
std::unique_ptr<SyntheticSource> SyntheticWeights(const TensorSource& base,
                                                  const std::vector<std::string>& names, Fill fill,
                                                  int64_t seed);

// The bf16 nearest to a value (ties to even), as bits.
uint16_t ToBf16(double value);

}  // namespace assay::run
