// MXFP4 in four producers' tensors (formats.md §1, §4): two E2M1 codes a byte, the low nibble the
// even element, and an E8M0 scale for 32 of them; w = code · 2^(scale − 127).
#include <fmt/format.h>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr int64_t kGroup = 32;
constexpr int64_t kPerByte = 2;

bool IsE8M0(DType dtype) { return dtype == DType::kF8E8M0; }
bool IsByte(DType dtype) { return dtype == DType::kU8; }
const Types kE8M0Only = {"F8_E8M0", IsE8M0};
const Types kBytes = {"U8", IsByte};

// Who writes which tensors in which types.
struct Producer {
  MethodFamily family;
  const char *weight, *scale;
  DType weight_dtype;
  const Types& scale_types;
  const char* but_not;  // a tensor that makes it another method; nullptr: none
};
const Producer kProducers[] = {
    {MethodFamily::kCtMxfp4, "weight_packed", "weight_scale", DType::kU8, kE8M0Types,
     "weight_global_scale"},
    {MethodFamily::kGptOssMxfp4, "blocks", "scales", DType::kU8, kBytes, nullptr},
    {MethodFamily::kDeepseekV4Mxfp4, "weight", "scale", DType::kI8, kE8M0Only, nullptr},
    {MethodFamily::kQuarkMxfp4, "weight", "weight_scale", DType::kU8, kE8M0Types, "weight_scale_2"},
};

const Producer* FindProducer(const PartFinder& parts) {
  for (const Producer& producer : kProducers) {
    const TensorView* weight = parts.Find(producer.weight);
    if (weight == nullptr || weight->dtype != producer.weight_dtype) continue;
    if (parts.Find(producer.scale) == nullptr) continue;
    if (producer.but_not != nullptr && parts.Find(producer.but_not) != nullptr) continue;
    return &producer;
  }
  return nullptr;
}

class Mxfp4 : public Decoder {
 public:
  Mxfp4(const Producer& producer, const TensorView* weight, const TensorView* scale, int64_t rows,
        int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    Scheme scheme;
    scheme.family = producer.family;
    method_ = NameOf(scheme);
    parts_ = {{"weight", producer.weight, weight, "word", kPerByte},
              {"scale", producer.scale, scale, "group", kGroup}};
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const TensorView &weight = *parts_[0].view, &scale = *parts_[1].view;
    double factor = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      const unsigned byte = ByteAt(weight, (n * columns_ + k) / kPerByte);
      if (k % kGroup == 0) factor = FromE8M0(ByteAt(scale, (n * columns_ + k) / kGroup));
      out[k] = FromE2M1(k % kPerByte == 0 ? byte & 15u : byte >> 4) * factor;
    }
  }
  Status CheckValues() const override { return CheckScales(*parts_[1].view, "row", "group"); }
};

}  // namespace

bool MatchesMxfp4(const PartFinder& parts, const QuantConfig& config) {
  return FindProducer(parts) != nullptr && !MatchesModelSlim(parts, config);
}

Opened OpenMxfp4(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  const Producer& producer = *FindProducer(parts);
  const TensorView* weight = parts.Find(producer.weight);
  const TensorView* scale = parts.Find(producer.scale);
  if (columns % kGroup != 0) {
    return BadInput(parts,
                    fmt::format("{} columns are no whole number of groups of {}", columns, kGroup));
  }
  // gpt-oss has an axis for the bytes of a group.
  const std::vector<int64_t> by_group = {rows, columns / kGroup, kGroup / kPerByte};
  const bool grouped = producer.family == MethodFamily::kGptOssMxfp4 && weight->shape == by_group;
  if (!grouped && weight->shape != std::vector<int64_t>{rows, columns / kPerByte}) {
    return Error{fmt::format("{}: {} {}, must be [{}, {}]: two codes a byte", weight->name,
                             NameOf(weight->dtype), PrintShape(weight->shape), rows,
                             columns / kPerByte)};
  }
  if (const Status grid = CheckGrid(*scale, producer.scale_types, rows, columns / kGroup); !grid) {
    return grid.error();
  }
  return std::unique_ptr<Decoder>(std::make_unique<Mxfp4>(producer, weight, scale, rows, columns));
}

}  // namespace assay::reference
