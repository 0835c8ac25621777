// Formats whose scales lie with their codes, or beside them in powers of two: GGUF's blocks
// (formats.md §7) and MXFP4 as DeepSeek-V4 stores it (§4).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/shard/listing.h"

namespace assay::shard {
namespace {

constexpr Packing kTwoCodes{Elements(2), Bytes(1)};
constexpr Elements kMxGroup{32};
constexpr std::byte kNoScale{0xFF};  // E8M0's NaN; libraries disagree on it (formats.md §1)

// An extent k that ends inside a unit has no row of whole units.
Result<int64_t> WholeUnits(const TensorView& tensor, const Spec& spec, Elements unit,
                           std::string_view what) {
  if (spec.k % unit.count() == 0) return spec.k / unit.count();
  return Error{fmt::format("{}: axis k has {} elements, no whole number of {}s of {}",
                           Where(tensor), spec.k, what, unit.count())};
}

// A scale of 255 is no number: refused before anybody computes with it.
Status CheckExponents(const TensorView& scale, int64_t groups) {
  const auto bad = std::find(scale.bytes.begin(), scale.bytes.end(), kNoScale);
  if (bad == scale.bytes.end()) return Ok();
  const int64_t at = bad - scale.bytes.begin();
  return Error{
      fmt::format("{}: row {}, group {} is 255, which is not a number; allowed is 0 to 254",
                  Where(scale), at / groups, at % groups)};
}

}  // namespace

Status ResolveBlocks(const std::string& name, const TensorView& tensor, const Spec& spec,
                     std::vector<Listed>* out) {
  const Elements elements = ElementsOf(tensor.dtype);
  const auto blocks = WholeUnits(tensor, spec, elements, "block");
  if (!blocks) return blocks.error();
  if (Status s = CheckShape(tensor, {spec.n, *blocks}, "block"); !s) return s;
  Component c;
  c.name = name;
  c.source = tensor.name;
  c.dtype = tensor.dtype;
  c.rows = spec.n;
  c.columns = *blocks;
  c.packing = {elements, SizeOf(tensor.dtype)};
  c.unit = "block";
  c.column_elements = c.group = elements;
  c.row_elements = Elements(spec.k);
  out->push_back({std::move(c), spec.cut, spec.segment});
  return Ok();
}

Status ResolveMxfp4(const Spec& spec, const TensorView& weight, const TensorView& scale,
                    bool headers_only, std::vector<Listed>* out) {
  const auto groups = WholeUnits(scale, spec, kMxGroup, "group");
  if (!groups) return groups.error();
  const int64_t words = spec.k / kTwoCodes.elements.count();
  if (Status s = CheckShape(weight, {spec.n, words}, "word"); !s) return s;
  if (Status s = CheckShape(scale, {spec.n, *groups}, "group"); !s) return s;
  if (!headers_only) {
    if (Status s = CheckExponents(scale, *groups); !s) return s;
  }
  Component codes;
  codes.name = spec.name + ".weight";
  codes.source = weight.name;
  codes.dtype = weight.dtype;
  codes.rows = spec.n;
  codes.columns = words;
  codes.packing = kTwoCodes;
  codes.unit = "word";
  codes.column_elements = kTwoCodes.elements;
  codes.group = kMxGroup;
  codes.row_elements = Elements(spec.k);

  Component exponents = codes;
  exponents.name = spec.name + ".scale";
  exponents.source = scale.name;
  exponents.dtype = scale.dtype;
  exponents.columns = *groups;
  exponents.packing = {Elements(1), SizeOf(scale.dtype)};
  exponents.unit = "group";
  exponents.column_elements = kMxGroup;

  out->push_back({std::move(codes), spec.cut, spec.segment});
  out->push_back({std::move(exponents), spec.cut, spec.segment});
  return Ok();
}

}  // namespace assay::shard
