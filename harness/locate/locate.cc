// From failed judgements and shards to divergences, attributed by substitution.
#include "harness/locate/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

using judge::OpJudgement;
using reference::Node;
using reference::Op;

std::string OpName(const Node& node) {
  const size_t dot = node.path.rfind('.');
  return dot == std::string::npos ? node.path : node.path.substr(dot + 1);
}

std::string ClassOf(const OpJudgement& j) {
  switch (j.node->op) {
    case Op::kReduce:
      return "collective";
    case Op::kRouterScores:
    case Op::kRouterIds:
    case Op::kRouterWeights:
      return "router";
    default:
      return j.reason.rfind("gather", 0) == 0 ? "collective" : "kernel";
  }
}

void SetOp(const Node& node, Divergence* d) {
  if (node.layer >= 0) d->layer = node.layer;
  if (node.expert >= 0) d->expert = node.expert;
  d->op = OpName(node);
  d->tap = node.tap;
}

class Locator {
 public:
  explicit Locator(const LocateRequest& request) : request_(request) {
    for (const Node& node : oracle().graph()) {
      order_.emplace(node.tap, static_cast<int64_t>(order_.size()));
    }
    for (const Node* node : request.judge.nodes) scope_.insert(node->tap);
    for (std::string& component : oracle().Components()) {
      component_order_.emplace(component, static_cast<int64_t>(component_order_.size()));
      components_[ParameterOf(component)].push_back(std::move(component));
    }
    if (request.shards == nullptr) return;
    for (const ShardFinding& finding : request.shards->findings) {
      wrong_[{ParameterOf(finding.component), finding.rank}].push_back(&finding);
    }
  }

  Result<std::vector<Divergence>> All() {
    for (const OpJudgement& j : *request_.judgements) {
      if (j.node == nullptr || !j.judged || j.pass) continue;
      // The same wrong bits on another rank: the first rank stands for all of them.
      if (j.same_as_rank) continue;
      if (Status status = Attribute(j); !status.ok()) return status.error();
    }
    if (request_.shards != nullptr) {
      for (const ShardFinding& finding : request_.shards->findings) Shard(finding);
    }
    std::vector<Divergence> entries = Group(std::move(found_));
    for (Divergence& entry : entries) {
      entry.propagated = DownstreamOf(entry.tap);
    }
    return entries;
  }

 private:
  const reference::Oracle& oracle() const { return *request_.judge.oracle; }

  // Parameters that an op's value came from: its own, and, where the engine does not show an input,
  // those of the ops behind it, on every rank that they were computed on.
  struct Behind {
    std::set<std::pair<std::string, int>> parameters;
    bool hidden = false;
  };

  bool Known(const std::string& tap, int rank, int step) const {
    // The whole of a tap is known from the ranks' parts.
    for (const int r : {std::max(rank, 0), -1}) {
      const TapKey key{step, tap, r};
      if (request_.judge.trace->taps.count(key) + request_.judge.given.count(key) > 0) return true;
    }
    return false;
  }

  void Collect(const Node& node, int rank, int step, Behind* behind) const {
    if (!node.weight.empty()) behind->parameters.insert({node.weight, rank});
    for (const std::string& input : node.inputs) {
      const Node* from = oracle().FindNode(input);
      if (from == nullptr) continue;
      const bool sum = node.op == Op::kReduce && from->spread == reference::Spread::kPartial;
      const int degree = from->domain == reference::Domain::kAttention
                             ? request_.judge.degrees.attn_tp
                             : request_.judge.degrees.tp;
      const int base = sum ? std::max(rank, 0) / degree * degree : rank;
      for (int r = base; r < base + (sum ? degree : 1); ++r) {
        if (Known(input, r, step)) continue;
        // An expert that no token was routed to is not hidden: it was not computed.
        if (node.op == Op::kCombine && from->expert >= 0 && Known(node.inputs[0], r, step) &&
            !Routed(*from, r, step)) {
          continue;
        }
        behind->hidden = true;
        Collect(*from, r, step, behind);
      }
    }
  }

  bool Routed(const Node& expert, int rank, int step) const {
    const std::string ids = fmt::format("L{}.router.ids", expert.layer);
    for (const int r : {rank, -1}) {
      const TapKey key{step, ids, r};
      const auto shown = request_.judge.trace->taps.find(key);
      const auto given = request_.judge.given.find(key);
      if (shown == request_.judge.trace->taps.end() && given == request_.judge.given.end()) {
        continue;
      }
      const auto tensor = judge::ToTensor(
          shown != request_.judge.trace->taps.end() ? shown->second : given->second);
      return std::count(tensor.data.begin(), tensor.data.end(),
                        static_cast<double>(expert.expert)) > 0;
    }
    return true;
  }

