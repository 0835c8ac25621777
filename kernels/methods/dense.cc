// f32, f16, bf16: the values themselves.
#include <fmt/format.h>

#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

Result<std::vector<PartSpec>> DenseParts(const Scheme& s, int64_t n, int64_t k) {
  return std::vector<PartSpec>{{".weight", "weight", s.dtype, {n, k}}};
}

Status DenseDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Result<const TensorView*> weight = Need(parts, {".weight", {s.dtype}, {{n, k}}});
  if (!weight.ok()) return weight.error();
  for (int64_t i = 0; i < n * k; ++i) out[i] = LoadValue(s.dtype, (*weight)->bytes.data(), i);
  return Ok();
}

Status DenseEncode(const Scheme& s, const Values& w, const PartViews&, PackedPart* out) {
  const SmallFloat& type = TypeOf(s.dtype);
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const double value = w.At(r, c);
      if (value > type.largest || value < -type.largest) {
        return Error{
            fmt::format("the value {} at [{}, {}] is beyond {}", value, r, c, NameOf(s.dtype))};
      }
      StoreValue(s.dtype, value, out->bytes.data(), r * w.k + c);
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kDenseRow = {DenseParts, {}, DenseDecode, nullptr, DenseEncode, nullptr};

}  // namespace assay::kernels
