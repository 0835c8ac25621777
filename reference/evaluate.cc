// One op on what one rank has.
#include <fmt/format.h>

#include <cmath>

#include "reference/model.h"
#include "reference/sharding.h"

namespace assay::reference {
namespace {

Status CheckContract(const Contract& contract) {
  if (contract.act == "a16" || contract.act == "a32") return Ok();
  if (contract.QuantiserOf(contract.act).has_value()) return Ok();
  if (contract.VariantOf(contract.act).has_value()) return Ok();
  return Error{
      fmt::format("activations \"{}\" are not known to the oracle (a16, a32, a8row, a8g32, "
                  "a8g128, amxfp8, amxfp4 are)",
                  contract.act),
      ErrorKind::kUnsupported};
}

bool IsAttention(Op op) { return op == Op::kScores || op == Op::kContext; }

}  // namespace

const Parameter& Evaluator::ParameterOf(const Node& node) const {
  return model_.graph.parameters[static_cast<size_t>(model_.FactsOf(node).parameter)];
}

Result<int64_t> Evaluator::Width(const Node& node) const {
  if (where_.rank == -1) return model_.FactsOf(node).columns.extent;
  const auto columns = model_.Columns(node, where_);
  if (!columns) return columns.error();
  return static_cast<int64_t>(columns->size());
}

Status Evaluator::CheckIds(const Tensor& ids) const {
  const int64_t k = ids.columns();
  for (size_t i = 0; i < ids.data.size(); ++i) {
    const double id = ids.data[i];
    const bool good =
        id >= 0 && id < static_cast<double>(model_.config.experts) && id == std::floor(id);
    bool twice = false;
    for (size_t j = i - i % static_cast<size_t>(k); j < i; ++j) twice |= ids.data[j] == id;
    if (!good || twice) {
      return Error{fmt::format("router.ids, token {}: {} {} (experts are 0 to {}, each once)",
                               static_cast<int64_t>(i) / k, id,
                               good ? "is chosen twice" : "is no expert",
                               model_.config.experts - 1)};
    }
  }
  return Ok();
}

Status Evaluator::CheckInputs(const Node& node, std::span<const Input> inputs) const {
  const bool any_number = node.op == Op::kReduce;
  if (node.op == Op::kEmbed) return Ok();
  if (any_number ? inputs.empty() : inputs.size() != node.inputs.size()) {
    return Error{
        fmt::format("{}: {} inputs, must be {}", node.tap, inputs.size(),
                    any_number ? "one for each rank" : fmt::format("{}", node.inputs.size()))};
  }
  const auto tokens = static_cast<int64_t>(step_.tokens.size());
  const Tensor* ids = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& tap = node.inputs[any_number ? 0 : i];
    const Node* from = model_.FindNode(tap);
    const Tensor* value = inputs[i].value;
    int64_t rows = tokens;
    if (IsAttention(node.op) && i > 0) rows += step_.first_position;
    if (from->expert >= 0 && node.op == Op::kCombine) {
      rows = static_cast<int64_t>(ops::RoutedRows(*ids, from->expert).size());
      if (rows == 0) continue;
      const auto held = HeldOf(from->expert, model_.config.experts, where_, tap);
      if (!held) return held.error();
      if (*held == Held::kAbsent) {
        if (value == nullptr) continue;
        return Error{
            fmt::format("{}: rank {} does not hold the expert of {}", node.tap, where_.rank, tap)};
      }
    } else if (node.expert >= 0 && from->expert >= 0 && value != nullptr) {
      rows = value->rows();  // which tokens they are was decided at the gate
    }
    if (value == nullptr) return Error{fmt::format("{}: input {} is missing", node.tap, tap)};
    const auto width = Width(*from);
    if (!width) return width.error();
    int64_t columns = *width;
    if (from->op == Op::kScores) columns *= tokens + step_.first_position;
    for (const Tensor* tensor : {value, inputs[i].error}) {
      if (tensor == nullptr) continue;
      if (tensor->rows() == rows && tensor->columns() == columns &&
          static_cast<int64_t>(tensor->data.size()) == rows * columns) {
        continue;
      }
      return Error{fmt::format("{}: input {} is {}, must be [{}, {}]", node.tap, tap,
                               PrintShape(tensor->shape), rows, columns)};
    }
    if (from->op == Op::kRouterIds) {
      ids = value;
      if (const Status status = CheckIds(*ids); !status) return status;
    }
  }
  return Ok();
}

