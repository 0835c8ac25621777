// ModelSlim (formats.md §6). W8A8: `weight` I8 [N, K]. W4A8: `weight` I8 [N/2, K] holds two signed
// codes a byte along the rows, the low nibble the even row. Of both `weight_scale` and
// `weight_offset` [N, 1]; w = (code − offset) · scale. W4A8 may have a second scale and offset for
// groups of K, [N, K/g], which are inside: w = ((code − offset₂) · scale₂ − offset) · scale.
// Newer writers of static W8A8 leave out weight_scale; it is deq_scale / input_scale then.
// Static W8A8's quant_bias and deq_scale, and W4A8's scale_bias, are an operator's constants: they
// follow from the weight, the bias and the input's scale, and change no weight.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr int64_t kPerByte = 2;

struct Facts {
  Scheme scheme;
  const TensorView *weight = nullptr, *scale = nullptr, *offset = nullptr;
  const TensorView *scale_second = nullptr, *offset_second = nullptr;
  const TensorView *deq_scale = nullptr, *quant_bias = nullptr, *scale_bias = nullptr;
  const TensorView* input_scale = nullptr;
  bool packed() const { return scheme.family == MethodFamily::kModelSlimW4a8; }
};

class ModelSlim : public Decoder {
 public:
  ModelSlim(const Facts& facts, int64_t rows, int64_t columns) : facts_(facts) {
    rows_ = rows;
    columns_ = columns;
    method_ = NameOf(facts.scheme);
  }
  Status SetParts(const PartFinder& parts) {
    StoredPart weight = {"weight", "weight", facts_.weight, "element"};
    if (facts_.packed()) {
      weight.row_unit = "word";
      weight.elements_per_row = kPerByte;
    }
    parts_.push_back(weight);
    AppendChannel("scale", "weight_scale", facts_.scale);
    AppendChannel("zero", "weight_offset", facts_.offset);
    AppendGroups("scale_second", "weight_scale_second", facts_.scale_second);
    AppendGroups("zero_second", "weight_offset_second", facts_.offset_second);
    constexpr std::pair<const char*, const char*> kInputs[] = {{"input_scale", "input_scale"},
                                                               {"input_zero", "input_offset"}};
    if (const Status inputs = AppendScalars(parts, kInputs, &parts_); !inputs) return inputs;
    AppendChannel("deq_scale", "deq_scale", facts_.deq_scale);
    AppendChannel("quant_bias", "quant_bias", facts_.quant_bias);
    if (facts_.scale_bias == nullptr) return Ok();
    // One value a row, or one for each of several equal parts of K, which ranks share.
    const int64_t count = facts_.scale_bias->shape.size() > 1 ? facts_.scale_bias->shape[1] : 1;
    AppendChannel("scale_bias", "scale_bias", facts_.scale_bias);
    if (count > 1) {
      parts_.back().whole_row = false;
      parts_.back().column_along = Along::kColumns;
      parts_.back().unit = "block";
      parts_.back().elements_per_column = columns_ / count;
    }
    return Ok();
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const double scale = ScaleOf(n);
    const double offset = facts_.offset != nullptr ? ValueAt(*facts_.offset, n) : 0;
    const int64_t group = facts_.scale_second != nullptr ? facts_.scheme.group : 0;
    double inner_scale = 1, inner_offset = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      if (group > 0 && k % group == 0) {
        const int64_t at = n * (columns_ / group) + k / group;
        inner_scale = ValueAt(*facts_.scale_second, at);
        if (facts_.offset_second != nullptr) inner_offset = ValueAt(*facts_.offset_second, at);
      }
      out[k] = ((Code(n, k) - inner_offset) * inner_scale - offset) * scale;
    }
  }
  Status CheckValues() const override {
    for (const TensorView* scale :
         {facts_.scale, facts_.offset, facts_.scale_second, facts_.offset_second}) {
      if (scale == nullptr) continue;
      if (const Status finite = CheckScales(*scale, "row", "group"); !finite) return finite;
    }
    for (int64_t n = 0; n < rows_; ++n) {
      if (std::isfinite(ScaleOf(n))) continue;
      return Error{fmt::format("{}: row {}: {} / {} is no scale", facts_.deq_scale->name, n,
                               DeqScale(n), ValueAt(*facts_.input_scale, 0)),
                   ErrorKind::kRefused};
    }
    return Ok();
  }

 private:
  double ScaleOf(int64_t n) const {
    if (facts_.scale != nullptr) return ValueAt(*facts_.scale, n);
    return DeqScale(n) / ValueAt(*facts_.input_scale, 0);
  }
  // fp32, or its bits in the low half of an integer.
  double DeqScale(int64_t n) const {
    float value;
    const int64_t width = facts_.deq_scale->dtype == DType::kI64 ? 8 : 4;
    std::memcpy(&value, facts_.deq_scale->bytes.data() + n * width, sizeof value);
    return value;
  }
  int Code(int64_t n, int64_t k) const {
    if (!facts_.packed()) return static_cast<int8_t>(ByteAt(*facts_.weight, n * columns_ + k));
    const unsigned byte = ByteAt(*facts_.weight, n / kPerByte * columns_ + k);
    const int nibble = static_cast<int>(n % kPerByte == 0 ? byte & 15u : byte >> 4);
    return nibble < 8 ? nibble : nibble - 16;
  }
  void AppendChannel(const char* suffix, const char* file_suffix, const TensorView* view) {
    if (view != nullptr) parts_.push_back(ChannelPart(suffix, file_suffix, view, columns_));
  }
  void AppendGroups(const char* suffix, const char* file_suffix, const TensorView* view) {
    if (view == nullptr) return;
    parts_.push_back({suffix, file_suffix, view, "group", facts_.scheme.group});
  }

  Facts facts_;
};

