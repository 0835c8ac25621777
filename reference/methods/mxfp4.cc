// MXFP4 as DeepSeek-V4 stores it (formats.md §4): `.weight` I8 [N, K/2] holds two E2M1 codes a
// byte, the low nibble the even element; `.scale` F8_E8M0 [N, K/32]; w = code · 2^(scale − 127).
#include <fmt/format.h>

#include <cmath>

#include "reference/methods/method.h"

namespace assay::reference {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kPerByte = 2;

class Mxfp4 : public Decoder {
 public:
  Mxfp4(const TensorView* weight, const TensorView* scale, int64_t rows, int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    parts_ = {{"weight", "weight", weight, "word", kPerByte},
              {"scale", "scale", scale, "group", kGroup}};
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const std::byte* codes = parts_[0].view->bytes.data() + n * columns_ / kPerByte;
    const std::byte* scales = parts_[1].view->bytes.data() + n * columns_ / kGroup;
    for (int64_t k = 0; k < columns_; ++k) {
      const auto byte = std::to_integer<unsigned>(codes[k / kPerByte]);
      out[k] = FromE2M1(k % kPerByte == 0 ? byte & 15u : byte >> 4);
    }
    for (int64_t g = 0; g < columns_ / kGroup; ++g) {
      const double scale = FromE8M0(std::to_integer<unsigned>(scales[g]));
      for (int64_t k = g * kGroup; k < (g + 1) * kGroup; ++k) out[k] *= scale;
    }
  }
  Status CheckValues() const override {
    const TensorView& scale = *parts_[1].view;
    const int64_t groups = columns_ / kGroup;
    for (int64_t i = 0; i < rows_ * groups; ++i) {
      if (std::to_integer<unsigned>(scale.bytes[static_cast<size_t>(i)]) != kE8M0Nan) continue;
      return Error{fmt::format("{}: row {}, group {}: the scale is 255, which is NaN (0 to 254 are "
                               "2^-127 to 2^127)",
                               scale.name, i / groups, i % groups),
                   ErrorKind::kRefused};
    }
    return Ok();
  }
};

}  // namespace

double FromE2M1(unsigned code) {
  constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double size = kSizes[code & 7u];
  return (code & 8u) != 0 ? -size : size;
}

double FromE8M0(unsigned code) { return std::ldexp(1.0, static_cast<int>(code) - 127); }

bool MatchesMxfp4(const PartFinder& parts) {
  const TensorView* weight = parts.Find("weight");
  return weight != nullptr && weight->dtype == DType::kI8 && parts.Find("scale") != nullptr;
}

Result<std::unique_ptr<Decoder>> OpenMxfp4(const PartFinder& parts, const QuantConfig& config,
                                           int64_t rows, int64_t columns) {
  static_cast<void>(config);  // what is in the file decides
  const TensorView* weight = parts.Find("weight");
  const TensorView* scale = parts.Find("scale");
  if (columns % kGroup != 0) {
    return Error{fmt::format("{}: {} columns are no whole number of groups of {}", parts.Name(),
                             columns, kGroup)};
  }
  if (weight->shape != std::vector<int64_t>{rows, columns / kPerByte}) {
    return Error{fmt::format("{}: {} {}, must be [{}, {}]: two codes a byte", weight->name,
                             NameOf(weight->dtype), PrintShape(weight->shape), rows,
                             columns / kPerByte)};
  }
  if (scale->dtype != DType::kF8E8M0 ||
      scale->shape != std::vector<int64_t>{rows, columns / kGroup}) {
    return Error{fmt::format("{}: {} {}, must be {} [{}, {}]", scale->name, NameOf(scale->dtype),
                             PrintShape(scale->shape), NameOf(DType::kF8E8M0), rows,
                             columns / kGroup)};
  }
  return std::unique_ptr<Decoder>(std::make_unique<Mxfp4>(weight, scale, rows, columns));
}

}  // namespace assay::reference
