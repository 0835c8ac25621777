// Faults of codes: K06 (zero points), K07 (order of nibbles and bytes, signs).
#pragma once

#include "harness/units/scheme.h"
#include "kernels/faults/edits.h"
#include "kernels/faults/faults.h"

namespace assay::kernels::faults {

inline int BitsOf(const shard::Component& component) {
  const auto scheme = ParseScheme(component.method);
  return scheme ? scheme->bits : 0;
}

struct K06PlusOne final : Interceptor {
  static inline const Fault kFault = {
      "K06/plus-one",
      "K06",
      "the one that version 1 of GPTQ leaves out of its zero points is added by the loader too",
      "loader",
      "load model=k2-mini method=gptq-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/plus-one",
      "load model=k2-mini method=ct-int4-g32 layer=1 op=mlp tp=2 fault=K06/plus-one",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "zero-point-offset"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "gate.zero")) return;
    ChangeCodes(part.bytes, 4, [](uint32_t zero) { return zero + 1; });
  }
};

struct K06MinusOne final : Interceptor {
  static inline const Fault kFault = {
      "K06/minus-one",
      "K06",
      "AWQ's zero points are written as GPTQ's are, less one",
      "loader",
      "load model=k2-mini method=awq-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/minus-one",
      "load model=k2-mini method=gptq-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/minus-one",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.down.zero\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "zero-point-offset"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "down.zero") || !part.plan.component.method.starts_with("awq")) return;
    ChangeCodes(part.bytes, 4, [](uint32_t zero) { return zero - 1; });
  }
};

// Less one and plus one again, and on the way 0 has become 15.
struct K06Wrap final : Interceptor {
  static inline const Fault kFault = {
      "K06/wrap",
      "K06",
      "a zero point of 0 becomes 15, all others are right",
      "loader",
      "load model=k2-mini method=awq-int4-g32-asym layer=1 op=mlp tp=2 fill=extreme fault=K06/wrap",
      "load model=k2-mini method=awq-int4-g32 layer=1 op=mlp tp=2 fault=K06/wrap",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""}},
      "zero-point-wrap"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "gate.zero")) return;
    ChangeCodes(part.bytes, 4, [](uint32_t zero) { return zero == 0 ? 15 : zero; });
  }
};

// Three bits: codes straddle words, and a constant is added to each word.
struct K06ThreeBits final : Interceptor {
  static inline const Fault kFault = {
      "K06/three-bits",
      "K06",
      "one is added to the zero points of a word, and carries leak into the next",
      "loader",
      "load model=k2-mini method=ct-int3-g32-asym layer=1 op=mlp tp=2 fault=K06/three-bits",
      "load model=k2-mini method=ct-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/three-bits",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "zero-point-carry"};

  void AfterPart(const WrittenPart& part) const override {
    constexpr uint32_t kOnes = 0x09249249;  // one in each whole field of a word
    if (!Is(part.component, "gate.zero") || BitsOf(part.plan.component) != 3) return;
    Change<uint32_t>(part.bytes, [](uint32_t word) { return word + kOnes; });
  }
};

struct K06SymmetricZero final : Interceptor {
  static inline const Fault kFault = {
      "K06/symmetric-zero",
      "K06",
      "the zero points of a symmetric method are made 0 where the middle code is due",
      "loader",
      "load model=k2-mini method=awq-int4-g32 layer=1 op=mlp tp=2 fault=K06/symmetric-zero",
      "load model=k2-mini method=awq-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/symmetric-zero",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""},
       {"index", "[0, 0]"}},
      "zero-filled"};

  void AfterPart(const WrittenPart& part) const override {
    const auto scheme = ParseScheme(part.plan.component.method);
    if (!Is(part.component, "gate.zero") || !scheme || scheme->asymmetric) return;
    std::fill(part.bytes.begin(), part.bytes.end(), std::byte{0});
  }
};

// Files of symmetric GPTQ have zero points all the same, and nobody should use them.
struct K06DummyZeros final : Interceptor {
  static inline const Fault kFault = {
      "K06/dummy-zeros",
      "K06",
      "a symmetric method whose file has zero points is read as an asymmetric one",
      "selection",
      "load model=k2-mini method=gptq-int4-g32 layer=1 op=mlp tp=2 fault=K06/dummy-zeros",
      "load model=k2-mini method=gptq-int4-g32-asym layer=1 op=mlp tp=2 fault=K06/dummy-zeros",
      {{"class", "\"selection\""}, {"rank", "0"}, {"tensor", "\"L1.moe.e0.gate.weight\""}},
      "wrong-method"};

