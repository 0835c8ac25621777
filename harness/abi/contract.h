// What an engine promises numerically (numerics.md §1.4). Data, not code: an engine states it as
// JSON in describe(); one without source gets it written for it. contract.md documents the keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay {

// How 8-bit activations come about: over each group (of one token) s = fl32(amax / 127), a code is
// RNE(x / s) within ±127; amax 0 gives s = 0 and codes 0. `codes` says how x / s is evaluated in
// fp32: engines differ, and so do their codes at ties.
enum class CodeRule {
  kDivide,           // fl(x / s)
  kTimesReciprocal,  // fl(x · fl(1 / s))
  kTimesInverse,     // fl(x · fl(127 / amax))
};
struct ActQuantiser {
  int64_t group = 32;  // elements along k that share a scale; 0: the whole row (of this rank)
  CodeRule codes = CodeRule::kDivide;
  friend bool operator==(const ActQuantiser&, const ActQuantiser&) = default;
};

struct Contract {
  std::string name;

  // Type to which each op's output is rounded (nearest, ties to even). Looked up by op path
  // ("moe.down", "attn.q": a tap without layer and expert), then by class ("linear", "partial",
  // "norm", "rope", "act", "scores", "ctx", "router", "reduce", "residual", "embed", "logits",
  // "combine"), then "default"; if none is there, the accumulator's type.
  std::map<std::string, DType, std::less<>> rounding;
  DType RoundingOf(std::string_view op_path, std::string_view op_class) const;

  DType accumulator = DType::kF32;
  // Independent fp32 accumulators of a dot product if a kernel does not state its own; 0: none
  // declared, the depth is the number of terms.
  int lanes = 0;
  // Further roundings of a product chain (scale products, conversions).
  int extra = 0;
  // Type that a quantised weight takes before the product; F64: exact.
  DType dequant = DType::kF64;
  // Type of the cos/sin table and of softmax probabilities as they enter the next product.
  DType rope_table = DType::kF32;
  DType probs = DType::kF32;
  // Errors of functions in units in the last place of the accumulator type.
  double exp_ulp = 1, rsqrt_ulp = 1, sin_ulp = 1, sigmoid_ulp = 2, div_ulp = 0.5, tanh_ulp = 2;
  bool daz = false, ftz = false;
  std::string act = "a16";
  // The quantiser of an act id: as stated, else the default of a8g32, a8g128 and a8row. nullopt:
  // activations stay floating point, or the id is one whose quantiser is not modelled.
  std::map<std::string, CodeRule, std::less<>> quantisers;
  std::optional<ActQuantiser> QuantiserOf(std::string_view act_id) const;
  // Of amxfp8 and amxfp4: the library's variant, by name, that makes the codes and their powers of
  // two. As stated, else AITER's; nullopt for other ids.
  std::map<std::string, std::string, std::less<>> variants;
  std::optional<std::string> VariantOf(std::string_view act_id) const;
  // Whether the order and wire below are declared, and sums over ranks are modelled exactly.
  bool reduce_exact = false;
  std::string reduce_order = "sequential";
  DType reduce_wire = DType::kF32;
  std::string arithmetic_class;
  // MLA: whether decode takes the absorbed form.
  bool mla_absorbed = false;

  // No rounding anywhere: what the float64 goldens were computed with.
  static Contract Exact();
  bool is_exact() const;
};

// The variants that an act id may name, the one that holds where none is stated first; empty:
// another id. contract.md lists them.
std::span<const std::string_view> ActVariantNames(std::string_view act_id);

Result<Contract> ParseContract(std::string_view json);
std::string PrintContract(const Contract& contract);  // canonical JSON

// Rounds once to nearest, ties to even, in F64 (identity), F32, F16 or BF16; overflow to infinity,
// subnormals kept, NaN stays NaN. Another type is a programming error and aborts, here and below.
double RoundTo(double value, DType dtype);
// Unit roundoff of a floating type: 2^-53, 2^-24, 2^-11, 2^-8, and half its smallest subnormal
// (of F64 the whole one: half is no double, and bounds may only be rounded up).
double UnitRoundoff(DType dtype);
double HalfSmallestSubnormal(DType dtype);

}  // namespace assay
