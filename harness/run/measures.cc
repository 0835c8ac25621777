#include "harness/run/measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace assay::run {
namespace {

using judge::OpJudgement;
using reference::Node;

// The layer's residual input, all steps' rows one after the other.
reference::Tensor ResidualInput(const CellSpec& spec) {
  reference::Tensor input;
  for (const auto& [key, value] : spec.given) {
    if (key.tap.ends_with("router.ids") || key.tap.ends_with("router.weights")) continue;
    const reference::Tensor part = judge::ToTensor(value);
    if (input.shape.empty()) {
      input = part;
    } else {
      input.shape[0] += part.shape[0];
      input.data.insert(input.data.end(), part.data.begin(), part.data.end());
    }
  }
  return input;
}

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

reference::Trace ChainOf(const CellSpec& spec) {
  const bool layer = spec.scope == "layer", model = spec.scope == "model";
  if (spec.mode != Mode::kScope || (!layer && !model && spec.steps.size() > 1)) return {};
  reference::RunRequest request;
  request.steps = spec.steps;
  request.mla_absorbed = spec.facts.contract->mla_absorbed;
  reference::Tensor input;
  if (layer) {
    input = ResidualInput(spec);
    request.input = &input;
    request.first_layer = spec.layer;
  }
  if (spec.layer >= 0) request.last_layer = spec.layer;
  for (const auto& [key, value] : spec.given) {
    const bool routing = key.tap.ends_with("router.ids") || key.tap.ends_with("router.weights");
    if (key.step == 0 && (routing ? spec.steps.size() == 1 : !layer)) {
      request.given[key.tap] = judge::ToTensor(value);
    }
  }
  for (const Node* node : spec.nodes) {
    // Experts' own taps have no fixed rows: routing may differ.
    if (node->expert < 0) request.wanted.push_back(node->tap);
  }
  auto traced = spec.oracle->Run(request, *spec.facts.contract);
  return traced ? std::move(*traced) : reference::Trace{};
}

void AddOpRows(const CellSpec& spec, const abi::Outcome& outcome,
               const std::vector<OpJudgement>& judgements, const reference::Trace& chain,
               CellResult* result) {
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
  for (const std::string& tap : order) {
    OpRow& row = rows[tap];
    const Node* node = spec.oracle->FindNode(tap);
    if (!chain.empty() && node != nullptr) {
      const auto& step = chain[static_cast<size_t>(row.step)];
      const auto found = step.find(tap);
      auto joined = judge::JoinRanks(*spec.oracle, *node, outcome.trace, spec.parallel(), row.step);
      if (found != step.end() && joined && joined->data.size() == found->second.data.size()) {
        row.accumulated = judge::CompareWhole(found->second, *joined).rel_l2;
      }
    }
    result->ops.push_back(row);
  }
}

reference::Tensor AddCellMetrics(const CellSpec& spec, const abi::Outcome& outcome,
                                 const std::vector<OpJudgement>& judgements,
                                 const reference::Trace& chain, CellResult* result) {
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
  auto joined = judge::JoinRanks(*spec.oracle, *last, outcome.trace, spec.parallel(), step);
  if (!joined) return {};
  if (!chain.empty()) {
    const auto found = chain[static_cast<size_t>(step)].find(last->tap);
    if (found != chain[static_cast<size_t>(step)].end() &&
        found->second.data.size() == joined->data.size()) {
      const Metrics whole = judge::CompareWhole(found->second, *joined);
      metrics.cosine = whole.cosine;
      metrics.rel_l2 = whole.rel_l2;
      metrics.max_abs = whole.max_abs;
      AddUsualGates(found->second, *joined, &metrics);
      if (last->tap == "logits") judge::AddLogitMetrics(found->second, *joined, &metrics);
    }
  }
  return std::move(*joined);
}

}  // namespace assay::run
