// Unquantised weights: f64, f32, f16, bf16, row major, each widened exactly.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class Plain : public Decoder {
 public:
  Plain(const TensorView* view, int64_t rows, int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    Scheme scheme;
    scheme.dtype = view->dtype;
    method_ = NameOf(scheme);
    parts_ = {{"weight", "weight", view, "element", 1}};
  }
  void Row(int64_t n, double* out) const override {
    DecodeFloats(*parts_[0].view, n * columns_, columns_, out);
  }
};

}  // namespace

double FromHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const uint64_t fraction = bits & 1023u;
  const uint64_t sign = uint64_t{bits} >> 15 << 63;
  if (exponent == 0) {
    const double size = static_cast<double>(fraction) * 0x1p-24;
    return sign != 0 ? -size : size;
  }
  const uint64_t biased = exponent == 31 ? 2047 : static_cast<uint64_t>(exponent - 15 + 1023);
  return std::bit_cast<double>(sign | biased << 52 | fraction << 42);
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

void DecodeFloats(const TensorView& view, int64_t first, int64_t count, double* out) {
  const std::byte* at = view.bytes.data() + first * SizeOf(view.dtype).count();
  switch (view.dtype) {
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = std::bit_cast<float>(uint32_t{Load<uint16_t>(at + 2 * i)} << 16);
      }
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = FromHalf(Load<uint16_t>(at + 2 * i));
      return;
    case DType::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = Load<float>(at + 4 * i);
      return;
    default:
      for (int64_t i = 0; i < count; ++i) out[i] = Load<double>(at + 8 * i);
  }
}

bool MatchesPlain(const PartFinder& parts, const QuantConfig& config) {
  const TensorView* weight = parts.Find("weight");
  return weight != nullptr && !IsBlock(weight->dtype) && !MatchesEightBit(parts, config) &&
         !MatchesMxfp4(parts, config) && !MatchesNvfp4(parts, config) &&
         !MatchesModelSlim(parts, config);
}

Opened OpenPlain(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  const TensorView* view = parts.Find("weight");
  if (!IsFloating(view->dtype)) {
    return Error{fmt::format("{}: method \"{}\" with weights of {} is not known to the oracle",
                             view->name, config.method, NameOf(view->dtype)),
                 ErrorKind::kUnsupported};
  }
  for (const char* suffix : {"weight_scale", "weight_scale_inv", "weight_scale_2"}) {
    if (parts.Find(suffix) != nullptr) {
      return Error{fmt::format("{}: a {} beside {} weights is not known to the oracle",
                               parts.Name(), suffix, NameOf(view->dtype)),
                   ErrorKind::kUnsupported};
    }
  }
  const bool matrix = view->shape == std::vector<int64_t>{rows, columns};
  const bool vector = columns == 1 && view->shape == std::vector<int64_t>{rows};
  if (!matrix && !vector) {
    return Error{fmt::format("{}: shape {}, but the config says [{}, {}]", view->name,
                             PrintShape(view->shape), rows, columns)};
  }
  return std::unique_ptr<Decoder>(std::make_unique<Plain>(view, rows, columns));
}

}  // namespace assay::reference
