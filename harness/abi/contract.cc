#include "harness/abi/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace assay {
namespace {

// A binary floating format: bits of the significand, the hidden one included, and the exponents
// of its smallest and largest normal values.
struct Format {
  int precision;
  int min_exponent;
  int max_exponent;
};

constexpr Format kHalf{11, -14, 15};
constexpr Format kBrain{8, -126, 127};

// 2^exponent, for exponents whose power is a normal double.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// From the double's own bits, so that a value is rounded once: going through float first turns
// values just above a midpoint into ties.
double RoundToFormat(double value, Format format) {
  constexpr int kFractionBits = 52;
  const auto bits = std::bit_cast<uint64_t>(value);
  const int biased = static_cast<int>((bits >> kFractionBits) & 0x7ff);
  if (biased == 0x7ff) return value;                  // infinities and NaN
  if (biased == 0) return std::copysign(0.0, value);  // far below every format here
  const int exponent = biased - 1023;
  int dropped = kFractionBits + 1 - format.precision;
  if (exponent < format.min_exponent) dropped += format.min_exponent - exponent;
  // Less than half of the smallest subnormal.
  if (dropped > kFractionBits + 1) return std::copysign(0.0, value);

  const uint64_t fraction = bits & ((uint64_t{1} << kFractionBits) - 1);
  const uint64_t significand = fraction | (uint64_t{1} << kFractionBits);
  uint64_t kept = significand >> dropped;
  const uint64_t rest = significand & ((uint64_t{1} << dropped) - 1);
  const uint64_t half = uint64_t{1} << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;

  double rounded = static_cast<double>(kept) * PowerOfTwo(exponent - kFractionBits + dropped);
  if (rounded >= PowerOfTwo(format.max_exponent + 1)) {
    rounded = std::numeric_limits<double>::infinity();
  }
  return std::copysign(rounded, value);
}

[[noreturn]] void NotAFloatingType(std::string_view function, DType dtype) {
  fmt::print(stderr, "{}: {} is none of F64, F32, F16, BF16\n", function, NameOf(dtype));
  std::abort();
}

}  // namespace

DType Contract::RoundingOf(std::string_view op_path, std::string_view op_class) const {
  for (std::string_view key : {op_path, op_class, std::string_view("default")}) {
    const auto found = rounding.find(key);
    if (found != rounding.end()) return found->second;
  }
  return accumulator;
}

Contract Contract::Exact() {
  Contract exact;
  exact.name = "exact";
  exact.rounding = {{"default", DType::kF64}};
  exact.accumulator = DType::kF64;
  exact.dequant = DType::kF64;
  exact.rope_table = DType::kF64;
  exact.probs = DType::kF64;
  exact.reduce_wire = DType::kF64;
  return exact;
}

bool Contract::is_exact() const {
  const bool types = accumulator == DType::kF64 && dequant == DType::kF64 &&
                     rope_table == DType::kF64 && probs == DType::kF64 &&
                     reduce_wire == DType::kF64;
  const bool rounded = std::any_of(rounding.begin(), rounding.end(),
                                   [](const auto& row) { return row.second != DType::kF64; });
  // Both of these leave activations as the tap before holds them; every other one quantises.
  const bool plain = act == "a16" || act == "a32";
  return types && !rounded && plain && !daz && !ftz;
}

double RoundTo(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return value;
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kF16:
      return RoundToFormat(value, kHalf);
    case DType::kBF16:
      return RoundToFormat(value, kBrain);
    default:
      NotAFloatingType("RoundTo", dtype);
  }
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return PowerOfTwo(-53);
    case DType::kF32:
      return PowerOfTwo(-24);
    case DType::kF16:
      return PowerOfTwo(-11);
    case DType::kBF16:
      return PowerOfTwo(-8);
    default:
      NotAFloatingType("UnitRoundoff", dtype);
  }
}

double HalfSmallestSubnormal(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      // Half of it is no double; a bound may only be rounded up.
      return std::numeric_limits<double>::denorm_min();
    case DType::kF32:
      return PowerOfTwo(-150);
    case DType::kF16:
      return PowerOfTwo(-25);
    case DType::kBF16:
      return PowerOfTwo(-134);
    default:
      NotAFloatingType("HalfSmallestSubnormal", dtype);
  }
}

std::optional<ActQuantiser> Contract::QuantiserOf(std::string_view act_id) const {
  ActQuantiser quantiser;
  if (act_id == "a8g32") {
    quantiser.group = 32;
  } else if (act_id == "a8g128") {
    quantiser.group = 128;
  } else if (act_id == "a8row") {
    quantiser.group = 0;
  } else {
    return std::nullopt;
  }
  const auto stated = quantisers.find(act_id);
  if (stated != quantisers.end()) quantiser.codes = stated->second;
  return quantiser;
}

namespace {

constexpr std::string_view kMxfp4[] = {
    "mxfp4-rceil-aiter",   "mxfp4-floor-aiter",     "mxfp4-ceil-aiter",       "mxfp4-even-aiter",
    "mxfp4-floor-torchao", "mxfp4-ceil-torchao",    "mxfp4-even-torchao",     "mxfp4-rceil-torchao",
    "mxfp4-gguf",          "mxfp4-round-up-triton", "mxfp4-round-down-triton"};
constexpr std::string_view kMxfp8[] = {
    "mxfp8-rceil-aiter",   "mxfp8-rceil-vllm",      "mxfp8-floor-no-emax-sglang-kt",
    "mxfp8-floor-torchao", "mxfp8-ceil-torchao",    "mxfp8-even-torchao",
    "mxfp8-rceil-torchao", "mxfp8-round-up-triton", "mxfp8-round-down-triton"};

}  // namespace

std::span<const std::string_view> ActVariantNames(std::string_view act_id) {
  if (act_id == "amxfp4") return kMxfp4;
  if (act_id == "amxfp8") return kMxfp8;
  return {};
}

std::optional<std::string> Contract::VariantOf(std::string_view act_id) const {
  const auto stated = variants.find(act_id);
  if (stated != variants.end()) return stated->second;
  const auto names = ActVariantNames(act_id);
  if (names.empty()) return std::nullopt;
  return std::string(names.front());
}

}  // namespace assay
