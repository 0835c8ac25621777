// Weights in GGUF's blocks: `.weight` [N, K / elements], one storage value a block.
#include <fmt/format.h>

#include <cmath>

#include "reference/methods/gguf_blocks.h"
#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr BlockFormat kFormats[] = {
    {DType::kQ4_0, gguf::Q4_0, nullptr, -1, 0},
    {DType::kQ4_1, gguf::Q4_1, gguf::Q4_1Minima, -1, 0, 2},
    {DType::kQ5_0, gguf::Q5_0, nullptr, -1, 0},
    {DType::kQ5_1, gguf::Q5_1, gguf::Q5_1Minima, -1, 0, 2},
    {DType::kQ8_0, gguf::Q8_0, nullptr, -1, 0},
    {DType::kQ2K, gguf::Q2K, gguf::Q2KMinima, -1, 80, 82},
    {DType::kQ3K, gguf::Q3K, nullptr, -1, 108},
    {DType::kQ4K, gguf::Q4K, gguf::Q4KMinima, -1, 0, 2},
    {DType::kQ5K, gguf::Q5K, gguf::Q5KMinima, -1, 0, 2},
    {DType::kQ6K, gguf::Q6K, nullptr, -1, 208},
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
    const int64_t row_blocks = columns_ / elements_;
    const TensorView& view = *parts_[0].view;
    for (int64_t i = 0; i < rows_ * row_blocks; ++i) {
      const std::byte* block = view.bytes.data() + i * bytes_;
      const std::string what = WrongScale(block);
      if (what.empty()) continue;
      return Error{fmt::format("{}: row {}, block {}: the {}", view.name, i / row_blocks,
                               i % row_blocks, what),
                   ErrorKind::kRefused};
    }
    return Ok();
  }

 private:
  std::string WrongScale(const std::byte* block) const {
    if (format_.e8m0_at >= 0 &&
        gguf::Byte(block, static_cast<size_t>(format_.e8m0_at)) == kE8M0Nan) {
      return "scale is 255, which is NaN (0 to 254 are 2^-127 to 2^127)";
    }
    const std::pair<int, const char*> halves[] = {{format_.scale_at, "scale"},
                                                  {format_.minimum_at, "minimum's scale"}};
    for (const auto& [at, name] : halves) {
      if (at < 0) continue;
      const double value = gguf::Half(block, static_cast<size_t>(at));
      if (!std::isfinite(value)) {
        return fmt::format("{} is {}, must be finite", name,
                           std::isnan(value) ? "NaN" : "infinite");
      }
    }
    return "";
  }
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