  // Attribution of one failing op: does it compute the right thing of what was loaded?
  Status Attribute(const OpJudgement& j) {
    Behind behind;
    const bool gather = j.reason.rfind("gather", 0) == 0;
    if (!gather) Collect(*j.node, j.rank, j.step, &behind);
    std::vector<std::string> cleared;
    const bool loaded = std::any_of(behind.parameters.begin(), behind.parameters.end(),
                                    [&](const auto& one) { return wrong_.count(one) > 0; });
    if (loaded) {
      auto healed = Heals(j, behind);
      if (!healed.ok()) return healed.error();
      if (*healed) {
        for (const auto& one : behind.parameters) healed_.insert(one);
        return Ok();
      }
    } else if (behind.parameters.empty() ? !behind.hidden : ShardsAreRight(behind)) {
      cleared.push_back("loader");  // no weight lies behind it, or the right ones do
    }
    Found found;
    Divergence& d = found.divergence;
    SetOp(*j.node, &d);
    d.step = j.step;
    // With its inputs hidden, an op stands for all that lies behind it.
    d.cls = behind.hidden ? "kernel" : ClassOf(j);
    if (d.cls == "collective") cleared = {"loader", "kernel"};
    if (j.rank >= 0) d.rank = j.rank;
    d.cleared = std::move(cleared);
    if (Status status = SetElement(request_.judge, j, &d); !status.ok()) return status;
    d.map = MapOf(j);
    std::optional<int> culprit;
    d.signature =
        gather ? Signature{"gather", "the gathered tensor is not the ranks' columns", j.reason}
               : OpSignature({&request_.judge, &j, &culprit});
    if (culprit) d.rank = *culprit;
    // No scores whatever make an illegal choice right.
    if (IsIllegalChoice(d.signature)) d.cls = "router";
    // What the engine says it ran is not what it shows.
    if (d.signature.id == "act-contradicted") d.cls = "selection";
    if (behind.hidden) d.signature.evidence += "; the engine does not show what lies behind";
    AddEqualRanks(j, &d);
    found.kind = j.node->path;
    found.order = OrderOf(j.node->tap);
    found.step = j.step;
    found_.push_back(std::move(found));
    return Ok();
  }

  const std::vector<std::string>& ComponentsOf(const std::string& parameter) const {
    static const std::vector<std::string> kNone;
    const auto found = components_.find(parameter);
    return found == components_.end() ? kNone : found->second;
  }

