// ModelSlim. W8A8: int8 codes, a scale and an offset for each row, w = (q − offset)·scale, and what
// the static int8 product needs beside. W4A8: two codes of 4 bits in a byte along n, the even row
// low; with groups a second scale and offset, of which the first is a factor.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kernels/methods/affine.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

bool IsW4(const Scheme& s) { return s.family == MethodFamily::kModelSlimW4a8; }
bool HasSecond(const Scheme& s) { return s.granularity == Granularity::kGroup; }

Result<std::vector<PartSpec>> SlimParts(const Scheme& s, int64_t n, int64_t k) {
  std::vector<PartSpec> parts = {{".weight", "weight", DType::kI8, {n, k}},
                                 {".weight_scale", "scale", DType::kF32, {n, 1}},
                                 {".weight_offset", "zero", DType::kF32, {n, 1}}};
  if (!IsW4(s)) {
    parts.push_back({".input_scale", "input_scale", DType::kF32, {1}});
    parts.push_back({".input_offset", "input_zero", DType::kF32, {1}});
    parts.push_back({".deq_scale", "deq_scale", DType::kF32, {n}});
    parts.push_back({".quant_bias", "quant_bias", DType::kI32, {n}});
    return parts;
  }
  if (Status good = MustDivide("n", n, "byte", 2); !good.ok()) return good.error();
  parts[0].shape = {n / 2, k};
  if (HasSecond(s)) {
    if (Status good = MustDivide("k", k, "group", s.group); !good.ok()) return good.error();
    parts.push_back({".weight_scale_second", "scale_second", DType::kF32, {n, k / s.group}});
    parts.push_back({".weight_offset_second", "zero_second", DType::kF32, {n, k / s.group}});
  }
  parts.push_back({".scale_bias", "scale_bias", DType::kF32, {n, 1}});
  return parts;
}

struct SlimGiven {
  std::vector<double> scale, offset;                // [n]
  std::vector<double> scale_second, offset_second;  // [n, k/group], or [n] ones and zeros
  int64_t group = 1, groups = 1;
};

Result<std::vector<double>> ReadPart(const PartViews& parts, const char* suffix,
                                     std::vector<std::vector<int64_t>> shapes) {
  std::vector<DType> types = kFloatTypes;
  types.push_back(DType::kI8);
  const Result<const TensorView*> view = Need(parts, {suffix, types, std::move(shapes)});
  if (!view.ok()) return view.error();
  return ReadFinite(**view);
}

Result<SlimGiven> ReadGiven(const Scheme& s, const PartViews& parts, int64_t n, int64_t k) {
  SlimGiven given;
  Result<std::vector<double>> scale = ReadPart(parts, ".weight_scale", {{n, 1}, {n}});
  if (!scale.ok()) return scale.error();
  Result<std::vector<double>> offset = ReadPart(parts, ".weight_offset", {{n, 1}, {n}});
  if (!offset.ok()) return offset.error();
  given.scale = std::move(*scale);
  given.offset = std::move(*offset);
  given.group = HasSecond(s) ? s.group : k;
  if (Status good = MustDivide("k", k, "group", given.group); !good.ok()) return good.error();
  given.groups = k / given.group;
  if (!HasSecond(s)) {
    given.scale_second.assign(static_cast<size_t>(n), 1);
    given.offset_second.assign(static_cast<size_t>(n), 0);
    return given;
  }
  scale = ReadPart(parts, ".weight_scale_second", {{n, given.groups}});
  if (!scale.ok()) return scale.error();
  offset = ReadPart(parts, ".weight_offset_second", {{n, given.groups}});
  if (!offset.ok()) return offset.error();
  given.scale_second = std::move(*scale);
  given.offset_second = std::move(*offset);
  return given;
}

