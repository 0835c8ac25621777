#include "kernels/methods/numbers.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

namespace assay::kernels {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
T Load(const std::byte* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

template <class T>
void Store(T value, std::byte* values, int64_t i) {
  std::memcpy(values + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

// In steps of the value's binade, the subnormals' being the least: a carry into the next binade is
// the next code.
int BinadeOf(double size, const SmallFloat& type) {
  return std::max(std::ilogb(size), 1 - type.bias);
}

uint32_t CodeOfSteps(double steps, int binade, const SmallFloat& type) {
  return static_cast<uint32_t>(static_cast<int64_t>(steps) +
                               (int64_t{binade + type.bias - 1} << type.mantissa));
}

double FromHalf(uint16_t bits, const SmallFloat& type) {
  const uint32_t rest = bits & 0x7FFF, top = 0x7FFFu >> type.mantissa;
  double size;
  if (rest >> type.mantissa == top) {
    size =
        (rest & ((1u << type.mantissa) - 1)) != 0 ? kNan : std::numeric_limits<double>::infinity();
  } else {
    size = ValueOfCode(rest, type);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

uint16_t ToHalf(double value, const SmallFloat& type) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  return static_cast<uint16_t>(sign | NearestCode(std::fabs(value), type));
}

}  // namespace

double RoundEven(double x) {
  if (!(std::fabs(x) < 0x1p52)) return x;
  const double below = std::floor(x), rest = x - below;
  if (rest > 0.5) return below + 1;
  if (rest < 0.5) return below;
  return std::fmod(below, 2) == 0 ? below : below + 1;
}

uint32_t NearestCode(double size, const SmallFloat& type) {
  if (!(size > 0)) return 0;
  const double kept = std::min(size, type.largest);
  const int binade = BinadeOf(kept, type);
  const uint32_t code =
      CodeOfSteps(RoundEven(std::ldexp(kept, type.mantissa - binade)), binade, type);
  return ValueOfCode(code, type) > type.largest ? code - 1 : code;
}

uint32_t CodeAtLeast(double size, const SmallFloat& type) {
  if (!(size > 0)) return 0;
  const double kept = std::min(size, type.largest);
  const int binade = BinadeOf(kept, type);
  return CodeOfSteps(std::ceil(std::ldexp(kept, type.mantissa - binade)), binade, type);
}

double ValueOfCode(uint32_t code, const SmallFloat& type) {
  const auto exponent = static_cast<int>(code >> type.mantissa);
  const uint32_t hidden = 1u << type.mantissa, fraction = code & (hidden - 1);
  if (exponent == 0) return std::ldexp(fraction, 1 - type.bias - type.mantissa);
  return std::ldexp(hidden + fraction, exponent - type.bias - type.mantissa);
}

double FromE4m3(uint8_t code, bool fnuz) {
  if (fnuz ? code == 0x80 : (code & 0x7F) == 0x7F) return kNan;
  const double size = ValueOfCode(code & 0x7F, fnuz ? kE4m3Fnuz : kE4m3);
  return (code & 0x80) != 0 ? -size : size;
}

uint8_t ToE4m3(double value, bool fnuz) {
  const uint32_t size = NearestCode(std::fabs(value), fnuz ? kE4m3Fnuz : kE4m3);
  if (fnuz && size == 0) return 0;
  return static_cast<uint8_t>(size | (std::signbit(value) ? 0x80 : 0));
}

double FromE2m1(int code) {
  const double size = ValueOfCode(static_cast<uint32_t>(code & 7), kE2m1);
  return (code & 8) != 0 ? -size : size;
}

int ToE2m1(double value) {
  return static_cast<int>(NearestCode(std::fabs(value), kE2m1)) | (std::signbit(value) ? 8 : 0);
}

double FromE8m0(uint8_t byte) { return byte == 0xFF ? kNan : std::ldexp(1.0, byte - 127); }

double LoadValue(DType dtype, const std::byte* values, int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return Load<double>(values, i);
    case DType::kF32:
      return Load<float>(values, i);
    case DType::kF16:
      return FromHalf(Load<uint16_t>(values, i), kF16);
    case DType::kBF16:
      return FromHalf(Load<uint16_t>(values, i), kBf16);
    case DType::kI8:
      return Load<int8_t>(values, i);
    case DType::kU8:
      return Load<uint8_t>(values, i);
    case DType::kI32:
      return Load<int32_t>(values, i);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(values, i));
    default:
      assert(false);
      return kNan;
  }
}

void StoreValue(DType dtype, double value, std::byte* values, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      Store(static_cast<float>(value), values, i);
      break;
    case DType::kF16:
      Store(ToHalf(value, kF16), values, i);
      break;
    case DType::kBF16:
      Store(ToHalf(value, kBf16), values, i);
      break;
    case DType::kI8:
      Store(static_cast<int8_t>(value), values, i);
      break;
    case DType::kI32:
      Store(static_cast<int32_t>(value), values, i);
      break;
    default:
      assert(false);
  }
}

const SmallFloat& TypeOf(DType dtype) {
  return dtype == DType::kF16 ? kF16 : dtype == DType::kBF16 ? kBf16 : kF32;
}

std::optional<double> StoredScale(double scale, DType dtype) {
  const SmallFloat& type = TypeOf(dtype);
  // Half a step beyond the largest value would round to an infinity.
  const double step = std::ldexp(1.0, std::ilogb(type.largest) - type.mantissa);
  if (!(scale < type.largest + step / 2)) return std::nullopt;
  return ValueOfCode(std::max<uint32_t>(1, NearestCode(scale, type)), type);
}

}  // namespace assay::kernels
