#include "harness/shard/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

namespace assay::shard {
namespace {

bool IsHeads(Cut cut) {
  return cut == Cut::kQueryHeads || cut == Cut::kKvHeads || cut == Cut::kHeadColumns ||
         cut == Cut::kKdaHeads || cut == Cut::kKdaColumns;
}

bool IsIntermediate(Cut cut) {
  return cut == Cut::kRows || cut == Cut::kColumns || cut == Cut::kSharedRows ||
         cut == Cut::kSharedColumns || cut == Cut::kExpertRows || cut == Cut::kExpertColumns;
}

Along AlongOf(Cut cut) {
  switch (cut) {
    case Cut::kWhole:
    case Cut::kOnce:
      return Along::kNone;
    case Cut::kColumns:
    case Cut::kSharedColumns:
    case Cut::kExpertColumns:
    case Cut::kHeadColumns:
    case Cut::kKdaColumns:
      return Along::kK;
    default:
      return Along::kN;
  }
}

// The stored axis that lies along a logical one: its stored extent, its logical extent, and how
// many elements one stored unit stands for.
struct Stored {
  Axis axis = Axis::kNone;
  int64_t extent = 0, elements = 0, unit = 1;
  std::string_view name;
  int64_t values = 1;  // stored values of one unit
};

Stored StoredAlong(const Component& c, Along along) {
  if (along == Along::kNone) return {};
  if (c.row_along == along) {
    const int64_t logical = c.row_extent.count() > 0 ? c.row_extent.count() : c.rows;
    return {Axis::kRows, c.rows, logical, c.elements_per_row.count(), c.row_unit, c.rows_per_unit};
  }
  if (c.column_along == along) {
    return {Axis::kColumns, c.columns,         c.row_elements.count(), c.column_elements.count(),
            c.unit,         c.columns_per_unit};
  }
  return {};
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// "L1.moe.e5" of "L1.moe.e5.down.weight".
std::string_view MlpOf(std::string_view component) {
  const std::string_view op = component.substr(0, component.rfind('.'));
  return op.substr(0, op.rfind('.'));
}

LogicalRange RangeOf(const LogicalCut& cut, const std::vector<int64_t>& list, int index) {
  switch (cut.kind) {
    case LogicalCut::Kind::kEven:
    case LogicalCut::Kind::kHeads: {
      const int64_t part = cut.extent / (cut.parts / cut.replicas);
      return {index / cut.replicas * part, part, 0};
    }
    case LogicalCut::Kind::kVocab: {
      const int64_t part = PaddedVocab(cut.extent, cut.parts) / cut.parts;
      const int64_t begin = std::min(cut.extent, index * part);
      const int64_t real = std::min(cut.extent - begin, part);
      return {begin, real, part - real};
    }
    case LogicalCut::Kind::kCeil: {
      const int64_t part = CeilDiv(CeilDiv(cut.extent, cut.unit), cut.parts) * cut.unit;
      const int64_t begin = std::min(cut.extent, index * part);
      const int64_t real = std::min(cut.extent - begin, part);
      return {begin, real, part - real};
    }
    case LogicalCut::Kind::kList: {
      int64_t before = 0;
      for (int i = 0; i < index; ++i) before += list[static_cast<size_t>(i)];
      const int64_t begin = std::min(cut.extent, before * cut.unit);
      const int64_t end = begin + list[static_cast<size_t>(index)] * cut.unit;
      return {begin, std::min(end, cut.extent) - begin, 0};
    }
  }
  return {};
}

// Stored units of a logical range; nullopt where it would cut one.
std::optional<std::vector<Range>> ToStored(const LogicalRange& range, const Stored& stored) {
  const int64_t end = range.begin + range.real;
  const bool begins = range.begin % stored.unit == 0 || range.real == 0;
  const bool ends = end % stored.unit == 0 || end == stored.elements;
  if (!begins || !ends || range.begin < 0 || range.real < 0 || end > stored.elements) {
    return std::nullopt;
  }
  std::vector<Range> ranges;
  // Of a short last unit only the values that are there.
  const auto values = [&](int64_t elements) {
    return elements == stored.elements ? stored.extent : elements / stored.unit * stored.values;
  };
  const int64_t length = range.real == 0 ? 0 : values(end) - values(range.begin);
  if (length > 0) ranges.push_back({values(range.begin), length});
  const int64_t whole = CeilDiv(range.real + range.padding, stored.unit) * stored.values;
  const int64_t padded = range.padding == 0 ? 0 : whole - length;
  if (padded > 0) ranges.push_back({-1, padded});
  // Held, and nothing of it.
  if (ranges.empty()) ranges.push_back({0, 0});
  return ranges;
}

Refusal AxisRefusal(const Listed& listed, const LogicalCut& cut, const Domain& domain) {
  const Stored stored = StoredAlong(listed.component, cut.along);
  Refusal r;
  r.tensor = listed.component.source;
  r.axis = cut.along == Along::kK ? "k" : "n";
  r.unit = stored.name;
  r.extent = stored.extent;
  r.elements = stored.elements;
  r.parts = domain.parts;
  r.degree = domain.name;
  return r;
}

Refusal HeadRefusal(const char* key, const char* axis, int64_t heads, const Listed& listed,
                    const Domain& domain) {
  Refusal r;
  r.tensor = key;
  r.axis = axis;
  r.unit = "head";
  r.extent = r.elements = heads;
  r.parts = domain.parts;
  r.degree = "attn_tp";
  r.cuts = listed.component.source;
  return r;
}

}  // namespace

Cutter::Cutter(const ModelConfig& config, const Degrees& degrees, const std::vector<Listed>& listed)
    : config_(config), degrees_(degrees) {
  if (degrees.split == Split::kEven) return;
  for (const Listed& entry : listed) {
    if (!IsIntermediate(entry.cut)) continue;
    const Stored stored = StoredAlong(entry.component, AlongOf(entry.cut));
    if (stored.axis == Axis::kNone) continue;
    const auto [at, added] = units_.emplace(MlpOf(entry.component.name), stored.unit);
    if (!added) at->second = std::lcm(at->second, stored.unit);
  }
}

bool Cutter::WholeOnRankZero(const Listed& listed) const {
  return degrees_.hybrid >= 0 && listed.expert >= degrees_.hybrid;
}

bool Cutter::SplitApplies(const Listed& listed) const {
  if (degrees_.split != Split::kList) return degrees_.split == Split::kCeil;
  return config_.experts == 0 || listed.expert >= 0;
}

bool Cutter::Holds(int64_t expert, int ep_rank) const {
  const auto& map = degrees_.experts.physical_to_logical;
  if (map.empty()) return expert / (config_.experts / degrees_.ep) == ep_rank;
  const auto slots = static_cast<int64_t>(map.size()) / degrees_.ep;
  const auto begin = map.begin() + ep_rank * slots;
  return std::find(begin, begin + slots, expert) != begin + slots;
}

Domain Cutter::DomainOf(const Listed& listed) const {
  const Domain attention{"attn_tp", degrees_.attention()};
  if (IsHeads(listed.cut)) return attention;
  if (listed.expert >= 0 && degrees_.ep > 1) return {"moe_tp", degrees_.tp / degrees_.ep};
  const bool shared = listed.cut == Cut::kSharedRows || listed.cut == Cut::kSharedColumns;
  if (shared && degrees_.dp > 1) return attention;
  const bool head = listed.component.name.starts_with("logits.");
  if (listed.cut == Cut::kVocab && head && degrees_.lm_head_dp) return attention;
  return {"tp", degrees_.tp};
}

LogicalCut Cutter::LogicalOf(const Listed& listed) const {
  LogicalCut cut;
  const Component& c = listed.component;
  const bool table = listed.cut == Cut::kVocab && !c.name.starts_with("logits.");
  if (WholeOnRankZero(listed) || (table && degrees_.dp > 1)) return cut;
  const Along along = AlongOf(listed.cut);
  const Stored stored = StoredAlong(c, along);
  if (stored.axis == Axis::kNone) return cut;
  cut.along = along;
  cut.parts = DomainOf(listed).parts;
  cut.extent = stored.elements;
  if (listed.cut == Cut::kVocab) cut.kind = LogicalCut::Kind::kVocab;
  if (IsHeads(listed.cut)) {
    cut.kind = LogicalCut::Kind::kHeads;
    const bool kda = listed.cut == Cut::kKdaHeads || listed.cut == Cut::kKdaColumns;
    const bool kv = listed.cut == Cut::kKvHeads;
    cut.heads = kda ? config_.kda_heads : kv ? config_.kv_heads : config_.heads;
    if (kv && cut.heads < cut.parts && cut.parts % cut.heads == 0) {
      cut.replicas = static_cast<int>(cut.parts / cut.heads);
    }
  }
  if (IsIntermediate(listed.cut) && SplitApplies(listed)) {
    cut.kind = degrees_.split == Split::kCeil ? LogicalCut::Kind::kCeil : LogicalCut::Kind::kList;
    const auto unit = units_.find(MlpOf(c.name));
    if (unit != units_.end()) cut.unit = unit->second;
  }
  return cut;
}

int Cutter::PartOf(const Listed& listed, const Domain& domain, int rank) const {
  if (WholeOnRankZero(listed)) return rank == 0 ? 0 : -1;
  if (listed.expert >= 0 && degrees_.ep > 1) {
    return Holds(listed.expert, rank / domain.parts) ? rank % domain.parts : -1;
  }
  return rank % domain.parts;
}

std::optional<Refusal> Cutter::Check(const Listed& listed) const {
  const LogicalCut cut = LogicalOf(listed);
  if (cut.along == Along::kNone) return std::nullopt;
  const Domain domain = DomainOf(listed);
  const Stored stored = StoredAlong(listed.component, cut.along);
  switch (cut.kind) {
    case LogicalCut::Kind::kHeads: {
      const bool kv = listed.cut == Cut::kKvHeads;
      const bool kda = listed.cut == Cut::kKdaHeads || listed.cut == Cut::kKdaColumns;
      if (cut.heads % cut.parts != 0 && cut.replicas == 1) {
        return HeadRefusal(kv    ? "num_key_value_heads"
                           : kda ? "linear_attn_config.num_heads"
                                 : "num_attention_heads",
                           kv ? "kv_heads" : "heads", cut.heads, listed, domain);
      }
      [[fallthrough]];
    }
    case LogicalCut::Kind::kEven: {
      const int64_t parts = cut.parts / cut.replicas;
      if (parts == 1) return std::nullopt;
      // Equal parts: what divides for one divides for all.
      if (cut.extent % parts == 0 && cut.extent / parts % stored.unit == 0) return std::nullopt;
      return AxisRefusal(listed, cut, domain);
    }
    case LogicalCut::Kind::kCeil:
      return std::nullopt;  // whole units of every member, by the choice of the unit
    case LogicalCut::Kind::kList: {
      const int64_t units = CeilDiv(cut.extent, cut.unit);
      const int64_t sum = std::accumulate(degrees_.list.begin(), degrees_.list.end(), int64_t{0});
      if (sum == units && static_cast<int>(degrees_.list.size()) == cut.parts) return std::nullopt;
      Refusal r = AxisRefusal(listed, cut, domain);
      r.unit = cut.unit == 1 ? "element" : fmt::format("unit of {} elements", cut.unit);
      r.extent = units;
      r.split = fmt::format("list:{}", fmt::join(degrees_.list, ","));
      return r;
    }
    case LogicalCut::Kind::kVocab:
      break;
  }
  for (int part = 0; stored.unit > 1 && part < cut.parts; ++part) {
    if (!ToStored(RangeOf(cut, degrees_.list, part), stored)) {
      return AxisRefusal(listed, cut, domain);
    }
  }
  return std::nullopt;
}

ComponentPlan Cutter::Plan(Listed listed) const {
  const LogicalCut cut = LogicalOf(listed);
  const Domain domain = DomainOf(listed);
  const Stored stored = StoredAlong(listed.component, cut.along);
  ComponentPlan plan;
  plan.axis = stored.axis;
  if (cut.along != Along::kNone) {
    plan.domain = domain.name;
    plan.degree = cut.parts / cut.replicas;
    plan.replicas = cut.replicas;
  }
  if (listed.cut == Cut::kOnce) plan.owner = 0;
  plan.ranks.reserve(static_cast<size_t>(degrees_.tp));
  for (int rank = 0; rank < degrees_.tp; ++rank) {
    const int part = PartOf(listed, domain, rank);
    if (part < 0) {
      plan.ranks.emplace_back();
    } else if (cut.along == Along::kNone) {
      plan.ranks.push_back({Range{0, listed.component.rows}});
    } else {
      plan.ranks.push_back(*ToStored(RangeOf(cut, degrees_.list, part), stored));
    }
  }
  plan.segment_of = std::move(listed.segment);
  plan.component = std::move(listed.component);
  return plan;
}

Status CheckDegrees(const ModelConfig& config, const Degrees& d) {
  struct Count {
    const char* name;
    int64_t value, least;
  };
  for (const Count& count : {Count{"tp", d.tp, 1}, Count{"attn_tp", d.attn_tp, 0},
                             Count{"dp", d.dp, 1}, Count{"ep", d.ep, 1}}) {
    if (count.value < count.least || count.value > kMaxTp) {
      return Error{fmt::format("{} is {}; allowed is {} to {}", count.name, count.value,
                               count.least, kMaxTp)};
    }
  }
  if ((d.split == Split::kList) == d.list.empty()) {
    return Error{"split: a list of parts belongs to split=list, and to nothing else"};
  }
  for (const int64_t part : d.list) {
    if (part < 0 || part > (int64_t{1} << 40)) {
      return Error{fmt::format("split: {} is no count of units", part)};
    }
  }
  if (d.hybrid < -1) return Error{fmt::format("placement: hybrid:{} is no count", d.hybrid)};
  if (d.hybrid >= 0 && (d.ep > 1 || d.dp > 1 || d.split != Split::kEven)) {
    return Error{"placement: hybrid goes with ep=1, dp=1 and split=even"};
  }
  const auto& map = d.experts.physical_to_logical;
  if (map.empty()) return Ok();
  if (map.size() % static_cast<size_t>(d.ep) != 0) {
    return Error{fmt::format("experts: {} slots cannot be dealt out to {} ep ranks evenly",
                             map.size(), d.ep)};
  }
  for (const int64_t expert : map) {
    if (expert < -1 || expert >= config.experts) {
      return Error{fmt::format("experts: {} in a slot; allowed are -1 (empty) to {}", expert,
                               config.experts - 1)};
    }
  }
  const auto slots = static_cast<int64_t>(map.size()) / d.ep;
  for (int64_t slot = 0; slot < static_cast<int64_t>(map.size()); ++slot) {
    const auto here = map.begin() + slot;
    if (*here >= 0 && std::find(map.begin() + slot / slots * slots, here, *here) != here) {
      return Error{fmt::format("experts: expert {} is twice in the slots of ep rank {}", *here,
                               slot / slots)};
    }
  }
  for (int64_t expert = 0; expert < config.experts; ++expert) {
    if (std::find(map.begin(), map.end(), expert) == map.end()) {
      return Error{fmt::format("experts: expert {} is in no slot", expert)};
    }
  }
  return Ok();
}

namespace {

Refusal DegreeRefusal(const char* what, int64_t extent, const char* unit, int64_t parts) {
  Refusal r;
  r.tensor = r.axis = r.degree = what;
  r.unit = unit;
  r.extent = r.elements = extent;
  r.parts = parts;
  return r;
}

}  // namespace

std::optional<Refusal> RefuseDegrees(const ModelConfig& config, const Degrees& d) {
  if (d.tp % d.dp != 0) return DegreeRefusal("dp", d.tp, "rank", d.dp);
  if (d.tp % d.attention() != 0) return DegreeRefusal("attn_tp", d.tp, "rank", d.attention());
  if (d.ep == 1) return std::nullopt;
  if (d.tp % d.ep != 0) return DegreeRefusal("ep", d.tp, "rank", d.ep);
  if (d.experts.physical_to_logical.empty() && config.experts % d.ep != 0) {
    return DegreeRefusal("ep", config.experts, "expert", d.ep);
  }
  return std::nullopt;
}

}  // namespace assay::shard