// The two levels as one: ((q − second offset)·second scale − offset)·scale, which with an integer
// second scale is what the operator computes; both offsets are 0 in what producers write.
double ValueOf(const SlimGiven& given, int64_t row, int64_t column, int code) {
  const auto r = static_cast<size_t>(row);
  const auto g = static_cast<size_t>(row * given.groups + column / given.group);
  return ((code - given.offset_second[g]) * given.scale_second[g] - given.offset[r]) *
         given.scale[r];
}

int CodeAt(const Scheme& s, const std::byte* weight, int64_t k, int64_t row, int64_t column) {
  if (!IsW4(s)) return static_cast<int>(LoadValue(DType::kI8, weight, row * k + column));
  const int byte = std::to_integer<int>(weight[row / 2 * k + column]);
  const int nibble = row % 2 == 0 ? byte & 15 : byte >> 4;
  return nibble < 8 ? nibble : nibble - 16;  // two's complement
}

Status SlimDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  if (IsW4(s)) {
    if (Status good = MustDivide("n", n, "byte", 2); !good.ok()) return good;
  }
  const int64_t rows = IsW4(s) ? n / 2 : n;
  const Result<const TensorView*> weight = Need(parts, {".weight", {DType::kI8}, {{rows, k}}});
  if (!weight.ok()) return weight.error();
  const Result<SlimGiven> given = ReadGiven(s, parts, n, k);
  if (!given.ok()) return given.error();
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      out[r * k + c] = ValueOf(*given, r, c, CodeAt(s, (*weight)->bytes.data(), k, r, c));
    }
  }
  return Ok();
}

// The first scale of W4A8 with groups stands for int8 codes, the second for what is left of them in
// 4 bits.
Status SlimChoose(const Scheme& s, const Values& w, const PackOptions&, Parts* parts) {
  const double first = IsW4(s) && !HasSecond(s) ? 7 : 127;
  const AffineRule rule{.code_min = -128, .code_max = 127, .divisor = first};
  const AffineRule second{.code_min = -8, .code_max = 7, .divisor = 7};
  PackedPart* scale = FindPart(parts, ".weight_scale");
  PackedPart* scale_second = FindPart(parts, ".weight_scale_second");
  const int64_t group = HasSecond(s) ? s.group : w.k, groups = w.k / group;
  Extremes extremes(groups);
  for (int64_t r = 0; r < w.n; ++r) {
    extremes.Clear();
    for (int64_t c = 0; c < w.k; ++c) extremes.Add(c / group, w.At(r, c));
    double amax = 0;
    for (int64_t g = 0; g < groups; ++g) amax = std::max(amax, extremes.amax(g));
    const Result<Affine> row = ChooseAffine(-amax, amax, rule);
    if (!row.ok()) return row.error();
    StoreValue(DType::kF32, row->scale, scale->bytes.data(), r);
    if (scale_second == nullptr) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const double codes = extremes.amax(g) / row->scale;
      const Result<Affine> part = ChooseAffine(-codes, codes, second);
      if (!part.ok()) return part.error();
      StoreValue(DType::kF32, part->scale, scale_second->bytes.data(), r * groups + g);
    }
  }
  return Ok();
}

Status SlimEncode(const Scheme& s, const Values& w, const PartViews& parts, PackedPart* out) {
  const Result<SlimGiven> given = ReadGiven(s, parts, w.n, w.k);
  if (!given.ok()) return given.error();
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      const auto g = static_cast<size_t>(r * given->groups + c / given->group);
      const auto row = static_cast<size_t>(r);
      const double factor = given->scale[row] * given->scale_second[g];
      // What the offsets take off, in steps; 0 in what Pack makes.
      double steps = w.Over(r, c, factor) + given->offset_second[g];
      if (given->offset[row] != 0) steps += given->offset[row] / given->scale_second[g];
      if (!IsW4(s)) {
        StoreValue(DType::kI8, CodeOf(steps, 0, -128, 127), out->bytes.data(), r * w.k + c);
        continue;
      }
      const int code = CodeOf(steps, 0, -8, 7) & 15;
      out->bytes[static_cast<size_t>(r / 2 * w.k + c)] |=
          static_cast<std::byte>(r % 2 == 0 ? code : code << 4);
    }
  }
  return Ok();
}

