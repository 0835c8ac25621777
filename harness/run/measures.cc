#include "harness/run/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace assay::run {
namespace {

using judge::OpJudgement;
using reference::Node;
using reference::Op;

// What other harnesses gate on: shown beside ours, never decisive.
void AddUsualGates(const reference::Tensor& oracle, const reference::Tensor& kernel,
                   Metrics* metrics) {
  constexpr double kAllclose = 1e-2;  // theirs, absolute and relative
  double difference = 0, value = 0, squared_difference = 0, squared_value = 0, excess = 0;
  for (size_t i = 0; i < oracle.data.size(); ++i) {
    const double d = std::abs(kernel.data[i] - oracle.data[i]);
    const double y = std::abs(oracle.data[i]);
    difference += d;
    value += y;
    squared_difference += d * d;
    squared_value += y * y;
    excess = std::max(excess, d / (kAllclose + kAllclose * y));
  }
  if (value > 0) {
    metrics->mean_ratio = difference / value;
    metrics->nmse = squared_difference / squared_value;
  }
  metrics->allclose_excess = excess;
}

}  // namespace

namespace {

// Whether the engine gave any rank's part of the tap in this step.
bool Shown(const abi::Outcome& outcome, const std::string& tap, int step) {
  const auto& taps = outcome.trace.taps;
  const auto first = taps.lower_bound({step, tap, std::numeric_limits<int>::min()});
  return first != taps.end() && first->first.tap == tap && first->first.step == step;
}

}  // namespace

Accumulation Accumulate(const CellSpec& spec, const abi::Outcome& outcome, const Chain& chain) {
  Accumulation all;
  std::set<std::string> named;
  const auto leave_out = [&](const std::string& tap, const std::string& why) {
    if (named.insert(tap).second) all.not_compared.emplace_back(tap, why);
  };
  for (int step = 0; step < static_cast<int>(chain.trace.size()); ++step) {
    const auto& taps = chain.trace[static_cast<size_t>(step)];
    for (const Node* node : spec.nodes) {
      // Choices have no distance; masked scores are infinite.
      if (node->op == Op::kRouterIds || node->op == Op::kScores) continue;
      if (spec.given.count({step, node->tap, -1}) > 0) continue;
      const auto found = taps.find(node->tap);
      if (found == taps.end() || !Shown(outcome, node->tap, step)) continue;
      auto joined = judge::JoinRanks(*spec.oracle, *node, outcome.trace, spec.parallel(), step);
      if (!joined) {
        leave_out(node->tap, joined.error().message);
        continue;
      }
      const size_t due = found->second.data.size();
      if (joined->data.size() != due) {
        leave_out(node->tap, fmt::format("{} values, the chain has {}", joined->data.size(), due));
        continue;
      }
      const auto rel_l2 = judge::CompareWhole(found->second, *joined).rel_l2;
      if (rel_l2) all.errors.push_back({node->tap, step, *rel_l2});
    }
  }
  return all;
}

std::string ChainLeftOut(const Chain& chain, const Accumulation& accumulated) {
  std::string text = chain.why_not;
  if (accumulated.not_compared.empty()) return text;
  // The last tap is what the cell's figures are of.
  const auto& [tap, why] = accumulated.not_compared.back();
  return text + fmt::format("{}not compared with the oracle's chain: {} ops, the last {} ({})",
                            text.empty() ? "" : "; ", accumulated.not_compared.size(), tap, why);
}

void AddOpRows(const std::vector<OpJudgement>& judgements, const Chain* chain,
               const std::vector<judge::Accumulated>& accumulated, CellResult* result) {
  std::map<std::string, OpRow> rows;
  std::vector<std::string> order;
  for (const OpJudgement& judged : judgements) {
    if (!judged.judged) continue;
    auto [at, added] = rows.try_emplace(judged.node->tap);
    if (added) order.push_back(judged.node->tap);
    OpRow& row = at->second;
    if (!added && row.local.value_or(0) >= judged.max_ratio) continue;
    row.tap =
        judged.rank > 0 ? fmt::format("{}@r{}", judged.node->tap, judged.rank) : judged.node->tap;
    row.step = judged.step;
    row.local = judged.max_ratio;
    row.cosine = judged.cosine;
    row.rel_l2 = judged.rel_l2;
  }
  std::map<std::pair<std::string, int>, double> errors;
  for (const judge::Accumulated& one : accumulated) errors[{one.tap, one.step}] = one.rel_l2;
  for (const std::string& tap : order) {
    OpRow& row = rows[tap];
    const std::pair<std::string, int> key{tap, row.step};
    if (const auto found = errors.find(key); found != errors.end()) row.accumulated = found->second;
    if (chain != nullptr) {
      const auto floor = chain->floor.rel_l2.find(key);
      if (floor != chain->floor.rel_l2.end()) row.floor = floor->second;
    }
    result->ops.push_back(row);
  }
}

