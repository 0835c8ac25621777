#include "harness/run/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::vector<judge::Accumulated> AccumulatedErrors(const CellSpec& spec, const abi::Outcome& outcome,
                                                  const Chain& chain) {
  std::vector<judge::Accumulated> errors;
  for (size_t step = 0; step < chain.trace.size(); ++step) {
    for (const Node* node : spec.nodes) {
      // Choices have no distance; masked scores are infinite.
      if (node->op == Op::kRouterIds || node->op == Op::kScores) continue;
      if (spec.given.count({static_cast<int>(step), node->tap, -1}) > 0) continue;
      const auto found = chain.trace[step].find(node->tap);
      if (found == chain.trace[step].end()) continue;
      auto joined = judge::JoinRanks(*spec.oracle, *node, outcome.trace, spec.parallel(),
                                     static_cast<int>(step));
      if (!joined || joined->data.size() != found->second.data.size()) continue;
      const auto rel_l2 = judge::CompareWhole(found->second, *joined).rel_l2;
      if (rel_l2) errors.push_back({node->tap, static_cast<int>(step), *rel_l2});
    }
  }
  return errors;
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
  const auto& taps = chain.trace[static_cast<size_t>(step)];
  const auto found = taps.find(last.tap);
  if (found == taps.end() || found->second.data.size() != joined.data.size()) return;
  const Metrics whole = judge::CompareWhole(found->second, joined);
  metrics->cosine = whole.cosine;
  metrics->rel_l2 = whole.rel_l2;
  metrics->max_abs = whole.max_abs;
  AddUsualGates(found->second, joined, metrics);
  if (last.tap == "logits") judge::AddLogitMetrics(found->second, joined, metrics);
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
