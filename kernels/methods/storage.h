// How one linear [n, k] is stored by a method (harness/units/scheme.h): which tensors, what they
// mean, how they are made. Production side, written from the formats' descriptions, independently
// of the oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/units/dtype.h"
#include "harness/units/scheme.h"
#include "harness/units/status.h"

namespace assay::kernels {

struct PartSpec {
  std::string suffix;  // follows the module's name in the checkpoint: ".weight_packed", "_blocks"
  std::string part;    // the component's name: "weight", "scale", "zero" ...; empty: no component
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // in storage values
};

struct PackedPart {
  PartSpec spec;
  std::vector<std::byte> bytes;
};

// By suffix. Of a fused tensor: the linear's own piece, with its own shape.
using PartViews = std::map<std::string, TensorView, std::less<>>;

// The tensors a producer writes for one linear [n, k]; weight first. Error kRefused: n or k does
// not fit (names the extent, the unit and what is allowed).
Result<std::vector<PartSpec>> PartsOf(const Scheme& scheme, int64_t n, int64_t k);

// out[n·k] = the stored values, exactly, in double; a code that is NaN gives NaN. Readers are
// laxer than PartsOf where files differ: types of scales, [N] for [N, 1], [] for [1], a missing
// weight_shape, a partial last group of GPTQ. Errors kBadInput, naming the tensor and the reason: a
// part missing, of another type or shape; a weight_shape that lies; a scale that is NaN or infinite
// (E8M0 255 too); an index of g_idx out of range, or one that permutes where the method does not.
Status Decode(const Scheme& scheme, const PartViews& parts, int64_t n, int64_t k, double* out);

struct PackOptions {
  uint64_t seed = 1;  // act-order: which columns share a group
  // NVFP4: the largest magnitude over all tensors that share one global scale (q, k and v; gate and
  // up); 0: this tensor's own.
  double global_amax = 0;
  // Static activation scales, which producers calibrate: the range of the linear's input.
  double input_min = -6, input_max = 10;
  const float* bias = nullptr;  // [n], of the linear: part of ModelSlim's quant_bias
  // ModelSlim W4A8: columns of scale_bias. Row-parallel linears have 16, each the sum over a
  // sixteenth of k, so that a rank takes its own; k must be a multiple.
  int64_t scale_bias_columns = 1;
};

// Quantises w[n·k] as the format's producers do (round to nearest, scales from the largest
// magnitude or the extremes of each group). Every code is legal, equal inputs give equal bytes, a
// group of zeros decodes to zeros. Errors: as PartsOf; kBadInput for a value that is NaN or
// infinite, or whose scale the format cannot hold.
Result<std::vector<PackedPart>> Pack(const Scheme& scheme, const float* w, int64_t n, int64_t k,
                                     const PackOptions& options = {});

// The code tensor (and no other) for values[n·k] under the scales, zero points and order that
// `given` has. Of GGUF, where one tensor holds both, `given` is a tensor whose scales are taken.
// Values that are representable give their own codes back, the sign of −0 included.
Result<PackedPart> Encode(const Scheme& scheme, const double* values, int64_t n, int64_t k,
                          const PartViews& given);

// Views of what Pack made, named `module` + suffix. Valid as long as `parts` is.
PartViews ViewsOf(const std::vector<PackedPart>& parts, std::string_view module);
// The tensors of `module` that `scheme` may have and that are there.
PartViews FindParts(const Scheme& scheme, const TensorSource& source, std::string_view module);

}  // namespace assay::kernels
