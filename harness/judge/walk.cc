// Walks the scope's ops in data-flow order, on every rank and in every step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "harness/judge/inputs.h"
#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Domain;
using reference::Evaluation;
using reference::Node;
using reference::Op;
using reference::Spread;
using reference::Tensor;

bool IsInteger(DType dtype) { return dtype >= DType::kI64 && !IsBlock(dtype); }

bool SameBits(const TapValue& a, const TapValue& b) {
  return &a == &b || (a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes);
}

bool SameBits(const TapValue* a, const TapValue* b) {
  return a == b || (a != nullptr && b != nullptr && SameBits(*a, *b));
}

OpJudgement NotJudged(const Node& node, int rank, int step, std::string reason) {
  OpJudgement j;
  j.node = &node;
  j.rank = rank;
  j.step = step;
  j.reason = std::move(reason);
  return j;
}

class Walk {
 public:
  explicit Walk(const JudgeRequest& request) : request_(request), inputs_(request) {}

  Result<std::vector<OpJudgement>> All();
  Result<OpJudgement> One(const Node& node, int rank, int step);

 private:
  std::vector<int> RanksOf(const Node& node) const;
  const OpJudgement* Peer(const Node& node, int rank, int step,
                          const std::vector<OpJudgement>& done, size_t first);
  Result<OpJudgement> Judge(const Node& node, int rank, int step, const TapValue& tap);
  // The codes and scales of a linear op's 8-bit activations, before the op itself.
  void Activations(const Node& node, int rank, int step, std::vector<OpJudgement>* done);
  std::shared_ptr<const Node> Made(const Node& node, std::string_view suffix);
  Result<OpJudgement> JudgeGathered(const Node& node, int step, const TapValue& tap);
  Status JudgeValues(const Node& node, int rank, const Gathered& gathered,
                     const Evaluation& evaluation, const TapValue& tap, OpJudgement* j);
  const TapValue* Forced(const Node& node, int rank, int step) const;
  bool Sound(const Node& node, const Tensor& value, const TapValue& tap, OpJudgement* j);
  Status ClearPadding(const Node& node, int rank, Demand* demand);
  void AddThreeWay(std::vector<OpJudgement>* judgements);

  const JudgeRequest& request_;
  Inputs inputs_;
  std::map<std::string, std::shared_ptr<const Node>> made_;  // by tap
  std::vector<const TapValue*> unsound_;  // taps of a wrong shape: nothing can be fed from them
};

std::vector<int> Walk::RanksOf(const Node& node) const {
  bool each = false, all = false;
  for (int step = 0; step < static_cast<int>(request_.steps.size()); ++step) {
    all = all || inputs_.Shown(node.tap, -1, step) != nullptr;
    for (int r = 0; r < request_.degrees.tp; ++r) {
      each = each || inputs_.Shown(node.tap, r, step) != nullptr;
    }
  }
  std::vector<int> ranks;
  if (each) {
    for (int r = 0; r < request_.degrees.tp; ++r) ranks.push_back(r);
  }
  if (all || !each) ranks.push_back(-1);
  return ranks;
}

// The judgement of an earlier rank that holds here too: equal inputs, equal output, same weights.
const OpJudgement* Walk::Peer(const Node& node, int rank, int step,
                              const std::vector<OpJudgement>& done, size_t first) {
  if (request_.weights || rank <= 0) return nullptr;
  const int attn_tp = std::max(request_.degrees.attn_tp, 1);
  int peer = -1;
  if (node.spread == Spread::kReplicated) peer = 0;
  if (node.domain == Domain::kAttention && rank >= attn_tp) peer = rank % attn_tp;
  if (peer < 0 || inputs_.KernelOf(node.tap, rank) != inputs_.KernelOf(node.tap, peer)) {
    return nullptr;
  }
  const TapValue *mine = inputs_.Shown(node.tap, rank, step),
                 *theirs = inputs_.Shown(node.tap, peer, step);
  if (mine == nullptr || theirs == nullptr || !SameBits(*mine, *theirs)) return nullptr;
  if (inputs_.ActOf(node.tap, rank) != inputs_.ActOf(node.tap, peer)) return nullptr;
  const ShownActivation here = inputs_.ActivationShown(node, rank, step),
                        there = inputs_.ActivationShown(node, peer, step);
  if (!SameBits(here.codes, there.codes) || !SameBits(here.scales, there.scales)) return nullptr;
  auto a = inputs_.Gather(node, rank, step), b = inputs_.Gather(node, peer, step);
  if (!a.ok() || !b.ok() || a->raw.size() != b->raw.size()) return nullptr;
  for (size_t i = 0; i < a->raw.size(); ++i) {
    if (a->inputs[i].value == b->inputs[i].value) continue;
    if (a->raw[i] == nullptr || b->raw[i] == nullptr) return nullptr;
    if (!SameBits(*a->raw[i], *b->raw[i])) return nullptr;
  }
  for (size_t i = first; i < done.size(); ++i) {
    if (done[i].node != &node || done[i].rank != peer || done[i].step != step) continue;
    return done[i].judged ? &done[i] : nullptr;
  }
  return nullptr;
}

