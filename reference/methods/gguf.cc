// Weights in GGUF's blocks: `.weight` [N, K / elements], one storage value a block.
#include <fmt/format.h>

#include "reference/methods/gguf_blocks.h"
#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr BlockFormat kFormats[] = {
    {DType::kQ4_0, gguf::Q4_0},
    {DType::kQ4_1, gguf::Q4_1, gguf::Q4_1Minima},
    {DType::kQ5_0, gguf::Q5_0},
    {DType::kQ5_1, gguf::Q5_1, gguf::Q5_1Minima},
    {DType::kQ8_0, gguf::Q8_0},
    {DType::kQ2K, gguf::Q2K, gguf::Q2KMinima},
    {DType::kQ3K, gguf::Q3K},
    {DType::kQ4K, gguf::Q4K, gguf::Q4KMinima},
    {DType::kQ5K, gguf::Q5K, gguf::Q5KMinima},
    {DType::kQ6K, gguf::Q6K},
    {DType::kMxfp4Block, gguf::Mxfp4, nullptr, 0},
    {DType::kNvfp4Block, gguf::Nvfp4},
};

class Gguf : public Decoder {
 public:
  Gguf(const TensorView* view, const BlockFormat& format, int64_t rows, int64_t columns)
      : format_(format),
        elements_(ElementsOf(format.dtype).count()),
        bytes_(SizeOf(format.dtype).count()) {
    rows_ = rows;
    columns_ = columns;
    Scheme scheme;
    scheme.family = MethodFamily::kGguf;
    scheme.dtype = format.dtype;
    method_ = NameOf(scheme);
    parts_ = {{"weight", "weight", view, "block", elements_}};
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override { Each(n, format_.decode, out); }
  bool Minima(int64_t n, double* out) const override {
    if (format_.minima == nullptr) return false;
    Each(n, format_.minima, out);
    return true;
  }
  Status CheckValues() const override {
    if (format_.e8m0_at < 0) return Ok();
    const int64_t row_blocks = columns_ / elements_;
    const TensorView& view = *parts_[0].view;
    for (int64_t i = 0; i < rows_ * row_blocks; ++i) {
      const auto at = static_cast<size_t>(i * bytes_ + format_.e8m0_at);
      if (std::to_integer<unsigned>(view.bytes[at]) != kE8M0Nan) continue;
      return Error{fmt::format("{}: row {}, block {}: the scale is 255, which is NaN (0 to 254 are "
                               "2^-127 to 2^127)",
                               view.name, i / row_blocks, i % row_blocks),
                   ErrorKind::kRefused};
    }
    return Ok();
  }

 private:
  void Each(int64_t n, void (*decode)(const std::byte*, double*), double* out) const {
    const int64_t blocks = columns_ / elements_;
    const std::byte* row = parts_[0].view->bytes.data() + n * blocks * bytes_;
    for (int64_t i = 0; i < blocks; ++i) decode(row + i * bytes_, out + i * elements_);
  }

  const BlockFormat& format_;
  int64_t elements_, bytes_;
};

}  // namespace

const BlockFormat* FindBlockFormat(DType dtype) {
  for (const BlockFormat& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

bool MatchesGguf(const PartFinder& parts, const QuantConfig& config) {
  static_cast<void>(config);  // what is in the file decides
  const TensorView* weight = parts.Find("weight");
  return weight != nullptr && IsBlock(weight->dtype);
}

Opened OpenGguf(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  const TensorView* weight = parts.Find("weight");
  const BlockFormat* format = FindBlockFormat(weight->dtype);
  if (format == nullptr) {
    return Error{fmt::format("{}: blocks of type {} are not known to the oracle", weight->name,
                             NameOf(weight->dtype)),
                 ErrorKind::kUnsupported};
  }
  const int64_t elements = ElementsOf(weight->dtype).count();
  if (columns % elements != 0) {
    return Error{fmt::format("{}: {} columns are no whole number of blocks of {}", weight->name,
                             columns, elements)};
  }
  if (weight->shape != std::vector<int64_t>{rows, columns / elements}) {
    return Error{fmt::format("{}: {} {} blocks, must be [{}, {}]", weight->name,
                             NameOf(weight->dtype), PrintShape(weight->shape), rows,
                             columns / elements)};
  }
  return std::unique_ptr<Decoder>(std::make_unique<Gguf>(weight, *format, rows, columns));
}

}  // namespace assay::reference