bool IsModelSlim(const QuantConfig& config) {
  return config.method == "ascend" || config.method == "modelslim" || !config.description.empty();
}

// What the description says of this weight; empty: nothing. A shard has another name.
std::string_view Described(const Opening& opening, const TensorView& weight) {
  const auto found = opening.config.description.find(weight.name);
  return found == opening.config.description.end() ? "" : std::string_view(found->second);
}

// Two codes a byte: told by half the rows. The description must not say otherwise.
Status SetScheme(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  const bool bytes = facts->weight->shape == std::vector<int64_t>{rows, columns};
  const bool nibbles = rows % kPerByte == 0 &&
                       facts->weight->shape == std::vector<int64_t>{rows / kPerByte, columns};
  if (!bytes && !nibbles) {
    return Error{
        fmt::format("{}: I8 {}, must be [{}, {}] (W8A8) or [{}, {}] (W4A8, two rows a "
                    "byte)",
                    facts->weight->name, PrintShape(facts->weight->shape), rows, columns,
                    rows / kPerByte, columns)};
  }
  const std::string_view said = Described(opening, *facts->weight);
  if (!said.empty() && !said.starts_with(nibbles ? "W4A8" : "W8A8")) {
    return BadInput(parts, fmt::format("the description says \"{}\", but weight is I8 {}", said,
                                       PrintShape(facts->weight->shape)));
  }
  Scheme& scheme = facts->scheme;
  scheme.family = nibbles ? MethodFamily::kModelSlimW4a8 : MethodFamily::kModelSlimW8a8;
  scheme.bits = nibbles ? 4 : 8;
  scheme.granularity = Granularity::kChannel;
  if (facts->scale_second == nullptr) {
    if (facts->offset_second == nullptr) return Ok();
    return BadInput(parts, "weight_offset_second without weight_scale_second");
  }
  if (!nibbles) return Unsupported(parts, "a second scale of 8-bit weights");
  scheme.granularity = Granularity::kGroup;
  scheme.group = config.group_size;
  if (known) scheme.group = known->group;
  if (scheme.group <= 0 && facts->scale_second->shape.size() == 2 &&
      facts->scale_second->shape[1] > 0) {
    scheme.group = columns / facts->scale_second->shape[1];
  }
  if (scheme.group > 0 && columns % scheme.group == 0) return Ok();
  return BadInput(
      parts, fmt::format("{} columns are no whole number of groups of {}", columns, scheme.group));
}

Status CheckGrids(const Opening& opening, const Facts& facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  for (const TensorView* channel : {facts.scale, facts.offset}) {
    if (channel == nullptr) continue;
    if (const Status grid = CheckGrid(*channel, kFloatTypes, rows, 1); !grid) return grid;
  }
  for (const TensorView* second : {facts.scale_second, facts.offset_second}) {
    if (second == nullptr) continue;
    const Status grid = CheckGrid(*second, kFloatTypes, rows, columns / facts.scheme.group);
    if (!grid) return grid;
  }
  if (facts.deq_scale != nullptr) {
    const bool bits = facts.deq_scale->dtype == DType::kI64;
    const Status grid = CheckGrid(*facts.deq_scale, bits ? DType::kI64 : DType::kF32, rows, 1);
    if (!grid) return grid;
  }
  if (facts.quant_bias != nullptr) {
    const Status grid = CheckGrid(*facts.quant_bias, DType::kI32, rows, 1);
    if (!grid) return grid;
  }
  if (facts.input_scale != nullptr) {
    const Status grid = CheckGrid(*facts.input_scale, kFloatTypes, 1, 1);
    if (!grid) return grid;
  }
  if (facts.scale_bias == nullptr) return Ok();
  const int64_t count = facts.scale_bias->shape.size() > 1 ? facts.scale_bias->shape[1] : 1;
  if (count < 1 || columns % count != 0) {
    return Error{fmt::format("{}: {} values a row, which do not divide {} columns",
                             facts.scale_bias->name, count, columns)};
  }
  return CheckGrid(*facts.scale_bias, kFloatTypes, rows, count);
}

}  // namespace

bool MatchesModelSlim(const PartFinder& parts, const QuantConfig& config) {
  const TensorView* weight = parts.Find("weight");
  if (weight == nullptr || weight->dtype != DType::kI8) return false;
  if (parts.Find("weight_offset") != nullptr) return true;
  if (parts.Find("deq_scale") != nullptr) return true;
  return IsModelSlim(config) && parts.Find("weight_scale") != nullptr;
}

Opened OpenModelSlim(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  Facts facts;
  facts.weight = parts.Find("weight");
  facts.scale = parts.Find("weight_scale");
  facts.offset = parts.Find("weight_offset");
  facts.scale_second = parts.Find("weight_scale_second");
  facts.offset_second = parts.Find("weight_offset_second");
  facts.deq_scale = parts.Find("deq_scale");
  facts.quant_bias = parts.Find("quant_bias");
  facts.scale_bias = parts.Find("scale_bias");
  facts.input_scale = parts.Find("input_scale");
  if (facts.scale == nullptr && (facts.deq_scale == nullptr || facts.input_scale == nullptr)) {
    return BadInput(parts, "neither weight_scale nor deq_scale and input_scale");
  }
  if (const Status scheme = SetScheme(opening, &facts); !scheme) return scheme.error();
  if (const Status grids = CheckGrids(opening, facts); !grids) return grids.error();
  auto decoder = std::make_unique<ModelSlim>(facts, rows, columns);
  if (const Status set = decoder->SetParts(parts); !set) return set.error();
  return std::unique_ptr<Decoder>(std::move(decoder));
}

}  // namespace assay::reference
