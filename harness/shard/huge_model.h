// Kimi-K3 as released, in names, types and shapes alone (models.md): what a plan of its size costs.
// For this room's tests.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::shard {

// Tensors with headers and no bytes behind them: their bytes lie in memory that may not be read.
class HeaderSource : public TensorSource {
 public:
  HeaderSource();
  ~HeaderSource() override;
  HeaderSource(const HeaderSource&) = delete;
  HeaderSource& operator=(const HeaderSource&) = delete;
  void Put(std::string name, DType dtype, std::vector<int64_t> shape);
  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;
  // The order in which they were put: a file's.
  const std::vector<const TensorView*>& views() const { return order_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  std::unordered_map<std::string, TensorView, Hash, std::equal_to<>> tensors_;
  std::vector<const TensorView*> order_;
  std::byte* nothing_ = nullptr;
};

enum class HugeMethod {
  kMxfp4,          // compressed-tensors
  kModelSlimW4a8,  // one scale a row
};
// 93 layers, 896 experts; `layers` fewer for a part of it.
ModelConfig HugeConfig(HugeMethod method, int64_t layers = 93);
void PutHugeModel(const ModelConfig& config, HugeMethod method, HeaderSource* source);
// The description that ModelSlim writes beside it.
void Describe(const HeaderSource& source, ModelConfig* config);

}  // namespace assay::shard
