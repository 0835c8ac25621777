// GGUF's blocks: codes and scales in one value (formats.md §7).
#include <fmt/format.h>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// Of MXFP4 the first byte of a block is an E8M0 exponent, whose 255 is no number.
Status CheckBlockExponents(const Part& part, int64_t rows, int64_t blocks) {
  const int64_t size = SizeOf(part.tensor->dtype).count();
  const int64_t step = part.row_step == 0 ? blocks : part.row_step;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t block = 0; block < blocks; ++block) {
      const auto at = static_cast<size_t>((part.first + row * step + block) * size);
      if (part.tensor->bytes[at] != std::byte{0xFF}) continue;
      return Error{
          fmt::format("{}: row {}, block {} has the exponent 255, which is not a number; allowed "
                      "is 0 to 254",
                      Where(*part.tensor), row, block)};
    }
  }
  return Ok();
}

}  // namespace

Status ListBlocks(const Linear& linear, std::vector<Listed>* out) {
  const auto weight = NeedPart(linear, "weight");
  if (!weight) return weight.error();
  const Spec& spec = linear.spec;
  const DType dtype = (*weight)->tensor->dtype;
  const int64_t elements = ElementsOf(dtype).count();
  if (spec.k % elements != 0) {
    return Error{fmt::format("{}: axis k has {} elements, no whole number of blocks of {}",
                             Where(*(*weight)->tensor), spec.k, elements)};
  }
  Scheme scheme;
  scheme.family = MethodFamily::kGguf;
  scheme.dtype = dtype;
  scheme.granularity = Granularity::kGroup;
  scheme.group = elements;
  Lister lister(linear, out);
  lister.SetMethod(scheme, elements);
  const StoredAxis columns = AlongK(spec, elements, "block");
  if (Status s = lister.Add(**weight, "weight", AlongN(spec), columns); !s) return s;
  if (linear.headers_only || dtype != DType::kMxfp4Block) return Ok();
  return CheckBlockExponents(**weight, spec.n, columns.stored());
}

}  // namespace assay::shard
