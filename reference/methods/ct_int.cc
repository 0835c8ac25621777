// compressed-tensors pack-quantized integers of 2 to 8 bits (formats.md §1): codes of a row in
// 32-bit words, zero points likewise along the rows, both stored as signed values + 2^(bits − 1).
// w = (code − zero) · scale[n, group]; group is k / g, or g_idx[k] under act-order "group".
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

struct Facts {
  Scheme scheme;
  PackedInts packing;
  const TensorView *packed = nullptr, *scale = nullptr, *zero = nullptr, *g_idx = nullptr;
  int64_t group = 0;
  std::vector<int64_t> group_of;  // of each column; empty: k / group
};

class CtInt : public Decoder {
 public:
  CtInt(Facts facts, int64_t rows, int64_t columns) : facts_(std::move(facts)) {
    rows_ = rows;
    columns_ = columns;
    method_ = NameOf(facts_.scheme);
    groups_ = facts_.scale->shape.size() > 1 ? facts_.scale->shape[1] : 1;
    const PackedInts& packing = facts_.packing;
    StoredPart weight = {"weight", "weight_packed", facts_.packed, "word", packing.unit_values()};
    weight.columns_per_unit = packing.unit_words();
    parts_.push_back(weight);
    parts_.push_back(GroupsPart("scale", "weight_scale", facts_.scale));
    if (facts_.zero != nullptr) {
      StoredPart zero = GroupsPart("zero", "weight_zero_point", facts_.zero);
      zero.row_unit = "word";
      zero.elements_per_row = packing.unit_values();
      zero.rows_per_unit = packing.unit_words();
      parts_.push_back(zero);
    }
    if (facts_.g_idx != nullptr) {
      StoredPart index = {"g_idx", "weight_g_idx", facts_.g_idx, "element"};
      index.row_along = Along::kColumns;
      index.column_along = Along::kNone;
      parts_.push_back(index);
    }
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const int offset = 1 << (facts_.scheme.bits - 1);
    const PackedInts& packing = facts_.packing;
    std::vector<double> scales(static_cast<size_t>(groups_));
    std::vector<int> zeros(scales.size());
    for (int64_t g = 0; g < groups_; ++g) {
      const auto at = static_cast<size_t>(g);
      scales[at] = ValueAt(*facts_.scale, n * groups_ + g);
      if (facts_.zero == nullptr) continue;
      const std::byte* column = facts_.zero->bytes.data() + 4 * g;
      zeros[at] = static_cast<int>(packing.At(column, 4 * groups_, n)) - offset;
    }
    const std::byte* words = facts_.packed->bytes.data() + 4 * n * packing.Words(columns_);
    packing.Unpack(words, 4, columns_, out);
    for (int64_t first = 0, g = 0; first < columns_; first += facts_.group, ++g) {
      for (int64_t k = first; k < std::min(first + facts_.group, columns_); ++k) {
        const auto at = facts_.group_of.empty() ? g : facts_.group_of[static_cast<size_t>(k)];
        out[k] =
            (out[k] - offset - zeros[static_cast<size_t>(at)]) * scales[static_cast<size_t>(at)];
      }
    }
  }
  Status CheckValues() const override { return CheckScales(*facts_.scale, "row", "group"); }

 private:
  StoredPart GroupsPart(std::string suffix, std::string file_suffix, const TensorView* view) const {
    if (facts_.scheme.granularity == Granularity::kChannel) {
      return ChannelPart(std::move(suffix), std::move(file_suffix), view, columns_);
    }
    StoredPart part = {std::move(suffix), std::move(file_suffix), view, "group", facts_.group};
    if (facts_.scheme.actorder) part.column_along = Along::kNone;
    return part;
  }

  Facts facts_;
  int64_t groups_ = 0;
};

Status SetScheme(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  if (config.method != "compressed-tensors" || config.format != "pack-quantized") {
    return Unsupported(parts, fmt::format("weight_packed under quant_method \"{}\", format \"{}\"",
                                          config.method, config.format));
  }
  if (config.weight_type != "int" || config.bits < 2 || config.bits > 8) {
    return Unsupported(parts, fmt::format("{} of {} bits", config.weight_type, config.bits));
  }
  Scheme& scheme = facts->scheme;
  scheme.family = MethodFamily::kCtInt;
  scheme.bits = config.bits;
  scheme.asymmetric = facts->zero != nullptr;
  if (config.symmetric == scheme.asymmetric) {
    return BadInput(parts, config.symmetric
                               ? "weight_zero_point, but the config says symmetric"
                               : "the config says asymmetric, but there is no weight_zero_point");
  }
  if (config.strategy == "channel") {
    scheme.granularity = Granularity::kChannel;
    facts->group = columns;
  } else if (config.strategy == "group") {
    // A row is one group where no size is stated.
    scheme.granularity = Granularity::kGroup;
    scheme.group = config.group_size > 0 ? config.group_size : -1;
    facts->group = config.group_size > 0 ? config.group_size : columns;
  } else {
    return Unsupported(parts, fmt::format("strategy \"{}\"", config.strategy));
  }
  // Under act-order a shard may have any part of any group.
  if (columns % facts->group != 0 && !(known && known->actorder)) {
    return BadInput(parts, fmt::format("{} columns are no whole number of groups of {}", columns,
                                       facts->group));
  }
  return Ok();
}