// Static activations: x ≈ (x_q − offset)·input_scale, so y = deq_scale·(Σ q·x_q + quant_bias) with
// deq_scale = input_scale·weight_scale and quant_bias = bias/deq_scale − offset·Σ q.
Status W8a8Finish(const Scheme& s, const Values& w, const PackOptions& options, Parts* parts) {
  const double range = options.input_max - options.input_min;
  if (!(options.input_min <= 0 && options.input_max >= 0 && range > 0 &&
        range <= std::numeric_limits<float>::max())) {
    return Error{fmt::format("an input range of {} to {}; it must be finite and hold zero",
                             options.input_min, options.input_max)};
  }
  const auto input_scale = static_cast<float>(range / 255);
  const double offset = RoundEven(-128 - options.input_min / input_scale);
  StoreValue(DType::kF32, input_scale, FindPart(parts, ".input_scale")->bytes.data(), 0);
  StoreValue(DType::kF32, offset, FindPart(parts, ".input_offset")->bytes.data(), 0);
  const PackedPart* weight = FindPart(parts, ".weight");
  const PackedPart* scale = FindPart(parts, ".weight_scale");
  PackedPart* deq = FindPart(parts, ".deq_scale");
  PackedPart* quant_bias = FindPart(parts, ".quant_bias");
  for (int64_t r = 0; r < w.n; ++r) {
    int64_t sum = 0;
    for (int64_t c = 0; c < w.k; ++c) sum += CodeAt(s, weight->bytes.data(), w.k, r, c);
    StoreValue(DType::kF32, input_scale * LoadValue(DType::kF32, scale->bytes.data(), r),
               deq->bytes.data(), r);
    const double factor = LoadValue(DType::kF32, deq->bytes.data(), r);
    double bias = -offset * static_cast<double>(sum);
    if (options.bias != nullptr && factor > 0) bias += options.bias[r] / factor;
    constexpr double kMost = std::numeric_limits<int32_t>::max();
    StoreValue(DType::kI32, std::clamp(RoundEven(bias), -kMost, kMost), quant_bias->bytes.data(),
               r);
  }
  return Ok();
}

// The operator adds 8 to the codes of 4 bits: scale_bias is 8·Σ of the row's weights, in
// scale_bias_columns stretches of k.
Status W4a8Finish(const Scheme& s, const Values& w, const PackOptions& options, Parts* parts) {
  const int64_t stretches = options.scale_bias_columns;
  if (stretches < 1) return Error{"scale_bias has at least one column"};
  if (Status good = MustDivide("k", w.k, "columns of scale_bias", stretches); !good.ok()) {
    return good;
  }
  const Result<SlimGiven> given = ReadGiven(s, ViewsOf(*parts, ""), w.n, w.k);
  if (!given.ok()) return given.error();
  const PackedPart* weight = FindPart(parts, ".weight");
  PackedPart* bias = FindPart(parts, ".scale_bias");
  bias->spec.shape = {w.n, stretches};
  bias->bytes.assign(static_cast<size_t>(w.n * stretches) * 4, std::byte{0});
  const int64_t length = w.k / stretches;
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t i = 0; i < stretches; ++i) {
      double sum = 0;
      for (int64_t c = i * length; c < (i + 1) * length; ++c) {
        sum += ValueOf(*given, r, c, CodeAt(s, weight->bytes.data(), w.k, r, c));
      }
      StoreValue(DType::kF32, 8 * sum, bias->bytes.data(), r * stretches + i);
    }
  }
  return Ok();
}

}  // namespace

const FamilyRow kModelSlimW8a8Row = {SlimParts, {}, SlimDecode, SlimChoose, SlimEncode, W8a8Finish};
const FamilyRow kModelSlimW4a8Row = {SlimParts, {}, SlimDecode, SlimChoose, SlimEncode, W4a8Finish};

}  // namespace assay::kernels
