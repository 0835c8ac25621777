// Faults of values that a loader converts: K15 (scales to powers of two), K16 (extreme codes).
#pragma once

#include <cmath>

#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

// Kernels that take powers of two get the exponent alone.
struct K15Floor final : Interceptor {
  static inline const Fault kFault = {
      "K15/floor",
      "K15",
      "scales are cut off to powers of two, and their codes are not made again",
      "loader",
      "load model=llama-mini method=deepseek-fp8-block32 layer=0 op=mlp tp=3 fault=K15/floor",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K15/floor",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.mlp.gate.scale\""},
       {"unit", "\"block\""}},
      "scale-converted"};

  void AfterPart(const WrittenPart& part) const override {
    if (!part.component.ends_with(".scale")) return;
    ChangeFloats(part.plan.component.dtype, part.bytes, [](float scale) {
      return scale > 0 ? std::ldexp(1.0f, std::ilogb(scale)) : scale;
    });
  }
};

struct K15Nearest final : Interceptor {
  static inline const Fault kFault = {
      "K15/nearest",
      "K15",
      "scales are rounded to the nearest power of two",
      "loader",
      "load model=k2-mini-int4-g32 layer=1 tp=2 fault=K15/nearest",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K15/nearest",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""}},
      "scale-converted"};

  void AfterPart(const WrittenPart& part) const override {
    if (!part.component.ends_with(".scale")) return;
    ChangeFloats(part.plan.component.dtype, part.bytes, [](float scale) {
      return scale > 0 ? std::exp2(std::round(std::log2(scale))) : scale;
    });
  }
};

// 0x80 is NaN in fnuz and −0 elsewhere: conversions write 0 over it.
// Marlin's scales of NVFP4 have no subnormal numbers: what lies below 2^−6 is nothing there.
struct K15Underflow final : Interceptor {
  static inline const Fault kFault = {
      "K15/underflow",
      "K15",
      "scales of NVFP4 below the least normal number become 0",
      "loader",
      "load model=k2-mini method=ct-nvfp4 layer=1 op=mlp tp=2 fill=extreme fault=K15/underflow",
      "load model=k2-mini method=ct-nvfp4 layer=1 op=mlp tp=2 fault=K15/underflow",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""}},
      "small-scales-lost"};

  void AfterPart(const WrittenPart& part) const override {
    if (!part.component.ends_with(".scale")) return;
    if (part.plan.component.dtype != DType::kF8E4M3) return;
    constexpr std::byte kExponent{0x78};
    for (std::byte& code : part.bytes) {
      if ((code & kExponent) == std::byte{0}) code = std::byte{0};
    }
  }
};

// 0x80 is NaN in fnuz and −0 elsewhere: conversions write 0 over it.
// Marlin's scales of NVFP4 have no subnormal numbers: what lies below 2^−6 is nothing there.
struct K16FnuzTwice final : Interceptor {
  static inline const Fault kFault = {
      "K16/fnuz-twice",
      "K16",
      "scales of codes that are fnuz in the file are doubled as if those had been converted",
      "loader",
      "load model=llama-mini method=ct-fp8-channel-fnuz layer=0 tp=3 fault=K16/fnuz-twice",
      "load model=llama-mini method=ct-fp8-channel layer=0 tp=3 fault=K16/fnuz-twice",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L0.attn.q.scale\""},
       {"index", "[0, 0]"}},
      "fnuz-factor"};

  void AfterPart(const WrittenPart& part) const override {
    if (!part.component.ends_with(".scale")) return;
    if (part.plan.component.method.find("fnuz") == std::string::npos) return;
    ChangeFloats(part.plan.component.dtype, part.bytes, [](float scale) { return 2 * scale; });
  }
};

struct K16NegativeZero final : Interceptor {
  static inline const Fault kFault = {
      "K16/negative-zero",
      "K16",
      "FP8 codes 0x80 are made 0",
      "loader",
      "load model=qwen3moe-mini-fp8 layer=0 op=mlp tp=2 fault=K16/negative-zero",
      "load model=qwen3moe-mini layer=0 op=mlp tp=2 fault=K16/negative-zero",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"element\""},
       {"index", "[107, 41]"}},
      "extreme-codes"};

  void AfterPart(const WrittenPart& part) const override {
    if (part.plan.component.dtype != DType::kF8E4M3) return;
    for (std::byte& code : part.bytes) {
      if (code == std::byte{0x80}) code = std::byte{0};
    }
  }
};

// The largest fnuz number is 240, and codes that stand for more are made that.
struct K16Clamped final : Interceptor {
  static inline const Fault kFault = {
      "K16/clamped",
      "K16",
      "FP8 codes beyond 240 are made 240, their scales stay",
      "loader",
      "load model=qwen3moe-mini-fp8 layer=0 op=mlp tp=2 fault=K16/clamped",
      "load model=qwen3moe-mini layer=0 op=mlp tp=2 fault=K16/clamped",
      {{"layer", "0"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L0.moe.e0.gate.weight\""},
       {"unit", "\"element\""}},
      "codes-clamped"};

  void AfterPart(const WrittenPart& part) const override {
    if (part.plan.component.dtype != DType::kF8E4M3) return;
    constexpr std::byte kMagnitude{0x7F}, kSign{0x80}, kMost{0x77};
    for (std::byte& code : part.bytes) {
      if ((code & kMagnitude) > kMost) code = (code & kSign) | kMost;
    }
  }
};

// 2^−127 is no normal number of fp32, and a converter makes it the least that is.
struct K16LeastExponent final : Interceptor {
  static inline const Fault kFault = {
      "K16/least-exponent",
      "K16",
      "E8M0 scales of byte 0 are made byte 1",
      "loader",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fill=extreme "
      "fault=K16/least-exponent",
      "load model=k2-mini method=ct-mxfp4 layer=1 op=mlp tp=2 fault=K16/least-exponent",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "1"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""},
       {"index", "[139, 1]"}},
      "extreme-codes"};

  void AfterPart(const WrittenPart& part) const override {
    if (!part.component.ends_with(".scale") || Width(part.plan.component) != 1) return;
    for (std::byte& code : part.bytes) {
      if (code == std::byte{0}) code = std::byte{1};
    }
  }
};

}  // namespace assay::kernels::faults
