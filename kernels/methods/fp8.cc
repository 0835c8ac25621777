// FP8: E4M3 codes with a scale for the tensor, a row or a block of [block_n, block_k], partial at
// the ends. compressed-tensors' weight_scale and DeepSeek's weight_scale_inv both multiply.
#include <algorithm>
#include <limits>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

const char* ScaleSuffix(const Scheme& s) {
  return s.family == MethodFamily::kDeepseekFp8 ? ".weight_scale_inv" : ".weight_scale";
}

// Rows and columns of one scale, and how many there are.
struct Grid {
  int64_t block_n = 1, block_k = 1, rows = 1, columns = 1;
  size_t At(int64_t r, int64_t c) const {
    return static_cast<size_t>(r / block_n * columns + c / block_k);
  }
};

Grid GridOf(const Scheme& s, int64_t n, int64_t k) {
  switch (s.granularity) {
    case Granularity::kBlock:
      return {s.block_n, s.block_k, (n + s.block_n - 1) / s.block_n,
              (k + s.block_k - 1) / s.block_k};
    case Granularity::kChannel:
      return {1, k, n, 1};
    default:
      return {n, k, 1, 1};
  }
}

DType ScaleType(const Scheme& s) {
  return s.family == MethodFamily::kDeepseekFp8 || s.granularity == Granularity::kTensor
             ? DType::kF32
             : DType::kBF16;
}

Result<std::vector<PartSpec>> Fp8Parts(const Scheme& s, int64_t n, int64_t k) {
  const Grid grid = GridOf(s, n, k);
  std::vector<int64_t> shape = {grid.rows, grid.columns};
  if (s.granularity == Granularity::kTensor) shape = {1};
  return std::vector<PartSpec>{{".weight", "weight", DType::kF8E4M3, {n, k}},
                               {ScaleSuffix(s), "scale", ScaleType(s), shape}};
}

Result<std::vector<double>> ReadScales(const Scheme& s, const PartViews& parts, const Grid& grid) {
  using Shapes = std::vector<std::vector<int64_t>>;
  Shapes shapes = {{grid.rows, grid.columns}};
  if (s.granularity == Granularity::kTensor) shapes = {{1}, {}, {1, 1}};
  if (s.granularity == Granularity::kChannel) shapes.push_back({grid.rows});
  const Result<const TensorView*> scale = Need(parts, {ScaleSuffix(s), kFloatTypes, shapes});
  if (!scale.ok()) return scale.error();
  return ReadFinite(**scale);
}

Status Fp8Decode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Result<const TensorView*> weight = Need(parts, {".weight", {DType::kF8E4M3}, {{n, k}}});
  if (!weight.ok()) return weight.error();
  const Grid grid = GridOf(s, n, k);
  const Result<std::vector<double>> scales = ReadScales(s, parts, grid);
  if (!scales.ok()) return scales.error();
  double values[256];
  for (int code = 0; code < 256; ++code) {
    values[code] = FromE4m3(static_cast<uint8_t>(code), s.fnuz);
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const int64_t i = r * k + c;
      out[i] = values[std::to_integer<int>((*weight)->bytes[static_cast<size_t>(i)])] *
               (*scales)[grid.At(r, c)];
    }
  }
  return Ok();
}

Status Fp8Choose(const Scheme& s, const Values& w, const PackOptions&, Parts* parts) {
  const Grid grid = GridOf(s, w.n, w.k);
  PackedPart* scale = FindPart(parts, ScaleSuffix(s));
  const DType type = ScaleType(s);
  const double epsilon = type == DType::kF32 ? std::numeric_limits<float>::epsilon() : 0x1p-7;
  const AffineRule rule{.divisor = s.fnuz ? kE4m3Fnuz.largest : kE4m3.largest,
                        .zero_group = epsilon,
                        .scale_dtype = type};
  Extremes extremes(grid.rows * grid.columns);
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      extremes.Add(static_cast<int64_t>(grid.At(r, c)), w.At(r, c));
    }
  }
  for (int64_t i = 0; i < grid.rows * grid.columns; ++i) {
    const Result<Affine> affine = ChooseAffine(-extremes.amax(i), extremes.amax(i), rule);
    if (!affine.ok()) return affine.error();
    StoreValue(type, affine->scale, scale->bytes.data(), i);
  }
  return Ok();
}

Status Fp8Encode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Grid grid = GridOf(s, w.n, w.k);
  const Result<std::vector<double>> scales = ReadScales(s, parts, grid);
  if (!scales.ok()) return scales.error();
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const double scale = (*scales)[grid.At(r, c)];
      const double value = scale == 0 ? 0 : w.Over(r, c, scale);
      out->bytes[static_cast<size_t>(r * w.k + c)] = std::byte{ToE4m3(value, s.fnuz)};
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kFp8Row = {Fp8Parts, {}, Fp8Decode, Fp8Choose, Fp8Encode, nullptr};

}  // namespace assay::kernels