// The width of weight_packed tells how values lie in words. Error: no packing is so wide, or two
// are that differ (few columns, as no released model has).
Status SetPacking(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  const int bits = config.bits;
  const PackedInts straddling(bits, false), old(bits, true);
  const int64_t width = straddling.Words(columns), old_width = old.Words(columns);
  bool is_old = 32 % bits != 0 && !IsGrid(*facts->packed, rows, width);
  if (known) {
    is_old = known->old_packing;
  } else if (32 % bits != 0 && width == old_width && columns > 32 / bits) {
    return Unsupported(parts, fmt::format("which of two packings of {} bits has {} words for {} "
                                          "columns",
                                          bits, width, columns));
  }
  const Status grid = CheckGrid(*facts->packed, DType::kI32, rows, is_old ? old_width : width);
  if (!grid && 32 % bits != 0 && !known) {
    return Error{fmt::format("{} or, as older libraries packed, [{}, {}]",
                             CheckGrid(*facts->packed, DType::kI32, rows, width).error().message,
                             rows, old_width)};
  }
  if (!grid) return grid;
  facts->scheme.old_packing = is_old;
  facts->packing = is_old ? old : straddling;
  return Ok();
}

// Without act-order a g_idx changes nothing: older libraries write −1 everywhere where they do not
// use it.
Status SetOrder(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  if (facts->g_idx == nullptr) {
    if (config.actorder != "group") return Ok();
    return BadInput(parts, "actorder \"group\" without weight_g_idx");
  }
  const auto index = ReadGroupIndex(*facts->g_idx, columns, facts->group);
  if (!index) return index.error();
  bool unused = true;
  for (const int64_t g : index->of) unused = unused && g == -1;
  if (unused) return Ok();
  if (config.actorder != "group" && !index->runs) {
    return BadInput(parts,
                    fmt::format("weight_g_idx permutes, but actorder is \"{}\"", config.actorder));
  }
  if (config.actorder != "group") return Ok();
  if (facts->scheme.granularity == Granularity::kChannel) return Ok();  // there is one group
  facts->scheme.actorder = true;
  facts->group_of = index->of;
  return Ok();
}

Status CheckScaleAndZero(const Opening& opening, const Facts& facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  int64_t groups = columns / facts.group;
  if (facts.scheme.actorder) {
    // A shard's columns may be of any of the whole tensor's groups.
    if (known && facts.scale->shape.size() == 2) groups = facts.scale->shape[1];
    const GroupIndex index{facts.group_of, false};
    if (const Status in = CheckGroupIndex(*facts.g_idx, index, groups); !in) return in;
  }
  const Status scale = CheckGrid(*facts.scale, kFloatTypes, rows, groups);
  if (!scale || facts.zero == nullptr) return scale;
  return CheckGrid(*facts.zero, DType::kI32, facts.packing.Words(rows), groups);
}

// weight_shape says the logical extents a second time; it must not say others.
Status CheckShapeTensor(const Opening& opening) {
  const TensorView* shape = opening.parts.Find("weight_shape");
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
  if (said[0] != opening.rows || said[1] != opening.columns) {
    return Error{fmt::format("{}: says [{}, {}], but the config says [{}, {}]", shape->name,
                             said[0], said[1], opening.rows, opening.columns)};
  }
  return Ok();
}

}  // namespace

bool MatchesCtInt(const PartFinder& parts, const QuantConfig& config) {
  static_cast<void>(config);
  const TensorView* packed = parts.Find("weight_packed");
  return packed != nullptr && packed->dtype != DType::kU8;
}

Opened OpenCtInt(const Opening& opening) {
  const PartFinder& parts = opening.parts;
  Facts facts;
  facts.packed = parts.Find("weight_packed");
  facts.scale = parts.Find("weight_scale");
  facts.zero = parts.Find("weight_zero_point");
  facts.g_idx = parts.Find("weight_g_idx");
  if (facts.scale == nullptr) return BadInput(parts, "weight_packed without weight_scale");
  if (const Status scheme = SetScheme(opening, &facts); !scheme) return scheme.error();
  if (const Status packing = SetPacking(opening, &facts); !packing) return packing.error();
  if (const Status order = SetOrder(opening, &facts); !order) return order.error();
  if (const Status grid = CheckScaleAndZero(opening, facts); !grid) return grid.error();
  if (const Status said = CheckShapeTensor(opening); !said) return said.error();
  return std::unique_ptr<Decoder>(
      std::make_unique<CtInt>(std::move(facts), opening.rows, opening.columns));
}

}  // namespace assay::reference
