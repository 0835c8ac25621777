// GPTQ of 4 and 8 bits (formats.md §3). Stored transposed: `qweight` I32 [K/8, N] packed along K,
// `qzeros` I32 [groups, N/8] packed along N, `scales` [groups, N], `g_idx` I32 [K].
// w[n, k] = (q − zero) · scale[g, n]; what is stored is zero − 1, in v2 files zero. With desc_act
// g_idx permutes, and a rank that has part of K keeps all groups.
#include <fmt/format.h>

#include "reference/methods/stored.h"

namespace assay::reference {
namespace {

struct Facts {
  Scheme scheme;
  PackedInts packing;
  const TensorView *qweight = nullptr, *qzeros = nullptr, *scales = nullptr, *g_idx = nullptr;
  int64_t group = 0;
  std::vector<int64_t> group_of;  // of each column of the weight
};

class Gptq : public Decoder {
 public:
  Gptq(Facts facts, int64_t rows, int64_t columns) : facts_(std::move(facts)) {
    rows_ = rows;
    columns_ = columns;
    method_ = NameOf(facts_.scheme);
    const int64_t per_word = facts_.packing.unit_values();
    parts_.push_back(Transposed("weight", "qweight", facts_.qweight, "word", per_word));
    parts_.push_back(Groups("scale", "scales", facts_.scales));
    StoredPart zeros = Groups("zero", "qzeros", facts_.qzeros);
    zeros.unit = "word";
    zeros.elements_per_column = per_word;
    parts_.push_back(zeros);
    if (facts_.g_idx == nullptr) return;
    StoredPart index = Transposed("g_idx", "g_idx", facts_.g_idx, "element", 1);
    index.column_along = Along::kNone;
    parts_.push_back(index);
  }
  bool quantised() const override { return true; }
  void Row(int64_t n, double* out) const override {
    const std::byte* codes = facts_.qweight->bytes.data() + 4 * n;
    const int64_t zero_words = facts_.packing.Words(rows_);
    facts_.packing.Unpack(codes, 4 * rows_, columns_, out);
    int64_t last = -1;
    double zero = 0, scale = 0;
    for (int64_t k = 0; k < columns_; ++k) {
      const int64_t g = facts_.group_of[static_cast<size_t>(k)];
      if (g != last) {
        const std::byte* zeros = facts_.qzeros->bytes.data() + 4 * g * zero_words;
        // The sum does not wrap: 15 stored is a zero of 16.
        zero = facts_.packing.At(zeros, 4, n) + (facts_.scheme.v2 ? 0 : 1);
        scale = ValueAt(*facts_.scales, g * rows_ + n);
        last = g;
      }
      out[k] = (out[k] - zero) * scale;
    }
  }
  Status CheckValues() const override { return CheckScales(*facts_.scales, "group", "row"); }

 private:
  static StoredPart Transposed(std::string suffix, std::string file_suffix, const TensorView* view,
                               std::string row_unit, int64_t elements_per_row) {
    StoredPart part = {std::move(suffix), std::move(file_suffix), view, "element"};
    part.row_along = Along::kColumns;
    part.column_along = Along::kRows;
    part.row_unit = std::move(row_unit);
    part.elements_per_row = elements_per_row;
    return part;
  }
  StoredPart Groups(std::string suffix, std::string file_suffix, const TensorView* view) const {
    StoredPart part =
        Transposed(std::move(suffix), std::move(file_suffix), view, "group", facts_.group);
    const bool whole = facts_.scheme.actorder || facts_.scheme.granularity == Granularity::kChannel;
    if (whole) part.row_along = Along::kNone;
    return part;
  }

