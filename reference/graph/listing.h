// Parameters without ops: what the builders of families use whose ops the oracle does not know.
// Names within a layer are interfaces.md §4's; names in the file are chosen from those that a
// family's files are known to have, by which are there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "reference/graph/graph.h"

namespace assay::reference {

class Listing {
 public:
  Listing(const ModelConfig& config, const TensorSource& source)
      : config_(config), source_(source), names_(source.Names()) {}

  // Everything added from here on belongs to this layer (-1: to none).
  void Layer(int64_t layer) { layer_ = layer; }

  // The full name of a module of this layer, or of none.
  std::string Full(std::string_view module) const;
  // The first of `modules` of which the file has any tensor; the first of all where it has none.
  std::string Choose(const std::vector<std::string>& modules) const;
  // Whether the file has a tensor of this module of the layer, or the module is one.
  bool Has(std::string_view module) const;

  // Each adds one parameter and returns it. A vector's tensor is `module`.weight.
  Parameter& Vector(const std::string& path, const std::string& module, int64_t width);
  Parameter& Matrix(const std::string& path, const std::string& module, Axis rows, Axis columns,
                    bool bias = false);
  // The tensor `name` itself, of plain values in any shape: [rows, columns] of them.
  Parameter& Exact(const std::string& path, const std::string& name, Axis rows, Axis columns);
  // As many as there are: rows by the first extent. Nothing is added where there is none.
  void ExactWhole(const std::string& path, const std::string& name);
  // The router's correction bias, the first of these names that is there.
  void CorrectionBias(const std::vector<std::string>& names);

  void Embed(const std::string& module);
  void Head(const std::string& module);
  // gate, up and down of a dense or shared MLP, under the first naming that is there.
  void Mlp(const std::string& path, const std::string& module, int64_t intermediate, bool bias);
  // The routed experts below `module`, each a tensor or all in one.
  void Experts(const std::string& module, bool bias);
  // q, k, v, their norms, o.
  void GroupedAttention(const std::string& module);

  Axis Whole(int64_t extent) const { return {Cut::kWhole, extent, 1}; }
  const ModelConfig& config() const { return config_; }
  const TensorSource& source() const { return source_; }
  Graph Take();

 private:
  std::string Path(const std::string& path) const;
  // Of an MLP's three matrices: the names that the module has.
  struct MlpNames {
    std::string gate, up, down;
  };
  MlpNames NamesOf(const std::string& module) const;
  // Gate and up in one stem, and down's; empty if experts are stored one by one.
  MlpNames FusedStems(const std::string& module) const;
  Parameter& Push(Parameter parameter);
  bool FullHas(const std::string& full) const;

  const ModelConfig& config_;
  const TensorSource& source_;
  const std::vector<std::string> names_;  // sorted
  int64_t layer_ = -1;
  Graph graph_;
};

}  // namespace assay::reference
