// Activation quantisers by name: what eight libraries make of the same activations, one row each.
// A contract names one (`mxfp4-rceil-aiter`). Written from the libraries' sources, step by step in
// the precision that they use; every row equals its library's own codes and scales bit for bit
// (variants_test).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"
#include "reference/tensor.h"

namespace assay::reference {

enum class ActElement { kInt8, kE4M3, kE2M1 };

// What one group is quantised from, and into.
struct ActGroup {
  std::span<const double> x;  // as its type has it
  DType type = DType::kF32;   // BF16 or F32
  double amax = 0, least = 0, largest = 0;
  double global = 1;  // of the whole tensor; 1 where a variant has none
};
struct ActCoded {
  std::span<uint8_t> codes;  // a byte each: int8, E4M3, E2M1 in the low four bits
  double scale = 0;
  int32_t zero = 0;
};

struct ActVariant {
  std::string_view name;
  std::string_view act;  // id of contract.md; empty: none there stands for it
  ActElement element = ActElement::kInt8;
  int64_t group = 0;  // elements along k that share a scale; 0: the row
  void (*quantise)(const ActGroup& group, ActCoded* coded) = nullptr;
  // NVFP4: the scale of the whole tensor, of its largest size.
  double (*global)(double amax) = nullptr;
  // Whether `global` multiplies values (or divides them).
  bool global_multiplies = true;
};
std::span<const ActVariant> ActVariants();
const ActVariant* FindActVariant(std::string_view name);  // nullptr: none

struct MadeActivation {
  std::vector<uint8_t> codes;  // [rows, k], as ActCoded
  Tensor scales;               // [rows, k/group], by value
  std::vector<int32_t> zeros;  // one a scale
  double global = 1;
  Tensor values;  // [rows, k]: what the codes stand for
};
// `x` [rows, k] holds values of `type`. Errors kBadInput: another type than BF16 or F32, a value
// that the type does not have, k no multiple of the group. kUnsupported: a value that is not finite
// (nobody's vectors say what becomes of it).
Result<MadeActivation> QuantiseAs(const Tensor& x, DType type, const ActVariant& variant);

// What a code of the element stands for, without zero point and scale.
double ValueOf(uint8_t code, ActElement element);

}  // namespace assay::reference
