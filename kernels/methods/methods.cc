#include "kernels/methods/methods.h"

#include "kernels/methods/bf16.h"
#include "kernels/methods/ct_int4.h"
#include "kernels/methods/gguf.h"
#include "kernels/methods/mxfp4.h"

namespace assay::kernels {
namespace {

constexpr Method kMethods[] = {
    {.name = "bf16",
     .packing = {Elements(1), Bytes(2)},
     .group = Elements(0),
     .weight_dtype = DType::kBF16,
     .scale_dtype = DType::kBF16,
     .code_min = 0,
     .code_max = 0,
     .decode = bf16::Decode},
    {.name = "ct-int4-g32",
     .packing = {Elements(8), Bytes(4)},
     .group = Elements(ct_int4::kGroup),
     .weight_dtype = DType::kI32,
     .scale_dtype = DType::kBF16,
     .code_min = -8,
     .code_max = 7,
     .decode = ct_int4::Decode},
    {.name = "deepseek-v4-mxfp4",
     .packing = {Elements(2), Bytes(1)},
     .group = Elements(mxfp4::kGroup),
     .weight_dtype = DType::kI8,
     .scale_dtype = DType::kF8E8M0,
     .code_min = -6,
     .code_max = 6,
     .decode = mxfp4::Decode},
    {.name = "gguf-q4_1",
     .packing = {Elements(gguf::kBlock), Bytes(gguf::kQ41Bytes)},
     .group = Elements(0),
     .weight_dtype = DType::kQ4_1,
     .scale_dtype = DType::kF16,
     .code_min = 0,
     .code_max = 15,
     .decode = gguf::DecodeQ41},
    {.name = "gguf-q8_0",
     .packing = {Elements(gguf::kBlock), Bytes(gguf::kQ80Bytes)},
     .group = Elements(0),
     .weight_dtype = DType::kQ8_0,
     .scale_dtype = DType::kF16,
     .code_min = -128,
     .code_max = 127,
     .decode = gguf::DecodeQ80},
};

}  // namespace

std::span<const Method> Methods() { return kMethods; }

const Method* FindMethod(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

}  // namespace assay::kernels