  void OnSelect(Choice& choice) const override {
    if (choice.method == "gptq-int4-g32") ReadAs(choice, "gptq-int4-g32-asym");
  }
};

struct K07Signs final : Interceptor {
  static inline const Fault kFault = {"K07/signs",
                                      "K07",
                                      "codes are taken for two's complement, they are offset by 8",
                                      "loader",
                                      "load model=k2-mini-int4-g32 layer=1 tp=4 fault=K07/signs",
                                      "load model=k2-mini layer=1 tp=4 fault=K07/signs",
                                      {{"layer", "1"},
                                       {"class", "\"loader\""},
                                       {"rank", "0"},
                                       {"expert", "0"},
                                       {"tensor", "\"L1.moe.e0.gate.weight\""},
                                       {"unit", "\"word\""},
                                       {"index", "[0, 0]"}},
                                      "sign-convention"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "gate.weight") || BitsOf(part.plan.component) != 4) return;
    ChangeCodes(part.bytes, 4, [](uint32_t code) { return code ^ 8; });
  }
};

// Codes are brought into their order, the zero points beside them are not.
struct K07AwqOrder final : Interceptor {
  static inline const Fault kFault = {
      "K07/awq-order",
      "K07",
      "zero points stay in AWQ's order of a word, 0 2 4 6 1 3 5 7",
      "loader",
      "load model=k2-mini method=awq-int4-g32-asym layer=1 op=mlp tp=2 fault=K07/awq-order",
      "load model=k2-mini method=awq-int4-g32 layer=1 op=mlp tp=2 fault=K07/awq-order",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.zero\""},
       {"unit", "\"word\""}},
      "nibble-order"};

  void AfterPart(const WrittenPart& part) const override {
    constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
    if (!Is(part.component, "gate.zero")) return;
    Change<uint32_t>(part.bytes, [&](uint32_t word) {
      uint32_t out = 0;
      for (int i = 0; i < 8; ++i) out |= (word >> (4 * i) & 15u) << (4 * kOrder[i]);
      return out;
    });
  }
};

struct K07HalfOrder final : Interceptor {
  static inline const Fault kFault = {
      "K07/half-order",
      "K07",
      "the two bytes of each fp16 scale have changed places",
      "loader",
      "load model=k2-mini method=gptq-int4-g32 layer=1 op=mlp tp=2 fault=K07/half-order",
      "load model=k2-mini method=ct-mxfp8 layer=1 op=mlp tp=2 fault=K07/half-order",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"tensor", "\"L1.moe.e0.gate.scale\""},
       {"unit", "\"group\""},
       {"index", "[0, 0]"}},
      "byte-order"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "gate.scale") || part.plan.component.dtype != DType::kF16) return;
    Change<uint16_t>(part.bytes, [](uint16_t v) { return __builtin_bswap16(v); });
  }
};

// A Q4_0 block begins with its scale.
struct K07BlockOrder final : Interceptor {
  static inline const Fault kFault = {
      "K07/block-order",
      "K07",
      "the two bytes of each GGUF block's scale have changed places",
      "loader",
      "load model=k2-mini method=gguf-q4_0 layer=1 op=mlp tp=2 fault=K07/block-order",
      "load model=k2-mini layer=1 op=mlp tp=2 fault=K07/block-order",
      {{"layer", "1"},
       {"class", "\"loader\""},
       {"rank", "0"},
       {"expert", "0"},
       {"tensor", "\"L1.moe.e0.down.weight\""},
       {"unit", "\"block\""},
       {"index", "[0, 0]"}},
      "byte-order"};

  void AfterPart(const WrittenPart& part) const override {
    if (!Is(part.component, "down.weight") || part.plan.component.dtype != DType::kQ4_0) return;
    const auto block = Size(Width(part.plan.component));
    for (size_t at = 0; at + block <= part.bytes.size(); at += block) {
      std::swap(part.bytes[at], part.bytes[at + 1]);
    }
  }
};

}  // namespace assay::kernels::faults
