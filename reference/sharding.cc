#include "reference/sharding.h"

#include <fmt/format.h>

#include <numeric>

namespace assay::reference {
namespace {

constexpr int64_t kVocabularyMultiple = 64;
constexpr int kLargestDegree = 1 << 16;

Error Refused(std::string message) { return Error{std::move(message), ErrorKind::kRefused}; }

// Heads of an attention rank: contiguous query heads; key/value heads likewise, or one replicated.
Result<std::vector<int64_t>> HeadsOf(Cut cut, int64_t heads, int64_t kv_heads, const Where& where,
                                     const std::string& what) {
  const int64_t degree = where.degrees.attn_tp;
  const int64_t rank = where.rank % degree;
  std::vector<int64_t> mine;
  if (cut == Cut::kKvHeads && kv_heads < degree) {
    if (degree % kv_heads != 0) {
      return Refused(fmt::format("{}: {} key/value heads cannot be shared evenly by {} ranks", what,
                                 kv_heads, degree));
    }
    mine.push_back(rank / (degree / kv_heads));
    return mine;
  }
  const int64_t count = cut == Cut::kHeads ? heads : kv_heads;
  if (count % degree != 0) {
    return Refused(
        fmt::format("{}: {} heads cannot be cut into {} equal parts", what, count, degree));
  }
  for (int64_t head = 0; head < count; ++head) {
    if (head / (count / degree) == rank) mine.push_back(head);
  }
  return mine;
}

}  // namespace

Status CheckWhere(const Where& where) {
  if (where.rank == -1) return Ok();
  const auto [tp, attn_tp] = where.degrees;
  if (tp < 1 || tp > kLargestDegree || attn_tp < 1 || attn_tp > tp || tp % attn_tp != 0) {
    return Refused(fmt::format("tp {} with attn_tp {}: attn_tp must divide tp", tp, attn_tp));
  }
  if (where.rank < 0 || where.rank >= tp) {
    return Error{fmt::format("rank {} of tp {}: ranks are 0 to {}", where.rank, tp, tp - 1)};
  }
  return Ok();
}

int64_t PaddedVocabulary(int64_t vocabulary, int tp) {
  const int64_t multiple = std::lcm(kVocabularyMultiple, int64_t{tp});
  return (vocabulary + multiple - 1) / multiple * multiple;
}

Result<std::vector<int64_t>> AxisIndices(const Axis& axis, int64_t heads, int64_t kv_heads,
                                         const Where& where, const std::string& what) {
  if (const Status status = CheckWhere(where); !status) return status.error();
  std::vector<int64_t> mine;
  if (where.rank == -1 || axis.cut == Cut::kWhole) {
    mine.resize(static_cast<size_t>(axis.extent));
    std::iota(mine.begin(), mine.end(), int64_t{0});
    return mine;
  }
  const int64_t tp = where.degrees.tp;
  switch (axis.cut) {
    case Cut::kWhole:
      break;
    case Cut::kHeads:
    case Cut::kKvHeads: {
      const auto chosen = HeadsOf(axis.cut, heads, kv_heads, where, what);
      if (!chosen) return chosen.error();
      for (const int64_t head : *chosen) {
        for (int64_t i = 0; i < axis.block; ++i) mine.push_back(head * axis.block + i);
      }
      break;
    }
    case Cut::kEven:
      if (axis.extent % tp != 0) {
        return Refused(fmt::format("{}: {} elements cannot be cut into {} equal parts", what,
                                   axis.extent, tp));
      }
      for (int64_t i = 0; i < axis.extent; ++i) {
        if (i / (axis.extent / tp) == where.rank) mine.push_back(i);
      }
      break;
    case Cut::kVocabulary: {
      const int64_t padded = PaddedVocabulary(axis.extent, where.degrees.tp);
      for (int64_t i = 0; i < padded; ++i) {
        if (i / (padded / tp) == where.rank) mine.push_back(i < axis.extent ? i : -1);
      }
    }
  }
  return mine;
}

Result<std::vector<int64_t>> StoredColumns(const std::vector<int64_t>& elements, int64_t extent,
                                           int64_t per_column, const std::string& unit,
                                           const std::string& what) {
  if (per_column == 1) return elements;
  const int64_t stored = (extent + per_column - 1) / per_column;
  std::vector<int64_t> held(static_cast<size_t>(stored), 0), order;
  for (const int64_t element : elements) {
    auto& count = held[static_cast<size_t>(element / per_column)];
    if (count++ == 0) order.push_back(element / per_column);
  }
  for (const int64_t column : order) {
    const int64_t whole = std::min(per_column, extent - column * per_column);
    const int64_t there = held[static_cast<size_t>(column)];
    if (there != whole) {
      return Refused(
          fmt::format("{}: {} of {} elements a rank would cut {} {} ({} of its {} "
                      "elements)",
                      what, elements.size(), extent, unit, column, there, whole));
    }
  }
  return order;
}

}  // namespace assay::reference
