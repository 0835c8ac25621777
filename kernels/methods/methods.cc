#include "kernels/methods/methods.h"

#include "kernels/methods/bf16.h"
#include "kernels/methods/ct_int4.h"

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
