// compressed-tensors pack-quantized INT4, symmetric, per group or per channel (formats.md §1):
// element k of a row is nibble k % 8 of word k / 8, least significant first; stored are signed
// codes + 8; w = code · scale[n, k / g].
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "reference/methods/method.h"

namespace assay::reference {
namespace {

constexpr int64_t kPerWord = 8;

class CtInt4 : public Decoder {
 public:
  CtInt4(const TensorView* packed, const TensorView* scale, int64_t rows, int64_t columns,
         int64_t group, bool channel)
      : group_(group) {
    rows_ = rows;
    columns_ = columns;
    words_ = (columns + kPerWord - 1) / kPerWord;
    groups_ = scale->shape[1];
    parts_ = {{"weight", "weight_packed", packed, "word", kPerWord},
              {"scale", "weight_scale", scale, "group", group, channel}};
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    std::vector<double> scales(static_cast<size_t>(groups_));
    DecodeFloats(*parts_[1].view, n * groups_, groups_, scales.data());
    const std::byte* row = parts_[0].view->bytes.data() + n * words_ * 4;
    for (int64_t first = 0; first < columns_; first += kPerWord) {
      uint32_t word;
      std::memcpy(&word, row + 4 * (first / kPerWord), sizeof word);
      const int64_t end = std::min(first + kPerWord, columns_);
      for (int64_t k = first; k < end; ++k, word >>= 4) out[k] = static_cast<int>(word & 15u) - 8;
    }
    for (int64_t g = 0; g < groups_; ++g) {
      const double scale = scales[static_cast<size_t>(g)];
      for (int64_t k = g * group_; k < (g + 1) * group_; ++k) out[k] *= scale;
    }
  }

 private:
  int64_t group_, words_ = 0, groups_ = 0;
};

Error Unsupported(const PartFinder& parts, const std::string& what) {
  return Error{fmt::format("{}: {} is not known to the oracle (symmetric int4 per group or per "
                           "channel is)",
                           parts.Name(), what),
               ErrorKind::kUnsupported};
}

Status CheckScheme(const PartFinder& parts, const QuantConfig& config) {
  if (config.method != "compressed-tensors" || config.format != "pack-quantized") {
    return Unsupported(parts, fmt::format("weight_packed under quant_method \"{}\", format \"{}\"",
                                          config.method, config.format));
  }
  if (config.weight_type != "int" || config.bits != 4) {
    return Unsupported(parts, fmt::format("{} of {} bits", config.weight_type, config.bits));
  }
  if (!config.symmetric || parts.Find("weight_zero_point") != nullptr) {
    return Unsupported(parts, "a zero point");
  }
  if (config.actorder == "group" || parts.Find("weight_g_idx") != nullptr) {
    return Unsupported(parts, "activation order \"group\"");
  }
  if (config.strategy != "group" && config.strategy != "channel") {
    return Unsupported(parts, fmt::format("strategy \"{}\"", config.strategy));
  }
  return Ok();
}

// weight_shape says the logical extents a second time; it must not say others.
Status CheckShapeTensor(const PartFinder& parts, int64_t rows, int64_t columns) {
  const TensorView* shape = parts.Find("weight_shape");
  if (shape == nullptr) return Ok();
  const size_t width = shape->dtype == DType::kI64 ? 8 : 4;
  if ((shape->dtype != DType::kI64 && shape->dtype != DType::kI32) ||
      shape->shape != std::vector<int64_t>{2} || shape->bytes.size() != 2 * width) {
    return Error{fmt::format("{}: must be two integers, is {} {}", shape->name,
                             NameOf(shape->dtype), PrintShape(shape->shape))};
  }
  int64_t said[2];
  for (size_t i = 0; i < 2; ++i) {
    int32_t narrow = 0;
    std::memcpy(width == 8 ? static_cast<void*>(&said[i]) : &narrow,
                shape->bytes.data() + i * width, width);
    if (width == 4) said[i] = narrow;
  }
  if (said[0] != rows || said[1] != columns) {
    return Error{fmt::format("{}: says [{}, {}], but the config says [{}, {}]", shape->name,
                             said[0], said[1], rows, columns)};
  }
  return Ok();
}

}  // namespace

bool MatchesCtInt4(const PartFinder& parts) { return parts.Find("weight_packed") != nullptr; }

Result<std::unique_ptr<Decoder>> OpenCtInt4(const PartFinder& parts, const QuantConfig& config,
                                            int64_t rows, int64_t columns) {
  if (const Status scheme = CheckScheme(parts, config); !scheme) return scheme.error();
  const TensorView* packed = parts.Find("weight_packed");
  const TensorView* scale = parts.Find("weight_scale");
  if (scale == nullptr) {
    return Error{fmt::format("{}: weight_packed without weight_scale", parts.Name())};
  }
  const int64_t group = config.strategy == "channel" ? columns : config.group_size;
  if (group <= 0 || columns % group != 0) {
    return Error{fmt::format("{}: {} columns are no whole number of groups of {}", parts.Name(),
                             columns, group)};
  }
  const int64_t words = (columns + kPerWord - 1) / kPerWord;
  if (packed->dtype != DType::kI32 || packed->shape != std::vector<int64_t>{rows, words}) {
    return Error{fmt::format("{}: {} {}, must be I32 [{}, {}]", packed->name, NameOf(packed->dtype),
                             PrintShape(packed->shape), rows, words)};
  }
  if (!IsFloating(scale->dtype) || scale->shape != std::vector<int64_t>{rows, columns / group}) {
    return Error{fmt::format("{}: {} {}, must be a floating type, [{}, {}]", scale->name,
                             NameOf(scale->dtype), PrintShape(scale->shape), rows,
                             columns / group)};
  }
  if (const Status said = CheckShapeTensor(parts, rows, columns); !said) return said.error();
  return std::unique_ptr<Decoder>(
      std::make_unique<CtInt4>(packed, scale, rows, columns, group, config.strategy == "channel"));
}

}  // namespace assay::reference
