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
      if (Status status = Op(j); !status.ok()) return status.error();
    }
    if (request_.shards != nullptr) {
      for (const ShardFinding& finding : request_.shards->findings) Shard(finding);
    }
    return Group(std::move(found_));
  }

 private:
  const reference::Oracle& oracle() const { return *request_.judge.oracle; }

  // Attribution of one failing op: does it compute the right thing of what was loaded?
  Status Op(const OpJudgement& j) {
    const auto loaded = wrong_.find({j.node->weight, j.rank});
    std::vector<std::string> cleared;
    if (loaded != wrong_.end() && !j.node->weight.empty()) {
      auto healed = Heals(j, loaded->second);
      if (!healed.ok()) return healed.error();
      if (*healed) {
        healed_.insert(loaded->first);
        return Ok();
      }
    } else if (!j.node->weight.empty() && ShardsAreRight(*j.node, j.rank)) {
      cleared.push_back("loader");
    }
    Found found;
    Divergence& d = found.divergence;
    SetOp(*j.node, &d);
    d.cls = ClassOf(j);
    if (d.cls == "collective") cleared = {"loader", "kernel"};
    if (j.rank >= 0) d.rank = j.rank;
    d.cleared = std::move(cleared);
    if (Status status = SetElement(j, &d); !status.ok()) return status;
    d.signature =
        d.cls == "collective" && j.reason.rfind("gather", 0) == 0
            ? Signature{"gather", "the gathered tensor is not the ranks' columns", j.reason}
            : OpSignature({&request_.judge, &j});
    AddEqualRanks(j, &d);
    d.propagated = Downstream(*j.node);
    found.kind = j.node->path;
    found.order = OrderOf(j.node->tap);
    found.step = j.step;
    found_.push_back(std::move(found));
    return Ok();
  }

  // Judges again under the shard that the engine really holds.
  Result<bool> Heals(const OpJudgement& j, const std::vector<const ShardFinding*>& findings) {
    MemorySource held;
    for (const std::string& component : oracle().Components()) {
      if (ParameterOf(component) != j.node->weight) continue;
      auto slice = oracle().ExpectedSlice(component, {request_.judge.degrees, j.rank});
      if (!slice.ok()) return slice.error();
      std::vector<std::byte> bytes = slice->bytes;
      for (const ShardFinding* finding : findings) {
        if (finding->component != component) continue;
        // Another shape cannot be computed with: the loader explains whatever came of it.
        if (finding->row_major.size() != bytes.size()) return true;
        bytes = finding->row_major;
      }
      held.Put(
          component, slice->dtype,
          {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
          std::move(bytes));
    }
    judge::JudgeRequest substituted = request_.judge;
    substituted.weights = [&](int rank) { return rank == j.rank ? &held : nullptr; };
    auto again = judge::JudgeOne(substituted, *j.node, j.rank, j.step);
    // Values that no number stands for (a NaN scale) cannot be judged: the loader explains them.
    if (!again.ok()) return true;
    return again->pass;
  }

  // All of the op's components were given back by this rank and are bit-equal.
  bool ShardsAreRight(const Node& node, int rank) const {
    if (request_.shards == nullptr || rank < 0) return false;
    bool any = false;
    for (const std::string& component : oracle().Components()) {
      if (ParameterOf(component) != node.weight) continue;
      if (request_.judge.trace->shards.count({component, rank}) == 0) return false;
      any = true;
    }
    return any;
  }

  void Shard(const ShardFinding& finding) {
    Found found;
    Divergence& d = found.divergence;
    const std::string parameter = ParameterOf(finding.component);
    const Node* node = ConsumerOf(oracle(), finding.component);
    if (node != nullptr) {
      SetOp(*node, &d);
      d.propagated = Downstream(*node);
      found.order = OrderOf(node->tap);
    } else {
      found.order = static_cast<int64_t>(order_.size());
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
    if (healed_.count({parameter, finding.rank}) > 0) d.cleared.push_back("kernel");
    found.kind = KindOf(finding.component);
    found_.push_back(std::move(found));
  }

  Status SetElement(const OpJudgement& j, Divergence* d) {
    const int64_t at = j.first >= 0 ? j.first : j.worst;
    const std::vector<int64_t>& shape = j.oracle.shape;
    if (at < 0 || shape.empty() || j.oracle.data.empty()) return Ok();
    d->unit = "element";
    d->expected = j.expected;
    d->got = j.got;
    d->local_index.assign(shape.size(), 0);
    int64_t rest = at;
    for (size_t axis = shape.size(); axis-- > 0;) {
      d->local_index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    d->index = d->local_index;
    if (shape.size() < 2) return Ok();
    auto columns = oracle().TapColumns(*j.node, {request_.judge.degrees, j.rank});
    if (!columns.ok()) return columns.error();
    // The second axis is what ranks share: columns, or the heads of [rows, heads, keys].
    if (static_cast<int64_t>(columns->size()) == shape[1]) {
      d->index[1] = (*columns)[static_cast<size_t>(d->local_index[1])];
    }
    return Ok();
  }

  void AddEqualRanks(const OpJudgement& j, Divergence* d) const {
    std::string ranks;
    for (const OpJudgement& other : *request_.judgements) {
      if (other.node != j.node || other.step != j.step || other.same_as_rank != j.rank) continue;
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", other.rank);
    }
    if (!ranks.empty()) d->signature.evidence += fmt::format("; the same bits on ranks {}", ranks);
  }

  // Taps of the scope that depend on this one and were not found wrong themselves.
  std::vector<std::string> Downstream(const Node& from) {
    std::set<std::string> reached{from.tap};
    std::vector<std::string> taps;
    for (const Node& node : oracle().graph()) {
      const bool fed = std::any_of(node.inputs.begin(), node.inputs.end(),
                                   [&](const std::string& in) { return reached.count(in) > 0; });
      if (!fed) continue;
      reached.insert(node.tap);
      // The experts' inner ops would bury the others.
      if (scope_.count(node.tap) == 0) continue;
      if (node.expert >= 0 && node.expert != from.expert) continue;
      taps.push_back(node.tap);
    }
    return taps;
  }

  int64_t OrderOf(const std::string& tap) const {
    const auto found = order_.find(tap);
    return found == order_.end() ? static_cast<int64_t>(order_.size()) : found->second;
  }

  const LocateRequest& request_;
  std::map<std::string, int64_t> order_;
  std::set<std::string> scope_;
  std::map<std::pair<std::string, int>, std::vector<const ShardFinding*>> wrong_;
  std::set<std::pair<std::string, int>> healed_;
  std::vector<Found> found_;
};

}  // namespace

Result<std::vector<Divergence>> Locate(const LocateRequest& request) {
  if (request.judgements == nullptr || request.judge.oracle == nullptr ||
      request.judge.trace == nullptr) {
    return Error{"locating needs judgements, the oracle and the engine's trace"};
  }
  return Locator(request).All();
}

}  // namespace assay::locate