  Facts facts_;
};

Status SetScheme(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  if (config.method == "awq") return BadInput(parts, "qweight is GPTQ's, the config says awq");
  if (config.bits != 4 && config.bits != 8) {
    return Unsupported(parts, fmt::format("GPTQ of {} bits", config.bits));
  }
  Scheme& scheme = facts->scheme;
  scheme.family = MethodFamily::kGptq;
  scheme.bits = config.bits;
  scheme.v2 = config.v2;
  scheme.asymmetric = !config.symmetric;
  scheme.granularity = config.group_size > 0 ? Granularity::kGroup : Granularity::kChannel;
  if (config.group_size > 0) scheme.group = config.group_size;
  facts->group = config.group_size > 0 ? config.group_size : columns;
  facts->packing = PackedInts(config.bits, false);
  return Ok();
}

// Which group each column is of. Without desc_act g_idx counts groups up; of a shard its numbers
// are still the whole tensor's, though scales are cut.
Status SetOrder(const Opening& opening, Facts* facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  const int64_t stored = facts->scales->shape.empty() ? 0 : facts->scales->shape[0];
  const int64_t here = (columns + facts->group - 1) / facts->group;
  GroupIndex index;
  if (facts->g_idx != nullptr) {
    auto read = ReadGroupIndex(*facts->g_idx, columns, facts->group);
    if (!read) return read.error();
    index = std::move(*read);
  } else if (config.desc_act) {
    return BadInput(parts, "desc_act without g_idx");
  }
  const bool one_group = facts->scheme.granularity == Granularity::kChannel;
  const bool permutes = facts->g_idx != nullptr && !index.runs;
  facts->scheme.actorder = !one_group && (config.desc_act || permutes);
  if (known) facts->scheme.actorder = known->actorder;
  // A whole tensor's numbers begin at group 0.
  const bool shifted = index.runs && index.of.front() != 0;
  if (shifted && !known) {
    return Error{fmt::format("{}: begins with group {}, must begin with 0", facts->g_idx->name,
                             index.of.front())};
  }
  if (facts->scheme.actorder) {
    facts->group_of = index.of;
    return CheckGroupIndex(*facts->g_idx, index, known ? stored : here);
  }
  for (int64_t k = 0; k < columns; ++k) facts->group_of.push_back(k / facts->group);
  return Ok();
}

Status CheckGrids(const Opening& opening, const Facts& facts) {
  const auto& [parts, config, rows, columns, known] = opening;
  int64_t groups = (columns + facts.group - 1) / facts.group;
  if (known && facts.scheme.actorder && facts.scales->shape.size() == 2) {
    groups = facts.scales->shape[0];
  }
  for (const Status& grid :
       {CheckGrid(*facts.qweight, DType::kI32, facts.packing.Words(columns), rows),
        CheckGrid(*facts.scales, kFloatTypes, groups, rows),
        CheckGrid(*facts.qzeros, DType::kI32, groups, facts.packing.Words(rows))}) {
    if (!grid) return grid;
  }
  return Ok();
}

}  // namespace

// GPTQ's and AWQ's tensors have the same names. Both have N scales a group; GPTQ's qweight has N
// columns, AWQ's an eighth.
bool MatchesGptq(const PartFinder& parts, const QuantConfig& config) {
  return parts.Find("qweight") != nullptr && !MatchesAwq(parts, config);
}

Opened OpenGptq(const Opening& opening) {
  const auto& [parts, config, rows, columns, known] = opening;
  Facts facts;
  facts.qweight = parts.Find("qweight");
  facts.scales = parts.Find("scales");
  facts.qzeros = parts.Find("qzeros");
  facts.g_idx = parts.Find("g_idx");
  if (facts.scales == nullptr) return BadInput(parts, "qweight without scales");
  if (facts.qzeros == nullptr) return BadInput(parts, "qweight without qzeros");
  if (const Status scheme = SetScheme(opening, &facts); !scheme) return scheme.error();
  if (const Status order = SetOrder(opening, &facts); !order) return order.error();
  if (const Status grids = CheckGrids(opening, facts); !grids) return grids.error();
  return std::unique_ptr<Decoder>(std::make_unique<Gptq>(std::move(facts), rows, columns));
}

}  // namespace assay::reference
