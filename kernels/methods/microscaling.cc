// MX: E2M1 codes, two in a byte along k, low nibble first, or E4M3 codes; an E8M0 scale for 32 of
// them. compressed-tensors, gpt-oss, DeepSeek-V4 and Quark differ in names, types and shapes only.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

constexpr int64_t kGroup = 32;

bool IsFp8(const Scheme& s) { return s.family == MethodFamily::kCtMxfp8; }

struct Names {
  const char* codes;
  const char* scale;
  DType code_type, scale_type;
};

Names NamesOf(const Scheme& s) {
  switch (s.family) {
    case MethodFamily::kCtMxfp4:
      return {".weight_packed", ".weight_scale", DType::kU8, DType::kU8};
    case MethodFamily::kCtMxfp8:
      return {".weight", ".weight_scale", DType::kF8E4M3, DType::kU8};
    case MethodFamily::kGptOssMxfp4:
      return {"_blocks", "_scales", DType::kU8, DType::kU8};
    case MethodFamily::kDeepseekV4Mxfp4:
      return {".weight", ".scale", DType::kI8, DType::kF8E8M0};
    default:
      return {".weight", ".weight_scale", DType::kU8, DType::kU8};
  }
}

std::vector<int64_t> CodeShape(const Scheme& s, int64_t n, int64_t k) {
  if (s.family == MethodFamily::kGptOssMxfp4) return {n, k / kGroup, kGroup / 2};
  return {n, IsFp8(s) ? k : k / 2};
}

Result<std::vector<PartSpec>> MxParts(const Scheme& s, int64_t n, int64_t k) {
  if (Status good = MustDivide("k", k, "group", kGroup); !good.ok()) return good.error();
  const Names names = NamesOf(s);
  return std::vector<PartSpec>{{names.codes, "weight", names.code_type, CodeShape(s, n, k)},
                               {names.scale, "scale", names.scale_type, {n, k / kGroup}}};
}

// 2^(byte − 127) of each group.
Result<std::vector<double>> ReadScales(const Scheme& s, const PartViews& parts, int64_t n,
                                       int64_t k) {
  if (Status good = MustDivide("k", k, "group", kGroup); !good.ok()) return good.error();
  const Names names = NamesOf(s);
  const Result<const TensorView*> view =
      Need(parts, {names.scale, {DType::kU8, DType::kF8E8M0}, {{n, k / kGroup}}});
  if (!view.ok()) return view.error();
  std::vector<double> scales((*view)->bytes.size());
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto byte = std::to_integer<uint8_t>((*view)->bytes[i]);
    if (byte == 0xFF) {
      const auto groups = static_cast<size_t>(k / kGroup);
      return Bad(**view,
                 fmt::format("the scale at [{}, {}] is 255, E8M0's NaN", i / groups, i % groups));
    }
    scales[i] = FromE8m0(byte);
  }
  return scales;
}

Status MxDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Names names = NamesOf(s);
  std::vector<DType> types = {names.code_type};
  if (!IsFp8(s)) types = {DType::kU8, DType::kI8};
  std::vector<std::vector<int64_t>> shapes = {CodeShape(s, n, k)};
  if (!IsFp8(s)) shapes.push_back({n, k / 2});
  const Result<const TensorView*> codes = Need(parts, {names.codes, types, shapes});
  if (!codes.ok()) return codes.error();
  const Result<std::vector<double>> scales = ReadScales(s, parts, n, k);
  if (!scales.ok()) return scales.error();
  for (int64_t i = 0; i < n * k; ++i) {
    const double scale = (*scales)[static_cast<size_t>(i / kGroup)];
    if (IsFp8(s)) {
      const auto code = std::to_integer<uint8_t>((*codes)->bytes[static_cast<size_t>(i)]);
      out[i] = FromE4m3(code, false) * scale;
    } else {
      const auto byte = std::to_integer<int>((*codes)->bytes[static_cast<size_t>(i / 2)]);
      out[i] = FromE2m1(byte >> (4 * (i % 2)) & 15) * scale;
    }
  }
  return Ok();
}

// ⌊log2⌋ of the largest magnitude rounded to one bit after the point, less the exponent of the
// element's largest value: compressed-tensors' rule, for E4M3 too, so that nothing exceeds 448.
uint8_t ScaleByte(double amax, int largest_exponent) {
  constexpr uint8_t kOne = 127;
  if (amax == 0) return kOne;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(amax)) + (1u << 21);
  const int exponent = static_cast<int>(bits >> 23) - largest_exponent;
  return static_cast<uint8_t>(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
}

Status MxChoose(const Scheme& s, const Values& w, const PackOptions&, Parts* parts) {
  PackedPart* scale = FindPart(parts, NamesOf(s).scale);
  const int64_t groups = w.k / kGroup;
  Extremes extremes(groups);
  for (int64_t r = 0; r < w.n; ++r) {
    extremes.Clear();
    for (int64_t c = 0; c < w.k; ++c) extremes.Add(c / kGroup, w.At(r, c));
    for (int64_t g = 0; g < groups; ++g) {
      scale->bytes[static_cast<size_t>(r * groups + g)] =
          std::byte{ScaleByte(extremes.amax(g), IsFp8(s) ? 8 : 2)};
    }
  }
  return Ok();
}

Status MxEncode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<std::vector<double>> scales = ReadScales(s, parts, w.n, w.k);
  if (!scales.ok()) return scales.error();
  for (int64_t i = 0; i < w.n * w.k; ++i) {
    const double value = w.At(i / w.k, i % w.k) / (*scales)[static_cast<size_t>(i / kGroup)];
    if (IsFp8(s)) {
      out->bytes[static_cast<size_t>(i)] = std::byte{ToE4m3(value, false)};
    } else {
      out->bytes[static_cast<size_t>(i / 2)] |=
          static_cast<std::byte>(ToE2m1(value) << (4 * (i % 2)));
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kMicroscalingRow = {MxParts, {}, MxDecode, MxChoose, MxEncode, nullptr};

}  // namespace assay::kernels
