// Cuts the listed components over ranks, or says why that is illegal. Pure.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "harness/shard/listing.h"

namespace assay::shard {
namespace {

constexpr int kLargestTried = 64;

bool IsAttention(Cut cut) {
  return cut == Cut::kQueryHeads || cut == Cut::kKvHeads || cut == Cut::kHeadColumns;
}

int DegreeOf(Cut cut, const Degrees& degrees) {
  return IsAttention(cut) ? degrees.attention() : degrees.tp;
}

Refusal HeadRefusal(const char* key, const char* axis, int64_t heads, const Listed& listed,
                    const Degrees& degrees) {
  Refusal r;
  r.tensor = key;
  r.axis = axis;
  r.unit = "head";
  r.extent = r.elements = heads;
  r.parts = degrees.attention();
  r.degree = "attn_tp";
  r.cuts = listed.component.source;
  return r;
}

Refusal AxisRefusal(const Listed& listed, bool columns, const Degrees& degrees) {
  const Component& c = listed.component;
  Refusal r;
  r.tensor = c.source;
  r.axis = columns ? "k" : "n";
  r.unit = columns ? c.unit : "element";
  r.extent = columns ? c.columns : c.rows;
  r.elements = columns ? c.row_elements.count() : c.rows;
  r.parts = DegreeOf(listed.cut, degrees);
  r.degree = IsAttention(listed.cut) ? "attn_tp" : "tp";
  return r;
}

// Whole columns for every part, and in a packed row whole words: a row that ends inside its last
// word cannot be cut even where the words would divide.
bool ColumnsDivide(const Component& c, int parts) {
  if (parts == 1) return true;
  return c.columns % parts == 0 &&
         c.row_elements.count() % (c.column_elements.count() * parts) == 0;
}

// What forbids these degrees for this component; no value where it is legal.
std::optional<Refusal> CheckCut(const ModelConfig& config, const Listed& listed,
                                const Degrees& degrees) {
  const int parts = DegreeOf(listed.cut, degrees);
  switch (listed.cut) {
    case Cut::kWhole:
    case Cut::kOnce:
    case Cut::kVocab:
      return std::nullopt;
    case Cut::kRows:
      if (listed.component.rows % parts != 0) return AxisRefusal(listed, false, degrees);
      return std::nullopt;
    case Cut::kColumns:
      if (!ColumnsDivide(listed.component, parts)) return AxisRefusal(listed, true, degrees);
      return std::nullopt;
    case Cut::kKvHeads:
      if (config.kv_heads % parts != 0 && parts % config.kv_heads != 0) {
        return HeadRefusal("num_key_value_heads", "kv_heads", config.kv_heads, listed, degrees);
      }
      return std::nullopt;
    case Cut::kQueryHeads:
    case Cut::kHeadColumns:
      if (config.heads % parts != 0) {
        return HeadRefusal("num_attention_heads", "heads", config.heads, listed, degrees);
      }
      if (listed.cut == Cut::kHeadColumns && !ColumnsDivide(listed.component, parts)) {
        return AxisRefusal(listed, true, degrees);
      }
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Refusal> CheckDegrees(const Degrees& degrees) {
  if (degrees.tp % degrees.attention() == 0) return std::nullopt;
  Refusal r;
  r.tensor = r.axis = r.degree = "attn_tp";
  r.unit = "rank";
  r.extent = r.elements = degrees.tp;
  r.parts = degrees.attn_tp;
  return r;
}

std::optional<Refusal> FirstRefusal(const ModelConfig& config, const std::vector<Listed>& listed,
                                    const Degrees& degrees) {
  if (auto refusal = CheckDegrees(degrees)) return refusal;
  for (const Listed& entry : listed) {
    if (auto refusal = CheckCut(config, entry, degrees)) return refusal;
  }
  return std::nullopt;
}

// Ascending.
std::vector<int> LegalDegrees(const ModelConfig& config, const std::vector<Listed>& listed,
                              int attn_tp) {
  std::vector<int> legal;
  for (int tp = 1; tp <= kLargestTried; ++tp) {
    if (!FirstRefusal(config, listed, {tp, attn_tp})) legal.push_back(tp);
  }
  return legal;
}

// Part `index` of the padded vocabulary: real rows, then padding.
std::vector<Range> VocabPart(int64_t vocab, int64_t padded, int tp, int index) {
  const int64_t per_rank = padded / tp;
  const int64_t begin = index * per_rank;
  const int64_t real = std::clamp<int64_t>(vocab - begin, 0, per_rank);
  std::vector<Range> ranges;
  if (real > 0) ranges.push_back({begin, real});
  if (real < per_rank) ranges.push_back({-1, per_rank - real});
  return ranges;
}

void CutVocab(const Degrees& degrees, ComponentPlan* plan) {
  plan->axis = Axis::kRows;
  plan->degree = degrees.tp;
  const int64_t vocab = plan->component.rows;
  for (int rank = 0; rank < degrees.tp; ++rank) {
    plan->ranks.push_back(VocabPart(vocab, PaddedVocab(vocab, degrees.tp), degrees.tp, rank));
  }
}

ComponentPlan CutComponent(const ModelConfig& config, Listed listed, const Degrees& degrees) {
  ComponentPlan plan;
  plan.component = std::move(listed.component);
  plan.segment_of = std::move(listed.segment);
  if (listed.cut == Cut::kVocab) {
    CutVocab(degrees, &plan);
    return plan;
  }
  if (listed.cut == Cut::kWhole || listed.cut == Cut::kOnce) {
    plan.ranks.assign(degrees.tp, {Range{0, plan.component.rows}});
    if (listed.cut == Cut::kOnce) plan.owner = 0;
    return plan;
  }
  const int domain = DegreeOf(listed.cut, degrees);
  plan.domain = IsAttention(listed.cut) ? "attn_tp" : "tp";
  plan.degree = domain;
  if (listed.cut == Cut::kKvHeads && config.kv_heads < domain) {
    plan.degree = static_cast<int>(config.kv_heads);
    plan.replicas = domain / plan.degree;
  }
  const bool columns = listed.cut == Cut::kColumns || listed.cut == Cut::kHeadColumns;
  plan.axis = columns ? Axis::kColumns : Axis::kRows;
  const int64_t part = (columns ? plan.component.columns : plan.component.rows) / plan.degree;
  for (int rank = 0; rank < degrees.tp; ++rank) {
    const int64_t index = rank % domain / plan.replicas;
    plan.ranks.push_back({Range{index * part, part}});
  }
  return plan;
}

}  // namespace

int64_t PaddedVocab(int64_t vocab, int tp) {
  const int64_t multiple = std::lcm(int64_t{64}, int64_t{tp});
  return (vocab + multiple - 1) / multiple * multiple;
}

Result<PlanResult> PlanModel(const ModelConfig& config, const TensorSource& source,
                             const Degrees& degrees, const Selection& selection) {
  if (degrees.tp < 1 || degrees.tp > kMaxTp) {
    return Error{fmt::format("tp is {}; allowed is 1 to {}", degrees.tp, kMaxTp)};
  }
  if (degrees.attn_tp < 0 || degrees.attn_tp > kMaxTp) {
    return Error{fmt::format("attn_tp is {}; allowed is 0 (= tp) to {}", degrees.attn_tp, kMaxTp)};
  }
  auto listed = ListAll(config, source, selection);
  if (!listed) return listed.error();
  PlanResult result;
  result.refusal = FirstRefusal(config, *listed, degrees);
  if (result.refusal) {
    // The whole model where it can be listed; a part of a checkpoint speaks for itself.
    Selection everything;
    everything.headers_only = true;
    const auto whole = ListAll(config, source, everything);
    result.refusal->attn_tp = degrees.attn_tp;
    result.refusal->legal_degrees = LegalDegrees(config, whole ? *whole : *listed, degrees.attn_tp);
    const std::vector<int>& legal = result.refusal->legal_degrees;
    result.refusal->largest_legal_tp = legal.empty() ? 0 : legal.back();
    return result;
  }
  ModelPlan& plan = result.plan.emplace();
  plan.degrees = degrees;
  plan.components.reserve(listed->size());
  for (Listed& entry : *listed) {
    plan.components.push_back(CutComponent(config, std::move(entry), degrees));
  }
  return result;
}

}  // namespace assay::shard