  // Judges again under the shards that the engine really holds.
  Result<bool> Heals(const OpJudgement& j, const Behind& behind) {
    std::map<int, MemorySource> held;
    for (const auto& [parameter, rank] : behind.parameters) {
      const auto wrong = wrong_.find({parameter, rank});
      for (const std::string& component : ComponentsOf(parameter)) {
        auto slice = oracle().ExpectedSlice(component, {request_.judge.degrees, rank});
        if (!slice.ok()) return slice.error();
        std::vector<std::byte> bytes = slice->bytes;
        if (wrong != wrong_.end()) {
          for (const ShardFinding* finding : wrong->second) {
            if (finding->component != component) continue;
            // Another shape cannot be computed with: the loader explains whatever came of it.
            if (finding->row_major.size() != bytes.size()) return true;
            bytes = finding->row_major;
          }
        }
        held[rank].Put(
            component, slice->dtype,
            {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
            std::move(bytes));
      }
    }
    judge::JudgeRequest substituted = request_.judge;
    substituted.weights = [&](int rank) -> const TensorSource* {
      const auto found = held.find(rank);
      return found == held.end() ? nullptr : &found->second;
    };
    auto again = judge::JudgeOne(substituted, *j.node, j.rank, j.step);
    // Values that no number stands for (a NaN scale) cannot be judged: the loader explains them.
    return !again.ok() || again->pass;
  }

  // All components were given back and are bit-equal (those that are not were found before).
  bool ShardsAreRight(const Behind& behind) const {
    if (request_.shards == nullptr) return false;
    for (const auto& [parameter, rank] : behind.parameters) {
      for (const std::string& component : ComponentsOf(parameter)) {
        if (request_.judge.trace->shards.count({component, rank}) == 0) return false;
      }
    }
    return true;
  }

  void Shard(const ShardFinding& finding) {
    Found found;
    Divergence& d = found.divergence;
    const std::string parameter = ParameterOf(finding.component);
    const Node* node = ConsumerOf(oracle(), finding.component);
    if (node != nullptr) {
      SetOp(*node, &d);
      found.order = OrderOf(node->tap);
    } else {
      // Of a model that is loaded and not computed: its components are in data-flow order too.
      SetPlace(finding.component, &d);
      const auto place = component_order_.find(finding.component);
      found.order = OrderOf("") + (place == component_order_.end() ? 0 : place->second);
    }
    d.cls = finding.cls;
    d.rank = finding.rank;
    d.tensor = finding.component;
    d.unit = finding.unit;
    d.index = finding.index;
    d.local_index = finding.local_index;
    d.expected = finding.expected;
    d.got = finding.got;
    if (!finding.expected_bits.empty()) d.bits = {finding.expected_bits, finding.got_bits};
    d.signature = finding.signature;
    d.map = finding.map;
    if (healed_.count({parameter, finding.rank}) > 0) d.cleared.push_back("kernel");
    found.kind = KindOf(finding.component);
    found_.push_back(std::move(found));
  }

  void AddEqualRanks(const OpJudgement& j, Divergence* d) const {
    std::string ranks;
    for (const OpJudgement& other : *request_.judgements) {
      if (other.node != j.node || other.step != j.step || other.same_as_rank != j.rank) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", other.rank);
    }
    const char* word = ranks.find(',') == std::string::npos ? "rank" : "ranks";
    if (!ranks.empty())
      d->signature.evidence += fmt::format("; the same bits on {} {}", word, ranks);
  }

  // Codes and scales feed the codes, and the product that they belong to.
  std::vector<std::string> DownstreamOf(const std::string& tap) {
    const std::string_view linear = judge::LinearOf(tap);
    const Node* node = oracle().FindNode(linear.empty() ? std::string_view(tap) : linear);
    if (node == nullptr) return {};
    std::vector<std::string> taps;
    if (!linear.empty()) {
      if (tap.ends_with(".x_scale")) taps.push_back(node->tap + ".x_q");
      taps.push_back(node->tap);
    }
    for (std::string& one : Downstream(*node)) taps.push_back(std::move(one));
    return taps;
  }

  // Taps of the scope that were computed from this one. What the harness handed to the engine as
  // an input was not: single ops do not feed each other.
  std::vector<std::string> Downstream(const Node& from) {
    std::set<std::string> handed;
    for (const auto& [key, value] : request_.judge.given) handed.insert(key.tap);
    if (handed.count(from.tap) > 0) return {};
    std::set<std::string> reached{from.tap};
    std::vector<std::string> taps;
    for (const Node& node : oracle().graph()) {
      const bool fed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](const std::string& in) { return reached.count(in) > 0; });
      if (!fed) continue;
      if (handed.count(node.tap) == 0) reached.insert(node.tap);
      if (scope_.count(node.tap) == 0) continue;
      // Inner ops of other experts would bury the others.
      if (node.expert >= 0 && (node.expert != from.expert || node.layer != from.layer)) continue;
      taps.push_back(node.tap);
    }
    return taps;
  }

  // Places in data-flow order; an op's scales and codes come right before it.
  int64_t OrderOf(const std::string& tap) const {
    constexpr int64_t kPlaces = 3;
    const std::string_view linear = judge::LinearOf(tap);
    const auto found = order_.find(linear.empty() ? tap : std::string(linear));
    const int64_t place =
        found == order_.end() ? static_cast<int64_t>(order_.size()) : found->second;
    return place * kPlaces + (linear.empty() ? 2 : tap.ends_with(".x_q") ? 1 : 0);
  }

  const LocateRequest& request_;
  std::map<std::string, int64_t> order_, component_order_;
  std::set<std::string> scope_;
  std::map<std::string, std::vector<std::string>> components_;  // of a parameter
  std::map<std::pair<std::string, int>, std::vector<const ShardFinding*>> wrong_;
  std::set<std::pair<std::string, int>> healed_;
  std::vector<Found> found_;
};

}  // namespace

Divergence AccumulationOnly(const std::vector<judge::BeyondFloor>& beyond,
                            const judge::Floor& floor) {
  Divergence d;
  d.cls = "kernel";
  d.cleared = {"loader", "collective"};
  std::string taps;
  const judge::BeyondFloor* worst = nullptr;
  for (const judge::BeyondFloor& one : beyond) {
    if (worst == nullptr || one.rel_l2 / one.floor > worst->rel_l2 / worst->floor) worst = &one;
    if (taps.size() < 200) taps += (taps.empty() ? "" : ", ") + one.tap;
  }
  d.signature.id = "accumulation";
  d.signature.text = "every op is right on its inputs, and their errors add up in one direction";
  if (worst != nullptr) {
    d.step = worst->step;
    d.signature.evidence = fmt::format(
        "{} taps beyond {} times their floor, the first is {} ({}); most is {} at {:.3g} times; {}",
        beyond.size(), judge::kFloorFactor, beyond.front().tap, taps, worst->tap,
        worst->rel_l2 / worst->floor, floor.derivation);
  }
  return d;
}

Result<std::vector<Divergence>> Locate(const LocateRequest& request) {
  if (request.judgements == nullptr || request.judge.oracle == nullptr ||
      request.judge.trace == nullptr) {
    return Error{"locating needs judgements, the oracle and the engine's trace"};
  }
  return Locator(request).All();
}

}  // namespace assay::locate
