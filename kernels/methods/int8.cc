// compressed-tensors int-quantized: int8 codes with a scale, and perhaps a zero point, for a row or
// for the whole.
#include <limits>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

bool IsTensor(const Scheme& s) { return s.granularity == Granularity::kTensor; }

Result<std::vector<PartSpec>> Int8Parts(const Scheme& s, int64_t n, int64_t k) {
  const std::vector<int64_t> one =
      IsTensor(s) ? std::vector<int64_t>{1} : std::vector<int64_t>{n, 1};
  std::vector<PartSpec> parts = {{".weight", "weight", DType::kI8, {n, k}},
                                 {".weight_scale", "scale", DType::kF32, one}};
  if (s.asymmetric) parts.push_back({".weight_zero_point", "zero", DType::kI8, one});
  return parts;
}

// One scale and zero for a row.
Result<std::vector<Affine>> ReadRows(const Scheme& s, const PartViews& parts, int64_t n) {
  using Shapes = std::vector<std::vector<int64_t>>;
  const Shapes shapes = IsTensor(s) ? Shapes{{1}, {}, {1, 1}} : Shapes{{n, 1}, {n}};
  const Result<const TensorView*> scale = Need(parts, {".weight_scale", kFloatTypes, shapes});
  if (!scale.ok()) return scale.error();
  const Result<std::vector<double>> scales = ReadFinite(**scale);
  if (!scales.ok()) return scales.error();
  const Result<const TensorView*> zero =
      Need(parts, {".weight_zero_point", {DType::kI8}, shapes, !s.asymmetric});
  if (!zero.ok()) return zero.error();
  std::vector<Affine> rows(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) {
    const int64_t i = IsTensor(s) ? 0 : r;
    rows[r].scale = (*scales)[static_cast<size_t>(i)];
    // A symmetric checkpoint may have a zero point all the same; then it is 0 and means nothing.
    if (!s.asymmetric) continue;
    rows[r].zero = static_cast<int>(LoadValue(DType::kI8, (*zero)->bytes.data(), i));
  }
  return rows;
}

Status Int8Decode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Result<const TensorView*> weight = Need(parts, {".weight", {DType::kI8}, {{n, k}}});
  if (!weight.ok()) return weight.error();
  const Result<std::vector<Affine>> rows = ReadRows(s, parts, n);
  if (!rows.ok()) return rows.error();
  for (int64_t i = 0; i < n * k; ++i) {
    const Affine& row = (*rows)[static_cast<size_t>(i / k)];
    out[i] = (LoadValue(DType::kI8, (*weight)->bytes.data(), i) - row.zero) * row.scale;
  }
  return Ok();
}

Status Int8Choose(const Scheme& s, const Values& w, const PackOptions&, Parts* parts) {
  const AffineRule rule{.code_min = -128,
                        .code_max = 127,
                        .asymmetric = s.asymmetric,
                        .divisor = 127.5,
                        .zero_group = std::numeric_limits<float>::epsilon(),
                        .scale_dtype = DType::kF32,
                        .zero_min = -128};
  PackedPart* scale = FindPart(parts, ".weight_scale");
  PackedPart* zero = FindPart(parts, ".weight_zero_point");
  const int64_t rows = IsTensor(s) ? 1 : w.n;
  Extremes extremes(rows);
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) extremes.Add(IsTensor(s) ? 0 : r, w.At(r, c));
  }
  for (int64_t r = 0; r < rows; ++r) {
    const Result<Affine> affine = ChooseAffine(extremes.least(r), extremes.most(r), rule);
    if (!affine.ok()) return affine.error();
    StoreValue(DType::kF32, affine->scale, scale->bytes.data(), r);
    if (zero != nullptr) StoreValue(DType::kI8, affine->zero, zero->bytes.data(), r);
  }
  return Ok();
}

Status Int8Encode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<std::vector<Affine>> rows = ReadRows(s, parts, w.n);
  if (!rows.ok()) return rows.error();
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const int code = CodeOf(w.Over(r, c, (*rows)[r].scale), (*rows)[r].zero, -128, 127);
      StoreValue(DType::kI8, code, out->bytes.data(), r * w.k + c);
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kCtW8a8Row = {Int8Parts, {}, Int8Decode, Int8Choose, Int8Encode, nullptr};

}  // namespace assay::kernels
