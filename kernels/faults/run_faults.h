// Faults of kernels and collectives. One struct a fault.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/faults/faults.h"
#include "kernels/faults/interceptor.h"
#include "kernels/faults/where.h"

namespace assay::kernels::faults {

// The reduces behind them.
inline bool IsMlpSum(std::string_view tap) {
  return tap.ends_with(".moe.out") || (tap.starts_with(kDenseMlp) && tap.ends_with(".out"));
}

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
    if (!IsMlp(tap, ".down") || call.kernel->tier != Tier::kAvx2) return;
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

// The last token of each full tile of 4 is given the input of the one before it.
struct K23LastRow final : Interceptor {
  static constexpr int64_t kTile = 4;
  static inline const Fault kFault = {
      "K23/lastrow",
      "K23",
      "the last token row of a full tile of 4 is computed from the row before it",
      "kernel",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K23/lastrow",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=1 fault=K23/lastrow",
      {{"layer", "1"},
       {"op", "\"down\""},
       {"tap", "\"L1.shared.down\""},
       {"class", "\"kernel\""},
       {"rank", "0"}},
      "token-row"};

  void BeforeLinear(LinearCall& call) const override {
    const std::string_view tap = call.taps.front();
    const bool here = tap.ends_with("shared.down") || (IsMlp(tap, ".down") && !IsExpert(tap, ""));
    if (!here || call.m < kTile) return;
    call.OwnActivations();
    const int64_t k = call.weight.k, groups = k / 32;
    const auto repeat = [](auto* values, int64_t row, int64_t width) {
      if (values->empty()) return;
      const auto from = values->begin() + (row - 1) * width;
      std::copy(from, from + width, from + width);
    };
    for (int64_t row = kTile - 1; row < call.m; row += kTile) {
      repeat(&call.bf16, row, k);
      repeat(&call.codes, row, k);
      repeat(&call.scales, row, groups);
      repeat(&call.sums, row, groups);
    }
  }
};

// One op's results are cut off to bf16 where they should go to the nearest.
struct K29Truncate final : Interceptor {
  static inline const Fault kFault = {
      "K29/truncate",
      "K29",
      "the experts' activation is rounded to bf16 by cutting it off",
      "kernel",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K29/truncate",
      "attn model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K29/truncate",
      {{"layer", "1"}, {"op", "\"act\""}, {"class", "\"kernel\""}, {"rank", "0"}},
      "truncated-rounding"};

  void BeforeRound(RoundCall& call) const override {
    if (!IsMlp(call.tap, ".act") || call.type != DType::kBF16) return;
    for (float& value : call.values) {
      if (std::isnan(value)) continue;
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000u);
    }
    call.done = true;
  }
};

// The clamp of the activation's inputs is left out.
struct K40None final : Interceptor {
  static inline const Fault kFault = {
      "K40/none",
      "K40",
      "the experts' activation does not clamp its inputs",
      "kernel",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 limit=0.5 fault=K40/none",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 limit=inf fault=K40/none",
      {{"layer", "1"}, {"op", "\"act\""}, {"class", "\"kernel\""}, {"rank", "0"}},
      "clamp-missing"};

  void BeforeAct(ActCall& call) const override {
    if (IsMlp(call.tap, ".act")) call.limit = std::numeric_limits<float>::infinity();
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
    if (!IsMlpSum(call.tap) || call.parts.size() < 2) return;
    call.replaced.assign(static_cast<size_t>(call.count), 0.0f);
    call.parts[1] = call.replaced.data();
  }
};

// Partial sums travel as bf16, which nobody asked for and the engine does not say.
struct K43Bf16 final : Interceptor {
  static inline const Fault kFault = {
      "K43/bf16",
      "K43",
      "the partials of moe.out are rounded to bf16 on their way",
      "collective",
      "moe model=k2-mini-int4-g32 layer=1 tp=4 tier=avx2 tokens=5 fault=K43/bf16",
      "moe model=k2-mini-int4-g32 layer=1 tp=1 tier=avx2 tokens=5 fault=K43/bf16",
      {{"layer", "1"}, {"op", "\"out\""}, {"tap", "\"L1.moe.out\""}, {"class", "\"collective\""}},
      "wire-rounded"};

  void BeforeReduce(ReduceCall& call) const override {
    if (IsMlpSum(call.tap)) call.reduction.wire = Wire::kBf16;
  }
};

}  // namespace assay::kernels::faults
