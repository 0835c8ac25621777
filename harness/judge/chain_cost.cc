// What one chain of the oracle costs, from the extents of its graph.
#include <algorithm>
#include <set>

#include "harness/judge/floor.h"

namespace assay::judge {
namespace {

using reference::Node;
using reference::Op;
using reference::RunRequest;

class Cost {
 public:
  Cost(const reference::Oracle& oracle, const RunRequest& request)
      : oracle_(oracle), request_(request) {
    for (const auto& step : request.steps) {
      const auto tokens = static_cast<uint64_t>(step.tokens.size());
      const auto keys = static_cast<uint64_t>(step.first_position) + tokens;
      tokens_ += tokens;
      pairs_ += tokens * keys;
    }
    for (const Node& node : oracle.graph()) {
      if (node.expert >= 0) experts_[node.layer] = std::max(experts_[node.layer], node.expert + 1);
    }
  }

  Result<uint64_t> All() {
    std::set<std::string> needed(request_.wanted.begin(), request_.wanted.end());
    uint64_t macs = 0;
    const auto& graph = oracle_.graph();
    for (auto node = graph.rbegin(); node != graph.rend(); ++node) {
      const bool asked = request_.wanted.empty() && InRange(*node);
      if (!asked && needed.count(node->tap) == 0) continue;
      if (Known(*node)) continue;
      needed.insert(node->inputs.begin(), node->inputs.end());
      auto one = Of(*node);
      if (!one.ok()) return one;
      macs += *one;
    }
    return macs;
  }

 private:
  bool InRange(const Node& node) const {
    const int64_t last = request_.last_layer;
    if (node.layer < 0) {
      return node.op == Op::kEmbed ? request_.first_layer == 0 && request_.input == nullptr
                                   : last < 0;
    }
    return node.layer >= request_.first_layer && (last < 0 || node.layer <= last);
  }

  // Given, or before the layer that the chain starts from.
  bool Known(const Node& node) const {
    return request_.given.count(node.tap) > 0 || !InRange(node);
  }

  Result<uint64_t> Width(const std::string& tap) {
    const Node* node = oracle_.FindNode(tap);
    if (node == nullptr) return uint64_t{0};  // tokens
    const auto found = widths_.find(tap);
    if (found != widths_.end()) return found->second;
    auto columns = oracle_.TapColumns(*node, {});
    if (!columns.ok()) return columns.error();
    return widths_[tap] = static_cast<uint64_t>(columns->size());
  }

  // Tokens, or, of an expert, those that it gets where all get as many.
  Result<uint64_t> Rows(const Node& node) {
    if (node.expert < 0) return tokens_;
    auto chosen = Width("L" + std::to_string(node.layer) + ".router.ids");
    if (!chosen.ok()) return chosen;
    const auto experts = static_cast<uint64_t>(experts_[node.layer]);
    return (tokens_ * *chosen + experts - 1) / experts;
  }

  Result<uint64_t> Of(const Node& node) {
    auto width = Width(node.tap);
    if (!width.ok()) return width;
    auto rows = Rows(node);
    if (!rows.ok()) return rows;
    if (node.op != Op::kLinear && node.op != Op::kScores && node.op != Op::kContext) {
      return *rows * *width;
    }
    const bool scores = node.op == Op::kScores;
    if (node.op == Op::kContext) return pairs_ * *width;
    auto reads = Width(node.inputs[0]);
    if (!reads.ok()) return reads;
    return scores ? pairs_ * *reads : *rows * *width * *reads;
  }

  const reference::Oracle& oracle_;
  const RunRequest& request_;
  uint64_t tokens_ = 0, pairs_ = 0;
  std::map<int64_t, int64_t> experts_;
  std::map<std::string, uint64_t> widths_;
};

}  // namespace

Result<uint64_t> ChainMacs(const reference::Oracle& oracle, const RunRequest& request) {
  return Cost(oracle, request).All();
}

}  // namespace assay::judge
