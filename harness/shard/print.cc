// Plans and refusals as people read them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/shard/plan.h"
#include "harness/units/dtype.h"

namespace assay::shard {
namespace {

// "q4_1": methods' names are in small letters.
std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// "g32 u4x8": group and packing, where there are any; "g32 q4_1" where a block holds both.
std::string StorageSuffix(const Component& c) {
  std::string text;
  if (c.group.count() > 0) text += fmt::format(" g{}", c.group.count());
  if (IsBlock(c.dtype)) return text + " " + Lower(NameOf(c.dtype));
  if (const int64_t per_word = c.packing.elements.count(); per_word > 1) {
    text += fmt::format(" u{}x{}", c.packing.bytes.count() * 8 / per_word, per_word);
  }
  return text;
}

int64_t PaddingOf(const ComponentPlan& plan) {
  int64_t padding = 0;
  for (const auto& ranges : plan.ranks) {
    for (const Range& range : ranges) padding += range.is_padding() ? range.length : 0;
  }
  return padding;
}

// " on ranks 2, 3" where not every rank holds it; runs are shortened.
std::string HoldersOf(const ComponentPlan& plan) {
  std::vector<std::string> runs;
  const int count = static_cast<int>(plan.ranks.size());
  for (int rank = 0; rank < count;) {
    if (plan.ranks[static_cast<size_t>(rank)].empty()) {
      ++rank;
      continue;
    }
    int end = rank + 1;
    while (end < count && !plan.ranks[static_cast<size_t>(end)].empty()) ++end;
    if (end - rank == count) return "";
    runs.push_back(end - rank == 1 ? fmt::format("{}", rank) : fmt::format("{}-{}", rank, end - 1));
    rank = end;
  }
  return fmt::format(" on ranks {}", fmt::join(runs, ", "));
}

std::string Plural(int64_t n, const std::string& unit) {
  return fmt::format("{} {}{}", n, unit, n == 1 ? "" : "s");
}

}  // namespace

std::string ComponentPlan::Print() const {
  std::string text;
  if (axis == Axis::kNone) {
    text = "whole";
  } else {
    const Along along = axis == Axis::kRows ? component.row_along : component.column_along;
    text = fmt::format("{}[{}]", along == Along::kN ? "n" : "k", domain);
    if (replicas > 1) text += fmt::format("/{}", replicas);
  }
  text += StorageSuffix(component);
  if (const int64_t padding = PaddingOf(*this); padding > 0)
    text += fmt::format(" pad {}", padding);
  text += HoldersOf(*this);
  if (owner) text += fmt::format(", added by rank {}", *owner);
  return text;
}

std::string Refusal::Message() const {
  const std::string in_elements =
      elements == extent ? "" : fmt::format(" ({})", Plural(elements, "element"));
  const std::string where = cuts.empty() ? tensor : fmt::format("{} ({})", tensor, cuts);
  if (!split.empty()) {
    return fmt::format("{}: axis {} has {} ({}), which split={} does not add up to over {} {}",
                       where, axis, Plural(extent, unit), Plural(elements, "element"), split,
                       degree, parts);
  }
  const char* verb = axis == "kv_heads" ? "neither divide by nor into" : "do not divide by";
  std::string text = fmt::format("{}: axis {} has {}{}, which {} {} {}", where, axis,
                                 Plural(extent, unit), in_elements, verb, degree, parts);
  const std::string rule = attn_tp == 0 ? "" : fmt::format(" with attn_tp {}", attn_tp);
  if (largest_legal_tp == 0) return text + fmt::format("; no TP up to 64 is legal{}", rule);
  text += fmt::format("; largest legal TP{} is {}", rule, largest_legal_tp);
  if (!legal_degrees.empty()) {
    text += fmt::format(" (legal degrees: {})", fmt::join(legal_degrees, ", "));
  }
  return text;
}

const ComponentPlan* ModelPlan::Find(std::string_view component) const {
  for (const ComponentPlan& plan : components) {
    if (plan.component.name == component) return &plan;
  }
  return nullptr;
}

std::string ModelPlan::Print() const {
  std::string text;
  for (const ComponentPlan& plan : components) {
    text += fmt::format("{} {} <- {}\n", plan.component.name, plan.Print(), plan.component.source);
  }
  return text;
}

}  // namespace assay::shard
