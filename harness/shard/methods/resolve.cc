// Which method a linear is stored by: decided by the tensors that are there and their types. The
// config is asked only where two producers write the same.
#include <fmt/format.h>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

bool IsE8M0(DType dtype) { return dtype == DType::kU8 || dtype == DType::kF8E8M0; }

Error NotKnown(const Part& scale, const Part& weight, std::string_view known) {
  return Unsupported(fmt::format("{}: stored as {} beside a weight of {} ({}); known here is {}",
                                 Where(*scale.tensor), NameOf(scale.tensor->dtype),
                                 NameOf(weight.tensor->dtype), weight.tensor->name, known));
}

// weight_packed: words of integers, or bytes of E2M1 codes.
Result<MethodLister> ChoosePacked(const PartSet& parts) {
  const Part& packed = *parts.Find("weight_packed");
  if (packed.tensor->dtype == DType::kI32) return &ListCtInt;
  const Part* scale = parts.Find("weight_scale");
  if (packed.tensor->dtype == DType::kU8 && scale != nullptr) {
    if (IsE8M0(scale->tensor->dtype)) return &ListMicroscaling;
    if (scale->tensor->dtype == DType::kF8E4M3) return &ListNvfp4;
  }
  return Unsupported(fmt::format(
      "{}: stored as {} beside a scale of {}; known are I32 words of integers, and U8 with a scale "
      "of U8 (MXFP4) or of F8_E4M3 (NVFP4)",
      Where(*packed.tensor), NameOf(packed.tensor->dtype),
      scale == nullptr ? "no type" : NameOf(scale->tensor->dtype)));
}

// qweight: GPTQ's words lie along k, AWQ's along n.
Result<MethodLister> ChooseTransposed(const Linear& linear) {
  const Part& qweight = *linear.parts.Find("qweight");
  const auto& shape = qweight.shape;
  if (shape.size() == 2) {
    const Spec& s = linear.spec;
    const auto words = [](int64_t extent, int64_t each) { return (extent + each - 1) / each; };
    if (shape[0] == s.k && shape[1] == words(s.n, 8)) return &ListAwq;
    if (shape[1] == s.n && (shape[0] == words(s.k, 8) || shape[0] == words(s.k, 4))) {
      return &ListGptq;
    }
  }
  // Neither fits: whoever the config names says what is wrong.
  return linear.quant.method == "awq" ? &ListAwq : &ListGptq;
}

// weight with weight_scale.
Result<MethodLister> ChooseScaled(const Linear& linear, const Part& weight, const Part& scale) {
  const DType type = weight.tensor->dtype, scales = scale.tensor->dtype;
  switch (type) {
    case DType::kI8: {
      const PartSet& parts = linear.parts;
      const bool slim = !linear.quant.description.empty() || parts.Has("weight_offset") ||
                        parts.Has("weight_scale_second") || parts.Has("deq_scale") ||
                        parts.Has("scale_bias");
      return slim ? &ListModelSlim : &ListCtW8a8;
    }
    case DType::kF8E4M3:
      return IsE8M0(scales) ? &ListMicroscaling : &ListCtFp8;
    case DType::kU8:
      if (IsE8M0(scales)) return &ListMicroscaling;
      if (scales == DType::kF8E4M3) return &ListNvfp4;
      break;
    default:
      break;
  }
  return NotKnown(scale, weight,
                  "weight_scale beside a weight of I8 (W8A8, ModelSlim), of F8_E4M3 (FP8, MXFP8), "
                  "or of U8 (MXFP4 with a scale of U8, NVFP4 with one of F8_E4M3)");
}

