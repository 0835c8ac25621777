// What a storage method is to the planner: given the parts of a linear [n, k] that are in the file,
// their extents checked and their axes named. One file for each family; resolve.cc chooses.
// Internal to the room.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/shard/listing.h"
#include "harness/shard/methods/parts.h"
#include "harness/units/scheme.h"

namespace assay::shard {

// What a method is given.
struct Linear {
  const Spec& spec;
  const PartSet& parts;
  const QuantConfig& quant;  // the module's own (QuantConfig::For)
  bool headers_only = false;
};

// One axis of a stored tensor: which logical axis it lies along, how long that is, how many
// elements one unit stands for, and in how many stored values: 32 elements of 3 bits lie in 3
// words.
struct StoredAxis {
  Along along = Along::kNone;
  int64_t extent = 1;  // logical elements; of kNone: stored values
  int64_t elements = 1;
  std::string_view unit = "element";
  int64_t values = 1;
  // Stored values of the whole axis. The last unit may be a part of one.
  int64_t stored() const;
};
inline StoredAxis AlongN(const Spec& s, int64_t elements = 1, std::string_view unit = "element") {
  return {Along::kN, s.n, elements, unit, 1};
}
inline StoredAxis AlongK(const Spec& s, int64_t elements = 1, std::string_view unit = "element") {
  return {Along::kK, s.k, elements, unit, 1};
}
// An axis that no cut divides.
inline StoredAxis Whole(int64_t values = 1, std::string_view unit = "element") {
  return {Along::kNone, values, 1, unit, 1};
}

// Appends the components of one linear.
class Lister {
 public:
  Lister(const Linear& linear, std::vector<Listed>* out) : linear_(linear), out_(out) {}
  void SetMethod(const Scheme& scheme, int64_t group);

  // Checks the part's shape and bytes and appends it as `name` + suffix. A vector may be [n] or
  // [n, 1]; one value [], [1] or [1, 1].
  Status Add(const Part& part, std::string_view suffix, const StoredAxis& rows,
             const StoredAxis& columns);
  // As Add, and counts once where the columns are cut.
  Status AddOnce(const Part& part, std::string_view suffix, const StoredAxis& rows,
                 const StoredAxis& columns);
  // One value for the whole tensor.
  Status AddScalar(const Part& part, std::string_view suffix);

 private:
  const Linear& linear_;
  std::vector<Listed>* out_;
  std::string method_;
  int64_t group_ = 0;
};

// A grid's shape and bytes against the extents that it must have. Errors name tensor, axis, unit
// and both extents.
Status CheckGrid(const Part& part, const StoredAxis& rows, const StoredAxis& columns);
// The part's type is one of these. Error: kBadInput, or `kind`.
Status CheckType(const Part& part, std::initializer_list<DType> types,
                 ErrorKind kind = ErrorKind::kBadInput);
// A scale in floating point: BF16, F16 or F32.
Status CheckScaleType(const Part& part);
// A part that the method needs. Error: it is missing.
Result<const Part*> NeedPart(const Linear& linear, std::string_view suffix);
// E8M0 scales [n, groups] of which none is 255. Error names row and group.
Status CheckExponents(const Part& scale, int64_t rows, int64_t groups);
// Group numbers of k inputs: each in range, and `group` of each. `trivial` is set to whether input
// i is of group i / group.
Status CheckGroupIndex(const Part& part, int64_t k, int64_t group, int64_t groups, bool* trivial);
Error Unsupported(std::string message);

using MethodLister = Status (*)(const Linear& linear, std::vector<Listed>* out);
// The families, each in its file. A part of `linear.parts` that a family does not ask for is an
// error of resolve.cc's.
Status ListDense(const Linear& linear, std::vector<Listed>* out);         // dense.cc
Status ListBlocks(const Linear& linear, std::vector<Listed>* out);        // blocks.cc
Status ListCtInt(const Linear& linear, std::vector<Listed>* out);         // ct_int.cc
Status ListCtW8a8(const Linear& linear, std::vector<Listed>* out);        // eight_bits.cc
Status ListCtFp8(const Linear& linear, std::vector<Listed>* out);         // eight_bits.cc
Status ListDeepseekFp8(const Linear& linear, std::vector<Listed>* out);   // eight_bits.cc
Status ListMicroscaling(const Linear& linear, std::vector<Listed>* out);  // microscaling.cc
Status ListNvfp4(const Linear& linear, std::vector<Listed>* out);         // microscaling.cc
Status ListGptq(const Linear& linear, std::vector<Listed>* out);          // gptq.cc
Status ListAwq(const Linear& linear, std::vector<Listed>* out);           // gptq.cc
Status ListModelSlim(const Linear& linear, std::vector<Listed>* out);     // modelslim.cc

}  // namespace assay::shard
