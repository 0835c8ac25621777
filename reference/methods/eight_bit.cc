// Codes of 8 bits, one an element, and scales for a grid of blocks of them (formats.md §1, §2):
// compressed-tensors' W8A8, FP8 and MXFP8, and DeepSeek's FP8. w = (code − zero) · scale, where a
// tensor's, a row's or 32 elements' scale is a block of another size. DeepSeek's scale is a factor
// in spite of its name, weight_scale_inv.
#include <fmt/format.h>

#include <array>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

constexpr int64_t kMxGroup = 32;
constexpr const char* kInputs[] = {"input_scale", "input_zero_point"};

using Table = std::array<double, 256>;

Table MakeTable(Float8 kind) {
  Table table;
  for (unsigned code = 0; code < table.size(); ++code) table[code] = FromFloat8(code, kind);
  return table;
}
Table MakeIntegers() {
  Table table;
  for (unsigned code = 0; code < table.size(); ++code) table[code] = static_cast<int8_t>(code);
  return table;
}
const Table& Codes(const Scheme& scheme) {
  static const Table integers = MakeIntegers(), e4m3 = MakeTable(Float8::kE4M3),
                     fnuz = MakeTable(Float8::kE4M3Fnuz);
  if (scheme.family == MethodFamily::kCtW8a8) return integers;
  return scheme.fnuz ? fnuz : e4m3;
}

struct Facts {
  Scheme scheme;
  const TensorView *weight = nullptr, *scale = nullptr, *zero = nullptr;
  std::string scale_suffix;
  int64_t block_n = 1, block_k = 1;  // what one scale stands for
};

class EightBit : public Decoder {
 public:
  EightBit(const Facts& facts, int64_t rows, int64_t columns)
      : facts_(facts), codes_(Codes(facts.scheme)) {
    rows_ = rows;
    columns_ = columns;
    method_ = NameOf(facts.scheme);
    parts_.push_back({"weight", "weight", facts.weight, "element"});
    parts_.push_back(ScalePart("scale", facts.scale_suffix, facts.scale));
    if (facts.zero != nullptr) {
      parts_.push_back(ScalePart("zero", "weight_zero_point", facts.zero));
    }
  }
  Status AppendInputs(const PartFinder& parts) {
    constexpr std::pair<const char*, const char*> kNames[] = {{"input_scale", kInputs[0]},
                                                              {"input_zero", kInputs[1]}};
    return AppendScalars(parts, kNames, &parts_);
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const int64_t width = (columns_ + facts_.block_k - 1) / facts_.block_k;
    const int64_t first = n / facts_.block_n * width;
    double scale = 0, zero = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      if (k % facts_.block_k == 0) {
        scale = ValueAt(*facts_.scale, first + k / facts_.block_k);
        if (facts_.zero != nullptr) zero = ValueAt(*facts_.zero, first + k / facts_.block_k);
      }
      out[k] = (codes_[ByteAt(*facts_.weight, n * columns_ + k)] - zero) * scale;
    }
  }
  Status CheckValues() const override {
    const bool blocks = facts_.scheme.granularity == Granularity::kBlock;
    return CheckScales(*facts_.scale, blocks ? "block row" : "row", blocks ? "block" : "group");
  }

 private:
  StoredPart ScalePart(std::string suffix, std::string file_suffix, const TensorView* view) const {
    switch (facts_.scheme.granularity) {
      case Granularity::kTensor:
        return ScalarPart(std::move(suffix), std::move(file_suffix), view);
      case Granularity::kChannel:
        return ChannelPart(std::move(suffix), std::move(file_suffix), view, columns_);
      default:
        break;
    }
    StoredPart part = {std::move(suffix), std::move(file_suffix), view, "group", facts_.block_k};
    if (facts_.scheme.granularity == Granularity::kBlock) {
      part.unit = part.row_unit = "block";
      part.elements_per_row = facts_.block_n;
    }
    return part;
  }

  Facts facts_;
  const Table& codes_;
};

int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether the scale's shape can be that of a strategy.
bool Fits(const Opening& opening, const TensorView& scale, Granularity strategy) {
  const auto& [parts, config, rows, columns, known] = opening;
  switch (strategy) {
    case Granularity::kTensor:
      return IsGrid(scale, 1, 1);
    case Granularity::kChannel:
      return IsGrid(scale, rows, 1);
    case Granularity::kBlock:
      return config.block_n > 0 && config.block_k > 0 &&
             scale.shape ==
                 std::vector<int64_t>{Ceil(rows, config.block_n), Ceil(columns, config.block_k)};
    default:
      return false;
  }
}

// The config's strategy, if the scale fits it. Of other producers than compressed-tensors the
// config may say nothing; then the shape, if it leaves one choice.
Result<Granularity> StrategyOf(const Opening& opening, const TensorView& scale, bool blocks) {
  constexpr std::pair<const char*, Granularity> kNames[] = {{"tensor", Granularity::kTensor},
                                                            {"channel", Granularity::kChannel},
                                                            {"block", Granularity::kBlock}};
  if (opening.known) return opening.known->granularity;
  const QuantConfig& config = opening.config;
  int fitting = 0;
  Granularity only = Granularity::kNone;
  for (const auto& [name, strategy] : kNames) {
    if (strategy == Granularity::kBlock && !blocks) continue;
    if (!Fits(opening, scale, strategy)) continue;
    if (config.strategy == name) return strategy;
    ++fitting;
    only = strategy;
  }
  if (config.method != "compressed-tensors" && fitting == 1) return only;
  return Error{
      fmt::format("{}: {} is no scale of strategy \"{}\" for [{}, {}]{}", scale.name,
                  PrintShape(scale.shape), config.strategy, opening.rows, opening.columns,
                  blocks && config.strategy == "block"
                      ? fmt::format(" in blocks of [{}, {}]", config.block_n, config.block_k)
                      : "")};
}

