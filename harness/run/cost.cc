// What a cell takes, by counting.
#include <algorithm>

#include "harness/run/cell.h"

namespace assay::run {
namespace {

using reference::Node;
using reference::Op;

// Multiply-adds a millisecond of the slowest way of running anything: portable intrinsics in a
// build without optimisation.
constexpr double kSlowest = 2e4;
// An engine is run twice.
constexpr double kPasses = 2;

}  // namespace

double MultiplyAdds(const CellSpec& spec) {
  double tokens = 0, pairs = 0;  // pairs of a query and a key
  for (const reference::Step& step : spec.steps) {
    const auto rows = static_cast<double>(step.tokens.size());
    tokens += rows;
    pairs += rows * (static_cast<double>(step.first_position) + rows);
  }
  const double routed = static_cast<double>(spec.config.top_k) /
                        static_cast<double>(std::max<int64_t>(spec.config.experts, 1));
  const double width =
      static_cast<double>(spec.config.heads) * static_cast<double>(spec.config.head_dim);
  double sum = 0;
  for (const Node* node : spec.nodes) {
    if (node->op == Op::kScores || node->op == Op::kContext) sum += pairs * width;
    if (node->op != Op::kLinear) continue;
    const auto elements = spec.model->elements_of.find(node->weight);
    if (elements == spec.model->elements_of.end()) continue;
    const bool scope = node->expert >= 0 && spec.mode == Mode::kScope;
    sum += tokens * static_cast<double>(elements->second) * (scope ? routed : 1.0);
  }
  return sum;
}

Result<CellCost> CostOf(const Problem& problem, ModelStore* models) {
  auto spec = ResolveCell(problem, models);
  if (!spec) return spec.error();
  CellCost cost;
  cost.multiply_adds = MultiplyAdds(**spec);
  const auto& selection = (*spec)->selection;
  for (const shard::Component& component : (*spec)->model->components) {
    const bool here = selection.layer < 0 ||
                      component.name.starts_with("L" + std::to_string(selection.layer) + ".");
    if (!here || (*spec)->mode == Mode::kCollective) continue;
    cost.weight_bytes += component.rows * component.columns * SizeOf(component.dtype).count();
  }
  return cost;
}

int64_t TimeLimitMs(double multiply_adds, const CellLimits& limits) {
  return limits.time_ms + static_cast<int64_t>(kPasses * multiply_adds / kSlowest);
}

}  // namespace assay::run
