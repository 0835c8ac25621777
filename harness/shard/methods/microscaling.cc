// Codes of four or eight bits with a scale for a few inputs, as every producer stores them: MXFP4,
// MXFP8 (formats.md §1, §4) and NVFP4 (§1, §5).
#include <fmt/format.h>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

constexpr int64_t kMxGroup = 32, kNvGroup = 16;

// An extent k that ends inside a group has no row of whole groups.
Status WholeGroups(const Linear& linear, const Part& scale, int64_t group) {
  if (linear.spec.k % group == 0) return Ok();
  return Error{fmt::format("{}: axis k has {} elements, no whole number of groups of {}",
                           Where(*scale.tensor), linear.spec.k, group)};
}

// The parts and the producer, by the tensors' names and types.
struct Found {
  const Part* weight = nullptr;
  const Part* scale = nullptr;
  MethodFamily family = MethodFamily::kCtMxfp4;
};

Result<Found> FindMicroscaling(const Linear& linear) {
  const PartSet& parts = linear.parts;
  if (const Part* weight = parts.Find("weight_packed")) {
    const auto scale = NeedPart(linear, "weight_scale");
    if (!scale) return scale.error();
    return Found{weight, *scale, MethodFamily::kCtMxfp4};
  }
  if (const Part* weight = parts.Find("blocks")) {
    const auto scale = NeedPart(linear, "scales");
    if (!scale) return scale.error();
    return Found{weight, *scale, MethodFamily::kGptOssMxfp4};
  }
  const Part* weight = parts.Find("weight");
  if (const Part* scale = parts.Find("scale")) {
    return Found{weight, scale, MethodFamily::kDeepseekV4Mxfp4};
  }
  const bool fp8 = weight->tensor->dtype == DType::kF8E4M3;
  return Found{weight, parts.Find("weight_scale"),
               fp8 ? MethodFamily::kCtMxfp8 : MethodFamily::kQuarkMxfp4};
}

// gpt-oss's blocks are rows of K/32 blocks of 16 bytes.
Status CheckBlocks(const Part& blocks) {
  if (Status s = CheckType(blocks, {DType::kU8}); !s) return s;
  const auto& shape = blocks.tensor->shape;
  if (shape.size() == 4 && shape[3] == kMxGroup / 2) return Ok();
  return Error{fmt::format(
      "{}: has {} axes, the last of {} words; expected 4, the last of {} words",
      Where(*blocks.tensor), shape.size(), shape.empty() ? 0 : shape.back(), kMxGroup / 2)};
}

}  // namespace

Status ListMicroscaling(const Linear& linear, std::vector<Listed>* out) {
  const auto found = FindMicroscaling(linear);
  if (!found) return found.error();
  const Spec& spec = linear.spec;
  if (Status s = CheckType(*found->scale, {DType::kU8, DType::kF8E8M0}); !s) return s;
  if (Status s = WholeGroups(linear, *found->scale, kMxGroup); !s) return s;
  if (found->family == MethodFamily::kGptOssMxfp4) {
    if (Status s = CheckBlocks(*found->weight); !s) return s;
  }
  Scheme scheme;
  scheme.family = found->family;
  scheme.bits = found->family == MethodFamily::kCtMxfp8 ? 8 : 4;
  scheme.granularity = Granularity::kGroup;
  scheme.group = kMxGroup;
  Lister lister(linear, out);
  lister.SetMethod(scheme, kMxGroup);
  const StoredAxis codes = scheme.bits == 8 ? AlongK(spec) : AlongK(spec, 2, "word");
  const StoredAxis groups = AlongK(spec, kMxGroup, "group");
  if (Status s = lister.Add(*found->weight, "weight", AlongN(spec), codes); !s) return s;
  if (Status s = lister.Add(*found->scale, "scale", AlongN(spec), groups); !s) return s;
  if (linear.headers_only) return Ok();
  return CheckExponents(*found->scale, spec.n, groups.stored());
}

Status ListNvfp4(const Linear& linear, std::vector<Listed>* out) {
  const Spec& spec = linear.spec;
  const Part* weight = linear.parts.Find("weight_packed");
  const bool ct = weight != nullptr;
  if (!ct) weight = linear.parts.Find("weight");
  const auto scale = NeedPart(linear, "weight_scale");
  if (!scale) return scale.error();
  const auto global = NeedPart(linear, ct ? "weight_global_scale" : "weight_scale_2");
  if (!global) return global.error();
  if (Status s = CheckType(*weight, {DType::kU8}); !s) return s;
  if (Status s = CheckType(**scale, {DType::kF8E4M3}); !s) return s;
  if (Status s = CheckType(**global, {DType::kF32}); !s) return s;
  if (Status s = WholeGroups(linear, **scale, kNvGroup); !s) return s;
  Scheme scheme;
  scheme.family = ct ? MethodFamily::kCtNvfp4 : MethodFamily::kModelOptNvfp4;
  scheme.bits = 4;
  scheme.granularity = Granularity::kGroup;
  scheme.group = kNvGroup;
  Lister lister(linear, out);
  lister.SetMethod(scheme, kNvGroup);
  if (Status s = lister.Add(*weight, "weight", AlongN(spec), AlongK(spec, 2, "word")); !s) return s;
  if (Status s = lister.Add(**scale, "scale", AlongN(spec), AlongK(spec, kNvGroup, "group")); !s) {
    return s;
  }
  if (Status s = lister.AddScalar(**global, "global_scale"); !s) return s;
  const Part* input = linear.parts.Find(ct ? "input_global_scale" : "input_scale");
  if (input == nullptr) return Ok();
  if (Status s = CheckType(*input, {DType::kF32}); !s) return s;
  return lister.AddScalar(*input, "input_scale");
}

}  // namespace assay::shard
