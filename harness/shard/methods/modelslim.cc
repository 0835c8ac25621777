// ModelSlim (formats.md §6): W8A8, and W4A8 with two codes a byte along the outputs. The
// description file says which, tensor by tensor.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// What the description says of the weight; "" where it is silent.
std::string_view TypeOf(const Linear& linear) {
  const std::string& module =
      linear.spec.described.empty() ? linear.spec.source : linear.spec.described;
  const auto found = linear.quant.description.find(module + ".weight");
  return found == linear.quant.description.end() ? std::string_view() : found->second;
}

// Four bits: by the description; without one, the weight has half as many rows as outputs.
Result<bool> HasFourBits(const Linear& linear, const Part& weight) {
  const std::string_view type = TypeOf(linear);
  if (type.empty()) {
    return !weight.shape.empty() && weight.shape[0] * 2 == linear.spec.n;
  }
  const bool mx = type.find("MX") != std::string_view::npos;
  if (type.starts_with("W4A8") && !mx) return true;
  if (type.starts_with("W8A8") && !mx) return false;
  if (type == "FLOAT") {
    return Error{fmt::format("{}: stored as {}, but the description says FLOAT",
                             Where(*weight.tensor), NameOf(weight.tensor->dtype))};
  }
  return Unsupported(
      fmt::format("{}: the description says {}; known are FLOAT, W8A8, "
                  "W8A8_DYNAMIC and W4A8_DYNAMIC",
                  Where(*weight.tensor), type));
}

// The second scales' group along k; 0: there are none.
Result<int64_t> SecondGroup(const Linear& linear, const Part* second) {
  if (second == nullptr) return int64_t{0};
  const int64_t groups = second->shape.size() == 2 ? second->shape[1] : 0;
  if (groups <= 0 || linear.spec.k % groups != 0) {
    return Error{fmt::format("{}: axis k has {} groups, which do not divide K = {} elements",
                             Where(*second->tensor), groups, linear.spec.k)};
  }
  return linear.spec.k / groups;
}

// Of static activations (W8A8): all four or none.
Status AddStatic(const Linear& linear, Lister* lister) {
  constexpr std::array<std::string_view, 4> kStatic = {"input_scale", "input_offset", "deq_scale",
                                                       "quant_bias"};
  bool needed = TypeOf(linear) == "W8A8";
  for (const std::string_view suffix : kStatic) needed = needed || linear.parts.Has(suffix);
  if (!needed) return Ok();
  std::array<const Part*, 4> parts = {};
  for (size_t i = 0; i < kStatic.size(); ++i) {
    const auto part = NeedPart(linear, kStatic[i]);
    if (!part) return part.error();
    parts[i] = *part;
  }
  if (Status s = CheckScaleType(*parts[0]); !s) return s;
  if (Status s = CheckType(*parts[1], {DType::kI8, DType::kBF16, DType::kF16, DType::kF32}); !s) {
    return s;
  }
  if (Status s = CheckType(*parts[2], {DType::kF32, DType::kI64, DType::kU64}); !s) return s;
  if (Status s = CheckType(*parts[3], {DType::kI32}); !s) return s;
  if (Status s = lister->AddScalar(*parts[0], "input_scale"); !s) return s;
  if (Status s = lister->AddScalar(*parts[1], "input_zero"); !s) return s;
  const StoredAxis rows = AlongN(linear.spec);
  if (Status s = lister->Add(*parts[2], "deq_scale", rows, Whole()); !s) return s;
  return lister->AddOnce(*parts[3], "quant_bias", rows, Whole());
}

// One correction a row, which counts once; or its partial sums over equal parts of the inputs.
Status AddScaleBias(const Linear& linear, Lister* lister) {
  const Part* bias = linear.parts.Find("scale_bias");
  if (bias == nullptr) return Ok();
  if (Status s = CheckScaleType(*bias); !s) return s;
  const Spec& spec = linear.spec;
  const int64_t parts = bias->shape.size() == 2 ? bias->shape[1] : 1;
  if (parts <= 1) return lister->AddOnce(*bias, "scale_bias", AlongN(spec), Whole());
  if (spec.k % parts != 0) {
    return Error{fmt::format("{}: axis k has {} elements, no whole number of {} blocks",
                             Where(*bias->tensor), spec.k, parts)};
  }
  return lister->Add(*bias, "scale_bias", AlongN(spec), AlongK(spec, spec.k / parts, "block"));
}

Status AddScales(const Linear& linear, int64_t group, Lister* lister) {
  const Spec& spec = linear.spec;
  const StoredAxis one = Whole(1, "group");
  const StoredAxis groups = group == 0 ? one : AlongK(spec, group, "group");
  const std::array<std::pair<std::string_view, std::string_view>, 4> all = {
      {{"weight_scale", "scale"},
       {"weight_offset", "zero"},
       {"weight_scale_second", "scale_second"},
       {"weight_offset_second", "zero_second"}}};
  for (const auto& [theirs, ours] : all) {
    const Part* part = linear.parts.Find(theirs);
    if (part == nullptr) continue;
    if (Status s = CheckScaleType(*part); !s) return s;
    const bool second = ours.ends_with("second");
    if (Status s = lister->Add(*part, ours, AlongN(spec), second ? groups : one); !s) return s;
  }
  return Ok();
}

}  // namespace

Status ListModelSlim(const Linear& linear, std::vector<Listed>* out) {
  const auto weight = NeedPart(linear, "weight");
  if (!weight) return weight.error();
  if (Status s = CheckType(**weight, {DType::kI8}); !s) return s;
  const auto four = HasFourBits(linear, **weight);
  if (!four) return four.error();
  const auto scale = NeedPart(linear, "weight_scale");
  if (!scale) return scale.error();
  const Part* second = linear.parts.Find("weight_scale_second");
  const auto group = SecondGroup(linear, second);
  if (!group) return group.error();
  if (second != nullptr && !*four) {
    return Error{fmt::format("{}: a second scale belongs to W4A8, but the weight is W8A8",
                             Where(*second->tensor))};
  }
  const Spec& spec = linear.spec;
  if (*four && spec.n % 2 != 0) {
    return Error{fmt::format("{}: axis n has {} elements, no whole number of words of 2",
                             Where(*(*weight)->tensor), spec.n)};
  }
  Scheme scheme;
  scheme.family = *four ? MethodFamily::kModelSlimW4a8 : MethodFamily::kModelSlimW8a8;
  scheme.bits = *four ? 4 : 8;
  scheme.granularity = *group > 0 ? Granularity::kGroup : Granularity::kChannel;
  scheme.group = *group;
  Lister lister(linear, out);
  lister.SetMethod(scheme, *group);
  const StoredAxis rows = *four ? AlongN(spec, 2, "word") : AlongN(spec);
  if (Status s = lister.Add(**weight, "weight", rows, AlongK(spec)); !s) return s;
  if (Status s = AddScales(linear, *group, &lister); !s) return s;
  if (Status s = AddStatic(linear, &lister); !s) return s;
  return AddScaleBias(linear, &lister);
}

}  // namespace assay::shard
