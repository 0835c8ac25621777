// Codes of eight bits beside scales of a tensor, a row or a block: compressed-tensors W8A8 and FP8
// (formats.md §1), and FP8 as DeepSeek stores it (§2).
#include <fmt/format.h>

#include <array>
#include <utility>

#include "harness/shard/methods/method.h"

namespace assay::shard {
namespace {

// Whether the scale's shape can be that of a strategy: [1] or [] for all, [n, 1] or [n] a row, or a
// grid of the config's blocks.
bool Fits(const Linear& linear, const Part& scale, Granularity strategy) {
  const Spec& spec = linear.spec;
  const QuantConfig& quant = linear.quant;
  switch (strategy) {
    case Granularity::kTensor:
      return CheckGrid(scale, Whole(), Whole()).ok();
    case Granularity::kChannel:
      return CheckGrid(scale, AlongN(spec), Whole()).ok();
    default:
      return quant.block_n > 0 && quant.block_k > 0 &&
             CheckGrid(scale, AlongN(spec, quant.block_n), AlongK(spec, quant.block_k)).ok();
  }
}

// What one scale stands for. The config's strategy, if the shape agrees (with n = 1 two of them
// do). Of other producers than compressed-tensors the config may be silent or coarse: then the
// shape, if it leaves one choice.
Result<Granularity> GranularityOf(const Linear& linear, const Part& scale, bool blocks) {
  constexpr std::array<std::pair<std::string_view, Granularity>, 3> kStrategies = {
      {{"tensor", Granularity::kTensor},
       {"channel", Granularity::kChannel},
       {"block", Granularity::kBlock}}};
  const QuantConfig& quant = linear.quant;
  std::vector<Granularity> fitting;
  for (const auto& [name, strategy] : kStrategies) {
    if (strategy == Granularity::kBlock && !blocks) continue;
    if (!Fits(linear, scale, strategy)) continue;
    if (quant.strategy == name) return strategy;
    fitting.push_back(strategy);
  }
  const bool strict = quant.method == "compressed-tensors";
  if (!strict && fitting.size() > 1) {
    return Error{
        fmt::format("{}: may be a scale of the tensor, a row or a block of [{}, {}] "
                    "elements; the config does not say which",
                    Where(*scale.tensor), linear.spec.n, linear.spec.k)};
  }
  if (!strict && fitting.size() == 1) return fitting.front();
  if (!strict && blocks) return Granularity::kBlock;  // which says what is wrong
  const bool known = quant.strategy == "tensor" || quant.strategy == "channel" ||
                     (blocks && quant.strategy == "block");
  if (strict && !known) {
    return Unsupported(fmt::format("{}: config's strategy is '{}'; known are 'tensor', 'channel'{}",
                                   Where(*scale.tensor), quant.strategy,
                                   blocks ? " and 'block'" : ""));
  }
  if (quant.strategy == "block") return Granularity::kBlock;
  return Error{fmt::format(
      "{}: axis n has {} elements, but config's strategy {} over {} elements needs {} elements",
      Where(*scale.tensor), scale.shape.empty() ? 1 : scale.shape[0], quant.strategy, linear.spec.n,
      quant.strategy == "tensor" ? 1 : linear.spec.n)};
}

// Scales of FP8 blocks, whose extents the config alone states.
Status BlockOf(const Linear& linear, const Part& scale, Scheme* scheme) {
  scheme->granularity = Granularity::kBlock;
  scheme->block_n = linear.quant.block_n;
  scheme->block_k = linear.quant.block_k;
  if (scheme->block_n > 0 && scheme->block_k > 0) return Ok();
  return Error{
      fmt::format("{}: scales of blocks, but config states no weight_block_size or "
                  "block_structure",
                  Where(*scale.tensor))};
}

Status AddScale(const Linear& linear, const Scheme& scheme, const Part& part,
                std::string_view suffix, Lister* lister) {
  switch (scheme.granularity) {
    case Granularity::kTensor:
      return lister->AddScalar(part, suffix);
    case Granularity::kBlock:
      return lister->Add(part, suffix, AlongN(linear.spec, scheme.block_n, "block"),
                         AlongK(linear.spec, scheme.block_k, "block"));
    default:
      return lister->Add(part, suffix, AlongN(linear.spec), Whole(1, "group"));
  }
}

// Of static activations: one value each.
Status AddInputs(const Linear& linear, Lister* lister) {
  if (const Part* scale = linear.parts.Find("input_scale")) {
    if (Status s = CheckScaleType(*scale); !s) return s;
    if (Status s = lister->AddScalar(*scale, "input_scale"); !s) return s;
  }
  if (const Part* zero = linear.parts.Find("input_zero_point")) {
    if (Status s = CheckType(*zero, {DType::kI8, DType::kI32}); !s) return s;
    return lister->AddScalar(*zero, "input_zero");
  }
  return Ok();
}

}  // namespace

Status ListCtW8a8(const Linear& linear, std::vector<Listed>* out) {
  const Part& weight = *linear.parts.Find("weight");
  const Part& scale = *linear.parts.Find("weight_scale");
  const Part* zero = linear.parts.Find("weight_zero_point");
  const QuantConfig& quant = linear.quant;
  if (Status s = CheckScaleType(scale); !s) return s;
  if (!quant.method.empty() && quant.weight_type == "float") {
    return Error{fmt::format("{}: I8 holds integers, but config's weight type is 'float'",
                             Where(*weight.tensor))};
  }
  if (!quant.method.empty() && quant.symmetric != (zero == nullptr)) {
    return Error{fmt::format("{}: config says symmetric: {}, but {} is {}", Where(*weight.tensor),
                             quant.symmetric, linear.parts.NameOf("weight_zero_point"),
                             zero == nullptr ? "missing" : "there")};
  }
  Scheme scheme;
  scheme.family = MethodFamily::kCtW8a8;
  scheme.bits = 8;
  scheme.asymmetric = zero != nullptr;
  const auto granularity = GranularityOf(linear, scale, false);
  if (!granularity) return granularity.error();
  scheme.granularity = *granularity;
  Lister lister(linear, out);
  lister.SetMethod(scheme, 0);
  if (Status s = lister.Add(weight, "weight", AlongN(linear.spec), AlongK(linear.spec)); !s) {
    return s;
  }
  if (Status s = AddScale(linear, scheme, scale, "scale", &lister); !s) return s;
  if (zero != nullptr) {
    if (Status s = CheckType(*zero, {DType::kI8}); !s) return s;
    if (Status s = AddScale(linear, scheme, *zero, "zero", &lister); !s) return s;
  }
  return AddInputs(linear, &lister);
}

Status ListCtFp8(const Linear& linear, std::vector<Listed>* out) {
  const Part& weight = *linear.parts.Find("weight");
  const Part& scale = *linear.parts.Find("weight_scale");
  if (Status s = CheckScaleType(scale); !s) return s;
  if (!linear.quant.method.empty() && linear.quant.weight_type == "int") {
    return Error{fmt::format("{}: stored as F8_E4M3, but config's weight type is 'int'",
                             Where(*weight.tensor))};
  }
  Scheme scheme;
  scheme.family = MethodFamily::kCtFp8;
  scheme.bits = 8;
  scheme.fnuz = linear.quant.fnuz;
  const auto granularity = GranularityOf(linear, scale, true);
  if (!granularity) return granularity.error();
  scheme.granularity = *granularity;
  if (scheme.granularity == Granularity::kBlock) {
    if (Status s = BlockOf(linear, scale, &scheme); !s) return s;
  }
  Lister lister(linear, out);
  lister.SetMethod(scheme, scheme.block_k);
  if (Status s = lister.Add(weight, "weight", AlongN(linear.spec), AlongK(linear.spec)); !s) {
    return s;
  }
  if (Status s = AddScale(linear, scheme, scale, "scale", &lister); !s) return s;
  return AddInputs(linear, &lister);
}

Status ListDeepseekFp8(const Linear& linear, std::vector<Listed>* out) {
  const Part& weight = *linear.parts.Find("weight");
  const Part* scale = linear.parts.Find("weight_scale_inv");
  if (scale == nullptr) scale = linear.parts.Find("scale");  // DeepSeek-V4's name
  if (Status s = CheckType(weight, {DType::kF8E4M3}); !s) return s;
  if (Status s = CheckType(*scale, {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0}); !s)
    return s;
  Scheme scheme;
  scheme.family = MethodFamily::kDeepseekFp8;
  scheme.bits = 8;
  scheme.fnuz = linear.quant.fnuz;
  if (Status s = BlockOf(linear, *scale, &scheme); !s) return s;
  Lister lister(linear, out);
  lister.SetMethod(scheme, scheme.block_k);
  if (Status s = lister.Add(weight, "weight", AlongN(linear.spec), AlongK(linear.spec)); !s) {
    return s;
  }
  if (Status s = AddScale(linear, scheme, *scale, "scale", &lister); !s) return s;
  if (!linear.headers_only && scale->tensor->dtype == DType::kF8E8M0) {
    const auto blocks = [](int64_t extent, int64_t block) { return (extent + block - 1) / block; };
    if (Status s = CheckExponents(*scale, blocks(linear.spec.n, scheme.block_n),
                                  blocks(linear.spec.k, scheme.block_k));
        !s) {
      return s;
    }
  }
  return AddInputs(linear, &lister);
}

}  // namespace assay::shard
