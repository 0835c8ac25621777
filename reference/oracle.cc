#include "reference/oracle.h"

#include "reference/model.h"

namespace assay::reference {
namespace {

class ModelOracle : public Oracle {
 public:
  explicit ModelOracle(std::unique_ptr<Model> model) : model_(std::move(model)) {}

  const std::vector<Node>& graph() const override { return model_->graph.nodes; }
  const Node* FindNode(std::string_view tap) const override { return model_->FindNode(tap); }
  Result<Trace> Run(const RunRequest& request, const Contract& contract) const override {
    if (const Status runs = model_->CheckRuns(); !runs) return runs.error();
    return RunChain(*model_, request, contract);
  }
  Result<Evaluation> Evaluate(const Node& node, std::span<const Input> inputs, const Where& where,
                              const Step& step, const Contract& contract,
                              const TensorSource* weights) const override {
    if (const Status runs = model_->CheckRuns(); !runs) return runs.error();
    return Evaluator(*model_, where, step, contract, weights, true, false).Evaluate(node, inputs);
  }
  Result<std::vector<int64_t>> TapColumns(const Node& node, const Where& where) const override {
    return model_->Columns(node, where);
  }
  std::vector<std::string> Components(int64_t layer) const override {
    return model_->weights->Components(layer);
  }
  Result<Slice> ExpectedSlice(std::string_view component, const Where& where) const override {
    return model_->weights->ExpectedSlice(component, where);
  }
  Result<std::string> SourceName(std::string_view component) const override {
    return model_->weights->SourceName(component);
  }
  bool runs() const override { return model_->graph.runs; }
  Result<std::string> MethodOf(std::string_view parameter) const override {
    return model_->weights->MethodOf(parameter);
  }
  std::vector<UnusedTensor> Unused() const override { return model_->weights->Unused(); }

 private:
  std::unique_ptr<Model> model_;
};

}  // namespace

Result<std::unique_ptr<Oracle>> Oracle::Create(const ModelConfig& config,
                                               const TensorSource& source) {
  auto model = Model::Create(config, source);
  if (!model) return model.error();
  return std::unique_ptr<Oracle>(std::make_unique<ModelOracle>(std::move(*model)));
}

}  // namespace assay::reference
