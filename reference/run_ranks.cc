// Row-parallel ops of a chain rank by rank: each rank multiplies its own columns, quantises its own
// part of the activations and rounds its own summand; then the sum in the contract's order and
// wire.
#include "reference/chain.h"
#include "reference/sharding.h"

namespace assay::reference {
namespace {

// The columns of a tensor that a rank has.
Tensor Columns(const Tensor& from, const std::vector<int64_t>& columns) {
  Tensor to = ops::Zeros({from.rows(), static_cast<int64_t>(columns.size())});
  auto out = to.data.begin();
  for (int64_t t = 0; t < from.rows(); ++t) {
    const double* row = from.data.data() + t * from.columns();
    for (const int64_t column : columns) *out++ = row[column];
  }
  return to;
}

}  // namespace

bool Chain::ByRanks(const Node& node) const {
  return request_.parallel.has_value() && node.spread == Spread::kPartial;
}

// Whether the rank has the node's expert; true where it has none.
Result<bool> Chain::Holds(const Node& node, const Where& where) const {
  if (node.expert < 0) return true;
  const auto held = HeldOf(node.expert, model_.config.experts, where, node.tap);
  if (!held) return held.error();
  return *held != Held::kAbsent;
}

// An expert's summand, a combination of them, or the columns that enter the rank's product.
Result<std::vector<Input>> Chain::RankInputs(const Node& node, const Where& where, Values* values,
                                             std::vector<Tensor>* memory) {
  std::vector<Input> inputs;
  memory->clear();
  memory->reserve(node.inputs.size());  // pointers into it must stay
  for (const std::string& tap : node.inputs) {
    const Node* from = model_.FindNode(tap);
    if (from->spread == Spread::kPartial) {
      const auto found = parts_.find(tap);
      const auto held = Holds(*from, where);
      if (!held) return held.error();
      const bool there = found != parts_.end() && *held;
      inputs.push_back(
          {there ? &found->second[static_cast<size_t>(where.rank)] : nullptr, nullptr});
      continue;
    }
    const auto value = Lookup(node, tap, values);
    if (!value) return value.error();
    if (*value == nullptr || from->spread == Spread::kReplicated) {
      inputs.push_back({*value, nullptr});
      continue;
    }
    const auto columns = model_.Columns(*from, where);
    if (!columns) return columns.error();
    memory->push_back(Columns(**value, *columns));
    inputs.push_back({&memory->back(), nullptr});
  }
  return inputs;
}

Status Chain::ComputeParts(const Node& node, size_t index, Values* values) {
  const Parallel& degrees = *request_.parallel;
  const int ranks = node.domain == Domain::kAttention ? degrees.attention() : degrees.tp;
  std::vector<Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const Where where = {degrees, rank};
    std::vector<Tensor> memory;
    const auto inputs = RankInputs(node, where, values, &memory);
    if (!inputs) return inputs.error();
    if (Idle(node, *inputs)) return Ok();
    const auto held = Holds(node, where);
    if (!held) return held.error();
    if (!*held) {  // another rank's expert: nothing to add
      parts.push_back(ops::Zeros({inputs->front().value->rows(), model_.config.hidden}));
      continue;
    }
    const Evaluator evaluator(model_, where, *step_, contract_, nullptr, bounds_, true);
    auto evaluation = evaluator.Evaluate(node, *inputs);
    if (!evaluation) return evaluation.error();
    parts.push_back(Finish(node, index, &*evaluation));
  }
  std::vector<Input> terms;
  for (const Tensor& part : parts) terms.push_back({&part, nullptr});
  (*values)[node.tap] = ops::Sum(terms, false).value;
  parts_[node.tap] = std::move(parts);
  return Ok();
}

Status Chain::ComputeReduce(const Node& node, size_t index, Values* values) {
  std::vector<Input> inputs;
  std::vector<const Tensor*> parts;
  for (const Tensor& part : parts_[node.inputs[0]]) {
    inputs.push_back({&part, nullptr});
    parts.push_back(&part);
  }
  const Where whole;
  const Evaluator evaluator(model_, whole, *step_, contract_, nullptr, bounds_, true);
  auto e = evaluator.Evaluate(node, inputs);
  if (!e) return e.error();
  // Order and wire are fp32's business: a contract that adds in double has the sum as it is.
  if (contract_.accumulator != DType::kF64) {
    auto sum = ModelReduce(parts, "all_reduce", contract_.reduce_order, contract_.reduce_wire);
    if (!sum) return sum.error();
    e->value = std::move((*sum)[0]);
  }
  (*values)[node.tap] = Finish(node, index, &*e);
  return Ok();
}

}  // namespace assay::reference
