#include "kernels/methods/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/methods/family.h"

namespace assay::kernels {
namespace {

const FamilyRow& RowOf(MethodFamily family) {
  switch (family) {
    case MethodFamily::kDense:
      return kDenseRow;
    case MethodFamily::kCtInt:
      return kCtIntRow;
    case MethodFamily::kCtW8a8:
      return kCtW8a8Row;
    case MethodFamily::kCtFp8:
    case MethodFamily::kDeepseekFp8:
      return kFp8Row;
    case MethodFamily::kCtMxfp4:
    case MethodFamily::kCtMxfp8:
    case MethodFamily::kGptOssMxfp4:
    case MethodFamily::kDeepseekV4Mxfp4:
    case MethodFamily::kQuarkMxfp4:
      return kMicroscalingRow;
    case MethodFamily::kCtNvfp4:
    case MethodFamily::kModelOptNvfp4:
      return kNvfp4Row;
    case MethodFamily::kGptq:
      return kGptqRow;
    case MethodFamily::kAwq:
      return kAwqRow;
    case MethodFamily::kModelSlimW8a8:
      return kModelSlimW8a8Row;
    case MethodFamily::kModelSlimW4a8:
      return kModelSlimW4a8Row;
    case MethodFamily::kGguf:
      break;
  }
  return kGgufRow;
}

// 2^40 values are beyond any weight, and no product of extents overflows below it.
Status CheckExtents(const Scheme& scheme, int64_t n, int64_t k) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (n >= 1 && k >= 1 && n <= kMost && k <= kMost / n) return Ok();
  return Error{
      fmt::format("{}: a linear of [{}, {}]: extents must be positive, their product at "
                  "most 2^40",
                  NameOf(scheme), n, k)};
}

Error Within(const Scheme& scheme, Error error) {
  error.message = NameOf(scheme) + ": " + error.message;
  return error;
}

Status CheckFinite(const Values& values) {
  for (int64_t r = 0; r < values.n; ++r) {
    for (int64_t c = 0; c < values.k; ++c) {
      const double value = values.At(r, c);
      if (!std::isfinite(value)) {
        return Error{fmt::format("the value at [{}, {}] is {}; only finite ones can be stored", r,
                                 c, value)};
      }
    }
  }
  return Ok();
}

PackedPart Zeroed(const PartSpec& spec) {
  const std::optional<Bytes> bytes = StoredBytes(spec.dtype, spec.shape);
  return {spec, std::vector<std::byte>(static_cast<size_t>(bytes.value().count()))};
}

}  // namespace

Result<std::vector<PartSpec>> PartsOf(const Scheme& scheme, int64_t n, int64_t k) {
  if (Status good = CheckExtents(scheme, n, k); !good.ok()) return good.error();
  Result<std::vector<PartSpec>> parts = RowOf(scheme.family).parts(scheme, n, k);
  if (!parts.ok()) return Within(scheme, parts.error());
  return parts;
}

Status Decode(const Scheme& scheme, const PartViews& parts, int64_t n, int64_t k, double* out) {
  if (Status good = CheckExtents(scheme, n, k); !good.ok()) return good.error();
  const Status status = RowOf(scheme.family).decode(scheme, parts, n, k, out);
  if (!status.ok()) return Within(scheme, status.error());
  return Ok();
}

Result<std::vector<PackedPart>> Pack(const Scheme& scheme, const float* w, int64_t n, int64_t k,
                                     const PackOptions& options) {
  const Result<std::vector<PartSpec>> specs = PartsOf(scheme, n, k);
  if (!specs.ok()) return specs.error();
  const Values values(w, n, k);
  Parts parts;
  for (const PartSpec& spec : *specs) parts.push_back(Zeroed(spec));
  const FamilyRow& row = RowOf(scheme.family);
  Status status = CheckFinite(values);
  if (status.ok() && row.choose != nullptr) status = row.choose(scheme, values, options, &parts);
  // Choosing may have changed a part's shape (the columns of scale_bias), never the codes'.
  if (status.ok()) status = row.encode(scheme, values, ViewsOf(parts, ""), &parts.front());
  if (status.ok() && row.finish != nullptr) status = row.finish(scheme, values, options, &parts);
  if (!status.ok()) return Within(scheme, status.error());
  return parts;
}

Result<PackedPart> Encode(const Scheme& scheme, const double* doubles, int64_t n, int64_t k,
                          const PartViews& given) {
  const Result<std::vector<PartSpec>> specs = PartsOf(scheme, n, k);
  if (!specs.ok()) return specs.error();
  const Values values(doubles, n, k);
  PackedPart codes = Zeroed(specs->front());
  Status status = CheckFinite(values);
  if (status.ok()) status = RowOf(scheme.family).encode(scheme, values, given, &codes);
  if (!status.ok()) return Within(scheme, status.error());
  return codes;
}

PartViews ViewsOf(const std::vector<PackedPart>& parts, std::string_view module) {
  PartViews views;
  for (const PackedPart& part : parts) {
    views[part.spec.suffix] = {.name = std::string(module) + part.spec.suffix,
                               .dtype = part.spec.dtype,
                               .shape = part.spec.shape,
                               .bytes = part.bytes,
                               .file = "memory"};
  }
  return views;
}

PartViews FindParts(const Scheme& scheme, const TensorSource& source, std::string_view module) {
  const FamilyRow& row = RowOf(scheme.family);
  std::vector<std::string> suffixes;
  for (const char* suffix : row.also_read) {
    if (suffix != nullptr) suffixes.emplace_back(suffix);
  }
  // The suffixes do not depend on the extents; these fit every method.
  const int64_t fits = std::max<int64_t>(scheme.group, 1) << 16;
  if (Result<std::vector<PartSpec>> specs = row.parts(scheme, fits, fits); specs.ok()) {
    for (const PartSpec& spec : *specs) suffixes.push_back(spec.suffix);
  }
  PartViews views;
  for (const std::string& suffix : suffixes) {
    if (const TensorView* view = source.Find(std::string(module) + suffix)) views[suffix] = *view;
  }
  return views;
}

}  // namespace assay::kernels