Result<std::vector<OpJudgement>> Walk::All() {
  std::vector<OpJudgement> done;
  for (const Node* node : request_.nodes) {
    const size_t first = done.size();
    for (const int rank : RanksOf(*node)) {
      for (int step = 0; step < static_cast<int>(request_.steps.size()); ++step) {
        if (const OpJudgement* peer = Peer(*node, rank, step, done, first)) {
          const int of = peer->rank;
          const size_t end = done.size();
          for (size_t i = first; i < end; ++i) {  // with the codes and scales that belong to it
            if (done[i].rank != of || done[i].step != step || done[i].same_as_rank) continue;
            OpJudgement same = done[i];
            same.same_as_rank = of;
            same.rank = rank;
            done.push_back(std::move(same));
          }
          continue;
        }
        Activations(*node, rank, step, &done);
        auto one = One(*node, rank, step);
        if (!one.ok()) return one.error();
        done.push_back(std::move(*one));
      }
    }
  }
  AddThreeWay(&done);
  for (OpJudgement& j : done) {
    if (!j.pass) continue;
    j.tolerance.bound = {};
    j.oracle = j.kernel = {};
  }
  return done;
}

std::shared_ptr<const Node> Walk::Made(const Node& node, std::string_view suffix) {
  std::shared_ptr<const Node>& slot = made_[fmt::format("{}{}", node.tap, suffix)];
  if (slot != nullptr) return slot;
  auto made = std::make_shared<Node>(node);
  made->tap += suffix;
  made->path += suffix;
  made->weight.clear();
  if (suffix == ".x_q") made->inputs.push_back(node.tap + ".x_scale");
  return slot = std::move(made);
}

void Walk::Activations(const Node& node, int rank, int step, std::vector<OpJudgement>* done) {
  if (node.op != Op::kLinear) return;
  const ShownActivation shown = inputs_.ActivationShown(node, rank, step);
  if (shown.scales != nullptr) {
    done->push_back(JudgeActivation(&inputs_, Made(node, ".x_scale"), node, rank, step));
  }
  if (shown.codes != nullptr) {
    done->push_back(JudgeActivation(&inputs_, Made(node, ".x_q"), node, rank, step));
  }
}

Result<OpJudgement> Walk::One(const Node& node, int rank, int step) {
  if (const std::string_view linear = LinearOf(node.tap); !linear.empty()) {
    const Node* of = request_.oracle->FindNode(linear);
    if (of == nullptr) return Error{fmt::format("no op of the graph gives {}", linear)};
    return JudgeActivation(&inputs_, Made(*of, std::string_view(node.tap).substr(linear.size())),
                           *of, rank, step);
  }
  const TapValue* tap = inputs_.Shown(node.tap, rank, step);
  const bool unrouted = node.expert >= 0 && inputs_.RoutedRows(node, rank, step) == int64_t{0};
  if (unrouted && (tap == nullptr || tap->bytes.empty())) {
    return NotJudged(node, rank, step, "no token is routed to this expert");
  }
  if (tap == nullptr) return NotJudged(node, rank, step, "the engine does not show this tap");
  if (unrouted) {
    OpJudgement j = NotJudged(node, rank, step, "");
    j.shown = true;
    Fail(&j, fmt::format("shape {}, but no token is routed to this expert", tap->shape));
    unsound_.push_back(tap);
    return j;
  }
  auto j = rank < 0 ? JudgeGathered(node, step, *tap) : Judge(node, rank, step, *tap);
  if (j.ok()) j->shown = true;
  return j;
}

