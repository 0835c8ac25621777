// NVFP4 (formats.md §1, §5): two E2M1 codes a byte, the low nibble the even element; an E4M3 scale
// for 16 of them; and one scale for the tensor, by which compressed-tensors divides and ModelOpt
// multiplies.
#include <fmt/format.h>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr int64_t kGroup = 16;
constexpr int64_t kPerByte = 2;

struct Producer {
  MethodFamily family;
  const char *weight, *global;
  bool divides;
  const char* input;
};
constexpr Producer kProducers[] = {
    {MethodFamily::kCtNvfp4, "weight_packed", "weight_global_scale", true, "input_global_scale"},
    {MethodFamily::kModelOptNvfp4, "weight", "weight_scale_2", false, "input_scale"},
};

const Producer* FindProducer(const PartFinder& parts) {
  for (const Producer& producer : kProducers) {
    const TensorView* weight = parts.Find(producer.weight);
    if (weight == nullptr || weight->dtype != DType::kU8) continue;
    if (parts.Find(producer.global) != nullptr) return &producer;
  }
  return nullptr;
}

class Nvfp4 : public Decoder {
 public:
  Nvfp4(const Producer& producer, const TensorView* weight, const TensorView* scale,
        const TensorView* global, int64_t rows, int64_t columns)
      : divides_(producer.divides) {
    rows_ = rows;
    columns_ = columns;
    Scheme scheme;
    scheme.family = producer.family;
    method_ = NameOf(scheme);
    parts_ = {{"weight", producer.weight, weight, "word", kPerByte},
              {"scale", "weight_scale", scale, "group", kGroup},
              ScalarPart("global_scale", producer.global, global)};
  }
  Status AppendInput(const PartFinder& parts, const char* file_suffix) {
    const std::pair<const char*, const char*> name[] = {{"input_scale", file_suffix}};
    return AppendScalars(parts, name, &parts_);
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const TensorView &weight = *parts_[0].view, &scale = *parts_[1].view;
    const double global = ValueAt(*parts_[2].view, 0);
    double factor = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      const unsigned byte = ByteAt(weight, (n * columns_ + k) / kPerByte);
      const double code = FromE2M1(k % kPerByte == 0 ? byte & 15u : byte >> 4);
      if (k % kGroup == 0) {
        // The library divides the group's scale, not the product: it rounds once here.
        factor = ValueAt(scale, (n * columns_ + k) / kGroup);
        factor = divides_ ? factor / global : factor * global;
      }
      out[k] = code * factor;
    }
  }
  Status CheckValues() const override {
    const TensorView& global = *parts_[2].view;
    if (const Status one = CheckScales(global, "row", "value"); !one) return one;
    if (divides_ && ValueAt(global, 0) == 0) {
      return Error{fmt::format("{}: 0, and weights are divided by it", global.name),
                   ErrorKind::kRefused};
    }
    return CheckScales(*parts_[1].view, "row", "group");
  }

 private:
  bool divides_;
};

}  // namespace

bool MatchesNvfp4(const PartFinder& parts, const QuantConfig& config) {
  static_cast<void>(config);  // what is in the file decides
  return FindProducer(parts) != nullptr;
}

Opened OpenNvfp4(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  const Producer& producer = *FindProducer(parts);
  const TensorView* weight = parts.Find(producer.weight);
  const TensorView* scale = parts.Find("weight_scale");
  const TensorView* global = parts.Find(producer.global);
  if (scale == nullptr) {
    return BadInput(parts, fmt::format("{} without weight_scale", producer.global));
  }
  if (columns % kGroup != 0) {
    return BadInput(parts,
                    fmt::format("{} columns are no whole number of groups of {}", columns, kGroup));
  }
  for (const Status& grid : {CheckGrid(*weight, DType::kU8, rows, columns / kPerByte),
                             CheckGrid(*scale, DType::kF8E4M3, rows, columns / kGroup),
                             CheckGrid(*global, DType::kF32, 1, 1)}) {
    if (!grid) return grid.error();
  }
  auto decoder = std::make_unique<Nvfp4>(producer, weight, scale, global, rows, columns);
  if (const Status input = decoder->AppendInput(parts, producer.input); !input) {
    return input.error();
  }
  return std::unique_ptr<Decoder>(std::move(decoder));
}

}  // namespace assay::reference
