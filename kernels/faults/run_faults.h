// Faults of kernels and collectives. One struct a fault.
#pragma once

#include <string_view>

#include "kernels/faults/faults.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels::faults {

// Of one op, the experts' down, so that the first wrong op is the same in every cell. Zeros at the
// end of x have the effect of a loop that stops early.
struct K21Tail8 final : Interceptor {
  static constexpr int64_t kLost = 8;
  static inline const Fault kFault = {
      "K21/tail8",
      "K21",
      "the avx2 kernel of the experts' down drops the last 8 elements of K",
      "kernel",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K21/tail8",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=scalar tokens=5 fault=K21/tail8",
      {{"layer", "1"}, {"op", "\"down\""}, {"class", "\"kernel\""}, {"rank", "0"}},
      "tail-dropped"};

  void BeforeLinear(LinearCall& call) const override {
    const std::string_view tap = call.taps.front();
    const bool experts_down =
        tap.find(".moe.e") != std::string_view::npos && tap.ends_with(".down");
    if (!experts_down || call.kernel->tier != Tier::kAvx2) return;
    call.OwnActivations();
    const int64_t k = call.weight.k, groups = k / 32;
    for (int64_t row = 0; row < call.m; ++row) {
      for (int64_t i = k > kLost ? k - kLost : 0; i < k; ++i) {
        const auto at = static_cast<size_t>(row * k + i);
        if (call.x.bf16 != nullptr) call.bf16[at] = 0;
        if (call.x.codes == nullptr) continue;
        call.sums[static_cast<size_t>(row * groups + i / 32)] -= call.codes[at];
        call.codes[at] = 0;
      }
    }
  }
};

// The sum over ranks leaves rank 1 out.
struct K41Missing final : Interceptor {
  static inline const Fault kFault = {
      "K41/missing",
      "K41",
      "rank 1's partial is missing in the sum of moe.out",
      "collective",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K41/missing",
      "moe model=k2-mini-int4-g32 layer=1 tp=1 tier=avx2 tokens=5 fault=K41/missing",
      {{"layer", "1"},
       {"op", "\"out\""},
       {"tap", "\"L1.moe.out\""},
       {"class", "\"collective\""},
       {"rank", "1"}},
      "missing-rank"};

  void BeforeReduce(ReduceCall& call) const override {
    if (!call.tap.ends_with(".moe.out") || call.parts.size() < 2) return;
    call.replaced.assign(static_cast<size_t>(call.count), 0.0f);
    call.parts[1] = call.replaced.data();
  }
};

}  // namespace assay::kernels::faults
