#include <algorithm>

#include "kernels/registry.h"

namespace assay::kernels {

std::string_view NameOf(Tier tier) {
  switch (tier) {
    case Tier::kScalar:
      return "scalar";
    case Tier::kAvx2:
      return "avx2";
    case Tier::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::string_view NameOf(How how) {
  return how == How::kHardware ? "hardware" : "emulated (portable intrinsics)";
}

std::string_view NameOf(OpKind op) {
  switch (op) {
    case OpKind::kLinear:
      return "linear";
    case OpKind::kRmsNorm:
      return "rms_norm";
    case OpKind::kRope:
      return "rope";
    case OpKind::kScores:
      return "scores";
    case OpKind::kContext:
      return "context";
    case OpKind::kSwiGlu:
      return "swiglu";
    case OpKind::kRouter:
      return "router";
    case OpKind::kAdd:
      return "add";
    case OpKind::kCombine:
      return "combine";
  }
  return "unknown";
}

bool Takes(const LinearKernel& kernel, std::string_view method) {
  return kernel.method == method ||
         std::find(kernel.also.begin(), kernel.also.end(), method) != kernel.also.end();
}

}  // namespace assay::kernels
