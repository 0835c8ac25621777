#include "harness/judge/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/internal.h"

namespace assay::judge {

using reference::Domain;
using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Op;
using reference::Spread;
using reference::Tensor;

Inputs::Inputs(const JudgeRequest& request) : request_(request) {
  for (const Node* node : request.nodes) scope_.emplace(node->tap, node);
  std::map<std::string, const KernelFacts*, std::less<>> by_name;
  for (const KernelFacts& facts : request.kernels) by_name.emplace(facts.name, &facts);
  for (const ExecutedRecord& record : request.trace->executed) {
    const auto found = by_name.find(record.kernel);
    if (found != by_name.end()) kernels_[{record.tap, record.rank}] = found->second;
    if (!record.act.empty()) acts_[{record.tap, record.rank}] = record.act;
  }
}

const KernelFacts* Inputs::KernelOf(const std::string& tap, int rank) const {
  auto found = kernels_.find({tap, rank});
  if (found == kernels_.end()) found = kernels_.find({tap, -1});
  return found == kernels_.end() ? nullptr : found->second;
}

const TensorSource* Inputs::WeightsOf(int rank) const {
  return request_.weights ? request_.weights(rank) : nullptr;
}

std::vector<int> Inputs::ReduceGroup(const Node& node, int rank) const {
  const Node* input = request_.oracle->FindNode(node.inputs.empty() ? "" : node.inputs[0]);
  if (input == nullptr || input->spread != Spread::kPartial) return {rank};
  const int degree =
      input->domain == Domain::kAttention ? request_.degrees.attn_tp : request_.degrees.tp;
  const int base = rank < 0 ? 0 : rank / degree * degree;
  std::vector<int> group;
  for (int r = 0; r < degree; ++r) group.push_back(base + r);
  return group;
}

const TapValue* Inputs::Shown(const std::string& tap, int rank, int step) const {
  const auto found = request_.trace->taps.find({step, tap, rank});
  return found == request_.trace->taps.end() ? nullptr : &found->second;
}

const Tensor& Inputs::Converted(const TapValue& raw) {
  std::unique_ptr<Tensor>& slot = converted_[&raw];
  if (slot == nullptr) slot = std::make_unique<Tensor>(ToTensor(raw));
  return *slot;
}

const Inputs::Owned& Inputs::Keep(const TapKey& key, Owned owned) {
  std::unique_ptr<Owned>& slot = derived_[key];
  slot = std::make_unique<Owned>(std::move(owned));
  return *slot;
}

// A value as the rank has it: a whole tensor that stands for all ranks is cut to its columns.
Result<Resolved> Inputs::Fit(const std::string& tap, const TapValue& raw, int rank) {
  const Tensor& whole = Converted(raw);
  const Node* node = request_.oracle->FindNode(tap);
  if (node == nullptr || rank < 0 || node->spread != Spread::kColumns || whole.shape.size() != 2) {
    return Resolved{&whole, nullptr, &raw};
  }
  auto columns = request_.oracle->TapColumns(*node, WhereOf(rank));
  if (!columns.ok()) return columns.error();
  const int64_t n = static_cast<int64_t>(columns->size());
  if (n >= whole.columns()) return Resolved{&whole, nullptr, &raw};
  std::unique_ptr<Owned>& slot = cuts_[{0, fmt::format("{}#{}", tap, fmt::ptr(&raw)), rank}];
  if (slot == nullptr) {
    slot = std::make_unique<Owned>();
    slot->value.shape = {whole.rows(), n};
    slot->value.data.reserve(static_cast<size_t>(whole.rows() * n));
    for (int64_t row = 0; row < whole.rows(); ++row) {
      for (const int64_t c : *columns) {
        const bool there = c >= 0 && c < whole.columns();
        slot->value.data.push_back(there ? whole.data[row * whole.columns() + c] : 0.0);
      }
    }
  }
  return Resolved{&slot->value, nullptr, nullptr};
}

Result<Resolved> Inputs::Get(const std::string& tap, int rank, int step) {
  // The rank's own value is taken as it is; one for all ranks may have to be cut.
  if (const TapValue* own = Shown(tap, rank, step)) return Resolved{&Converted(*own), nullptr, own};
  if (const TapValue* all = rank >= 0 ? Shown(tap, -1, step) : nullptr) return Fit(tap, *all, rank);
  for (const int r : {rank, -1}) {
    const auto given = request_.given.find({step, tap, r});
    if (given == request_.given.end()) continue;
    if (r >= 0) return Resolved{&Converted(given->second), nullptr, &given->second};
    return Fit(tap, given->second, rank);
  }
  const Node* node = request_.oracle->FindNode(tap);
  if (node == nullptr) return Error{fmt::format("no op of the graph gives {}", tap)};
  if (rank < 0) {
    bool joined = false;
    auto whole = JoinColumns(*node, step, &joined);
    if (!whole.ok() || joined) return whole;
  }
  if (scope_.find(tap) == scope_.end()) {
    return Error{fmt::format("{}@r{} is neither shown nor given nor in scope", tap, rank)};
  }
  return Evaluate(*node, rank, step);
}

// The whole of a tap from what the ranks show; *joined is false where they do not show it.
Result<Resolved> Inputs::JoinColumns(const Node& node, int step, bool* joined) {
  *joined = false;
  if (node.spread == Spread::kReplicated) {
    const TapValue* first = Shown(node.tap, 0, step);
    if (first == nullptr) return Resolved{};
    *joined = true;
    return Resolved{&Converted(*first), nullptr, first};
  }
  for (int r = 0; r < request_.degrees.tp; ++r) {
    if (Shown(node.tap, r, step) == nullptr) return Resolved{};
  }
  if (node.spread == Spread::kPartial) return Resolved{};
  auto whole = JoinRanks(*request_.oracle, node, *request_.trace, request_.degrees, step);
  if (!whole.ok()) return whole.error();
  *joined = true;
  Owned owned;
  owned.value = std::move(*whole);
  return Resolved{&Keep({step, node.tap, -1}, std::move(owned)).value, nullptr, nullptr};
}

Result<Resolved> Inputs::Evaluate(const Node& node, int rank, int step) {
  const TapKey key{step, node.tap, rank};
  if (const auto failed = failures_.find(key); failed != failures_.end()) {
    return Error{failed->second};
  }
  const auto found = derived_.find(key);
  if (found != derived_.end()) {
    return Resolved{&found->second->value,
                    found->second->has_error ? &found->second->error : nullptr, nullptr};
  }
  if (node.expert >= 0 && RoutedRows(node, rank, step) == int64_t{0}) return Resolved{};
  auto fail = [&](std::string message) {
    failures_[key] = message;
    return Error{std::move(message)};
  };
  auto gathered = Gather(node, rank, step);
  if (!gathered.ok()) return fail(gathered.error().message);
  auto evaluation =
      request_.oracle->Evaluate(node, gathered->inputs, WhereOf(rank), request_.steps[step],
                                ContractOf(node, rank), WeightsOf(rank));
  if (!evaluation.ok()) return fail(evaluation.error().message);
  Owned owned;
  if (node.op == Op::kRouterIds) {
    const IdsRequest ids{&*evaluation,
                         gathered->inputs[0].value,
                         gathered->inputs[0].error,
                         RouterBias(node.layer),
                         UnitRoundoff(request_.contract.accumulator),
                         false};
    for (int64_t row = 0; row < evaluation->margin.rows(); ++row) {
      if (evaluation->margin.data[row] > 2 * ScoreTolerance(ids, row)) continue;
      return fail(fmt::format("{} is not shown, and token {}'s choice is too close to call",
                              node.tap, row));
    }
  } else {
    Tolerance bound = Bound(node, *evaluation, *gathered, rank);
    owned.has_error = true;
    owned.error.shape = evaluation->value.shape;
    owned.error.data = std::move(bound.bound);
  }
  owned.value = std::move(evaluation->value);
  const Owned& kept = Keep(key, std::move(owned));
  return Resolved{&kept.value, kept.has_error ? &kept.error : nullptr, nullptr};
}

// Rows of all positions so far: the tap of this step behind those of the steps before it.
Result<Resolved> Inputs::AllPositions(const std::string& tap, int rank, int step) {
  std::vector<int> chain{step};
  int64_t first = request_.steps[step].first_position;
  for (int s = step - 1; s >= 0 && first > 0; --s) {
    const reference::Step& before = request_.steps[s];
    if (before.first_position + static_cast<int64_t>(before.tokens.size()) != first) continue;
    chain.push_back(s);
    first = before.first_position;
  }
  if (first > 0) {
    return Error{
        fmt::format("{}: no step holds the {} positions before step {}", tap, first, step)};
  }
  if (chain.size() == 1) return Get(tap, rank, step);
  std::unique_ptr<Owned>& slot = concatenated_[{step, tap, rank}];
  if (slot == nullptr) {
    Owned joined;
    for (auto s = chain.rbegin(); s != chain.rend(); ++s) {
      auto part = Get(tap, rank, *s);
      if (!part.ok()) return part;
      if (part->value == nullptr) return Error{fmt::format("{} is absent in step {}", tap, *s)};
      const Tensor& value = *part->value;
      if (joined.value.shape.empty()) {
        joined.value.shape = value.shape;
        joined.value.shape[0] = 0;
      }
      if (value.columns() != joined.value.columns()) {
        return Error{fmt::format("{} has other columns in step {}", tap, *s)};
      }
      joined.value.shape[0] += value.rows();
      joined.value.data.insert(joined.value.data.end(), value.data.begin(), value.data.end());
      const std::vector<double> none(value.data.size(), 0.0);
      const std::vector<double>& error = part->error != nullptr ? part->error->data : none;
      joined.error.data.insert(joined.error.data.end(), error.begin(), error.end());
      joined.has_error = joined.has_error || part->error != nullptr;
    }
    joined.error.shape = joined.value.shape;
    slot = std::make_unique<Owned>(std::move(joined));
  }
  return Resolved{&slot->value, slot->has_error ? &slot->error : nullptr, nullptr};
}

Result<Gathered> Inputs::Gather(const Node& node, int rank, int step) {
  Gathered gathered;
  auto take = [&](const Result<Resolved>& one) {
    gathered.inputs.push_back({one->value, one->error});
    gathered.raw.push_back(one->raw);
    if (one->error != nullptr) gathered.shown = false;
  };
  const bool attention = node.op == Op::kScores || node.op == Op::kContext;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == "tokens") continue;
    if (node.op == Op::kReduce && i == 0) {
      for (const int r : ReduceGroup(node, rank)) {
        auto part = Get(node.inputs[i], r, step);
        if (!part.ok()) return part.error();
        take(part);
      }
      continue;
    }
    auto one = attention && i > 0 ? AllPositions(node.inputs[i], rank, step)
                                  : Get(node.inputs[i], rank, step);
    if (!one.ok()) return one.error();
    take(one);
  }
  Quantised(node, rank, step, &gathered);
  return gathered;
}

