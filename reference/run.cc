// The chain: every op on the oracle's own outputs, each rounded as the contract says, over a
// prefill and any number of decodes with their cache of keys and values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/chain.h"

namespace assay::reference {
std::vector<std::string> Chain::Reads(const Node& node) const {
  if (!absorbed_ || (node.op != Op::kScores && node.op != Op::kContext)) return node.inputs;
  const std::string latent = fmt::format("L{}.attn.kv_a_norm", node.layer);
  if (node.op == Op::kScores) return {node.inputs[0], node.inputs[1], latent};
  return {node.inputs[0], latent};
}

bool Chain::InRange(const Node& node) const {
  if (node.layer >= 0) {
    return node.layer >= request_.first_layer &&
           (request_.last_layer < 0 || node.layer <= request_.last_layer);
  }
  if (node.op == Op::kEmbed) return request_.first_layer == 0;
  return request_.last_layer < 0;
}

Status Chain::CheckRequest() {
  const int64_t layers = model_.config.layers;
  if (request_.steps.empty()) return Error{"a run needs at least one step"};
  if (request_.first_layer < 0 || request_.first_layer >= layers || request_.last_layer >= layers ||
      (request_.last_layer >= 0 && request_.last_layer < request_.first_layer)) {
    return Error{fmt::format("layers {} to {}: the model has 0 to {}", request_.first_layer,
                             request_.last_layer, layers - 1)};
  }
  for (const Step& step : request_.steps) {
    if (step.tokens.empty() || step.first_position < 0) {
      return Error{"a step needs at least one token and a position that is not negative"};
    }
    total_ += static_cast<int64_t>(step.tokens.size());
  }
  if (request_.parallel && request_.parallel->dp > 1) {
    return Error{"a run rank by rank knows one group of attention ranks, not dp of them",
                 ErrorKind::kUnsupported};
  }
  given_ = request_.given;
  if (request_.input != nullptr) {
    const int64_t first = request_.first_layer;
    given_[first == 0 ? "embed" : fmt::format("L{}.residual_mlp", first - 1)] = *request_.input;
  }
  return CheckGiven();
}

Status Chain::CheckGiven() const {
  for (const auto& [tap, value] : given_) {
    const Node* node = model_.FindNode(tap);
    if (node == nullptr)
      return Error{fmt::format("given tap \"{}\" is not one of this model", tap)};
    if (node->op == Op::kScores || (node->expert >= 0 && request_.steps.size() > 1)) {
      return Error{fmt::format("{} cannot be given: its shape depends on the step", tap),
                   ErrorKind::kUnsupported};
    }
    if (request_.parallel && node->spread == Spread::kPartial) {
      return Error{fmt::format("{} cannot be given: it is a sum of what each rank has", tap),
                   ErrorKind::kUnsupported};
    }
    const int64_t columns = model_.FactsOf(*node).columns.extent;
    const bool rows_fit = node->expert >= 0 || value.rows() == total_;
    if (!rows_fit || value.columns() != columns ||
        static_cast<int64_t>(value.data.size()) != value.rows() * columns) {
      return Error{fmt::format("given tap {} is {}, must be [{}, {}]", tap, PrintShape(value.shape),
                               total_, columns)};
    }
  }
  return Ok();
}

// Nodes to execute, in order: what is wanted and what that needs.
Status Chain::Plan() {
  wanted_.insert(request_.wanted.begin(), request_.wanted.end());
  for (const std::string& tap : wanted_) {
    if (model_.FindNode(tap) == nullptr) {
      return Error{fmt::format("wanted tap \"{}\" is not one of this model", tap)};
    }
  }
  std::set<std::string> needed;
  const auto& nodes = model_.graph.nodes;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const bool asked = request_.wanted.empty() ? InRange(*node) : wanted_.contains(node->tap);
    if (!asked && !needed.contains(node->tap)) continue;
    plan_.push_back(&*node);
    if (given_.contains(node->tap)) continue;
    if (!InRange(*node)) {
      return Error{fmt::format("{} is needed, but lies outside layers {} to {} and is not given",
                               node->tap, request_.first_layer, request_.last_layer)};
    }
    for (const std::string& tap : Reads(*node)) needed.insert(tap);
    if (node->op == Op::kScores || node->op == Op::kContext) {
      const std::vector<std::string> reads = Reads(*node);
      cached_.insert(reads.begin() + 1, reads.end());
    }
  }
  std::reverse(plan_.begin(), plan_.end());
  return Ok();
}

// A given tap: this step's rows of it. False: not given.
Result<bool> Chain::Take(const Node& node, Values* values) {
  const auto found = given_.find(node.tap);
  if (found == given_.end()) return false;
  const Tensor& whole = found->second;
  if (node.expert >= 0) {
    (*values)[node.tap] = whole;
    return true;
  }
  const auto rows = static_cast<int64_t>(step_->tokens.size());
  Tensor part = whole;
  part.shape[0] = rows;
  const auto begin = whole.data.begin() + done_ * whole.columns();
  part.data.assign(begin, begin + rows * whole.columns());
  Remember(node.tap, part);
  (*values)[node.tap] = std::move(part);
  return true;
}

void Chain::Remember(const std::string& tap, const Tensor& value) {
  if (!cached_.contains(tap)) return;
  Tensor& all = cache_[tap];
  if (all.shape.empty()) {
    all = value;
    return;
  }
  all.shape[0] += value.rows();
  all.data.insert(all.data.end(), value.data.begin(), value.data.end());
}