Result<Evaluation> Evaluator::Embed(const Node& node) const {
  const Parameter& parameter = ParameterOf(node);
  auto whole = model_.weights->Rows(parameter, Where{}, contract_, nullptr);
  if (!whole) return whole.error();
  // The rank's own rows from its shard, if one is given; the others come from their ranks.
  auto local = model_.weights->Rows(parameter, where_, contract_, shard_);
  if (!local) return local.error();
  const auto held = AxisIndices(parameter.rows, 1, where_, parameter.name);
  if (!held) return held.error();
  const int64_t hidden = model_.config.hidden;
  Evaluation e;
  e.value = ops::Zeros({static_cast<int64_t>(step_.tokens.size()), hidden});
  for (size_t t = 0; t < step_.tokens.size(); ++t) {
    const int64_t token = step_.tokens[t];
    if (token < 0 || token >= model_.config.vocab) {
      return Error{fmt::format("token {} of the step is {}: the vocabulary has 0 to {}", t, token,
                               model_.config.vocab - 1)};
    }
    // Ranks hold contiguous rows, so the first one tells the place.
    const int64_t place = held->empty() ? -1 : token - held->front();
    const bool here = !held->empty() && held->front() >= 0 && place >= 0 &&
                      place < static_cast<int64_t>(held->size());
    const double* row = here ? local->Row(place) : whole->Row(token);
    std::copy(row, row + hidden, e.value.data.begin() + static_cast<int64_t>(t) * hidden);
  }
  return e;
}

Result<Evaluation> Evaluator::Norm(const Node& node, const Input& x) const {
  const auto weight = model_.weights->Vector(ParameterOf(node), "weight", where_, shard_);
  if (!weight) return weight.error();
  const double eps = model_.FactsOf(node).eps;
  return node.op == Op::kHeadNorm ? ops::HeadNorm(x, *weight, eps, bounds_)
                                  : ops::RmsNorm(x, *weight, eps, bounds_);
}

Result<Evaluation> Evaluator::Rope(const Node& node, const Input& x) const {
  const ModelConfig& c = model_.config;
  ops::RopeLayout layout;
  layout.interleaved = c.rope_interleave;
  layout.block = c.is_mla() ? c.qk_nope + c.qk_rope : c.head_dim;
  Input in = x;
  Tensor tail, tail_error;
  if (node.path == "attn.k_rot" && c.is_mla()) {  // the last columns of kv_a alone
    const auto cut = [&](const Tensor& from) {
      Tensor to = ops::Zeros({from.rows(), c.qk_rope});
      for (int64_t t = 0; t < from.rows(); ++t) {
        const auto at = from.data.begin() + t * from.columns() + c.kv_lora;
        std::copy(at, at + c.qk_rope, to.data.begin() + t * c.qk_rope);
      }
      return to;
    };
    tail = cut(*x.value);
    if (x.error != nullptr) tail_error = cut(*x.error);
    in = {&tail, x.error != nullptr ? &tail_error : nullptr};
    layout.block = c.qk_rope;
  }
  return ops::Rope(in, model_.rope, layout, step_.first_position, contract_.rope_table, bounds_);
}

Result<ops::Gqa> Evaluator::GqaShape() const {
  const ModelConfig& c = model_.config;
  ops::Gqa shape;
  shape.dim = c.head_dim;
  shape.scale = model_.softmax_scale;
  shape.first_position = step_.first_position;
  const auto heads = AxisIndices({Cut::kHeads, c.heads, 1}, 1, where_, "heads");
  if (!heads) return heads.error();
  const auto kv_heads = AxisIndices({Cut::kKvHeads, c.kv_heads, 1}, 1, where_, "kv heads");
  if (!kv_heads) return kv_heads.error();
  for (const int64_t head : *heads) {
    const int64_t wanted = head / (c.heads / c.kv_heads);
    for (size_t i = 0; i < kv_heads->size(); ++i) {
      if ((*kv_heads)[i] == wanted) shape.kv_of.push_back(static_cast<int64_t>(i));
    }
  }
  if (shape.kv_of.size() != heads->size()) {
    return Error{"the rank's query heads need key/value heads that it does not have",
                 ErrorKind::kRefused};
  }
  return shape;
}

Result<ops::Mla> Evaluator::MlaShape(const Node& node) const {
  const ModelConfig& c = model_.config;
  ops::Mla shape;
  const auto heads = AxisIndices({Cut::kHeads, c.heads, 1}, 1, where_, node.tap);
  if (!heads) return heads.error();
  shape.heads = static_cast<int64_t>(heads->size());
  shape.nope = c.qk_nope;
  shape.rope = c.qk_rope;
  shape.v = c.v_dim;
  shape.lora = c.kv_lora;
  shape.scale = model_.softmax_scale;
  shape.first_position = step_.first_position;
  return shape;
}

Result<Evaluation> Evaluator::Attention(const Node& node, std::span<const Input> inputs) const {
  if (model_.config.is_mla()) {
    const auto shape = MlaShape(node);
    if (!shape) return shape.error();
    return node.op == Op::kScores ? ops::MlaScores(inputs[0], inputs[1], inputs[2], *shape, bounds_)
                                  : ops::MlaContext(inputs[0], inputs[1], *shape, Probs(), bounds_);
  }
  const auto shape = GqaShape();
  if (!shape) return shape.error();
  return node.op == Op::kScores ? ops::GqaScores(inputs[0], inputs[1], *shape, bounds_)
                                : ops::GqaContext(inputs[0], inputs[1], *shape, Probs(), bounds_);
}