// One value for all ranks beside each rank's own: a gather, which changes no bit.
Result<OpJudgement> Walk::JudgeGathered(const Node& node, int step, const TapValue& tap) {
  for (int r = 0; r < request_.degrees.tp; ++r) {
    if (inputs_.Shown(node.tap, r, step) == nullptr) return Judge(node, -1, step, tap);
  }
  if (node.spread == Spread::kPartial) return Judge(node, -1, step, tap);
  OpJudgement j = NotJudged(node, -1, step, "");
  j.gather = true;
  const TapValue& rank0 = *inputs_.Shown(node.tap, 0, step);
  auto joined = JoinRanks(*request_.oracle, node, *request_.trace, request_.degrees, step);
  if (!joined.ok()) {
    Fail(&j, "gather: " + joined.error().message);
    return j;
  }
  Evaluation evaluation;
  evaluation.value = std::move(*joined);
  if (!Sound(node, evaluation.value, tap, &j)) {
    j.reason = "gather: " + j.reason;
    return j;
  }
  Demand demand;
  demand.evaluation = &evaluation;
  demand.tolerance.bound.assign(evaluation.value.data.size(), 0.0);
  demand.tolerance.terms = {{"gather", "joining columns rounds nothing"}};
  demand.out = rank0.dtype;
  demand.strict.assign(evaluation.value.data.size(), 1);
  demand.want = evaluation.value.data;
  demand.strict_mode = "bitwise";
  const Tensor& kernel = inputs_.Converted(tap);
  Compare(demand, kernel, &j);
  j.tolerance = demand.tolerance;
  if (!j.pass) {
    j.reason = "gather: " + j.reason;
    j.kernel = kernel;
    j.oracle = std::move(evaluation.value);
  }
  return j;
}

const TapValue* Walk::Forced(const Node& node, int rank, int step) const {
  if (!request_.routing_forced) return nullptr;
  if (node.op != Op::kRouterIds && node.op != Op::kRouterWeights) return nullptr;
  for (const int r : {rank, -1}) {
    const auto found = request_.given.find({step, node.tap, r});
    if (found != request_.given.end()) return &found->second;
  }
  return nullptr;
}

// Shape, type, number of bytes. A type that holds more than the contract's is sound if the values
// were rounded as the contract says.
bool Walk::Sound(const Node& node, const Tensor& value, const TapValue& tap, OpJudgement* j) {
  int64_t count = 1;
  for (const int64_t extent : tap.shape) count *= extent;
  if (tap.shape != value.shape ||
      static_cast<int64_t>(tap.bytes.size()) != count * SizeOf(tap.dtype).count()) {
    Fail(j, fmt::format("shape {} of {} bytes, the graph says {}", tap.shape, tap.bytes.size(),
                        value.shape));
    unsound_.push_back(&tap);
    return false;
  }
  const bool ids = node.op == Op::kRouterIds;
  if (ids != IsInteger(tap.dtype)) {
    Fail(j, fmt::format("type {}, {} is {}", NameOf(tap.dtype), node.tap,
                        ids ? "an integer" : "a floating type"));
    unsound_.push_back(&tap);
    return false;
  }
  if (ids) return true;
  const DType out = request_.contract.RoundingOf(node.path, node.op_class);
  if (tap.dtype == out || out == DType::kF64) return true;
  const std::vector<double>& values = inputs_.Converted(tap).data;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]) || RoundTo(values[i], out) == values[i]) continue;
    Fail(j, fmt::format("type {}, the contract rounds to {}, and element {} ({}) is not so rounded",
                        NameOf(tap.dtype), NameOf(out), i, values[i]));
    j->first = j->worst = static_cast<int64_t>(i);
    j->expected = value.data[i];
    j->got = values[i];
    return false;
  }
  // Narrower than the contract: each value lost bits that the contract keeps.
  if (UnitRoundoff(tap.dtype) > UnitRoundoff(out)) {
    Fail(j, fmt::format("type {}, the contract rounds to {}", NameOf(tap.dtype), NameOf(out)));
    return false;
  }
  return true;
}

// Padding columns of the vocabulary are zero, not nearly so.
Status Walk::ClearPadding(const Node& node, int rank, Demand* demand) {
  if (node.op_class != "logits" || rank < 0) return Ok();
  auto columns = request_.oracle->TapColumns(node, inputs_.WhereOf(rank));
  if (!columns.ok()) return columns.error();
  const Tensor& value = demand->evaluation->value;
  const int64_t n = value.columns();
  if (n != static_cast<int64_t>(columns->size())) return Ok();
  for (int64_t i = 0; i < static_cast<int64_t>(value.data.size()); ++i) {
    if ((*columns)[i % n] < 0) demand->tolerance.bound[i] = 0;
  }
  return Ok();
}