namespace {

// A reduce-scatter's chunks, one after the other.
reference::Tensor JoinChunks(const CellSpec& spec, const abi::Outcome& outcome,
                             const std::string& tap) {
  reference::Tensor flat{{0}, {}};
  for (int rank = 0; rank < spec.degrees.tp; ++rank) {
    const auto found = outcome.trace.taps.find({0, tap, rank});
    if (found == outcome.trace.taps.end()) continue;
    const reference::Tensor chunk = judge::ToTensor(found->second);
    flat.data.insert(flat.data.end(), chunk.data.begin(), chunk.data.end());
  }
  flat.shape[0] = static_cast<int64_t>(flat.data.size());
  return flat;
}

void AddChainMetrics(const Chain& chain, const Node& last, int step,
                     const reference::Tensor& joined, Metrics* metrics) {
  if (chain.trace.size() <= static_cast<size_t>(step)) return;  // the oracle failed
  const auto& taps = chain.trace[static_cast<size_t>(step)];
  const auto found = taps.find(last.tap);
  if (found == taps.end() || found->second.data.size() != joined.data.size()) return;
  const Metrics whole = judge::CompareWhole(found->second, joined);
  metrics->cosine = whole.cosine;
  metrics->rel_l2 = whole.rel_l2;
  metrics->max_abs = whole.max_abs;
  AddUsualGates(found->second, joined, metrics);
  if (last.tap == "logits") judge::AddLogitMetrics(found->second, joined, metrics);
  // Blocks have a chain and no floor; one that failed is told in the reason.
  if (chain.why_not.empty() && !chain.floor.derivation.empty())
    metrics->floor_runs = chain.floor.runs;
  const auto floor = chain.floor.rel_l2.find({last.tap, step});
  if (floor != chain.floor.rel_l2.end()) metrics->noise_floor = floor->second;
}

}  // namespace

reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<OpJudgement>& judgements, const Chain* chain,
                                 CellResult* result) {
  Metrics& metrics = result->metrics;
  const OpJudgement* worst = nullptr;
  // Of the last op that was judged: a single op of an expert may have no rows.
  const Node* last = nullptr;
  int64_t ambiguous = 0;
  bool exact = !judgements.empty(), bitwise = !judgements.empty();
  for (const OpJudgement& judged : judgements) {
    if (!judged.judged) continue;
    last = judged.node;
    ambiguous += judged.ambiguous;
    exact &= judged.mode == "exact" || judged.mode == "discrete";
    bitwise &= judged.mode != "bounded";
    // The first wrong op where there is one, else the one nearest to its bound.
    const bool passing = worst == nullptr || worst->pass;
    if (passing && (worst == nullptr || !judged.pass || judged.max_ratio > worst->max_ratio)) {
      worst = &judged;
    }
  }
  result->mode = exact ? "exact" : bitwise ? "bitwise" : "bounded";
  metrics.ambiguous = ambiguous;
  if (worst == nullptr) {
    result->mode = spec.mode == Mode::kLoad ? "bitwise" : "";
    return {};
  }
  metrics.max_ratio = worst->max_ratio;
  metrics.tolerance = worst->tolerance.Facts();
  metrics.condition = worst->condition;
  metrics.three_way = worst->three_way;
  metrics.cosine = worst->cosine;
  metrics.rel_l2 = worst->rel_l2;
  metrics.max_abs = worst->max_abs;
  const int step = static_cast<int>(spec.steps.size()) - 1;
  if (spec.problem.Get("collective") == "reduce_scatter") {
    return JoinChunks(spec, outcome, last->tap);
  }
  auto joined = judge::JoinRanks(*spec.oracle, *last, outcome.trace, spec.parallel(), step);
  if (!joined) return {};
  if (chain != nullptr) AddChainMetrics(*chain, *last, step, *joined, &metrics);
  return std::move(*joined);
}

}  // namespace assay::run