Result<Tensor> Evaluator::AbsorbedScores(const Node& node, const Tensor& q_rot, const Tensor& k_rot,
                                         const Tensor& latent) const {
  const auto shape = MlaShape(node);
  if (!shape) return shape.error();
  const Node* kv_b = model_.FindNode(node.inputs[2]);
  auto weight = model_.weights->Rows(ParameterOf(*kv_b), where_, contract_, shard_);
  if (!weight) return weight.error();
  return ops::MlaAbsorbedScores(q_rot, k_rot, latent, &*weight, *shape);
}

Result<Tensor> Evaluator::AbsorbedContext(const Node& node, const Tensor& scores,
                                          const Tensor& latent) const {
  const auto shape = MlaShape(node);
  if (!shape) return shape.error();
  const Node* kv_b = model_.FindNode(node.inputs[1]);
  auto weight = model_.weights->Rows(ParameterOf(*kv_b), where_, contract_, shard_);
  if (!weight) return weight.error();
  return ops::MlaAbsorbedContext(scores, latent, &*weight, *shape, Probs());
}

ops::Routing Evaluator::RoutingOf() const {
  const ModelConfig& c = model_.config;
  return {c.top_k, c.groups, c.topk_group, c.norm_topk, c.routed_scaling};
}

Result<Evaluation> Evaluator::Router(const Node& node, std::span<const Input> inputs) const {
  if (node.op == Op::kRouterScores) return ops::RouterScores(inputs[0], bounds_);
  if (node.op == Op::kRouterWeights) {
    return ops::RouterWeights(inputs[0], *inputs[1].value, RoutingOf(), bounds_);
  }
  const auto bias = model_.weights->Vector(ParameterOf(node), "bias", where_, shard_);
  if (!bias) return bias.error();
  return ops::RouterIds(inputs[0], *bias, RoutingOf(), bounds_);
}

Evaluation Evaluator::Activation(const Node& node, std::span<const Input> inputs) const {
  const ModelConfig& c = model_.config;
  if (node.tanhs == 0) return ops::Activation(inputs[0], inputs[1], c.act_limit, bounds_);
  const ops::SituParameters parameters = {*c.situ_beta, c.situ_linear_beta, c.act_limit};
  return ops::Situ(inputs[0], inputs[1], parameters, bounds_);
}

Result<Evaluation> Evaluator::Reduce(std::span<const Input> inputs) const {
  Evaluation e = ops::Sum(inputs, bounds_);
  if (!contract_.reduce_exact) return e;
  std::vector<const Tensor*> parts;
  for (const Input& input : inputs) parts.push_back(input.value);
  auto modelled = ModelReduce(parts, "all_reduce", contract_.reduce_order, contract_.reduce_wire);
  if (!modelled) return modelled.error();
  e.modelled = std::move((*modelled)[0]);
  return e;
}

Result<Evaluation> Evaluator::Evaluate(const Node& node, std::span<const Input> inputs) const {
  if (const Status status = CheckContract(contract_); !status) return status.error();
  if (const Status status = CheckWhere(where_); !status) return status.error();
  if (model_.FindNode(node.tap) == nullptr) {
    return Error{fmt::format("tap \"{}\" is not one of this model", node.tap)};
  }
  if (const Status status = CheckInputs(node, inputs); !status) return status.error();
  switch (node.op) {
    case Op::kEmbed:
      return Embed(node);
    case Op::kRmsNorm:
    case Op::kHeadNorm:
      return Norm(node, inputs[0]);
    case Op::kLinear:
      return Linear(node, inputs);
    case Op::kRope:
      return Rope(node, inputs[0]);
    case Op::kScores:
    case Op::kContext:
      return Attention(node, inputs);
    case Op::kActivation:
      return Activation(node, inputs);
    case Op::kRouterScores:
    case Op::kRouterIds:
    case Op::kRouterWeights:
      return Router(node, inputs);
    case Op::kCombine:
      return ops::Combine(*inputs[0].value, inputs[1], inputs.subspan(2), model_.config.hidden,
                          bounds_);
    case Op::kReduce:
      return Reduce(inputs);
    case Op::kAdd:
      break;
  }
  Evaluation e = ops::Sum(inputs, bounds_);
  if (bounds_) {
    // One addition: its rounding is of the sum, not of the terms.
    e.terms = 1;
    for (size_t i = 0; i < e.value.data.size(); ++i)
      e.magnitude.data[i] = std::fabs(e.value.data[i]);
  }
  return e;
}

}  // namespace assay::reference
