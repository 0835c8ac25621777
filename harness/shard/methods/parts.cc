#include "harness/shard/methods/parts.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "harness/shard/listing.h"

namespace assay::shard {
namespace {

// All suffixes that any method knows, as producers spell them (formats.md §1 to §6).
constexpr std::array<std::string_view, 26> kSuffixes = {"weight",
                                                        "weight_packed",
                                                        "weight_scale",
                                                        "weight_scale_inv",
                                                        "weight_shape",
                                                        "weight_zero_point",
                                                        "weight_g_idx",
                                                        "weight_global_scale",
                                                        "weight_scale_2",
                                                        "weight_offset",
                                                        "weight_scale_second",
                                                        "weight_offset_second",
                                                        "qweight",
                                                        "qzeros",
                                                        "scales",
                                                        "g_idx",
                                                        "scale",
                                                        "input_scale",
                                                        "input_global_scale",
                                                        "input_zero_point",
                                                        "input_offset",
                                                        "deq_scale",
                                                        "quant_bias",
                                                        "scale_bias",
                                                        "input_scale_inv",
                                                        "bias"};

// Which rows of a tensor of all experts are one matrix's.
enum class Rows { kAll, kFirstHalf, kSecondHalf, kEven, kOdd };

// One tensor of all experts: what it is called below the module, and what it is.
struct FusedTensor {
  std::string name;
  std::string_view suffix;
  Rows rows = Rows::kAll;
  bool transposed = false;  // [E, K, N] instead of [E, N, K]
};

Error NoAxes(const TensorView& tensor, std::string_view expected) {
  return Error{
      fmt::format("{}: has {} axes, expected {}", Where(tensor), tensor.shape.size(), expected)};
}

// The expert's part of a tensor whose first axis is the experts'. Axes after the third are one with
// it: gpt-oss's blocks [E, N, K/32, 16].
Result<Part> Slice(const TensorView& tensor, const FusedTensor& fused, const Spec& spec) {
  const auto& shape = tensor.shape;
  if (shape.size() < 2) return NoAxes(tensor, "experts, rows and columns");
  if (shape[0] != spec.experts) {
    return Error{fmt::format("{}: axis expert has {} experts, expected {} experts", Where(tensor),
                             shape[0], spec.experts)};
  }
  int64_t rows = shape[1], columns = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) {
    if (__builtin_mul_overflow(columns, shape[axis], &columns)) columns = -1;
  }
  int64_t each = 0;
  if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &each)) {
    return Error{fmt::format("{}: has an extent that no tensor has", Where(tensor))};
  }
  Part part;
  part.suffix = fused.suffix;
  part.tensor = &tensor;
  part.first = spec.expert * each;
  part.row_step = columns;
  if (fused.transposed) {
    std::swap(rows, columns);
    part.row_step = 1;
    part.column_step = rows;
  }
  if (fused.rows != Rows::kAll) {
    if (rows % 2 != 0) {
      return Error{fmt::format("{}: axis n has {} elements, no gate and up of equal extents",
                               Where(tensor), rows)};
    }
    rows /= 2;
    if (fused.rows == Rows::kSecondHalf) part.first += rows * part.row_step;
    if (fused.rows == Rows::kOdd) part.first += part.row_step;
    if (fused.rows == Rows::kEven || fused.rows == Rows::kOdd) part.row_step *= 2;
  }
  part.shape = shape.size() == 2 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, columns};
  return part;
}

