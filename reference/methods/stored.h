// What the decoders share: checks of stored tensors, values of scales, packed integers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/methods/method.h"

namespace assay::reference {

// A list of types as messages name it, and who is in it.
struct Types {
  std::string_view name;
  bool (*has)(DType dtype);
};
extern const Types kFloatTypes;  // F64, F32, F16, BF16
extern const Types kE8M0Types;   // F8_E8M0, or U8 that holds it
// One type alone.
Status CheckType(const TensorView& view, DType dtype);
Status CheckType(const TensorView& view, const Types& types);

// The tensor is the grid [rows, columns]. One column may be stored as [rows], one value as [] too.
// Error: names the tensor, its type and shape, and what they must be.
Status CheckGrid(const TensorView& view, DType dtype, int64_t rows, int64_t columns);
Status CheckGrid(const TensorView& view, const Types& types, int64_t rows, int64_t columns);
bool IsGrid(const TensorView& view, int64_t rows, int64_t columns);
// [] or [1].
bool IsScalar(const TensorView& view);

// The stored value `index` of a scale or zero point: a float type, E4M3, E8M0 (also as U8), I8,
// I32.
double ValueAt(const TensorView& view, int64_t index);
int32_t IntAt(const TensorView& view, int64_t index);
inline unsigned ByteAt(const TensorView& view, int64_t index) {
  return std::to_integer<unsigned>(view.bytes[static_cast<size_t>(index)]);
}

// Every value of a grid of scales is finite. `row` and `column` name an index of an axis: "row",
// "group". Error kRefused: the first that is NaN or infinite.
Status CheckScales(const TensorView& scale, std::string_view row, std::string_view column);

Error BadInput(const PartFinder& parts, std::string_view what);
Error Unsupported(const PartFinder& parts, std::string_view what);

// Parts that several methods have.
StoredPart ScalarPart(std::string suffix, std::string file_suffix, const TensorView* view);
// One value a row of the weight, [rows, 1] or [rows].
StoredPart ChannelPart(std::string suffix, std::string file_suffix, const TensorView* view,
                       int64_t columns);
// Appends those of `names` (pairs of suffix and file suffix) that are there: one value each.
Status AppendScalars(const PartFinder& parts,
                     std::span<const std::pair<const char*, const char*>> names,
                     std::vector<StoredPart>* to);

// Integers of 1 to 8 bits in 32-bit words, least significant first. Value i begins at bit i·bits of
// a run of words, so values may straddle two; or, as compressed-tensors up to 0.12 packed them,
// ⌊32 / bits⌋ values lie in a word whose top bits stay unused.
class PackedInts {
 public:
  PackedInts() = default;
  PackedInts(int bits, bool old_packing);
  int64_t Words(int64_t values) const;
  // Value i of `words`, each `stride` bytes after the last.
  uint32_t At(const std::byte* words, int64_t stride, int64_t i) const;
  // Values 0 to count − 1 of them, one after the other.
  void Unpack(const std::byte* words, int64_t stride, int64_t count, double* out) const;
  // The smallest run of values that ends with a word, and its words.
  int64_t unit_values() const { return unit_values_; }
  int64_t unit_words() const { return unit_words_; }

 private:
  int bits_ = 4;
  int64_t per_word_ = 0;  // 0: values straddle
  int64_t unit_values_ = 8, unit_words_ = 1;
};

// g_idx: the group of each element along K, in numbers of the whole tensor.
struct GroupIndex {
  std::vector<int64_t> of;  // of each column of the weight
  // of[k] = of[0] + k / group: nothing is permuted, though a shard's numbers begin further on.
  bool runs = false;
};
// Error: not I32 [columns], or no bytes of it are there.
Result<GroupIndex> ReadGroupIndex(const TensorView& g_idx, int64_t columns, int64_t group);
// Every number is below `groups`.
Status CheckGroupIndex(const TensorView& g_idx, const GroupIndex& index, int64_t groups);

// The rows of the table in methods.cc.
bool MatchesPlain(const PartFinder& parts, const QuantConfig& config);
Opened OpenPlain(const Opening& opening);
bool MatchesCtInt(const PartFinder& parts, const QuantConfig& config);
Opened OpenCtInt(const Opening& opening);
bool MatchesEightBit(const PartFinder& parts, const QuantConfig& config);
Opened OpenEightBit(const Opening& opening);
bool MatchesMxfp4(const PartFinder& parts, const QuantConfig& config);
Opened OpenMxfp4(const Opening& opening);
bool MatchesNvfp4(const PartFinder& parts, const QuantConfig& config);
Opened OpenNvfp4(const Opening& opening);
bool MatchesGptq(const PartFinder& parts, const QuantConfig& config);
Opened OpenGptq(const Opening& opening);
bool MatchesAwq(const PartFinder& parts, const QuantConfig& config);
Opened OpenAwq(const Opening& opening);
bool MatchesModelSlim(const PartFinder& parts, const QuantConfig& config);
Opened OpenModelSlim(const Opening& opening);
bool MatchesGguf(const PartFinder& parts, const QuantConfig& config);
Opened OpenGguf(const Opening& opening);

}  // namespace assay::reference
