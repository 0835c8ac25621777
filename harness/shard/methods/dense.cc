// Plain values: BF16, F16, F32.
#include "harness/shard/methods/method.h"

namespace assay::shard {

Status ListDense(const Linear& linear, std::vector<Listed>* out) {
  const auto weight = NeedPart(linear, "weight");
  if (!weight) return weight.error();
  if (Status s =
          CheckType(**weight, {DType::kBF16, DType::kF16, DType::kF32}, ErrorKind::kUnsupported);
      !s) {
    return s;
  }
  Scheme scheme;
  scheme.dtype = (*weight)->tensor->dtype;
  Lister lister(linear, out);
  lister.SetMethod(scheme, 0);
  return lister.Add(**weight, "weight", AlongN(linear.spec), AlongK(linear.spec));
}

}  // namespace assay::shard