Result<MethodLister> Choose(const Linear& linear) {
  const PartSet& parts = linear.parts;
  const Part* weight = parts.Find("weight");
  for (const std::string_view other : {"weight_packed", "qweight", "blocks"}) {
    if (weight != nullptr && parts.Has(other)) {
      return Error{fmt::format("{}: stored twice, also as {}", Where(*weight->tensor),
                               Where(*parts.Find(other)->tensor))};
    }
  }
  if (parts.Has("weight_packed")) return ChoosePacked(parts);
  if (parts.Has("qweight")) return ChooseTransposed(linear);
  if (parts.Has("blocks")) return &ListMicroscaling;
  if (weight == nullptr) {
    return Error{fmt::format("{}: missing from the checkpoint; {} needs it, of which {} is there",
                             parts.NameOf("weight"), linear.spec.name,
                             parts.parts().front().tensor->name)};
  }
  if (parts.Has("weight_scale_inv")) {
    if (weight->tensor->dtype == DType::kF8E4M3) return &ListDeepseekFp8;
    return NotKnown(*parts.Find("weight_scale_inv"), *weight,
                    "weight_scale_inv beside a weight of F8_E4M3");
  }
  if (const Part* scale = parts.Find("scale")) {
    const bool exponents = scale->tensor->dtype == DType::kF8E8M0;
    if (exponents && weight->tensor->dtype == DType::kI8) return &ListMicroscaling;
    if (exponents && weight->tensor->dtype == DType::kF8E4M3) return &ListDeepseekFp8;
    return NotKnown(*scale, *weight,
                    "a scale of F8_E8M0 beside a weight of I8 (DeepSeek-V4's MXFP4) or of F8_E4M3");
  }
  if (const Part* scale = parts.Find("weight_scale")) return ChooseScaled(linear, *weight, *scale);
  return IsBlock(weight->tensor->dtype) ? &ListBlocks : &ListDense;
}

// A tensor beside the weight that its method does not know: nothing would load it.
Status CheckAllTaken(const Linear& linear, const Component& weight) {
  for (const Part& part : linear.parts.parts()) {
    if (part.taken || part.suffix == "bias" || part.suffix == "weight_shape") continue;
    return Error{fmt::format("{}: is no part of {}, as which {} is stored", Where(*part.tensor),
                             weight.method, weight.source)};
  }
  return Ok();
}

// A bias of a row-parallel layer counts once; of a column-parallel one it follows the rows.
Status ListBias(const Linear& linear, const std::string& method, std::vector<Listed>* out) {
  const Spec& spec = linear.spec;
  const Part* bias = nullptr;
  for (const Part& part : linear.parts.parts()) {
    if (part.suffix == "bias") bias = &part;
  }
  if (!spec.bias) {
    if (bias == nullptr || bias->taken) return Ok();
    return Error{fmt::format("{}: is in the file, but config says that {} has no bias",
                             Where(*bias->tensor), spec.name)};
  }
  const auto part = NeedPart(linear, "bias");
  if (!part) return part.error();
  if (Status s =
          CheckType(**part, {DType::kBF16, DType::kF16, DType::kF32}, ErrorKind::kUnsupported);
      !s) {
    return s;
  }
  Lister lister(linear, out);
  if (Status s = lister.AddOnce(**part, "bias", AlongN(spec), Whole()); !s) return s;
  out->back().component.method = method;
  return Ok();
}

// What may lie beside a dense weight is no more than a bias and the scales of its inputs.
bool NeedsConfig(const PartSet& parts) {
  for (const Part& part : parts.parts()) {
    if (part.suffix != "weight" && part.suffix != "bias") return true;
  }
  return parts.Has("weight") && parts.Find("weight")->tensor->dtype == DType::kI8;
}

}  // namespace

Status ListLinear(const Spec& spec, const QuantConfig& quant, const TensorSource& source,
                  const Selection& selection, std::vector<Listed>* out) {
  const auto parts = PartSet::Collect(spec, source);
  if (!parts) return parts.error();
  if (parts->empty()) {
    if (selection.present_only || spec.optional) return Ok();
    return Error{fmt::format("{}: missing from the checkpoint; config implies it as {}.weight",
                             parts->NameOf("weight"), spec.name)};
  }
  // ModelSlim's description is as long as the file and says all there is: it is not copied.
  const bool described = !quant.description.empty();
  QuantConfig own;
  if (!described && !quant.method.empty() && NeedsConfig(*parts)) {
    own = quant.For(spec.described.empty() ? spec.source : spec.described);
  }
  const Linear linear{spec, *parts, described ? quant : own, selection.headers_only};
  const auto method = Choose(linear);
  if (!method) return method.error();
  for (const Part& part : parts->parts()) part.taken = false;  // choosing only looks
  const size_t before = out->size();
  if (Status s = (*method)(linear, out); !s) return s;
  const Component weight = (*out)[before].component;
  if (Status s = CheckAllTaken(linear, weight); !s) return s;
  return ListBias(linear, weight.method, out);
}

}  // namespace assay::shard
