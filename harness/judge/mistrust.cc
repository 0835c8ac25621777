// Whether what passed proves anything (numerics.md §3).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/judge/judge.h"

namespace assay::judge {
namespace {

using reference::Node;

// "Mostly" is more than half of the elements throughout.
bool Mostly(int64_t some, int64_t all) { return 2 * some > all; }

bool MostlyEqual(const std::vector<double>& values, double value) {
  return Mostly(std::count(values.begin(), values.end(), value),
                static_cast<int64_t>(values.size()));
}

struct Share {
  int64_t judged = 0, elements = 0, nothing = 0, not_finite = 0;
  bool composite = false;
  void Add(const OpJudgement& j) {
    ++judged;
    elements += j.elements;
    nothing += j.proves_nothing;
    not_finite += j.not_finite;
    composite = composite || j.composite;
  }
};

std::string TapOf(const Node* node) { return node == nullptr ? "the result" : node->tap; }

// Why there is no whole output: ranks that do not show their part of the last op.
std::string NoOutput(const std::vector<OpJudgement>& judgements) {
  const Node* last = nullptr;
  for (const OpJudgement& j : judgements) {
    if (j.judged) last = j.node;
  }
  std::set<int> missing;
  for (const OpJudgement& j : judgements) {
    if (last != nullptr && j.node == last && j.rank >= 0 && !j.shown) missing.insert(j.rank);
  }
  if (missing.empty()) return "the output has no elements";
  return fmt::format("rank {}'s {} is not shown: the ranks' parts do not make a whole",
                     fmt::join(missing, ", "), last->tap);
}

std::string OfOutput(const reference::Tensor& output, bool scores) {
  int64_t not_finite = 0;
  for (const double v : output.data) {
    not_finite += !std::isfinite(v) && !(scores && std::isinf(v) && v < 0);
  }
  if (Mostly(not_finite, static_cast<int64_t>(output.data.size()))) {
    return fmt::format("not finite: {} of {} elements of the output", not_finite,
                       output.data.size());
  }
  if (MostlyEqual(output.data, 0.0)) return "more than half of the output is zero";
  const auto [low, high] = std::minmax_element(output.data.begin(), output.data.end());
  if (*low == *high && output.data.size() > 1) return "the output is constant";
  if (MostlyEqual(output.data, *high) || MostlyEqual(output.data, *low)) {
    return "more than half of the output is saturated at one value";
  }
  return "";
}

std::string OfOp(const Node* node, const Share& share) {
  if (Mostly(share.nothing, share.elements)) {
    return fmt::format("proves nothing: bounds above values in {} of {} elements of {}{}",
                       share.nothing, share.elements, TapOf(node),
                       share.composite ? "; the engine shows too few inner taps" : "");
  }
  return "";
}

}  // namespace

std::string Mistrust(const std::vector<OpJudgement>& judgements, const reference::Tensor& output) {
  if (output.data.empty()) return NoOutput(judgements);
  const OpJudgement* last = nullptr;  // of the op that carries the scope's result
  std::map<const Node*, Share> shares;
  Share all;
  for (const OpJudgement& j : judgements) {
    if (j.shown || j.judged) last = &j;
    if (!j.judged || j.gather || j.same_as_rank) continue;
    shares[j.node].Add(j);
    all.Add(j);
  }
  if (last == nullptr || all.judged == 0) return "no op was judged";
  const bool scores = last->node != nullptr && last->node->op == reference::Op::kScores;
  if (std::string reason = OfOutput(output, scores); !reason.empty()) return reason;
  const auto result = shares.find(last->node);
  if (result == shares.end()) {
    const auto why = std::find_if(judgements.begin(), judgements.end(),
                                  [&](const auto& j) { return j.node == last->node && !j.judged; });
    return fmt::format("{} is shown, but was not judged{}", TapOf(last->node),
                       why == judgements.end() ? "" : ": " + why->reason);
  }
  if (Mostly(result->second.not_finite, result->second.elements)) {
    return fmt::format("not finite: {} of {} elements of {}", result->second.not_finite,
                       result->second.elements, TapOf(last->node));
  }
  if (std::string reason = OfOp(last->node, result->second); !reason.empty()) return reason;
  for (const OpJudgement& j : judgements) {  // in data-flow order
    const auto share = shares.find(j.node);
    if (!j.composite || share == shares.end()) continue;
    if (std::string reason = OfOp(j.node, share->second); !reason.empty()) return reason;
  }
  if (Mostly(all.nothing, all.elements)) {
    return fmt::format("{} of {} elements have a bound above their value", all.nothing,
                       all.elements);
  }
  return "";
}

}  // namespace assay::judge
