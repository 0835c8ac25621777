#include "reference/sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace assay::reference {
namespace {

constexpr int64_t kVocabularyMultiple = 64;
constexpr int kLargestDegree = 1 << 16;

using Indices = std::vector<int64_t>;

Error Refused(std::string message) { return Error{std::move(message), ErrorKind::kRefused}; }

// Which of how many parts of something is this rank's.
struct Part {
  int64_t index = 0, count = 1;
};
Part AttentionPart(const Where& where) {
  const int64_t degree = where.degrees.attention();
  return {where.rank % degree, degree};
}
Part TensorPart(const Where& where) { return {where.rank, where.degrees.tp}; }
// Of the ranks that share an expert.
Part ExpertPart(const Where& where) {
  const int64_t sharing = where.degrees.tp / where.degrees.ep;
  return {where.rank % sharing, sharing};
}

// Heads of an attention rank: contiguous query heads; key/value heads likewise, or one replicated.
Result<Indices> HeadsOf(const Axis& axis, const Where& where, const std::string& what) {
  const Part part = AttentionPart(where);
  const int64_t heads = axis.extent / axis.block;
  if (axis.cut == Cut::kKvHeads && heads < part.count) {
    if (part.count % heads != 0) {
      return Refused(fmt::format("{}: {} key/value heads cannot be shared evenly by {} ranks", what,
                                 heads, part.count));
    }
    return Indices{part.index / (part.count / heads)};
  }
  if (heads % part.count != 0) {
    return Refused(
        fmt::format("{}: {} heads cannot be cut into {} equal parts", what, heads, part.count));
  }
  Indices mine;
  for (int64_t head = 0; head < heads; ++head) {
    if (head / (heads / part.count) == part.index) mine.push_back(head);
  }
  return mine;
}

Indices All(int64_t extent) {
  Indices all(static_cast<size_t>(extent));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

Indices Padded(int64_t extent, int64_t padded, const Part& part) {
  Indices mine;
  for (int64_t i = 0; i < padded; ++i) {
    if (i / (padded / part.count) == part.index) mine.push_back(i < extent ? i : -1);
  }
  return mine;
}

Result<Indices> Even(int64_t extent, const Part& part, const std::string& what) {
  if (extent % part.count != 0) {
    return Refused(
        fmt::format("{}: {} elements cannot be cut into {} equal parts", what, extent, part.count));
  }
  return Padded(extent, extent, part);
}

// Every part the same number of units; those that do not exist are padding.
Indices Ceil(int64_t extent, int64_t unit, const Part& part) {
  if (part.count == 1) return All(extent);
  const int64_t units = (extent + unit - 1) / unit;
  const int64_t each = (units + part.count - 1) / part.count;
  return Padded(extent, each * part.count * unit, part);
}

Result<Indices> Listed(int64_t extent, int64_t unit, const Indices& list, const Part& part,
                       const std::string& what) {
  const int64_t units = (extent + unit - 1) / unit;
  const bool none_negative =
      std::all_of(list.begin(), list.end(), [](int64_t n) { return n >= 0; });
  if (static_cast<int64_t>(list.size()) != part.count || !none_negative ||
      std::accumulate(list.begin(), list.end(), int64_t{0}) != units) {
    return Refused(fmt::format(
        "{}: split list:{} does not give {} units of {} elements to {} parts, one entry each", what,
        fmt::join(list, ","), units, unit, part.count));
  }
  const auto at = static_cast<size_t>(part.index);
  const int64_t first = std::accumulate(list.begin(), list.begin() + part.index, int64_t{0});
  Indices mine;
  for (int64_t i = 0; i < extent; ++i) {
    if (i / unit >= first && i / unit < first + list[at]) mine.push_back(i);
  }
  return mine;
}

// The intermediate axis of an MLP.
Result<Indices> Intermediate(int64_t extent, int64_t unit, const Part& part, const Where& where,
                             const std::string& what) {
  switch (where.degrees.split) {
    case Split::kEven:
      break;
    case Split::kCeil:
      return Ceil(extent, unit, part);
    case Split::kList:
      return Listed(extent, unit, where.degrees.list, part, what);
  }
  return Even(extent, part, what);
}

Result<Indices> ExpertIndices(const Axis& axis, int64_t unit, const Where& where,
                              const std::string& what) {
  const auto held = HeldOf(axis.expert, axis.experts, where, what);
  if (!held) return held.error();
  if (*held == Held::kAbsent) return Indices{};
  if (*held == Held::kWhole) return All(axis.extent);
  return Intermediate(axis.extent, unit, ExpertPart(where), where, what);
}

Result<Indices> HeadIndices(const Axis& axis, const Where& where, const std::string& what) {
  const auto chosen = HeadsOf(axis, where, what);
  if (!chosen) return chosen.error();
  Indices mine;
  for (const int64_t head : *chosen) {
    for (int64_t i = 0; i < axis.block; ++i) mine.push_back(head * axis.block + i);
  }
  return mine;
}

}  // namespace

Status CheckWhere(const Where& where) {
  if (where.rank == -1) return Ok();
  const Parallel& d = where.degrees;
  if (d.tp < 1 || d.tp > kLargestDegree || d.dp < 1 || d.tp % d.dp != 0 || d.ep < 1 ||
      d.tp % d.ep != 0) {
    return Refused(
        fmt::format("tp {} with dp {} and ep {}: dp and ep must divide tp", d.tp, d.dp, d.ep));
  }
  const int attention = d.attention();
  if (attention < 1 || attention > d.tp || d.tp % attention != 0) {
    return Refused(fmt::format("tp {} with attn_tp {}: attn_tp must divide tp", d.tp, d.attn_tp));
  }
  if (where.rank < 0 || where.rank >= d.tp) {
    return Error{fmt::format("rank {} of tp {}: ranks are 0 to {}", where.rank, d.tp, d.tp - 1)};
  }
  return Ok();
}

Result<Held> HeldOf(int64_t expert, int64_t experts, const Where& where, const std::string& what) {
  if (where.rank == -1) return Held::kWhole;
  const Parallel& d = where.degrees;
  if (d.hybrid >= 0 && expert >= d.hybrid) return where.rank == 0 ? Held::kWhole : Held::kAbsent;
  if (d.ep == 1 && d.physical_to_logical.empty()) return Held::kPart;
  const Indices slots = d.physical_to_logical.empty() ? All(experts) : d.physical_to_logical;
  const auto count = static_cast<int64_t>(slots.size());
  if (count % d.ep != 0) {
    return Refused(fmt::format("{}: {} slots of experts cannot be dealt out evenly to {} ranks",
                               what, count, d.ep));
  }
  const int64_t mine = where.rank / (d.tp / d.ep);
  bool held = false, anywhere = false;
  for (int64_t slot = 0; slot < count; ++slot) {
    const int64_t logical = slots[static_cast<size_t>(slot)];
    if (logical < -1 || logical >= experts) {
      return Error{fmt::format("{}: slot {} holds expert {}, must be -1 to {}", what, slot, logical,
                               experts - 1)};
    }
    if (logical != expert) continue;
    anywhere = true;
    held = held || slot / (count / d.ep) == mine;
  }
  if (!anywhere) return Refused(fmt::format("{}: no slot holds expert {}", what, expert));
  return held ? Held::kPart : Held::kAbsent;
}

int64_t PaddedVocabulary(int64_t vocabulary, int tp) {
  const int64_t multiple = std::lcm(kVocabularyMultiple, int64_t{tp});
  return (vocabulary + multiple - 1) / multiple * multiple;
}

Result<Indices> AxisIndices(const Axis& axis, int64_t unit, const Where& where,
                            const std::string& what) {
  if (const Status status = CheckWhere(where); !status) return status.error();
  if (where.rank == -1) return All(axis.extent);
  switch (axis.cut) {
    case Cut::kWhole:
      break;
    case Cut::kHeads:
    case Cut::kKvHeads:
      return HeadIndices(axis, where, what);
    case Cut::kDense: {
      const Part part = where.degrees.dp > 1 ? AttentionPart(where) : TensorPart(where);
      // A list speaks of one axis: where there are experts, of theirs.
      if (where.degrees.split == Split::kList && axis.experts > 0) {
        return Even(axis.extent, part, what);
      }
      return Intermediate(axis.extent, unit, part, where, what);
    }
    case Cut::kExpert:
      return ExpertIndices(axis, unit, where, what);
    case Cut::kVocabulary:
      if (where.degrees.dp > 1) break;
      return Padded(axis.extent, PaddedVocabulary(axis.extent, where.degrees.tp),
                    TensorPart(where));
    case Cut::kOutput: {
      const Part part = where.degrees.lm_head_dp ? AttentionPart(where) : TensorPart(where);
      return Padded(axis.extent, PaddedVocabulary(axis.extent, static_cast<int>(part.count)), part);
    }
  }
  return All(axis.extent);
}

Result<Indices> StoredIndices(const Indices& elements, int64_t extent, const Grain& grain,
                              int64_t stored, const std::string& what) {
  const int64_t per = grain.elements;
  if (per == 1 && grain.values == 1) return elements;
  const int64_t units = (extent + per - 1) / per;
  std::vector<int64_t> held(static_cast<size_t>(units), 0), order;
  int64_t padding = 0;
  for (const int64_t element : elements) {
    if (element < 0) {
      ++padding;
      continue;
    }
    auto& count = held[static_cast<size_t>(element / per)];
    if (count++ == 0) order.push_back(element / per);
  }
  Indices mine;
  for (const int64_t unit : order) {
    const int64_t whole = std::min(per, extent - unit * per);
    const int64_t there = held[static_cast<size_t>(unit)];
    if (there != whole) {
      return Refused(
          fmt::format("{}: {} of {} elements a rank would cut {} {} ({} of its {} "
                      "elements)",
                      what, elements.size(), extent, grain.unit, unit, there, whole));
    }
    // The tensor's last unit may be short of values too.
    for (int64_t value = unit * grain.values; value < std::min((unit + 1) * grain.values, stored);
         ++value) {
      mine.push_back(value);
    }
    padding -= std::min(padding, per - whole);  // what fills the last unit is in it already
  }
  for (int64_t i = 0; i < (padding + per - 1) / per * grain.values; ++i) mine.push_back(-1);
  return mine;
}

}  // namespace assay::reference
