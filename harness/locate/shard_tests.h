// The relations that shards are tried for, and what they are written with. Internal to the room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/locate/internal.h"

namespace assay::locate {

using reference::Slice;
using reference::Where;

using Bits = std::vector<uint64_t>;

// So many wrong values that their relation is no accident.
inline constexpr int64_t kEnough = 8;

int64_t WrongCount(const ShardCase& c);
// "96 of 96 words": for a relation that holds for all.
std::string Units(const ShardCase& c);
// "12 of 96 words are wrong": for one that holds for those.
std::string Wrong(const ShardCase& c);
bool IsFloat(DType dtype);
// Another slice of the same type and size, as bits; nullopt: there is none.
std::optional<Bits> BitsOf(const ShardCase& c, const std::string& component, const Where& where,
                           const reference::Oracle* of = nullptr);
// A whole component, with its rows and columns; nullopt: another type than the case's.
std::optional<Values> WholeOf(const ShardCase& c, const std::string& component);

template <class F>
bool AllWrong(const ShardCase& c, F holds) {
  for (size_t i = 0; i < c.want.bits.size(); ++i) {
    if (c.want.bits[i] != c.got.bits[i] && !holds(i)) return false;
  }
  return true;
}

template <class F>
bool All(const ShardCase& c, F holds) {
  for (size_t i = 0; i < c.want.bits.size(); ++i) {
    if (!holds(i)) return false;
  }
  return true;
}

// Each says what it found, or nothing. signatures_shard.cc has those of any tensor.
// signatures_parts.cc: of padding, scales, zero points, g_idx, extreme codes, replicas.
std::optional<Signature> PaddingNotZero(const ShardCase& c);
std::optional<Signature> ExtremeCodes(const ShardCase& c);
std::optional<Signature> SmallScalesLost(const ShardCase& c);
std::optional<Signature> CodesClamped(const ShardCase& c);
std::optional<Signature> GroupIndex(const ShardCase& c);
std::optional<Signature> ZeroPoints(const ShardCase& c);
std::optional<Signature> ByteOrder(const ShardCase& c);
std::optional<Signature> FnuzFactor(const ShardCase& c);
std::optional<Signature> ScaleConverted(const ShardCase& c);
std::optional<Signature> ReplicaDiffers(const ShardCase& c);
// signatures_module.cc: of tensors that belong together, and of other experts and layers.
std::optional<Signature> FusedOrder(const ShardCase& c);
std::optional<Signature> MergedScale(const ShardCase& c);
std::optional<Signature> AnotherModule(const ShardCase& c);
std::optional<Signature> ExpertTable(const ShardCase& c);
std::optional<Signature> OtherStride(const ShardCase& c);

}  // namespace assay::locate
