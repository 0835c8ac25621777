// Helpers of the graph builders: each adds one op, its parameter where it has one, and returns the
// tap's name. Conventions of names and classes are interfaces.md §4's.
#pragma once

#include <string>
#include <vector>

#include "reference/graph/graph.h"

namespace assay::reference {

class Builder {
 public:
  explicit Builder(const ModelConfig& config) : config_(config) {}

  // Everything added from here on belongs to this layer (-1: to none).
  void Layer(int64_t layer) { layer_ = layer; }

  std::string Embed();
  std::string Norm(const std::string& path, const std::string& input, const std::string& module,
                   int64_t width, double eps);
  // RMSNorm of each head by itself.
  std::string HeadNorm(const std::string& path, const std::string& input, const std::string& module,
                       Axis columns, int64_t head_dim);
  // y = x Wᵀ + b with columns cut as `rows` says (kWhole: replicated).
  std::string Linear(const std::string& path, std::vector<std::string> inputs,
                     const std::string& module, Axis rows, int64_t k, bool bias,
                     int64_t expert = -1);
  // Row parallel: the contraction is cut as `columns` says; gives partial sums.
  std::string Partial(const std::string& path, const std::string& input, const std::string& module,
                      int64_t n, Axis columns, bool bias, const std::string& weight = "",
                      int64_t expert = -1);
  // An op without parameters.
  std::string Plain(const std::string& path, const std::string& op_class, Op op,
                    std::vector<std::string> inputs, Axis columns, int64_t expert = -1);
  std::string Reduce(const std::string& path, const std::string& partial);
  std::string Add(const std::string& path, const std::string& a, const std::string& b);
  // gate, up, act, down of one MLP whose paths and modules begin with these.
  std::string Mlp(const std::string& path, const std::string& module,
                  const std::vector<std::string>& inputs, int64_t intermediate, bool bias,
                  int64_t expert = -1);
  // Final norm and logits.
  void Head(const std::string& residual);

  // The layer's attention inputs and the residual addition around them are the family's; the dense
  // MLP with its norm and residual is common.
  std::string DenseMlp(const std::string& residual);

  Parameter& LastParameter() { return graph_.parameters.back(); }
  NodeFacts& LastFacts() { return graph_.facts.back(); }
  Node& LastNode() { return graph_.nodes.back(); }
  // Adds a parameter that is a bias alone and gives it to the last node.
  void BiasOnly(const std::string& name, const std::string& source, int64_t width);

  Graph Take() { return std::move(graph_); }

 private:
  std::string Tap(const std::string& path) const;
  // A module's name in the checkpoint, given as Hugging Face has it within its layer.
  std::string Source(const std::string& module) const;
  std::string Push(Node node, NodeFacts facts);
  int64_t Push(Parameter parameter);

  const ModelConfig& config_;
  int64_t layer_ = -1;
  Graph graph_;
};

}  // namespace assay::reference
