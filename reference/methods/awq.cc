// AWQ, GEMM layout, 4 bits (formats.md §3): `qweight` I32 [K, N/8] and `qzeros` I32 [K/g, N/8]
// packed along N, `scales` [K/g, N]. Position j of a word holds column 0 2 4 6 1 3 5 7 [j] of its
// eight. w[n, k] = (q − zero) · scale[k/g, n]: there is no + 1.
#include <fmt/format.h>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int kSymmetricZero = 8;

class Awq : public Decoder {
 public:
  Awq(const Scheme& scheme, const TensorView* qweight, const TensorView* scales,
      const TensorView* qzeros, int64_t rows, int64_t columns)
      : group_(scheme.group), qweight_(qweight), scales_(scales), qzeros_(qzeros) {
    rows_ = rows;
    columns_ = columns;
    method_ = NameOf(scheme);
    parts_.push_back(Transposed("weight", "qweight", qweight, true, false));
    parts_.push_back(Transposed("scale", "scales", scales, false, true));
    if (qzeros != nullptr) parts_.push_back(Transposed("zero", "qzeros", qzeros, true, true));
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const int64_t words = rows_ / kPerWord;
    double scale = 0;
    int zero = kSymmetricZero;
    for (int64_t k = 0; k < columns_; ++k) {
      if (k % group_ == 0) {
        const int64_t g = k / group_;
        scale = ValueAt(*scales_, g * rows_ + n);
        if (qzeros_ != nullptr) zero = Code(IntAt(*qzeros_, g * words + n / kPerWord), n);
      }
      out[k] = (Code(IntAt(*qweight_, k * words + n / kPerWord), n) - zero) * scale;
    }
  }
  Status CheckValues() const override { return CheckScales(*scales_, "group", "row"); }

 private:
  static int Code(int32_t word, int64_t n) {
    constexpr int kPosition[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};  // of a column
    const int shift = 4 * kPosition[n % kPerWord];
    return static_cast<int>(static_cast<uint32_t>(word) >> shift & 15u);
  }
  StoredPart Transposed(std::string suffix, std::string file_suffix, const TensorView* view,
                        bool words, bool groups) const {
    StoredPart part = {std::move(suffix), std::move(file_suffix), view, words ? "word" : "element",
                       words ? kPerWord : 1};
    part.row_along = Along::kColumns;
    part.column_along = Along::kRows;
    if (groups) {
      part.row_unit = "group";
      part.elements_per_row = group_;
    }
    return part;
  }

  int64_t group_;
  const TensorView *qweight_, *scales_, *qzeros_;
};

}  // namespace

bool MatchesAwq(const PartFinder& parts, const QuantConfig& config) {
  static_cast<void>(config);  // what is in the file decides
  const TensorView* qweight = parts.Find("qweight");
  const TensorView* scales = parts.Find("scales");
  return qweight != nullptr && scales != nullptr && parts.Find("g_idx") == nullptr &&
         qweight->shape.size() == 2 && scales->shape.size() == 2 &&
         scales->shape[1] == kPerWord * qweight->shape[1];
}

Opened OpenAwq(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  const TensorView* qweight = parts.Find("qweight");
  const TensorView* scales = parts.Find("scales");
  const TensorView* qzeros = parts.Find("qzeros");
  if (config.method == "gptq") return BadInput(parts, "qweight is AWQ's, the config says gptq");
  if (config.bits != 4) return Unsupported(parts, fmt::format("AWQ of {} bits", config.bits));
  if (config.group_size <= 0) return Unsupported(parts, "AWQ without groups");
  if (qzeros == nullptr && !config.symmetric) {
    return BadInput(parts, "the config says asymmetric, but there are no qzeros");
  }
  Scheme scheme;
  scheme.family = MethodFamily::kAwq;
  scheme.bits = config.bits;
  scheme.granularity = Granularity::kGroup;
  scheme.group = config.group_size;
  scheme.asymmetric = !config.symmetric;
  if (columns % scheme.group != 0) {
    return BadInput(parts, fmt::format("{} columns are no whole number of groups of {}", columns,
                                       scheme.group));
  }
  if (rows % kPerWord != 0) {
    return BadInput(parts,
                    fmt::format("{} rows are no whole number of words of {}", rows, kPerWord));
  }
  const int64_t groups = columns / scheme.group;
  for (const Status& grid :
       {CheckGrid(*qweight, DType::kI32, columns, rows / kPerWord),
        CheckGrid(*scales, kFloatTypes, groups, rows),
        qzeros == nullptr ? Ok() : CheckGrid(*qzeros, DType::kI32, groups, rows / kPerWord)}) {
    if (!grid) return grid.error();
  }
  return std::unique_ptr<Decoder>(
      std::make_unique<Awq>(scheme, qweight, scales, qzeros, rows, columns));
}

}  // namespace assay::reference
