// NVFP4: E2M1 codes, two in a byte, low nibble first; an E4M3 scale for 16 of them, and one float
// for the tensor, by which compressed-tensors divides and ModelOpt multiplies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

constexpr int64_t kGroup = 16;

bool Divides(const Scheme& s) { return s.family == MethodFamily::kCtNvfp4; }
const char* CodeSuffix(const Scheme& s) { return Divides(s) ? ".weight_packed" : ".weight"; }
const char* GlobalSuffix(const Scheme& s) {
  return Divides(s) ? ".weight_global_scale" : ".weight_scale_2";
}

Result<std::vector<PartSpec>> NvParts(const Scheme& s, int64_t n, int64_t k) {
  if (Status good = MustDivide("k", k, "group", kGroup); !good.ok()) return good.error();
  std::vector<PartSpec> parts = {{CodeSuffix(s), "weight", DType::kU8, {n, k / 2}},
                                 {".weight_scale", "scale", DType::kF8E4M3, {n, k / kGroup}},
                                 {GlobalSuffix(s), "global_scale", DType::kF32, {}}};
  if (Divides(s)) {
    parts.back().shape = {1};
  } else {
    parts.push_back({".input_scale", "input_scale", DType::kF32, {}});
  }
  return parts;
}

struct NvGiven {
  std::vector<double> scales;  // [n, k/16]
  double global = 1;
};

Result<NvGiven> ReadGiven(const Scheme& s, const PartViews& parts, int64_t n, int64_t k) {
  if (Status good = MustDivide("k", k, "group", kGroup); !good.ok()) return good.error();
  const Result<const TensorView*> scale =
      Need(parts, {".weight_scale", {DType::kF8E4M3}, {{n, k / kGroup}}});
  if (!scale.ok()) return scale.error();
  NvGiven given;
  for (size_t i = 0; i < (*scale)->bytes.size(); ++i) {
    given.scales.push_back(FromE4m3(std::to_integer<uint8_t>((*scale)->bytes[i]), false));
    if (std::isnan(given.scales.back())) {
      const auto groups = static_cast<size_t>(k / kGroup);
      return Bad(**scale, fmt::format("the scale at [{}, {}] is NaN", i / groups, i % groups));
    }
  }
  const Result<const TensorView*> global =
      Need(parts, {GlobalSuffix(s), {DType::kF32}, {{1}, {}, {1, 1}}});
  if (!global.ok()) return global.error();
  const Result<std::vector<double>> value = ReadFinite(**global);
  if (!value.ok()) return value.error();
  given.global = value->front();
  if (Divides(s) && given.global == 0) return Bad(**global, "it is 0, and weights divide by it");
  return given;
}

// The quotient is rounded once, before the code comes to it: so the library does it. The product is
// exact.
double FactorOf(const Scheme& s, const NvGiven& given, int64_t i) {
  const double scale = given.scales[static_cast<size_t>(i / kGroup)];
  return Divides(s) ? scale / given.global : scale * given.global;
}

Status NvDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Result<const TensorView*> codes = Need(parts, {CodeSuffix(s), {DType::kU8}, {{n, k / 2}}});
  if (!codes.ok()) return codes.error();
  const Result<NvGiven> given = ReadGiven(s, parts, n, k);
  if (!given.ok()) return given.error();
  for (int64_t i = 0; i < n * k; ++i) {
    const auto byte = std::to_integer<int>((*codes)->bytes[static_cast<size_t>(i / 2)]);
    out[i] = FromE2m1(byte >> (4 * (i % 2)) & 15) * FactorOf(s, *given, i);
  }
  return Ok();
}

// The scale that puts the largest magnitude at the end of both ranges, 448·6; 1 where there is
// nothing to scale or a float cannot hold it.
float GlobalOf(const Scheme& s, double amax) {
  const auto most = static_cast<float>(kE4m3.largest * kE2m1.largest);
  const float magnitude = static_cast<float>(amax);
  const float global = Divides(s) ? most / magnitude : magnitude / most;
  return std::isfinite(global) && global > 0 ? global : 1;
}

Status NvChoose(const Scheme& s, const Values& w, const PackOptions& options, Parts* parts) {
  const int64_t groups = w.k / kGroup;
  Extremes all(w.n * groups);
  double amax = 0;
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      all.Add(r * groups + c / kGroup, w.At(r, c));
      amax = std::max(amax, std::fabs(w.At(r, c)));
    }
  }
  if (options.global_amax != 0 && !(options.global_amax >= amax)) {
    return Error{fmt::format("a shared largest magnitude of {} is less than this tensor's {}",
                             options.global_amax, amax)};
  }
  const float global = GlobalOf(s, options.global_amax != 0 ? options.global_amax : amax);
  StoreValue(DType::kF32, global, FindPart(parts, GlobalSuffix(s))->bytes.data(), 0);
  if (PackedPart* input = FindPart(parts, ".input_scale")) {
    const double reach = std::max(-options.input_min, options.input_max);
    StoreValue(DType::kF32, GlobalOf(s, reach), input->bytes.data(), 0);
  }
  PackedPart* scale = FindPart(parts, ".weight_scale");
  for (int64_t i = 0; i < w.n * groups; ++i) {
    const double step = all.amax(i) / kE2m1.largest;
    const uint32_t code = NearestCode(Divides(s) ? step * global : step / global, kE4m3);
    // A group of zeros gets a scale that is not zero, as both producers do: ⅛ and 1.
    const uint32_t of_zeros = NearestCode(Divides(s) ? 0.125 : 1, kE4m3);
    scale->bytes[static_cast<size_t>(i)] =
        static_cast<std::byte>(all.amax(i) == 0 ? of_zeros : std::max<uint32_t>(code, 1));
  }
  return Ok();
}

Status NvEncode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<NvGiven> given = ReadGiven(s, parts, w.n, w.k);
  if (!given.ok()) return given.error();
  for (int64_t i = 0; i < w.n * w.k; ++i) {
    const double factor = FactorOf(s, *given, i);
    const int64_t r = i / w.k, c = i % w.k;
    const int code = ToE2m1(factor == 0 ? std::copysign(0, w.At(r, c)) : w.Over(r, c, factor));
    out->bytes[static_cast<size_t>(i / 2)] |= static_cast<std::byte>(code << (4 * (i % 2)));
  }
  return Ok();
}

}  // namespace

const FamilyRow kNvfp4Row = {NvParts, {}, NvDecode, NvChoose, NvEncode, nullptr};

}  // namespace assay::kernels