// What the producer calls the tensors of all experts that hold this matrix.
std::vector<FusedTensor> TensorsOf(const Spec& spec) {
  const bool gate = spec.member == Member::kGate, down = spec.member == Member::kDown;
  const Rows halves = down ? Rows::kAll : gate ? Rows::kFirstHalf : Rows::kSecondHalf;
  const Rows turns = down ? Rows::kAll : gate ? Rows::kEven : Rows::kOdd;
  const std::string both = down ? "down_proj" : "gate_up_proj", slim = down ? "w2_" : "w13_";
  std::vector<FusedTensor> tensors;
  switch (spec.fusion) {
    case Fusion::kNone:
      break;
    case Fusion::kGguf:
      return {{"weight", "weight"}, {"bias", "bias"}};
    case Fusion::kStacked:
      return {{both, "weight", halves},
              {both + "_scale_inv", "weight_scale_inv", halves},
              {both + "_bias", "bias", halves}};
    case Fusion::kGptOss:
      return {{both, "weight", turns, true},
              {both + "_blocks", "blocks", turns},
              {both + "_scales", "scales", turns},
              {both + "_bias", "bias", turns}};
    case Fusion::kModelSlim:
      for (const std::string_view suffix :
           {"weight", "weight_scale", "weight_offset", "weight_scale_second",
            "weight_offset_second", "scale_bias", "bias"}) {
        tensors.push_back({slim + std::string(suffix), suffix, halves});
      }
      break;
  }
  return tensors;
}

}  // namespace

int64_t Part::values() const {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return -1;
  }
  return count;
}

std::byte Part::Byte(int64_t row, int64_t column, int64_t columns) const {
  const int64_t step = row_step == 0 ? columns : row_step;
  return tensor->bytes[static_cast<size_t>(first + row * step + column * column_step)];
}

Result<PartSet> PartSet::Collect(const Spec& spec, const TensorSource& source) {
  PartSet set;
  set.module_ = spec.source;
  if (spec.fusion != Fusion::kNone) {
    if (Status s = set.CollectFused(spec, source); !s) return s.error();
    return set;
  }
  std::string name = spec.source + ".";
  const size_t stem = name.size();
  for (const std::string_view suffix : kSuffixes) {
    name.resize(stem);
    name += suffix;
    const TensorView* tensor = source.Find(name);
    if (tensor == nullptr) continue;
    Part part;
    part.suffix = suffix;
    part.tensor = tensor;
    part.shape = tensor->shape;
    set.parts_.push_back(std::move(part));
  }
  return set;
}

PartSet PartSet::Of(Part part) {
  PartSet set;
  set.module_ = part.tensor->name;
  set.parts_.push_back(std::move(part));
  return set;
}

Status PartSet::CollectFused(const Spec& spec, const TensorSource& source) {
  for (const FusedTensor& fused : TensorsOf(spec)) {
    fused_.emplace_back(fused.suffix, fused.name);
    const TensorView* tensor = source.Find(fmt::format("{}.{}", spec.source, fused.name));
    if (tensor == nullptr) continue;
    auto part = Slice(*tensor, fused, spec);
    if (!part) return part.error();
    parts_.push_back(std::move(*part));
  }
  return Ok();
}

const Part* PartSet::Find(std::string_view suffix) const {
  for (const Part& part : parts_) {
    if (part.suffix != suffix) continue;
    part.taken = true;
    return &part;
  }
  return nullptr;
}

bool PartSet::Has(std::string_view suffix) const {
  for (const Part& part : parts_) {
    if (part.suffix == suffix) return true;
  }
  return false;
}

std::string PartSet::NameOf(std::string_view suffix) const {
  for (const auto& [ours, name] : fused_) {
    if (ours == suffix) return fmt::format("{}.{}", module_, name);
  }
  return fmt::format("{}.{}", module_, suffix);
}

Fusion FusionOf(const ModelConfig& config, const TensorSource& source, const std::string& experts) {
  if (config.container == Container::kGguf) return Fusion::kGguf;
  const auto has = [&](std::string_view name) {
    return source.Find(fmt::format("{}.{}", experts, name)) != nullptr;
  };
  if (has("w13_weight") || has("w2_weight")) return Fusion::kModelSlim;
  // gpt-oss has no other form: its tensors are missing rather than an expert's.
  if (config.family == Family::kGptOss) return Fusion::kGptOss;
  if (has("gate_up_proj_blocks") || has("down_proj_blocks")) return Fusion::kGptOss;
  return has("gate_up_proj") || has("down_proj") ? Fusion::kStacked : Fusion::kNone;
}

}  // namespace assay::shard