std::optional<int64_t> Inputs::RoutedRows(const Node& node, int rank, int step) {
  const std::string tap = fmt::format("L{}.router.ids", node.layer);
  auto ids = Get(tap, rank, step);
  if (!ids.ok() || ids->value == nullptr) return std::nullopt;
  return std::count(ids->value->data.begin(), ids->value->data.end(),
                    static_cast<double>(node.expert));
}

double Inputs::RouterBias(int64_t layer) {
  return Largest(fmt::format("L{}.router.scores.bias", layer));
}

double Inputs::Largest(const std::string& component) {
  const auto found = largest_.find(component);
  if (found != largest_.end()) return found->second;
  double largest = 0;
  auto slice = request_.oracle->ExpectedSlice(component, {});
  if (slice.ok()) {  // a router without a correction bias has no such component
    TapValue value{slice->dtype, {}, slice->bytes};
    for (const double v : ToTensor(value).data) largest = std::max(largest, std::abs(v));
  }
  return largest_[component] = largest;
}

Tolerance Inputs::Bound(const Node& node, const Evaluation& evaluation, const Gathered& gathered,
                        int rank) {
  const DType out = request_.contract.RoundingOf(node.path, node.op_class);
  const bool norm = node.op == Op::kRmsNorm || node.op == Op::kHeadNorm;
  return Derive(node, evaluation, out, ContractOf(node, rank), KernelOf(node.tap, rank),
                static_cast<int>(gathered.inputs.size()), gathered.inputs,
                norm ? Largest(node.weight + ".weight") : 1);
}

}  // namespace assay::judge
