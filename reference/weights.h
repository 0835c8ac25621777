// The parameters of a model, decoded when needed: whole checkpoint or one rank's part of it, or a
// shard that somebody else loaded. Small matrices are kept decoded within a fixed budget; large
// ones are decoded row by row, every time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "reference/finders.h"
#include "reference/graph/graph.h"
#include "reference/methods/method.h"

namespace assay::reference {

// Rows of a matrix as one rank has them, in double.
class WeightRows {
 public:
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Whether values are codes times scales: 8-bit activations are used with these only.
  bool quantised() const { return decoder_->quantised(); }

  // Memory of one reader; threads have one each.
  struct Scratch {
    std::vector<double> whole, row, minima;
  };
  // Valid until the scratch is used again. Padding rows are zeros.
  const double* Row(int64_t local, Scratch* scratch) const;
  const double* Row(int64_t local) { return Row(local, &scratch_); }
  // The row's stored minima, terms of their own beside w − m; nullptr where the method has none or
  // the contract adds them to the weight before the product. Valid as Row's, and beside it.
  const double* Minima(int64_t local, Scratch* scratch) const;

 private:
  friend class WeightStore;
  // The rank's columns of a whole row.
  void Cut(const double* whole, std::vector<double>* row) const;

  std::shared_ptr<const Decoder> decoder_;
  std::shared_ptr<const std::vector<double>> decoded_;  // the whole matrix, if kept
  std::vector<std::unique_ptr<TensorView>> views_;      // of a foreign shard
  bool whole_ = true;                                   // local is global
  bool contiguous_ = false;                             // the rank's columns stand side by side
  std::vector<int64_t> row_list_, column_list_;
  int64_t rows_ = 0, columns_ = 0;
  DType dequant_ = DType::kF64;
  bool daz_ = false;
  Scratch scratch_;
};

// GPTQ's packers write a bias of zeros for every linear, whether the model has one or not.
bool IsBiasOfZeros(const TensorSource& source, std::string_view name);

class WeightStore {
 public:
  // All three must outlive the store.
  WeightStore(const ModelConfig& config, const Graph& graph, const TensorSource& source);

  // Every tensor that the graph needs is there with the shape that the config demands, as far as
  // headers tell: no data is read. A layer of which the source has no tensor at all is allowed: a
  // cell may need one layer only; using it is an error then.
  Status Check();

  // The matrix of a parameter as `where` has it; from `shard` (components under Assay's names) if
  // that is given and has it.
  // Error kRefused: the rank does not hold the parameter's expert.
  Result<WeightRows> Rows(const Parameter& parameter, const Where& where, const Contract& contract,
                          const TensorSource* shard) const;
  // A norm's weight ("weight") or a bias ("bias"), decoded, as `where` has it.
  Result<std::vector<double>> Vector(const Parameter& parameter, std::string_view suffix,
                                     const Where& where, const TensorSource* shard) const;

  std::vector<std::string> Components(int64_t layer) const;
  Result<Slice> ExpectedSlice(std::string_view component, const Where& where) const;
  Result<std::string> SourceName(std::string_view component) const;
  Result<std::string> MethodOf(std::string_view parameter) const;
  std::vector<UnusedTensor> Unused() const;

  // Elements of one unit of a split by ceil or list: the coarsest unit in which gate, up and down
  // of this MLP are stored along its intermediate axis. 1 for every other split.
  Result<int64_t> SplitUnit(const std::string& mlp, const Where& where) const;

 private:
  // A stored tensor of a parameter and where it lies; the part's view is the whole tensor.
  struct Stored {
    StoredPart part;
    Grid grid;
  };
  // "L1.moe.e5.down.scale" -> parameter and suffix.
  struct Component {
    const Parameter* parameter = nullptr;
    std::string suffix;
  };
  // Error: unknown component.
  Result<Component> Find(std::string_view component) const;
  // For its values.
  Result<std::shared_ptr<const Decoder>> Open(const Parameter& parameter) const;
  // For its parts and their shapes: no data is read, so all of a large checkpoint may be asked.
  Result<std::shared_ptr<const Decoder>> OpenHeaders(const Parameter& parameter) const;
  Result<std::shared_ptr<const Decoder>> OpenParts(const Parameter& parameter, bool headers) const;
  // All of a parameter's, the bias last.
  Result<std::vector<Stored>> StoredOf(const Parameter& parameter) const;
  Result<Stored> StoredExact(const Parameter& parameter) const;
  Result<Stored> Bias(const Parameter& parameter) const;
  Result<WeightRows> ShardRows(const Parameter& parameter, const Where& where, const Decoder& whole,
                               const TensorSource& shard) const;
  std::shared_ptr<const std::vector<double>> Decoded(const Parameter& parameter,
                                                     const Decoder& decoder) const;
  Result<Slice> LegalSlice(const Component& component, const Where& where, Grid* grid) const;
  Result<Slice> SliceOf(const Parameter& parameter, const Stored& stored, const Where& where) const;
  Result<std::vector<int64_t>> Indices(const Parameter& parameter, const Axis& axis,
                                       const Where& where, const std::string& what) const;
  Status CheckParameter(const Parameter& parameter, const std::set<std::string>& biases) const;
  bool Present(const Parameter& parameter) const;
  // The quantisation of the parameter's module, with what a description file says of its tensors.
  QuantConfig SchemeOf(const Parameter& parameter) const;

  const ModelConfig& config_;
  const Graph& graph_;
  const TensorSource& source_;
  QuantConfig quant_;  // the config's, without the description of every tensor of the file
  mutable std::mutex mutex_;
  mutable std::unordered_map<const Parameter*, std::shared_ptr<const std::vector<double>>> cache_;
  mutable int64_t cached_ = 0;  // doubles
};

}  // namespace assay::reference
