// What the evaluator and the chain share: the graph, the weights, and numbers derived from config.
#pragma once

#include <memory>
#include <span>

#include "reference/graph/graph.h"
#include "reference/ops/ops.h"
#include "reference/weights.h"

namespace assay::reference {

struct Model {
  ModelConfig config;
  Graph graph;
  std::unique_ptr<WeightStore> weights;
  ops::RopeTable rope;
  double softmax_scale = 1;

  static Result<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                               const TensorSource& source);
  const Node* FindNode(std::string_view tap) const;
  const NodeFacts& FactsOf(const Node& node) const;
  // Error kUnsupported: only the family's parameters are known.
  Status CheckRuns() const;
  // Logical columns of a tap that a rank has (scores: heads).
  Result<std::vector<int64_t>> Columns(const Node& node, const Where& where) const;
};

// What scores are multiplied by: d^-1/2, for DeepSeek's YaRN times m(mscale_all_dim)².
double SoftmaxScale(const ModelConfig& config);

// Evaluates single ops under one contract, for one rank and one step.
class Evaluator {
 public:
  // `shard` may be null. `bounds`: magnitudes, propagated errors and the like too. `chain`: round
  // what is inside an op as the contract says (probabilities); a local check leaves that to the
  // judge's bound.
  Evaluator(const Model& model, const Where& where, const Step& step, const Contract& contract,
            const TensorSource* shard, bool bounds, bool chain)
      : model_(model),
        where_(where),
        step_(step),
        contract_(contract),
        shard_(shard),
        bounds_(bounds),
        chain_(chain) {}

  // Error kBadInput: an input is missing or has another shape than the rank's; kUnsupported: the
  // contract asks for something that is not modelled.
  Result<Evaluation> Evaluate(const Node& node, std::span<const Input> inputs) const;

  // The absorbed form of latent attention; `latent` is kv_a_norm for all keys.
  Result<Tensor> AbsorbedScores(const Node& node, const Tensor& q_rot, const Tensor& k_rot,
                                const Tensor& latent) const;
  Result<Tensor> AbsorbedContext(const Node& node, const Tensor& scores,
                                 const Tensor& latent) const;

 private:
  Status CheckInputs(const Node& node, std::span<const Input> inputs) const;
  Status CheckIds(const Tensor& ids) const;
  Result<int64_t> Width(const Node& node) const;
  Result<Evaluation> Embed(const Node& node) const;
  Result<Evaluation> Linear(const Node& node, std::span<const Input> inputs) const;
  Evaluation Activation(const Node& node, std::span<const Input> inputs) const;
  Result<Evaluation> Reduce(std::span<const Input> inputs) const;
  Result<Evaluation> Norm(const Node& node, const Input& x) const;
  Result<Evaluation> Rope(const Node& node, const Input& x) const;
  Result<Evaluation> Attention(const Node& node, std::span<const Input> inputs) const;
  Result<Evaluation> Router(const Node& node, std::span<const Input> inputs) const;
  Result<ops::Gqa> GqaShape() const;
  Result<ops::Mla> MlaShape(const Node& node) const;
  ops::Routing RoutingOf() const;
  const Parameter& ParameterOf(const Node& node) const;
  DType Probs() const { return chain_ ? contract_.probs : DType::kF64; }

  const Model& model_;
  const Where& where_;
  const Step& step_;
  const Contract& contract_;
  const TensorSource* shard_;
  bool bounds_, chain_;
};

// The chain (run.cc).
Result<Trace> RunChain(const Model& model, const RunRequest& request, const Contract& contract);

}  // namespace assay::reference