// Sizes of the blocks; the scale, and the zero points, are a grid of them.
Status SetBlocks(const Opening& opening, const Types& scale_types, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  Scheme& scheme = facts->scheme;
  switch (scheme.granularity) {
    case Granularity::kTensor:
      facts->block_n = rows, facts->block_k = columns;
      break;
    case Granularity::kChannel:
      facts->block_k = columns;
      break;
    case Granularity::kGroup:
      facts->block_k = scheme.group;
      if (columns % scheme.group != 0) {
        return BadInput(parts, fmt::format("{} columns are no whole number of groups of {}",
                                           columns, scheme.group));
      }
      break;
    default:
      scheme.block_n = facts->block_n = config.block_n;
      scheme.block_k = facts->block_k = config.block_k;
      if (config.block_n <= 0 || config.block_k <= 0) {
        return BadInput(parts, "scales of blocks, but the config has no weight_block_size");
      }
  }
  const int64_t down = Ceil(rows, facts->block_n), across = Ceil(columns, facts->block_k);
  const Status grid = CheckGrid(*facts->scale, scale_types, down, across);
  if (!grid || facts->zero == nullptr) return grid;
  return CheckGrid(*facts->zero, DType::kI8, down, across);
}

Status SetW8a8(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  if (config.bits != 8 && config.bits != 0) {
    return Unsupported(parts, fmt::format("int8 weights of {} bits", config.bits));
  }
  facts->scheme.family = MethodFamily::kCtW8a8;
  facts->scheme.asymmetric = facts->zero != nullptr;
  if (config.method == "compressed-tensors" && config.symmetric == facts->scheme.asymmetric) {
    return BadInput(parts, config.symmetric
                               ? "weight_zero_point, but the config says symmetric"
                               : "the config says asymmetric, but there is no weight_zero_point");
  }
  const auto strategy = StrategyOf(opening, *facts->scale, false);
  if (!strategy) return strategy.error();
  facts->scheme.granularity = *strategy;
  return SetBlocks(opening, kFloatTypes, facts);
}

Status SetFp8(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  Scheme& scheme = facts->scheme;
  if (facts->zero != nullptr) return Unsupported(parts, "a zero point of FP8 weights");
  scheme.fnuz = config.fnuz;
  if (facts->scale_suffix != "weight_scale") {
    scheme.family = MethodFamily::kDeepseekFp8;
    scheme.granularity = Granularity::kBlock;
    return SetBlocks(opening, facts->scale_suffix == "scale" ? kE8M0Types : kFloatTypes, facts);
  }
  if (kE8M0Types.has(facts->scale->dtype)) {
    if (config.fnuz) return Unsupported(parts, "MXFP8 of the fnuz kind");
    scheme.family = MethodFamily::kCtMxfp8;
    scheme.granularity = Granularity::kGroup;
    scheme.group = kMxGroup;
    return SetBlocks(opening, kE8M0Types, facts);
  }
  scheme.family = MethodFamily::kCtFp8;
  const auto strategy = StrategyOf(opening, *facts->scale, true);
  if (!strategy) return strategy.error();
  scheme.granularity = *strategy;
  return SetBlocks(opening, kFloatTypes, facts);
}

}  // namespace

bool MatchesEightBit(const PartFinder& parts, const QuantConfig& config) {
  const TensorView* weight = parts.Find("weight");
  if (weight == nullptr || MatchesModelSlim(parts, config)) return false;
  if (weight->dtype == DType::kI8) return parts.Find("weight_scale") != nullptr;
  if (weight->dtype != DType::kF8E4M3) return false;
  for (const char* suffix : {"weight_scale", "weight_scale_inv", "scale"}) {
    if (parts.Find(suffix) != nullptr) return true;
  }
  return false;
}

Opened OpenEightBit(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  Facts facts;
  facts.scheme.bits = 8;
  facts.weight = parts.Find("weight");
  facts.zero = parts.Find("weight_zero_point");
  for (const char* suffix : {"weight_scale", "weight_scale_inv", "scale"}) {
    const TensorView* scale = parts.Find(suffix);
    if (scale == nullptr) continue;
    if (facts.scale != nullptr) {
      return BadInput(parts, fmt::format("both {} and {}", facts.scale_suffix, suffix));
    }
    facts.scale = scale;
    facts.scale_suffix = suffix;
  }
  if (const Status grid = CheckGrid(*facts.weight, facts.weight->dtype, rows, columns); !grid) {
    return grid.error();
  }
  const Status set =
      facts.weight->dtype == DType::kI8 ? SetW8a8(opening, &facts) : SetFp8(opening, &facts);
  if (!set) return set.error();
  auto decoder = std::make_unique<EightBit>(facts, rows, columns);
  if (const Status inputs = decoder->AppendInputs(parts); !inputs) return inputs.error();
  return std::unique_ptr<Decoder>(std::move(decoder));
}

}  // namespace assay::reference