void Chain::Round(const Node& node, Tensor* value) const {
  if (node.op == Op::kRouterIds) return;  // integers
  const DType type = contract_.RoundingOf(node.path, node.op_class);
  if (type != DType::kF64) {
    for (double& x : value->data) x = RoundTo(x, type);
  }
  if (!contract_.ftz && !contract_.daz) return;
  for (double& x : value->data) {
    if (std::fabs(x) < double{std::numeric_limits<float>::min()}) x = std::copysign(0.0, x);
  }
}

// nullptr: an expert's tap that no token was routed to.
Result<const Tensor*> Chain::Lookup(const Node& node, const std::string& tap, Values* values) {
  const bool attention = node.op == Op::kScores || node.op == Op::kContext;
  if (attention && tap != node.inputs[0]) {
    const Tensor& all = cache_[tap];
    const int64_t keys = step_->first_position + static_cast<int64_t>(step_->tokens.size());
    if (all.rows() != keys) {
      return Error{
          fmt::format("{}: the step begins at position {}, but {} earlier positions of "
                      "{} are there",
                      node.tap, step_->first_position,
                      all.rows() - static_cast<int64_t>(step_->tokens.size()), tap)};
    }
    return &all;
  }
  const auto found = values->find(tap);
  if (found != values->end()) return &found->second;
  if (model_.FindNode(tap)->expert >= 0) return nullptr;
  return Error{fmt::format("{} needs {}, which is neither given nor computed", node.tap, tap)};
}

Result<Tensor> Chain::Absorbed(const Node& node, const Evaluator& evaluator, Values* values) {
  std::vector<const Tensor*> inputs;
  for (const std::string& tap : Reads(node)) {
    const auto input = Lookup(node, tap, values);
    if (!input) return input.error();
    inputs.push_back(*input);
  }
  return node.op == Op::kScores ? evaluator.AbsorbedScores(node, *inputs[0], *inputs[1], *inputs[2])
                                : evaluator.AbsorbedContext(node, *inputs[0], *inputs[1]);
}

bool Chain::Idle(const Node& node, const std::vector<Input>& inputs) const {
  if (node.expert < 0) return false;
  // Gate and up see the choice; what follows sees whether they ran.
  return inputs.size() > 1 && node.op == Op::kLinear
             ? ops::RoutedRows(*inputs[1].value, node.expert).empty()
             : inputs[0].value == nullptr;
}

Tensor Chain::Finish(const Node& node, size_t index, Evaluation* e) {
  if (request_.observe) request_.observe(node, static_cast<int>(index), e);
  Round(node, &e->value);
  return std::move(e->value);
}

Status Chain::Compute(const Node& node, size_t index, Values* values) {
  const Where whole;
  const Evaluator evaluator(model_, whole, *step_, contract_, nullptr, bounds_, true);
  Evaluation e;
  if (absorbed_ && (node.op == Op::kScores || node.op == Op::kContext)) {
    auto value = Absorbed(node, evaluator, values);
    if (!value) return value.error();
    e.value = std::move(*value);
  } else {
    std::vector<Input> inputs;
    for (const std::string& tap :
         node.op == Op::kEmbed ? std::vector<std::string>{} : node.inputs) {
      const auto input = Lookup(node, tap, values);
      if (!input) return input.error();
      inputs.push_back({*input, nullptr});
    }
    if (Idle(node, inputs)) return Ok();
    auto evaluation = evaluator.Evaluate(node, inputs);
    if (!evaluation) return evaluation.error();
    e = std::move(*evaluation);
  }
  Tensor value = Finish(node, index, &e);
  Remember(node.tap, value);
  (*values)[node.tap] = std::move(value);
  return Ok();
}

Status Chain::RunStep(size_t index, Values* values) {
  int64_t layer = -1;
  parts_.clear();
  for (const Node* node : plan_) {
    if (node->layer > layer && layer >= 0) {
      // Only the residual stream goes on; what nobody wants is let go.
      std::erase_if(*values, [&](const auto& entry) {
        const Node* of = model_.FindNode(entry.first);
        return !Wanted(entry.first) && of->layer >= 0 && of->layer < node->layer &&
               of->path != "residual_mlp";
      });
      parts_.clear();
    }
    layer = node->layer;
    const auto taken = Take(*node, values);
    if (!taken) return taken.error();
    if (*taken) continue;
    const Status status = node->op == Op::kReduce && parts_.contains(node->inputs[0])
                              ? ComputeReduce(*node, index, values)
                          : ByRanks(*node) ? ComputeParts(*node, index, values)
                                           : Compute(*node, index, values);
    if (!status) return status;
  }
  std::erase_if(*values, [&](const auto& entry) { return !Wanted(entry.first); });
  return Ok();
}

Result<Trace> Chain::Run() {
  if (const Status status = CheckRequest(); !status) return status.error();
  if (const Status status = Plan(); !status) return status.error();
  Trace trace;
  for (size_t i = 0; i < request_.steps.size(); ++i) {
    step_ = &request_.steps[i];
    Values values;
    if (const Status status = RunStep(i, &values); !status) return status.error();
    done_ += static_cast<int64_t>(step_->tokens.size());
    trace.push_back(std::move(values));
  }
  return trace;
}

Result<Trace> RunChain(const Model& model, const RunRequest& request, const Contract& contract) {
  return Chain(model, request, contract).Run();
}

}  // namespace assay::reference
