// One family of methods: how its parts look, are read and are made. Private to this room; a family
// is one file that defines its row.
#pragma once

#include <array>

#include "kernels/methods/storage.h"

namespace assay::kernels {

// A matrix of floats or of doubles, read row by row.
class Values {
 public:
  Values(const float* floats, int64_t n, int64_t k) : n(n), k(k), floats_(floats) {}
  Values(const double* doubles, int64_t n, int64_t k) : n(n), k(k), doubles_(doubles) {}
  double At(int64_t row, int64_t column) const {
    const int64_t i = row * k + column;
    return floats_ != nullptr ? static_cast<double>(floats_[i]) : doubles_[i];
  }
  // Divided by a step: floats in float, as producers divide them, whose quotients round again.
  double Over(int64_t row, int64_t column, double step) const {
    const double value = At(row, column);
    return floats_ != nullptr ? static_cast<float>(value) / static_cast<float>(step) : value / step;
  }
  const int64_t n, k;

 private:
  const float* floats_ = nullptr;
  const double* doubles_ = nullptr;
};

using Parts = std::vector<PackedPart>;

struct FamilyRow {
  Result<std::vector<PartSpec>> (*parts)(const Scheme&, int64_t n, int64_t k);
  // Suffixes that a file may have besides those of `parts`.
  std::array<const char*, 4> also_read;
  Status (*decode)(const Scheme&, const PartViews&, int64_t n, int64_t k, double* out);
  // Fills the parts other than codes. `parts` are those of `parts`, zeroed.
  Status (*choose)(const Scheme&, const Values&, const PackOptions&, Parts* parts);
  // Sets the codes in `out`, the code part, zeroed, by the scales in `given`.
  Status (*encode)(const Scheme&, const Values&, const PartViews& given, PackedPart* out);
  // What depends on codes; may be nullptr.
  Status (*finish)(const Scheme&, const Values&, const PackOptions&, Parts* parts);
};

extern const FamilyRow kDenseRow, kCtIntRow, kCtW8a8Row, kFp8Row, kMicroscalingRow, kNvfp4Row,
    kGptqRow, kAwqRow, kModelSlimW8a8Row, kModelSlimW4a8Row, kGgufRow;

// Of the tensors that are there: names for messages.
std::string Shown(const TensorView& view);
Error Bad(const TensorView& view, std::string_view reason);
std::string ShownShape(const std::vector<int64_t>& shape);

// The part, with one of the types and one of the shapes. nullptr inside where `optional` and
// absent.
struct Want {
  const char* suffix;
  std::vector<DType> dtypes;
  std::vector<std::vector<int64_t>> shapes;
  bool optional = false;
};
Result<const TensorView*> Need(const PartViews& parts, const Want& want);

inline const std::vector<DType> kFloatTypes = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// Values of a part that must be finite.
Result<std::vector<double>> ReadFinite(const TensorView& view);
// g_idx: int32 or int64, each in [0, groups).
Result<std::vector<int64_t>> ReadGroups(const TensorView& view, int64_t groups);
// k/group for every column.
std::vector<int64_t> PlainGroups(int64_t k, int64_t group);
// A permutation from the seed, cut into groups: element i of the order belongs to group i/group.
std::vector<int64_t> ShuffledGroups(int64_t k, int64_t group, uint64_t seed);
void StoreGroups(const std::vector<int64_t>& groups, PackedPart* part);

PackedPart* FindPart(Parts* parts, std::string_view suffix);

// kRefused: "k 88 is not a multiple of the group 32".
Status MustDivide(std::string_view extent, int64_t value, std::string_view unit, int64_t size);

}  // namespace assay::kernels
