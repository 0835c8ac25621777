// The table, and what all rows share: groups, their sizes, refusals.
#include "reference/quantisers/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/abi/contract.h"
#include "reference/methods/method.h"
#include "reference/quantisers/ways.h"

namespace assay::reference {
namespace {

using enum ActElement;
using quantisers::Exponent;
using quantisers::MxAiter;
using quantisers::MxTorchao;
using quantisers::MxTriton;
namespace q = quantisers;

constexpr std::array<ActVariant, 32> kVariants = {{
    {"int8-token-vllm-cpu", "", kInt8, 0, q::Int8Vllm},
    {"int8-token-asym-vllm-cpu", "", kInt8, 0, q::Int8VllmAsymmetric},
    {"int8-token-aiter", "", kInt8, 0, q::Int8Aiter},
    {"int8-token-compressed-tensors", "", kInt8, 0, q::Int8CompressedTensors},
    {"q8_0-gguf", "", kInt8, 32, q::Q8Gguf},
    {"fp8-token-vllm", "", kE4M3, 0, q::Fp8VllmToken},
    {"fp8-token-aiter", "", kE4M3, 0, q::Fp8Aiter},
    {"fp8-g128-vllm", "", kE4M3, 128, q::Fp8VllmGroup},
    {"fp8-g128-ue8m0-vllm", "", kE4M3, 128, q::Fp8VllmPowers},
    {"fp8-g128-aiter", "", kE4M3, 128, q::Fp8Aiter},
    {"mxfp4-floor-aiter", "amxfp4", kE2M1, 32, MxAiter<kE2M1, Exponent::kFloor>},
    {"mxfp4-ceil-aiter", "amxfp4", kE2M1, 32, MxAiter<kE2M1, Exponent::kCeil>},
    {"mxfp4-even-aiter", "amxfp4", kE2M1, 32, MxAiter<kE2M1, Exponent::kEven>},
    {"mxfp4-rceil-aiter", "amxfp4", kE2M1, 32, MxAiter<kE2M1, Exponent::kQuotientUp>},
    {"mxfp4-floor-torchao", "amxfp4", kE2M1, 32, MxTorchao<kE2M1, Exponent::kFloor>},
    {"mxfp4-ceil-torchao", "amxfp4", kE2M1, 32, MxTorchao<kE2M1, Exponent::kCeil>},
    {"mxfp4-even-torchao", "amxfp4", kE2M1, 32, MxTorchao<kE2M1, Exponent::kEven>},
    {"mxfp4-rceil-torchao", "amxfp4", kE2M1, 32, MxTorchao<kE2M1, Exponent::kQuotientUp>},
    {"mxfp4-round-up-triton", "amxfp4", kE2M1, 32, MxTriton<kE2M1, Exponent::kQuotientUp>},
    {"mxfp4-round-down-triton", "amxfp4", kE2M1, 32, MxTriton<kE2M1, Exponent::kQuotientDown>},
    {"mxfp4-gguf", "amxfp4", kE2M1, 32, q::Mxfp4Gguf},
    {"mxfp8-floor-torchao", "amxfp8", kE4M3, 32, MxTorchao<kE4M3, Exponent::kFloor>},
    {"mxfp8-ceil-torchao", "amxfp8", kE4M3, 32, MxTorchao<kE4M3, Exponent::kCeil>},
    {"mxfp8-even-torchao", "amxfp8", kE4M3, 32, MxTorchao<kE4M3, Exponent::kEven>},
    {"mxfp8-rceil-torchao", "amxfp8", kE4M3, 32, MxTorchao<kE4M3, Exponent::kQuotientUp>},
    {"mxfp8-rceil-aiter", "amxfp8", kE4M3, 32, MxAiter<kE4M3, Exponent::kQuotientUp>},
    {"mxfp8-rceil-vllm", "amxfp8", kE4M3, 32, q::Mxfp8Vllm},
    {"mxfp8-floor-no-emax-sglang-kt", "amxfp8", kE4M3, 32, q::Mxfp8SglangKt},
    {"mxfp8-round-up-triton", "amxfp8", kE4M3, 32, MxTriton<kE4M3, Exponent::kQuotientUp>},
    {"mxfp8-round-down-triton", "amxfp8", kE4M3, 32, MxTriton<kE4M3, Exponent::kQuotientDown>},
    {"nvfp4-torchao", "", kE2M1, 16, q::Nvfp4Torchao, q::GlobalTorchao, true},
    {"nvfp4-vllm", "", kE2M1, 16, q::Nvfp4Vllm, q::GlobalVllm, false},
}};

// Sizes of a run of values.
ActGroup GroupOf(std::span<const double> x, DType type, double global) {
  ActGroup group = {x, type, 0, x[0], x[0], global};
  for (const double value : x) {
    group.amax = std::max(group.amax, std::fabs(value));
    group.least = std::min(group.least, value);
    group.largest = std::max(group.largest, value);
  }
  return group;
}

Status Check(const Tensor& x, DType type, const ActVariant& variant, int64_t group) {
  if (type != DType::kBF16 && type != DType::kF32) {
    return Error{
        fmt::format("{}: activations are BF16 or F32, not {}", variant.name, NameOf(type))};
  }
  if (group <= 0 || x.columns() % group != 0) {
    return Error{fmt::format("{}: activations of {} elements are no whole number of groups of {}",
                             variant.name, x.columns(), group)};
  }
  if (static_cast<int64_t>(x.data.size()) != x.rows() * x.columns()) {
    return Error{fmt::format("{}: {} activations are not {}", variant.name, x.data.size(),
                             PrintShape(x.shape))};
  }
  for (size_t i = 0; i < x.data.size(); ++i) {
    if (!std::isfinite(x.data[i])) {
      return Error{fmt::format("{}: activation {} is {}; what becomes of it is not known",
                               variant.name, i, x.data[i]),
                   ErrorKind::kUnsupported};
    }
    if (RoundTo(x.data[i], type) != x.data[i]) {
      return Error{fmt::format("{}: activation {} is {}, which {} does not have", variant.name, i,
                               x.data[i], NameOf(type))};
    }
  }
  return Ok();
}

}  // namespace

std::span<const ActVariant> ActVariants() { return kVariants; }

const ActVariant* FindActVariant(std::string_view name) {
  for (const ActVariant& variant : kVariants) {
    if (variant.name == name) return &variant;
  }
  return nullptr;
}

Result<MadeActivation> QuantiseAs(const Tensor& x, DType type, const ActVariant& variant) {
  const int64_t size = variant.group > 0 ? variant.group : x.columns();
  if (const Status status = Check(x, type, variant, size); !status) return status.error();
  MadeActivation made;
  const std::span<const double> all(x.data);
  if (variant.global != nullptr && !all.empty()) {
    made.global = variant.global(GroupOf(all, type, 1).amax);
    if (made.global == 0 || !std::isfinite(made.global)) {
      return Error{fmt::format("{}: the scale of the whole tensor is {}; what becomes of it is not "
                               "known",
                               variant.name, made.global),
                   ErrorKind::kUnsupported};
    }
  }
  made.codes.resize(x.data.size());
  made.values = x;
  made.scales.shape = {x.rows(), x.columns() / size};
  const auto n = static_cast<size_t>(size);
  for (size_t at = 0; at < all.size(); at += n) {
    ActCoded coded = {std::span(made.codes).subspan(at, n)};
    variant.quantise(GroupOf(all.subspan(at, n), type, made.global), &coded);
    made.scales.data.push_back(coded.scale);
    made.zeros.push_back(coded.zero);
    for (size_t i = at; i < at + n; ++i) {
      const double code = ValueOf(made.codes[i], variant.element) - coded.zero;
      const double value = code * coded.scale;
      made.values.data[i] = variant.global_multiplies ? value * made.global : value / made.global;
    }
  }
  return made;
}

}  // namespace assay::reference