Status Walk::JudgeValues(const Node& node, int rank, const Gathered& gathered,
                         const Evaluation& evaluation, const TapValue& tap, OpJudgement* j) {
  const Tensor& kernel = inputs_.Converted(tap);
  if (node.op == Op::kRouterIds) {
    const IdsRequest ids{&evaluation,
                         gathered.inputs[0].value,
                         gathered.inputs[0].error,
                         inputs_.RouterBias(node.layer),
                         UnitRoundoff(request_.contract.accumulator),
                         false};
    if (!CompareIds(ids, kernel, j)) unsound_.push_back(&tap);
    return Ok();
  }
  Demand demand;
  demand.evaluation = &evaluation;
  demand.out = request_.contract.RoundingOf(node.path, node.op_class);
  demand.accumulator = request_.contract.accumulator;
  demand.tolerance = inputs_.Bound(node, evaluation, gathered, rank);
  if (!DemandStrict(node, gathered.inputs, request_.contract, gathered.shown, &demand)) {
    demand.strict.clear();
  }
  if (Status status = ClearPadding(node, rank, &demand); !status.ok()) return status;
  Compare(demand, kernel, j);
  j->tolerance = std::move(demand.tolerance);
  return Ok();
}

Result<OpJudgement> Walk::Judge(const Node& node, int rank, int step, const TapValue& tap) {
  OpJudgement j = NotJudged(node, rank, step, "");
  Evaluation evaluation;
  if (const TapValue* forced = Forced(node, rank, step)) {
    evaluation.value = inputs_.Converted(*forced);
    if (!Sound(node, evaluation.value, tap, &j)) return j;
    Demand demand;
    demand.evaluation = &evaluation;
    demand.strict.assign(evaluation.value.data.size(), 1);
    demand.want = evaluation.value.data;
    demand.strict_mode = "bitwise";
    demand.tolerance.bound.assign(demand.want.size(), 0.0);
    demand.tolerance.terms = {{"forced", "the routing was given"}};
    Compare(demand, inputs_.Converted(tap), &j);
    j.tolerance = std::move(demand.tolerance);
  } else {
    if (const std::string act = inputs_.Unmodelled(node, rank); !act.empty()) {
      return NotJudged(node, rank, step, fmt::format("activations {} are not modelled", act));
    }
    auto gathered = inputs_.Gather(node, rank, step);
    if (!gathered.ok()) return NotJudged(node, rank, step, gathered.error().message);
    for (const TapValue* raw : gathered->raw) {
      if (raw != nullptr && std::find(unsound_.begin(), unsound_.end(), raw) != unsound_.end()) {
        return NotJudged(node, rank, step, "an input has a wrong shape or type");
      }
    }
    auto result = request_.oracle->Evaluate(node, gathered->inputs, inputs_.WhereOf(rank),
                                            request_.steps[step], inputs_.ContractOf(node, rank),
                                            inputs_.WeightsOf(rank));
    if (!result.ok()) {
      // What an engine got wrong before may not fit together any more; else it is our own mistake.
      if (!unsound_.empty()) return NotJudged(node, rank, step, result.error().message);
      return Error{fmt::format("{}@r{} step {}: {}", node.tap, rank, step, result.error().message),
                   result.error().kind};
    }
    evaluation = std::move(*result);
    j.composite = !gathered->shown;
    if (!Sound(node, evaluation.value, tap, &j)) {
      j.oracle = std::move(evaluation.value);
      j.kernel = inputs_.Converted(tap);
      return j;
    }
    Status status = JudgeValues(node, rank, *gathered, evaluation, tap, &j);
    if (!status.ok()) return status.error();
  }
  j.kernel = inputs_.Converted(tap);
  j.oracle = std::move(evaluation.value);
  return j;
}

// Of the op that came nearest to its bound, or furthest beyond it: the number costs as much as the
// op itself, and it decides nothing.
void Walk::AddThreeWay(std::vector<OpJudgement>* judgements) {
  OpJudgement* worst = nullptr;
  for (OpJudgement& j : *judgements) {
    if (!j.judged || j.oracle.data.empty() || j.mode != "bounded" || j.made) continue;
    if (!IsPlain(j.node->op)) continue;
    if (worst == nullptr || j.max_ratio > worst->max_ratio) worst = &j;
  }
  if (worst == nullptr || worst->max_ratio == 0) return;
  auto gathered = inputs_.Gather(*worst->node, worst->rank, worst->step);
  if (!gathered.ok() || worst->oracle.shape != worst->kernel.shape) return;
  worst->three_way =
      ThreeWay(*request_.oracle, *worst->node, gathered->inputs, inputs_.WhereOf(worst->rank),
               inputs_.ContractOf(*worst->node, worst->rank), inputs_.WeightsOf(worst->rank),
               worst->oracle, worst->kernel);
}

}  // namespace

Result<std::vector<OpJudgement>> JudgeTrace(const JudgeRequest& request) {
  return Walk(request).All();
}

Result<OpJudgement> JudgeOne(const JudgeRequest& request, const Node& node, int rank, int step) {
  return Walk(request).One(node, rank, step);
}

}  // namespace assay::judge
