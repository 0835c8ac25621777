#include "harness/audit/hiding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace assay::audit {
namespace {

using shard::Along;
using shard::Axis;

bool Is(const Placed& p, std::string_view suffix) { return p.suffix() == suffix; }

// Stored values that rank 0 holds along an axis.
int64_t Local(const Placed& p, Axis axis) {
  const shard::Component& c = *p.component;
  const int64_t whole = axis == Axis::kRows ? c.rows : c.columns;
  if (p.plan == nullptr || p.plan->axis != axis || p.plan->ranks.empty()) return whole;
  int64_t length = 0;
  for (const shard::Range& range : p.plan->ranks[0]) length += range.length;
  return length;
}

bool CutAlongK(const Placed& p) {
  if (p.plan == nullptr || p.plan->axis == Axis::kNone) return false;
  const shard::Component& c = *p.component;
  return (p.plan->axis == Axis::kRows ? c.row_along : c.column_along) == Along::kK;
}

// The axis that counts groups: of ct's scales the columns, of GPTQ's the rows.
Axis GroupAxis(const Placed& p) {
  return p.component->row_along == Along::kK ? Axis::kRows : Axis::kColumns;
}

bool IsPacked(const Placed& p) {
  const shard::Component& c = *p.component;
  return c.packing.elements.count() > 1 || c.elements_per_row.count() > 1;
}

bool HasPadding(const Placed& p) {
  if (p.plan == nullptr) return false;
  for (const auto& ranges : p.plan->ranks) {
    for (const shard::Range& range : ranges) {
      if (range.is_padding()) return true;
    }
  }
  return false;
}

bool IsScale(const Placed& p) { return Is(p, ".scale"); }
bool IsGroupScale(const Placed& p) { return IsScale(p) && p.component->group.count() > 0; }
bool IsMatrixScale(const Placed& p) {
  return IsScale(p) && p.component->rows > 1 && p.component->columns > 1;
}
bool IsIntermediate(const Placed& p) {
  const std::string& name = p.component->name;
  return name.find(".mlp.") != name.npos || name.find(".moe.") != name.npos ||
         name.find(".shared.") != name.npos;
}
bool IsGateOrUp(const Placed& p) {
  const std::string& name = p.component->name;
  return IsIntermediate(p) && (name.find(".gate.") != name.npos || name.find(".up.") != name.npos);
}
bool IsSeen(const Placed& p) { return p.tally != nullptr && p.tally->bytes > 0; }

struct OfTensor {
  std::string_view kind;
  bool at_any_degree;
  std::string_view text;
  bool (*applies)(const Placed&);
  bool (*hides)(const Placed&);
  bool each = false;  // every tensor for itself; otherwise one that shows it is enough
};

// Each row: what is looked at, and when the fault leaves no trace in it.
constexpr std::array<OfTensor, 20> kOfTensors = {{
    {"K01", false,
     "every rank's k begins and ends on a whole group: rounding the count of groups down or up "
     "changes nothing",
     [](const Placed& p) { return p.component->group.count() > 0 && CutAlongK(p) && p.tp > 1; },
     [](const Placed& p) { return !HasPadding(p); }},
    {"K02", false, "one rank: an offset of 0 is right in any unit",
     [](const Placed& p) { return IsPacked(p); }, [](const Placed& p) { return p.tp == 1; }},
    {"K03", false, "one rank: scales that are left whole, or addressed by the local k, are right",
     [](const Placed& p) { return IsGroupScale(p); }, [](const Placed& p) { return p.tp == 1; }},
    {"K03", false,
     "a rank has one group along k (its width is the group size): its scales look like one scale a "
     "row",
     [](const Placed& p) { return IsGroupScale(p) && CutAlongK(p) && p.tp > 1; },
     [](const Placed& p) { return Local(p, GroupAxis(p)) == 1; }},
    {"K03", true, "all scales of the tensor are equal: another rank's are no different",
     [](const Placed& p) { return IsMatrixScale(p) && IsSeen(p); },
     [](const Placed& p) { return p.tally->constant(); }},
    {"K04", true, "g_idx permutes nothing: a loader that loses it is right",
     [](const Placed& p) { return p.g_idx != nullptr; },
     [](const Placed& p) { return p.g_idx->identity || p.g_idx->unused; }},
    {"K05", true, "scales are square: transposed they have the same shape",
     [](const Placed& p) { return IsMatrixScale(p); },
     [](const Placed& p) { return p.component->rows == p.component->columns; }},
    {"K05", false, "a rank's scales are square: transposed they have the same shape",
     [](const Placed& p) {
       return IsMatrixScale(p) && p.plan != nullptr && p.plan->axis != Axis::kNone && p.tp > 1;
     },
     [](const Placed& p) { return Local(p, Axis::kRows) == Local(p, Axis::kColumns); }},
    {"K05", true, "one group along k (k is the group size): there is no order of groups to lose",
     [](const Placed& p) { return IsGroupScale(p); },
     [](const Placed& p) {
       return (GroupAxis(p) == Axis::kRows ? p.component->rows : p.component->columns) == 1;
     }},
    {"K05", true, "all scales of the tensor are equal: in any order they are the same",
     [](const Placed& p) { return IsMatrixScale(p) && IsSeen(p); },
     [](const Placed& p) { return p.tally->constant(); }},
    {"K06", true, "all zero points are equal: none is at the end of the range, where it would wrap",
     [](const Placed& p) { return Is(p, ".zero") && IsSeen(p); },
     [](const Placed& p) { return p.tally->constant(); }},
    {"K07", true, "all zero points are equal: in any order of nibbles they are the same",
     [](const Placed& p) { return Is(p, ".zero") && IsSeen(p); },
     [](const Placed& p) { return p.tally->constant(); }},
    {"K08", false, "one rank: gate and up cut as one slab are whole",
     [](const Placed& p) { return IsGateOrUp(p) && Is(p, ".weight"); },
     [](const Placed& p) { return p.tp == 1; }},
    {"K13", true, "every byte is zero: memory that nothing was loaded into looks the same",
     [](const Placed& p) { return IsSeen(p) && p.component->rows * p.component->columns > 1; },
     [](const Placed& p) { return p.tally->all_zero; }, true},
    {"K16", true, "no exponent is 0 or 254: the ends of E8M0 are not met",
     [](const Placed& p) {
       const DType dtype = p.component->dtype;
       return IsScale(p) && IsSeen(p) && (dtype == DType::kU8 || dtype == DType::kF8E8M0);
     },
     [](const Placed& p) { return p.tally->least > 0 && p.tally->largest < 254; }},
    {"K16", true, "no scale is denormal or zero: how they are converted is not met",
     [](const Placed& p) {
       const DType dtype = p.component->dtype;
       return IsScale(p) && IsSeen(p) &&
              (dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32);
     },
     [](const Placed& p) {
       return p.tally->of(Issue::kZero).count == 0 && p.tally->of(Issue::kDenormal).count == 0;
     }},
    {"K17", true, "the bias is all zeros: added twice, or on every rank, it is the same",
     [](const Placed& p) { return Is(p, ".bias") && IsSeen(p); },
     [](const Placed& p) { return p.tally->all_zero; }},
    {"K18", false, "nothing is padded at this degree",
     [](const Placed& p) { return IsIntermediate(p) && p.plan != nullptr; },
     [](const Placed& p) { return !HasPadding(p); }},
    {"K19", true, "one group along k: channel and group read the same",
     [](const Placed& p) { return IsGroupScale(p); },
     [](const Placed& p) {
       return (GroupAxis(p) == Axis::kRows ? p.component->rows : p.component->columns) == 1;
     }},
    {"K19", true, "one row: per tensor and per channel read the same",
     [](const Placed& p) { return IsScale(p); },
     [](const Placed& p) {
       return p.component->rows == 1 && p.component->columns == 1 &&
              p.component->row_extent.count() == 1;
     }},
}};

struct OfModel {
  std::string_view kind;
  bool at_any_degree;
  std::string_view text;
  bool (*hides)(const ModelConfig&, int tp);
};

constexpr std::array<OfModel, 9> kOfModels = {{
    {"K09", false, "one rank: there are no heads to deal out",
     [](const ModelConfig&, int tp) { return tp == 1; }},
    {"K09", false, "KV heads divide by the ranks: none is replicated",
     [](const ModelConfig& c, int tp) {
       return tp > 1 && !c.is_mla() && c.kv_heads > 0 && c.kv_heads % tp == 0;
     }},
    {"K09", true, "as many KV heads as heads: a grouped layout is the plain one",
     [](const ModelConfig& c, int) { return !c.is_mla() && c.heads > 0 && c.kv_heads == c.heads; }},
    {"K10", false, "one rank: a norm over its part is the norm over the whole",
     [](const ModelConfig& c, int tp) { return c.qk_norm && tp == 1; }},
    {"K11", false, "the vocabulary is a multiple of 64 x tp: nothing is padded",
     [](const ModelConfig& c, int tp) { return c.vocab > 0 && c.vocab % (int64_t{64} * tp) == 0; }},
    {"K11", true, "the head is not tied to the embedding: a loader that loses the tie is right",
     [](const ModelConfig& c, int) { return !c.tied; }},
    {"K14", true, "no more experts than a double buffer has slots: none is used twice",
     [](const ModelConfig& c, int) { return c.experts > 0 && c.experts <= 2; }},
    {"K17", true, "no linear layer that is cut along k has a bias",
     [](const ModelConfig& c, int) { return !c.o_bias && !c.mlp_bias && !c.expert_bias; }},
    {"K17", false, "one rank: a bias on every rank is a bias once",
     [](const ModelConfig& c, int tp) {
       return tp == 1 && (c.o_bias || c.mlp_bias || c.expert_bias);
     }},
}};

constexpr std::string_view kEqualText =
    "the members of merged parameters have equal per-tensor scales: one member's for all is right";

}  // namespace

std::string_view Placed::suffix() const {
  const std::string_view name = component->name;
  const size_t dot = name.rfind('.');
  return dot == name.npos ? std::string_view() : name.substr(dot);
}

Hiding::Hiding(int tp) : tp_(tp), counts_(kOfTensors.size()) {}

void Hiding::Add(const Placed& placed) {
  for (size_t i = 0; i < kOfTensors.size(); ++i) {
    const OfTensor& row = kOfTensors[i];
    if (!row.applies(placed)) continue;
    Count& count = counts_[i];
    ++count.applies;
    if (!row.hides(placed)) continue;
    if (count.hides++ == 0) count.first = placed.component->source;
  }
  // K12: per-tensor numbers of members that one kernel call shares.
  if (placed.scalar == nullptr || placed.plan == nullptr || placed.plan->segment_of.empty()) return;
  const auto [at, added] =
      merged_.emplace(placed.plan->segment_of + std::string(placed.suffix()), *placed.scalar);
  if (added) return;
  ++equal_.applies;
  if (at->second != *placed.scalar) return;
  if (equal_.hides++ == 0) equal_.first = placed.component->source;
}

std::vector<Hidden> Hiding::Rows(const ModelConfig& config) const {
  std::vector<Hidden> rows;
  for (size_t i = 0; i < kOfTensors.size(); ++i) {
    const OfTensor& row = kOfTensors[i];
    const Count& count = counts_[i];
    if (count.hides == 0 || (!row.each && count.hides < count.applies)) continue;
    rows.push_back({std::string(row.kind), row.at_any_degree ? 0 : tp_, std::string(row.text),
                    count.hides, count.first});
  }
  if (equal_.applies > 0 && equal_.hides == equal_.applies) {
    rows.push_back({"K12", 0, std::string(kEqualText), equal_.hides, equal_.first});
  }
  for (const OfModel& row : kOfModels) {
    if (row.hides(config, tp_)) {
      rows.push_back(
          {std::string(row.kind), row.at_any_degree ? 0 : tp_, std::string(row.text), 0, ""});
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Hidden& a, const Hidden& b) { return a.kind < b.kind; });
  return rows;
}

std::vector<PredicateText> Predicates() {
  std::vector<PredicateText> texts;
  for (const OfTensor& row : kOfTensors) {
    texts.push_back({std::string(row.kind), std::string(row.text)});
  }
  texts.push_back({"K12", std::string(kEqualText)});
  for (const OfModel& row : kOfModels) {
    texts.push_back({std::string(row.kind), std::string(row.text)});
  }
  return texts;
}

}  // namespace assay::audit
